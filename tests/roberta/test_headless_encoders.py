"""finetune.py with encoders without a head on GLUE: published, imported, or swapped ones."""

import gzip
import json
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
import transformers

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
from diet_fairseq.errors import UserError
from diet_fairseq.hf import swap_positions
from tests.hf.conftest import export, take_back
from tests.support import originals

pytestmark = pytest.mark.slow

#: task -> columns, rows, and measures
LINES = {
    "STS-B": (
        ("index", "sentence1", "sentence2", "score"),
        [("0", "a dog sleeps", "the dog sleeps", "4.600"), ("1", "a dog", "the hill", "0.250"),
         ("2", "the quick fox", "a fox", "3.000"), ("3", "ein hund", "a dog runs", "1.500")],
        {"pearson", "spearman"},
    ),
    "SST-2": (
        ("sentence", "label"),
        [("a lazy dog ", "0"), ("the quick brown fox ", "1"), ("lazy ", "0"),
         ("quick , brown ", "1")],
        {"accuracy"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "roberta", "imported", "swapped"])
def encoder(request, tmp_path_factory) -> Path:
    """An encoder of transformers; BERT as well imported and exported, or with swapped positions."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "roberta":
        return originals.roberta(folder / "original", head="Model")
    originals.sentence_transformer(folder / "original")
    if request.param == "bert":
        return folder / "original"
    if request.param == "imported":
        take_back(folder / "original", folder / "import")
        export(folder / "import" / "model.pt", folder / "hf")
        return folder / "hf"
    model = transformers.AutoModel.from_pretrained(folder / "original")
    swapped = swap_positions(model, "diet_rel", position_clip=8, max_positions=64)
    swapped.save_pretrained(folder / "swapped")
    transformers.AutoTokenizer.from_pretrained(folder / "original").save_pretrained(
        folder / "swapped"
    )
    return folder / "swapped"


def write_rows(folder: Path, name: str) -> None:
    """Write the files of a task in GLUE's layout."""
    columns, rows, _ = LINES[name]
    for part, number in (("train", len(columns)), ("dev", len(columns)), ("test", -1)):
        lines = ["\t".join(row[:number]) for row in (columns, *rows * 4)]
        (folder / f"{part}.tsv").write_text("".join(f"{line}\n" for line in lines))


def copy_rows(data: Path, folder: Path) -> None:
    """Copy the first lines of a task's published files; dev serves as test, too."""
    for part in ("train", "dev"):
        path = next(path for path in data.glob(f"{part}.tsv*"))
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            text = "".join(islice(file, 33))
        (folder / f"{part}.tsv").write_text(text, encoding="utf-8")
    (folder / "test.tsv").write_text(text, encoding="utf-8")


def check(script, encoder: Path, name: str, folder: Path, monkeypatch) -> None:
    """Run the commands of examples/roberta/README.md on ``folder`` and check their results."""
    finetune = script("finetune")

    def run(*words) -> None:
        monkeypatch.setattr(sys, "argv", ["finetune.py", *map(str, words)])
        finetune.main()

    rows = (folder / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    run("train", "--task", name, "--data", folder, "--model", encoder, "--out", folder / "run",
        "--epochs", 1, "--batch", 8, "--length", 32)  # fmt: skip
    result = json.loads((folder / "run" / "result.json").read_text())
    measures = LINES[name][2]
    assert {f"{name}_{measure}" for measure in measures} <= result["curve"][-1].keys()
    run("predict", folder / "run" / "model", "--data", folder, "--out", folder / "submission")
    lines = (folder / "submission" / f"{name}.tsv").read_text().splitlines()
    assert len(lines) == len(rows) + 1
    values = {line.split("\t")[1] for line in lines[1:]}
    if name == "STS-B":
        assert all(0 <= float(value) <= 5 for value in values)
    else:
        assert values <= {"0", "1"}
    config = json.loads((folder / "run" / "model" / "config.json").read_text())
    before = json.loads((encoder / "config.json").read_text())
    if before["model_type"] in ("bert", "roberta"):
        kind, same = before["model_type"].capitalize(), ("max_position_embeddings",)
    else:
        kind = "Diet"
        same = ("position_scheme", "position_options", "max_source_positions", "trained_length")
    assert config["architectures"][0].lower() == f"{kind}ForSequenceClassification".lower()
    assert {key: config[key] for key in same} == {key: before[key] for key in same}


@pytest.mark.parametrize("name", LINES)
def test_a_headless_encoder_is_fine_tuned(script, encoder, name, tmp_path, monkeypatch):
    write_rows(tmp_path, name)
    check(script, encoder, name, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", LINES)
def test_a_headless_encoder_is_fine_tuned_on_published_files(
    script, encoder, name, shared_data, tmp_path, monkeypatch
):
    copy_rows(shared_data / "glue" / name, tmp_path)
    check(script, encoder, name, tmp_path, monkeypatch)


def test_samples_longer_than_a_published_encoder_s_positions_are_refused(
    script, encoder, tmp_path, monkeypatch
):
    write_rows(tmp_path, "SST-2")
    config = json.loads((encoder / "config.json").read_text())
    positions = config.get("max_source_positions") or config["max_position_embeddings"]
    positions -= 2 * (config["model_type"] == "roberta")
    words = ["train", "--task", "SST-2", "--data", tmp_path, "--model", encoder, "--out",
             tmp_path / "run", "--length", positions + 1]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["finetune.py", *map(str, words)])
    with pytest.raises(UserError, match=f"must not exceed the {positions} positions of the model"):
        script("finetune").main()


@torch.no_grad()
def test_fine_tuning_starts_from_the_encoder_s_features(script, encoder):
    kind = transformers.AutoModelForSequenceClassification
    classifier, tokenizer = script("training").load(kind, encoder)
    inputs = tokenizer(["a dog sleeps", "the fox"], return_tensors="pt", padding=True)
    expected = transformers.AutoModel.from_pretrained(encoder).eval()(**inputs)
    actual = classifier.eval().base_model(**inputs)
    for name in expected.keys() & actual.keys():  # RoBERTa's classifier has no pooler
        torch.testing.assert_close(actual[name], expected[name], rtol=0, atol=0)
