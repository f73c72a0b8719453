"""`model.json` describes the model in a folder; it is read as data, and its values are checked."""

import json
import re
from dataclasses import replace

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.translate.directions import SOURCE, TARGET, Directions, Framing
from diet_fairseq.translate.model_json import ModelDescription, read_model_json
from tests.support.texts import learn_subwords

GIVEN = {
    "format": "diet_fairseq model",
    "version": 1,
    "engine": "fairseq",
    "checkpoint": "model.pt",
    "data": ".",
    "source_lang": "en",
    "target_lang": "de",
    "subwords": {"kind": "sentencepiece", "model": "sub/words.model"},
    "preprocessing": "none",
    "beam": 4,
    "lenpen": 0.6,
    "penalty": "tensor2tensor",
    "max_source_length": 100,
    "max_target_length": 50,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.pt").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "words.model").touch()
    return tmp_path


def refusal(folder, content):
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    (folder / "model.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as error:
        read_model_json(folder)
    text = str(error.value)
    assert text.isprintable()
    assert len(text) < 500
    return text.replace(str(folder), "FOLDER")


def test_a_description_is_read_as_written_and_its_folder_can_move(folder, tmp_path_factory):
    description = ModelDescription(
        "fairseq", "en", "de", folder, folder / "model.pt", folder, "sentencepiece",
        folder / "sub" / "words.model", beam=4, lenpen=0.6, penalty="tensor2tensor",
        max_source_length=100, max_target_length=50,
    )  # fmt: skip
    description.write()
    assert json.loads((folder / "model.json").read_text()) == GIVEN
    assert read_model_json(folder) == description
    moved = folder.rename(tmp_path_factory.mktemp("elsewhere") / "moved")
    assert read_model_json(moved).checkpoint == moved / "model.pt"


def test_options_of_the_search_are_read_as_written(folder):
    options = {
        "no_repeat_ngram_size": 3, "max_len_a": 1.5, "max_len_b": 20, "min_target_length": 5,
        "suppress_sequences": (("a",), ("a", "b")), "end_tokens": (".",),
    }  # fmt: skip
    description = ModelDescription(
        "fairseq", "en", "de", folder, folder / "model.pt", folder, **options
    )
    description.write()
    assert json.loads((folder / "model.json").read_text()).items() >= {
        "no_repeat_ngram_size": 3, "suppress_sequences": [["a"], ["a", "b"]], "end_tokens": ["."],
    }.items()  # fmt: skip
    assert read_model_json(folder) == description


def test_the_target_may_have_a_subword_model_of_its_own(tmp_path):
    paths = [tmp_path / name for name in ("source.model", "target.model")]
    for path, text in zip(paths, (["a house", "a tree"], ["ein Haus", "ein Baum"]), strict=True):
        learn_subwords(path, "sentencepiece", text * 9, 30)
    ModelDescription(
        "ctranslate2", "en", "de", tmp_path, None, None, "sentencepiece", paths[0],
        target_subword_model=paths[1],
    ).write()  # fmt: skip
    description = read_model_json(tmp_path)
    assert description.target_subword_model == paths[1]
    words = {piece for tokenizer, line in zip(description.tokenizers, ("a house", "ein Haus"),
                                              strict=True)
             for piece in tokenizer.encode(line)}  # fmt: skip
    description.check_vocabulary(words)
    with pytest.raises(UserError, match="don't belong together"):
        replace(description, target_subword_model=None).check_vocabulary(words)
    shared = json.loads((tmp_path / "model.json").read_text())["subwords"] | {"target_model": "no"}
    missing = GIVEN | {"engine": "ctranslate2", "subwords": shared}
    del missing["checkpoint"], missing["data"]
    assert "subwords.target_model names FOLDER/no, which does not exist" in refusal(
        tmp_path, missing
    )


def test_an_exported_model_has_fewer_keys_and_others_are_ignored(folder):
    content = {key: GIVEN[key] for key in ("format", "version", "source_lang", "target_lang")}
    content |= {"engine": "ctranslate2", "quantization": "int8"}
    (folder / "model.json").write_text(json.dumps(content))
    description = read_model_json(folder)
    assert description == ModelDescription("ctranslate2", "en", "de", folder)


def test_directions_are_read_as_written(folder):
    """As OPUS-MT's models have them: the target's tag before the source, none for English."""
    directions = Directions(
        {"de": ">>deu<<", "nl": ">>nld<<"},
        (("en", "de"), ("en", "nl")),
        Framing(source_prefix=(TARGET,)),
    )
    description = ModelDescription(
        "fairseq", "en", "de", folder, folder / "model.pt", folder, directions=directions
    )
    description.write()
    content = json.loads((folder / "model.json").read_text())
    assert content["directions"]["source_prefix"] == ["{target}"]
    assert read_model_json(folder) == description
    assert directions.frame("en", "nl") == Framing(source_prefix=(">>nld<<",))
    assert directions.targets == {"en": ["de", "nl"]}


TAGS = {"en": "eng_Latn", "de": "deu_Latn"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "directions must be an object, but is []"),
        ({"tags": {"../x": "a"}}, "directions.tags.../x.[key] must be a language's code such as"),
        ({"tags": {"en": "a b"}}, "directions.tags.en must be a token of 1 to 64 char"),
        ({"tags": TAGS, "source_prefix": "en"}, "directions.source_prefix must be "),
        ({"tags": TAGS, "source_prefix": [SOURCE] * 9}, "directions.source_prefix must have at "),
        ({"tags": TAGS, "source_end": []}, "directions.source_end must have at least 1"),
        ({"tags": {"en": "eng_Latn"}, "pairs": [["en", "de"]], "target_prefix": [TARGET]},
         "directions.tags must have a tag for de; make or fetch the folder again"),
        ({"tags": {"en": "a", "nl": "b"}},
         "target_lang must be a language that the model translates en to, nl, but is de"),
        ({"tags": {"nl": "a", "fr": "b"}},
         "source_lang must be one of the model's languages, nl, fr, but is en"),
    ],
)  # fmt: skip
def test_wrong_directions_are_named_with_their_rule(folder, value, text):
    assert refusal(folder, GIVEN | {"directions": value}).startswith(f"FOLDER/model.json: {text}")


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("format", "other", "format must be 'diet_fairseq model', but is \"other\""),
        ("version", 2, "version must be 1, but is 2"),
        (
            "engine",
            "onnx",
            "engine must be 'fairseq', 'ctranslate2' or 'transformers', but is \"on",
        ),
        ("engine", ["fairseq"], "engine must be 'fairseq', 'ctranslate2' or 'transformers', but"),
        ("source_lang", "../x", "source_lang must be a language's code such as en, but is"),
        ("source_lang", "en\n", "source_lang must be a language's code such as en, but is"),
        ("target_lang", None, "target_lang must be a valid string, but is null"),
        ("checkpoint", "/etc/passwd", "checkpoint must name a file within the folder, but is"),
        ("checkpoint", "a/../../b", "checkpoint must name a file within the folder, but is"),
        ("checkpoint", None, "checkpoint must name a file of the folder; make or fetch the folder"),
        ("checkpoint", "a\0b", "checkpoint must name a file of the folder, but is"),
        (
            "checkpoint",
            "nosuch.pt",
            "checkpoint names FOLDER/nosuch.pt, which does not exist: train",
        ),
        ("checkpoint", "a" * 256, "checkpoint names FOLDER/aaaaaa"),
        ("checkpoint", "a/" * 5000, "checkpoint names FOLDER/a/a"),
        ("data", 7, "data must be a valid string, but is 7"),
        ("subwords", "x", "subwords must be an object, but is"),
        ("subwords", {"kind": "new"}, "subwords.kind must be 'sentencepiece', 'subword_nmt', 'gpt"),
        ("subwords", {"kind": "subword_nmt"}, "subwords.model must name a file of the folder; mak"),
        ("preprocessing", "spacy", "preprocessing must be 'none' or 'moses', but is \"spacy\""),
        ("beam", 0, "beam must be greater than or equal to 1, but is 0"),
        ("beam", True, "beam must be a valid integer, but is true"),
        ("beam", 10**400, "beam must be less than or equal to 10000, but is 10000"),
        ("beam", 10**30, "beam must be less than or equal to 10000, but is 10000"),
        ("lenpen", "1", 'lenpen must be a valid number, but is "1"'),
        ("lenpen", float("nan"), "lenpen must be "),
        ("penalty", "x", "penalty must be 'fairseq' or 'tensor2tensor', but is \"x\""),
        ("max_source_length", 0.5, "max_source_length must be a valid integer, but is 0.5"),
        ("max_source_length", 10**9, "max_source_length must be less than or equal to 1000000"),
        ("no_repeat_ngram_size", -1, "no_repeat_ngram_size must be greater than or equal to 0"),
        ("max_len_a", float("inf"), "max_len_a must be "),
        ("max_len_a", 11, "max_len_a must be less than or equal to 10, but is 11"),
        ("max_len_b", 10**9, "max_len_b must be less than or equal to 10000, but is 1000000000"),
        ("min_target_length", 0, "min_target_length must be greater than or equal to 1, but is 0"),
        ("suppress_sequences", ["a"], 'suppress_sequences.0 must be a valid tuple, but is "a"'),
        ("suppress_sequences", [[]], "suppress_sequences.0 must have at least 1 item"),
        ("suppress_sequences", [["a", "</s>"]], "suppress_sequences must not forbid </s>, which"),
        ("end_tokens", ["a b"], "end_tokens.0 must be a token of 1 to 64 characters"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(folder, key, value, text):
    assert refusal(folder, GIVEN | {key: value}).startswith(f"FOLDER/model.json: {text}")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "is not valid JSON ("),
        (b"\xff", "is not valid JSON ("),
        ("[" * 100_000, "is not valid JSON ("),
        ('{"beam": ' + "9" * 5000 + "}", "is not valid JSON (number out of range"),
        ("[]", "is not a JSON object: make or fetch the folder again"),
        (
            " " * (1 << 20) + "{}",
            "is too large: it must have at most 1,048,576 bytes, but has 1,048,578;",
        ),
    ],
)
def test_other_content_is_refused(folder, content, text):
    assert refusal(folder, content).startswith(f"FOLDER/model.json {text}")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/model.json can't be read: No such")):
        read_model_json(tmp_path)
