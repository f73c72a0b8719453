"""start_encoder.py: the folder of the model that trainings start from, whatever its format was."""

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
from fairseq.data import Dictionary
from transformers import AutoTokenizer

from diet_fairseq.errors import UserError
from diet_fairseq.translate.loading import read_checkpoint
from diet_fairseq.translate.model_files import resolve_model
from tests.hf.conftest import export, take_back
from tests.support import hugging, originals

LINE = "The quick brown fox jumps over the lazy dog"
#: options of a BERT's shape
SHAPE = "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 24"


def start(script, monkeypatch, folder: Path, out: Path) -> Path:
    """The folder that the script writes."""
    monkeypatch.setattr(sys, "argv", ["start_encoder.py", str(folder), str(out)])
    script("start_encoder").main()
    return out


def encode(folder: Path) -> str:
    """A line in the subwords that the files in the folder describe."""
    description = resolve_model(folder / "model.pt", translates=False)
    return " ".join(description.tokenizers[0].encode(LINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [originals.bert, originals.distilbert, originals.xlm_roberta, originals.roberta],
)
def test_every_format_of_a_model_gives_the_same_start(function, script, tmp_path, monkeypatch):
    folder = function(tmp_path / "folder")
    first = start(script, monkeypatch, folder, tmp_path / "first")
    take_back(folder, tmp_path / "import")
    data, [subwords] = first / "data-bin", [p for p in (first / "subwords").iterdir()
                                            if p.name != "encoder.json"]  # fmt: skip
    export(first / "model.pt", tmp_path / "hf", "--data", data, "--subwords", subwords)
    run = tmp_path / "out" / "runs" / "run"
    run.mkdir(parents=True)
    shutil.copyfile(first / "model.pt", run / "checkpoint_last.pt")
    for name in ("data-bin", "subwords"):
        shutil.copytree(first / name, tmp_path / "out" / name)
    tokens = encode(first)
    assert len(tokens.split()) > 8
    dictionary = Dictionary.load(str(data / "dict.txt"))
    ids = AutoTokenizer.from_pretrained(tmp_path / "hf")(LINE)["input_ids"]
    assert ids[1:-1] == [dictionary.index(token) for token in tokens.split()]
    for source in ("import", "hf", "out/runs/run", "out/runs/run/checkpoint_last.pt"):
        other = start(script, monkeypatch, tmp_path / source, tmp_path / "others" / source)
        assert encode(other) == tokens
        assert (other / "data-bin" / "dict.txt").read_text() == (data / "dict.txt").read_text()
        for name in ("options-start.txt", "options-swap.txt"):
            assert (other / name).read_text() == (first / name).read_text()
        assert not (other / "new-head").exists()


def test_the_subwords_are_of_the_model_not_of_a_training_beside_it(script, tmp_path, monkeypatch):
    folder = originals.bert(tmp_path / "folder")
    take_back(folder, tmp_path / "import")
    (tmp_path / "subwords").mkdir()
    (tmp_path / "subwords" / "codes").write_text("#version: 0.2\nt h\n")
    out = start(script, monkeypatch, tmp_path / "import", tmp_path / "out")
    pieces = AutoTokenizer.from_pretrained(folder).tokenize(LINE)
    assert encode(out) == " ".join(pieces).replace("[UNK]", "<unk>")


def test_a_bert_keeps_its_shape_and_another_scheme_gets_no_positions(script, tmp_path, monkeypatch):
    out = start(script, monkeypatch, originals.bert(tmp_path / "folder"), tmp_path / "out")
    same, swap = ((out / f"options-{name}.txt").read_text() for name in ("start", "swap"))
    assert same.startswith(f"--arch bert_learned {SHAPE} ")
    assert swap.startswith(f"--arch bert_SCHEME {SHAPE} ")
    assert "--position-input learned" in same
    assert "--position" not in swap
    for text in (same, swap):
        assert "--segment-scheme input --num-segments 2" in text
        assert "--nsp" not in text  # masked language modelling trains no such head


def test_a_start_without_a_head_is_named_and_gets_one(script, tmp_path, monkeypatch, capsys):
    folder = originals.bert(tmp_path / "folder", "Model")
    out = start(script, monkeypatch, folder, tmp_path / "out")
    text = f"\nwarning: {folder} has no trained head for masked words: continued pretraining trains"
    assert text in capsys.readouterr().out
    assert (out / "new-head").exists()
    assert read_checkpoint(out / "model.pt")["cfg"]["model"].no_lm_head
    for name in ("start", "swap"):
        assert "--no-lm-head" not in (out / f"options-{name}.txt").read_text()


def test_a_model_without_subwords_or_of_another_class_is_refused(script, tmp_path, monkeypatch):
    for arch, message in (
        ("bert_diet_rel", "no subword model was found"),
        ("electra_diet_rel", "must be a model of --arch bert_SCHEME or roberta_SCHEME, but .* is of"
         " --arch electra_diet_rel: name another model"),
    ):  # fmt: skip
        folder = tmp_path / arch
        checkpoint = hugging.checkpoint(folder, arch, task="masked_lm")
        if arch == "bert_diet_rel":
            shutil.rmtree(folder / "subwords")
        with pytest.raises(UserError, match=message):
            start(script, monkeypatch, checkpoint, folder / "out")
        assert not (folder / "out").exists()
