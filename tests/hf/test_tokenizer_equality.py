"""The exported tokenizer gives the tokens of `translate`, whatever SentencePiece does to spaces."""

import json
import random
import shutil

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from diet_fairseq.errors import UserError
from diet_fairseq.hf import DietEncoderTokenizer, DietTokenizer
from diet_fairseq.text.subwords import Gpt2
from diet_fairseq.text.tokenizer import Tokenizer
from diet_fairseq.text.whitespace import normalise, normalise_with_indices
from tests.hf.test_tokenizer import ids_of, tokenizer_of, write
from tests.support import originals, published

LINES = [*originals.TEXT, "Größe  und\tZahl: 3.14 (x)", "  zwei  Wörter "] * 10
#: options of SentencePiece's trainer
OPTIONS = {
    "keeps spaces": {"remove_extra_whitespaces": False},
    "identity": {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    "case": {"remove_extra_whitespaces": False, "normalization_rule_name": "nmt_nfkc_cf"},
    "no dummy": {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "suffix": {"remove_extra_whitespaces": False, "treat_whitespace_as_suffix": True},
    "removes spaces": {},
}
#: characters that SentencePiece, Python or we take for white space, and others
CHARACTERS = (
    " \t\n\r\x00\x07\x1c\x1f\x7f\x85\xa0\xad\u1680\u2003\u200b\u2028\u202f\u3000\ufeff▁aAüﬁ爪"
)
#: parts of texts: characters, words and several spaces
PARTS = [*CHARACTERS, "the", "dog", "schläft", "3.14", "  ", "   "]
TEXTS = [
    "  the dog", "the dog  ", "the  dog", "the\tdog\n", "\x07the\x00 dog\x1b", " \xa0 ",
    "the \ufeff",
    *("".join(random.Random(seed).choices(PARTS, k=seed % 13)) for seed in range(400)),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Name of `OPTIONS` -> a folder with a SentencePiece model and a dictionary."""
    return {
        name: write(tmp_path_factory.mktemp("subwords"), LINES, vocab_size=90, **options)
        for name, options in OPTIONS.items()
    }


@pytest.mark.few(2)
@pytest.mark.parametrize("name", OPTIONS)
def test_the_tokens_are_those_of_translate(name, folders):
    folder = folders[name]
    encoder = tokenizer_of(folder)
    options = {"vocab_file": str(folder / "dict.txt")}
    translation = DietTokenizer(sentencepiece_file=str(folder / "sentencepiece.model"), **options)
    expected = [ids_of(folder, text) for text in TEXTS]
    assert encoder(TEXTS)["input_ids"] == expected
    assert translation(TEXTS)["input_ids"] == [ids[1:] for ids in expected]
    assert translation(text_target=TEXTS)["input_ids"] == [ids[1:] for ids in expected]


@pytest.mark.parametrize("name", OPTIONS)
def test_offsets_lie_at_the_words(name, folders):
    tokenizer = tokenizer_of(folders[name], do_lower_case=True)
    text = " \tThe  quick\r\n\x07 fox "
    encoded = tokenizer(text, return_offsets_mapping=True)
    places = {place for begin, end in encoded["offset_mapping"] for place in range(begin, end)}
    words = {place for place, character in enumerate(text) if normalise(character)}
    assert words <= places
    between = set() if name == "suffix" else {5}  # the first of two spaces
    assert places.isdisjoint({0, 1, len(text) - 1} | between)


def test_indices_belong_to_the_characters():
    for text in TEXTS:
        line, indices = normalise_with_indices(text)
        assert line == normalise(text)
        assert [normalise(text[index]) for index in indices] == [c.strip(" ") for c in line]
        assert indices == sorted(set(indices))


def test_words_that_moses_splits_are_those_of_translate(folders):
    """`translate` also splits words with Moses before SentencePiece."""
    folder = folders["removes spaces"]
    tokenizer = tokenizer_of(folder, moses=True, source_lang="en", target_lang="en")
    text = "the dog's (fox), a hill."
    moses = Tokenizer("sentencepiece", folder / "sentencepiece.model", "en", splits_words=True)
    vocabulary = tokenizer.get_vocab()
    pieces = [piece if piece in vocabulary else "<unk>" for piece in moses.encode(text)]
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert tokens == ["<s>", *pieces, "</s>"]
    assert not tokenizer.is_fast
    with pytest.raises(UserError, match="needs a SentencePiece model without Moses"):
        tokenizer(text, return_offsets_mapping=True)


def test_numbers_of_gpt2_in_another_folder_are_refused(tmp_path):
    folder = tmp_path / "merges"
    folder.mkdir()
    published.roberta(folder)
    (tmp_path / "numbers").mkdir()
    files = {"vocab_file": str(folder / "dict.txt"), "merges_file": str(folder / "vocab.bpe")}
    numbers = json.loads((folder / "encoder.json").read_text())
    other = {piece: len(numbers) - number for piece, number in numbers.items()}
    path = tmp_path / "numbers" / "encoder.json"
    path.write_text(json.dumps(other))
    with pytest.raises(UserError) as error:
        DietEncoderTokenizer(**files, numbers_file=str(path))
    assert str(error.value) == (
        f"numbers_file must be {folder}/encoder.json, beside merges_file, but is {path}: put both "
        "files into one folder"
    )
    shutil.copyfile(folder / "vocab.bpe", tmp_path / "numbers" / "vocab.bpe")
    files["merges_file"] = str(tmp_path / "numbers" / "vocab.bpe")
    tokenizer = DietEncoderTokenizer(**files, numbers_file=str(path))
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = DietEncoderTokenizer.from_pretrained(tmp_path / "saved")
    assert saved("ban dor")["input_ids"] == tokenizer("ban dor")["input_ids"]
    assert Gpt2(tmp_path / "saved" / "vocab.bpe").numbers == other
