"""Sentences whose translation may lack text are named, once a request."""

import pytest

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.translate.model_json import read_model_json
from diet_fairseq.translate.omissions import Omissions
from diet_fairseq.translate.translation import Sentence, Translation
from tests.support.backwards import Backwards
from tests.support.translating import words_only

SENTENCE = "One two three four five six seven eight nine ten."
LONG = (
    "{} has 10 subwords, more than 99.9% of the training data (at most 8): its translation may "
    "lack text{}"
)
SHORT = "{} has 10 words, but its translation has 2: text may be missing{}"


class Forgetful(Backwards):
    """An engine that translates the first two words of a sentence only."""

    def translate(self, sentences, search):
        return super().translate([sentence[:2] for sentence in sentences], search)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that makes a model of an engine and fields of model.json."""

    def make(engine, **fields):
        monkeypatch.setattr("diet_fairseq.translate.translator.load_engine", lambda *_: engine)
        return words_only(tmp_path, **fields)

    return make


def messages(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_sentence_that_is_longer_than_in_training_is_named(load, caplog):
    translator = Translator(load(Backwards(), training_source_length=8))
    translator.translate(["A dog ran.", f"A dog ran. {SENTENCE}", SENTENCE])
    assert messages(caplog) == [LONG.format("sentence 2 of line 2", " (and 1 other sentence)")]


def test_a_sentence_with_a_short_translation_is_named(load, caplog):
    translator = Translator(load(Forgetful()))
    translator.translate(["A dog ran.", SENTENCE, f"{SENTENCE} {SENTENCE}"])
    assert messages(caplog) == [SHORT.format("line 2", " (and 2 other sentences)")]


def test_the_command_names_each_kind_once(load, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("diet_fairseq.text.lines.BLOCK_BYTES", 60)  # several blocks
    (tmp_path / "text").write_text(f"A dog ran.\n{SENTENCE}\n" * 5)
    assert main(["translate", str(load(Forgetful(), training_source_length=8)),
                 str(tmp_path / "text")]) == 0  # fmt: skip
    others = " (and 4 other sentences)"
    assert messages(caplog) == [LONG.format("line 2", others), SHORT.format("line 2", others)]


@pytest.mark.parametrize(
    ("source", "text", "is_short"),
    [
        ("a " * 10, "", True),
        ("a " * 9, "", False),
        ("a " * 10, "a " * 3, False),
        ("a " * 20, "a " * 5, True),
        ("a " * 20, "这是一个很长的中文句子。", False),
        ("这是一个很长的中文句子我们在这里等你。", "This", True),
    ],
)
def test_a_translation_is_short_by_its_words(source, text, is_short):
    omissions = Omissions(None)
    omissions.add([Translation(text, 0.0, (Sentence(source, text, 0.0, 5),))])
    assert bool(omissions.short_translations) == is_short


@pytest.mark.parametrize("languages", [("en", "en"), ("source", "target")])
def test_a_model_of_one_language_shortens_on_purpose(load, languages, caplog):
    translator = Translator(load(Forgetful(), training_source_length=1))
    translator._directions = translator._directions.__class__({}, (languages,))
    translator.translate([SENTENCE], source_lang=languages[0], target_lang=languages[1])
    assert messages(caplog) == []


def test_model_json_keeps_the_numbers_of_the_training_data(load):
    folder = load(Backwards(), sentences_per_line=1.0, training_source_length=64)
    description = read_model_json(folder)
    assert (description.sentences_per_line, description.training_source_length) == (1.0, 64)
    content = (folder / "model.json").read_text()
    (folder / "model.json").write_text(content.replace('_length": 64', '_length": 0'))
    with pytest.raises(UserError, match=r"model.json: training_source_length .* is 0"):
        read_model_json(folder)
