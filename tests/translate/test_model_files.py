"""A model is resolved with its files; those that are missing or do not belong to it are named."""

import pytest
import torch

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions, resolve_model
from diet_fairseq.translate.model_json import ModelDescription
from diet_fairseq.translate.translator import load_engine
from tests.support import published
from tests.support.texts import sentences
from tests.support.translating import untrained, words_only

NOTHING = ModelOptions()


def save(path, task):
    """A checkpoint without parameters, of a run with these options of the task."""
    history = [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    extra = {"epoch": 1, "train_iterator": {"epoch": 1}}
    cfg = {"task": task, "model": {"_name": ""}}
    torch.save({"model": {}, "cfg": cfg, "optimizer_history": history, "extra_state": extra}, path)


def refusal(model, pieces=NOTHING):
    with pytest.raises(UserError) as error:
        resolve_model(model, pieces)
    return str(error.value)


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint that names its languages, with no file beside it."""
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de"}
    save(tmp_path / "model.pt", task)
    (tmp_path / "data").mkdir()
    for language in ("en", "de"):
        (tmp_path / "data" / f"dict.{language}.txt").touch()
    return tmp_path / "model.pt"


def test_a_checkpoint_of_a_run_takes_its_model_json(tmp_path):
    folder = words_only(tmp_path, beam=7)
    best = tmp_path / "checkpoint_best.pt"
    best.touch()
    assert resolve_model(folder).checkpoint == tmp_path / "checkpoint_last.pt"
    assert resolve_model(best).checkpoint == best
    assert resolve_model(best).beam == 7


def test_a_checkpoint_alone_takes_the_given_files(checkpoint):
    folder = checkpoint.parent
    codes = folder / "codes"
    codes.write_text("#version: 0.2\na b</w>\n")
    description = resolve_model(checkpoint, ModelOptions(folder / "data", codes, "moses"))
    assert description == ModelDescription(
        "fairseq", "en", "de", folder, checkpoint, folder / "data", "subword_nmt", codes, "moses"
    )
    (folder / "spm").write_bytes(b"\x0a\0")
    assert (
        resolve_model(checkpoint, ModelOptions(folder / "data", folder / "spm")).subwords
        == "sentencepiece"
    )


def test_an_empty_list_of_models_is_refused():
    with pytest.raises(UserError, match="model must be a path or a list of paths, but is an empty"):
        Translator([])


def test_missing_files_and_languages_are_named(checkpoint):
    folder = checkpoint.parent
    data = ModelOptions(folder / "data")
    assert refusal(folder / "nosuch") == f"the model {folder}/nosuch does not exist: check the path"
    assert refusal(folder).startswith(f"{folder} has no model.json: name a folder that ")
    assert refusal(checkpoint).startswith(
        f"{checkpoint} has no model.json beside it: give --data, the folder of fairseq-preprocess"
    )
    assert refusal(checkpoint, ModelOptions(folder)).startswith(
        f"the dictionary {folder / 'dict.en.txt'} does not exist: give --data, the folder"
    )
    assert refusal(checkpoint, ModelOptions(folder / "data", target_lang="a/b")) == (
        "--target-lang must be a language's code such as en, but is a/b"
    )
    assert refusal(checkpoint, ModelOptions(folder / "data", folder / "nosuch")).startswith(
        f"{folder / 'nosuch'} can't be read: No such file"
    )
    save(checkpoint, {"_name": "translation"})
    assert (
        refusal(checkpoint, data) == f"{checkpoint} does not name its languages: give --source-lang"
    )


def test_a_model_for_transformers_is_refused(tmp_path):
    description = ModelDescription("transformers", "en", "de", tmp_path)
    with pytest.raises(
        UserError,
        match=r"is a model for transformers, which can.t be used here: load it with transformers",
    ):
        load_engine([description])


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"lower": 1, "language": "en"}', '{"lower": true, "language": "../en"}'],
)
def test_wrong_text_options_of_an_encoder_are_refused(tmp_path, content):
    save(tmp_path / "model.pt", {"_name": "masked_lm"})
    (tmp_path / "dict.txt").write_text("a 1\n")
    assert (
        resolve_model(tmp_path / "model.pt", ModelOptions(tmp_path), translates=False).lower
        is False
    )
    (tmp_path / "made-from.json").write_text(content)
    with pytest.raises(UserError) as error:
        resolve_model(tmp_path / "model.pt", ModelOptions(tmp_path), translates=False)
    assert str(error.value).startswith(str(tmp_path / "made-from.json"))
    assert str(error.value).endswith(" prepare the data again, or give another folder by --data")


def test_a_checkpoint_is_read_once_for_each_command(tmp_path, monkeypatch, capsys):
    """It is read once also where only the checkpoint names its languages."""
    folder, reads = untrained(tmp_path / "run", "--arch", "transformer_t5_tiny"), []
    load = torch.load
    monkeypatch.setattr(
        torch, "load", lambda *args, **keywords: reads.append(1) or load(*args, **keywords)
    )
    (folder / "model.json").unlink()
    options = [f"--data={folder}", f"--subwords={folder / 'sentencepiece.model'}"]
    (tmp_path / "text").write_text("ban\n")
    for words in (
        ["translate", str(folder / "checkpoint_last.pt"), str(tmp_path / "text"), *options],
        [
            "export",
            "ctranslate2",
            str(folder / "checkpoint_last.pt"),
            str(tmp_path / "a"),
            *options,
        ],
        ["export", "hf", str(folder / "checkpoint_last.pt"), str(tmp_path / "b"), *options],
    ):
        reads.clear()
        assert main(words) == 0
        assert len(reads) == 1


def test_data_and_subwords_of_a_workflow_are_known_by_their_places(tmp_path):
    checkpoint = tmp_path / "runs" / "one" / "model.pt"
    checkpoint.parent.mkdir(parents=True)
    named = {"source_lang": "en", "target_lang": "de", "data": str(tmp_path / "named")}
    save(checkpoint, named)
    for folder in ("named", "data-bin", "subwords"):
        (tmp_path / folder).mkdir()
    for folder in ("named", "data-bin"):
        for language in ("en", "de"):
            (tmp_path / folder / f"dict.{language}.txt").write_text("ab@@ 3\n")
    assert refusal(checkpoint) == (
        f"{tmp_path / 'data-bin' / 'dict.en.txt'} contains subwords (such as ab@@), but no "
        "subword model was found beside it: name one with --subwords, or give --subwords none to "
        "split nothing"
    )
    assert resolve_model(checkpoint, ModelOptions(subwords=NO_SUBWORDS)).subwords == "none"
    codes = tmp_path / "subwords" / "codes"
    codes.write_text("#version: 0.2\na b\n")
    description = resolve_model(checkpoint)
    assert (description.data, description.subword_model) == (tmp_path / "data-bin", codes)
    assert (description.subwords, description.preprocessing) == ("subword_nmt", "moses")


@pytest.mark.slow
def test_a_model_of_wmt19_is_translated_with_its_fastbpe_codes(tmp_path):
    model = published.wmt19(tmp_path)
    options = {"data": model.folder, "tokenizer": "moses"}
    texts = sentences(4, seed=5)
    outputs = Translator(model.checkpoint, subwords=model.subwords, **options).translate(texts)
    codes = tmp_path / "codes"  # of subword-nmt, with the same merges
    merges = [line.rpartition(" ")[0] for line in model.subwords.read_text().splitlines()]
    codes.write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    assert outputs == Translator(model.checkpoint, subwords=codes, **options).translate(texts)
    assert len(set(outputs)) > 1
    assert "@@" not in "".join(outputs)


def test_an_exported_model_has_its_own_languages_alone(tmp_path):
    ModelDescription("ctranslate2", "en", "de", tmp_path).write()
    assert resolve_model(tmp_path, ModelOptions(source_lang="en")).languages == ("en", "de")
    options = ModelOptions(source_lang="EN", target_lang="deu_Latn")
    assert resolve_model(tmp_path, options).languages == ("en", "de")
    assert refusal(tmp_path, ModelOptions(source_lang="fr")) == (
        f"{tmp_path}: --source-lang must be one of the model's languages, en, but is fr"
    )
    assert refusal(tmp_path, ModelOptions(target_lang="fr")) == (
        f"{tmp_path}: --target-lang must be a language that the model translates en to, de, but is "
        "fr"
    )
