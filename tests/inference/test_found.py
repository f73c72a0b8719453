"""A model is found with what belongs to it; what is missing or does not belong is named."""

import pytest
import torch

from diet_fairseq.errors import UserError
from diet_fairseq.inference import engine
from diet_fairseq.inference.found import NONE, Pieces, find
from diet_fairseq.model_json import ModelDescription
from tests.support.translating import words_only

NOTHING = Pieces()


def refusal(model, pieces=NOTHING):
    with pytest.raises(UserError) as error:
        find(model, pieces)
    return str(error.value)


@pytest.fixture
def checkpoint(tmp_path):
    """One that says its languages, and nothing beside it."""
    task = {"_name": "translation", "source_lang": "en", "target_lang": "de"}
    torch.save({"model": {}, "cfg": {"task": task}}, tmp_path / "model.pt")
    (tmp_path / "data").mkdir()
    for language in ("en", "de"):
        (tmp_path / "data" / f"dict.{language}.txt").touch()
    return tmp_path / "model.pt"


def test_a_checkpoint_of_a_run_takes_the_rest_from_the_run(tmp_path):
    folder = words_only(tmp_path, beam=7)
    other = tmp_path / "checkpoint_best.pt"
    other.touch()
    assert find(folder).checkpoint == tmp_path / "checkpoint_last.pt"
    assert find(other).checkpoint == other
    assert find(other).beam == 7


def test_a_checkpoint_alone_takes_what_is_given(checkpoint):
    folder = checkpoint.parent
    codes = folder / "codes"
    codes.write_text("#version: 0.2\na b</w>\n")
    found = find(checkpoint, Pieces(folder / "data", codes, "moses"))
    assert found == ModelDescription(
        "fairseq", "en", "de", folder, checkpoint, folder / "data", "subword_nmt", codes, "moses"
    )
    (folder / "spm").write_bytes(b"\x0a\0")
    assert find(checkpoint, Pieces(folder / "data", folder / "spm")).subwords == "sentencepiece"


def test_what_is_missing_is_named(checkpoint):
    folder = checkpoint.parent
    data = Pieces(folder / "data")
    assert refusal(folder / "nosuch") == f"there is no model {folder / 'nosuch'}: check the path"
    assert refusal(folder).startswith(f"{folder} has no model.json: name the folder of a run")
    assert refusal(checkpoint).startswith(
        f"{checkpoint} has no model.json beside it: give --data, the folder of fairseq-preprocess"
    )
    assert refusal(checkpoint, Pieces(folder)).startswith(
        f"there is no dictionary {folder / 'dict.en.txt'}: give by --data the folder"
    )
    assert refusal(checkpoint, Pieces(folder / "data", target_lang="a/b")) == (
        f"{checkpoint} does not say its languages: give --target-lang"
    )
    assert refusal(checkpoint, Pieces(folder / "data", folder / "nosuch")).startswith(
        f"--subwords {folder / 'nosuch'} can't be read: No such file"
    )
    torch.save({"model": {}, "cfg": {"task": {"_name": "translation"}}}, checkpoint)
    assert (
        refusal(checkpoint, data) == f"{checkpoint} does not say its languages: give --source-lang"
    )


def test_a_model_for_transformers_is_no_model_for_here(tmp_path):
    description = ModelDescription("transformers", "en", "de", tmp_path)
    with pytest.raises(
        UserError, match=r"is a model for transformers: .* `diet-fairseq export ctr"
    ):
        engine.load(description)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"lower": 1, "language": "en"}', '{"lower": true, "language": "../en"}'],
)
def test_data_that_does_not_say_how_an_encoder_s_text_was_made_is_refused(tmp_path, content):
    torch.save({"model": {}, "cfg": {"task": {"_name": "masked_lm"}}}, tmp_path / "model.pt")
    (tmp_path / "dict.txt").write_text("a 1\n")
    assert find(tmp_path / "model.pt", Pieces(tmp_path), translates=False).lower is False
    (tmp_path / "made-from.json").write_text(content)
    with pytest.raises(UserError) as error:
        find(tmp_path / "model.pt", Pieces(tmp_path), translates=False)
    assert str(error.value).startswith(str(tmp_path / "made-from.json"))
    assert str(error.value).endswith(": prepare the data again, or give another folder by --data")


def test_a_checkpoint_of_the_recipe_finds_its_data_and_subwords_by_their_places(tmp_path):
    checkpoint = tmp_path / "runs" / "one" / "model.pt"
    checkpoint.parent.mkdir(parents=True)
    named = {"source_lang": "en", "target_lang": "de", "data": str(tmp_path / "named")}
    torch.save({"model": {}, "cfg": {"task": named}}, checkpoint)
    for folder in ("named", "data-bin", "subwords"):
        (tmp_path / folder).mkdir()
    for folder in ("named", "data-bin"):
        for language in ("en", "de"):
            (tmp_path / folder / f"dict.{language}.txt").write_text("ab@@ 3\n")
    assert refusal(checkpoint) == (
        f"{tmp_path / 'data-bin' / 'dict.en.txt'} is of subwords (such as ab@@), but their model "
        "is not beside it: give --subwords, or --subwords none to take words as they are"
    )
    assert find(checkpoint, Pieces(subwords=NONE)).subwords == "none"
    codes = tmp_path / "subwords" / "codes"
    codes.write_text("#version: 0.2\na b\n")
    found = find(checkpoint)
    assert (found.data, found.subword_model) == (tmp_path / "data-bin", codes)
    assert (found.subwords, found.preprocessing) == ("subword_nmt", "moses")
