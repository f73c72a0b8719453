"""A user's mistakes with `export hf` and `import hf` end in one line, and nothing is written."""

import json
import shutil

import pytest
import torch

from diet_fairseq.errors import UserError
from tests.hf.conftest import export, take_back
from tests.support import hugging
from tests.support.checkpoints import Touch


def refused(call, *words):
    with pytest.raises(UserError) as error:
        call(*words)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("call", [export, take_back])
def test_a_folder_that_exists_stays_as_it_is(call, translation, translation_folder, tmp_path):
    (tmp_path / "out").mkdir()
    source = translation if call is export else translation_folder
    assert "already exists: remove it, or give another" in refused(call, source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_hostile_checkpoint_runs_nothing(translation, tmp_path):
    state = torch.load(translation, weights_only=False)
    torch.save({**state, "more": Touch(tmp_path / "touched")}, tmp_path / "hostile.pt")
    words = ("--data", translation.parent / "data-bin")
    assert "is refused" in refused(export, tmp_path / "hostile.pt", tmp_path / "out", *words)
    assert {path.name for path in tmp_path.iterdir()} == {"hostile.pt"}


def test_subwords_of_another_vocabulary_are_refused(translation, tmp_path):
    (tmp_path / "other.model").write_bytes(hugging.subword_model(1))
    words = ("--subwords", tmp_path / "other.model")
    text = refused(export, translation, tmp_path / "out", *words)
    assert "other.model don't belong together: " in text
    assert not (tmp_path / "out").exists()
    (tmp_path / "codes").write_text("#version: 0.2\nd o\n")
    text = refused(export, translation, tmp_path / "out", "--subwords", tmp_path / "codes")
    assert "codes don't belong together: " in text


def test_missing_subwords_are_named_and_can_be_done_without(translation, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(translation.parent / "data-bin", data)
    words = (translation, tmp_path / "out", "--data", data)
    assert "--subwords none" in refused(export, *words)
    assert "can't be read" in refused(export, *words, "--subwords", tmp_path / "nothing.model")
    (tmp_path / "broken.model").write_bytes(b"\nothing")
    words += ("--subwords",)
    assert "is not a SentencePiece model" in refused(export, *words, tmp_path / "broken.model")
    export(*words, "none")
    assert not (tmp_path / "out" / "tokenizer_config.json").exists()
    take_back(tmp_path / "out", tmp_path / "back")
    before, after = (
        torch.load(path, weights_only=False)["model"]
        for path in (translation, tmp_path / "back" / "model.pt")
    )
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_another_dictionary_is_refused(translation, tmp_path):
    shutil.copytree(translation.parent, tmp_path / "copy")
    for path in (tmp_path / "copy" / "data-bin").glob("dict.*"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    words = ("--data", tmp_path / "copy" / "data-bin")
    assert "holds a model that can't be built (RuntimeError: " in refused(
        export, translation, tmp_path / "out", *words
    )
    assert "give --data" in refused(
        export, translation, tmp_path / "out", "--data", tmp_path / "nowhere"
    )


def test_a_missing_dictionary_is_named(encoder, tmp_path):
    (tmp_path / "data").mkdir()
    assert refused(export, encoder, tmp_path / "out", "--data", tmp_path / "data") == (
        f"the dictionary {tmp_path / 'data' / 'dict.txt'} does not exist: give --data, the "
        "folder that fairseq-preprocess wrote for this model"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "config.json can't be read: No such file"),
        ("{", "config.json is not valid JSON"),
        ("[]", "is of the model type None, but import hf reads diet_encoder, "),
        ('{"model_type": "gpt2"}', "is of the model type gpt2, but import hf reads diet_encoder, "),
        ('{"model_type": "diet_encoder", "position_scheme": "odd"}', "--position-scheme must be"),
        ('{"model_type": "diet_encoder", "vocab_size": "x"}', "config.json is not valid"),
        ('{"model_type": "diet_encoder"}', "holds no model.safetensors"),
    ],
)
def test_a_folder_that_is_not_ours_is_not_imported(content, says, tmp_path):
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    (tmp_path / "folder").mkdir()
    if content is not None:
        (tmp_path / "folder" / "config.json").write_text(content)
    assert says in refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"encoder_layers": -1}, "encoder_layers must be from 0 to 16,384, but is -1"),
        ({"encoder_layers": 10**8}, "encoder_layers must be from 0 to 16,384, but is 100000000"),
        ({"encoder_layers": 10**4}, "more parameters than the file contains"),
        ({"max_source_positions": 10**9}, "max_source_positions must be from 0 to 1,048,576, but"),
        ({"max_source_positions": 10**6}, "the folder's files don't belong together"),
        ({"position_options": {"position_clip": 10**9}}, "position_clip must be from 0 to 65,536"),
        ({"encoder_ffn_embed_dim": 24}, "the folder's files don't belong together"),
        ({"activation_fn": "mish"}, "mish has no counterpart in fairseq"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(change, says, translation_folder, tmp_path):
    shutil.copytree(translation_folder, tmp_path / "folder")
    config = tmp_path / "folder" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    assert says in refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "text"), [("{", "valid JSON ("), ("[]", "a JSON object:"), ("7", "a JSON object:")]
)
def test_a_tokenizer_s_configuration_that_is_no_object_is_refused(
    content, text, translation_folder, tmp_path
):
    shutil.copytree(translation_folder, tmp_path / "folder")
    (tmp_path / "folder" / "tokenizer_config.json").write_text(content)
    refusal = refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert refusal.startswith(f"{tmp_path / 'folder' / 'tokenizer_config.json'} is not {text}")
    assert refusal.endswith(": give another folder")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"word\n", "is not a dictionary (ValueError: Incorrect dictionary format"),
        (b"\xff 1\n", "is not a dictionary (Exception: Incorrect encoding detected"),
        (b"word 1\nword 1\n", "is not a dictionary (RuntimeError: Duplicate word found"),
    ],
)
def test_a_damaged_dictionary_is_refused(content, says, translation_folder, tmp_path):
    shutil.copytree(translation_folder, tmp_path / "folder")
    (tmp_path / "folder" / "dict.txt").write_bytes(content)
    assert says in refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"folder"}


def test_damaged_weights_are_refused(translation_folder, tmp_path):
    shutil.copytree(translation_folder, tmp_path / "folder")
    weights = tmp_path / "folder" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    assert "cut off or damaged" in refused(take_back, tmp_path / "folder", tmp_path / "out")
    (tmp_path / "folder" / "dict.txt").unlink()
    weights.write_bytes((translation_folder / "model.safetensors").read_bytes())
    assert "holds no dict.txt" in refused(take_back, tmp_path / "folder", tmp_path / "out")
