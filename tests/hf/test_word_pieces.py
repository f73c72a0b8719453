"""Exported encoders with BERT's word pieces read text as the imported folder's tokenizer does."""

import json
import string
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import torch
import transformers

from diet_fairseq.errors import UserError
from diet_fairseq.hf.convert.text_check import SENTENCES
from diet_fairseq.hf.word_pieces import wordpiece_tokenizer
from diet_fairseq.look.windows import read_ids
from diet_fairseq.text.subwords import BERT_SYMBOLS, WordPiece
from diet_fairseq.translate.loading import load_transformer
from diet_fairseq.translate.model_files import ModelOptions, resolve_model
from tests.hf.conftest import export, take_back
from tests.hf.test_bad_input import refused
from tests.support import originals

#: pieces of single characters, so that texts differ by case, accents and Chinese characters
CHARACTERS = [
    *string.ascii_letters,
    *string.digits,
    *string.punctuation,
    *"éöüßñçâêсσςあア敏捷東京한",
]
PIECES = [*CHARACTERS, *(f"##{character}" for character in CHARACTERS), "\u0301", "##\u0301"]
TEXTS = [
    *SENTENCES,
    "Ἐν ἀρχῇ ἦν ὁ λόγος. ΟΔΥΣΣΕΥΣ",
    "İstanbul IŞIK ıssız",
    "Việt Nam: Tiếng Việt",
    "e\u0301\u0327 n\u0303 o\u0308 \u0301alone",
    "東京tower 敏捷e 한국어 カタカナ",
    "nul\x00bell\x07 escape\x1b[0m delete\x7f next\x85line replaced\ufffd",
    "a\u200db \u202eright-to-left\u202c \u2060joined",
    "👍🏽 🏴\U000e0067\U000e0062\U000e007f ☃\ufe0f ♥",
    "[MASK] the [UNK] fox [SEP] [CLS] [PAD] [unused0]",
    "a" * 101,
    "\t\r\n ",
]  # fmt: skip
#: name -> the function that builds the folder, and the options of its tokenizer
FOLDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "uncased": (originals.bert, {}),
    "cased": (originals.bert, {"do_lower_case": False}),
    "accents": (originals.bert, {"strip_accents": False}),
    "words of Chinese": (originals.bert, {"tokenize_chinese_chars": False}),
    "electra": (originals.electra, {"do_lower_case": False, "strip_accents": True}),
}


def build(folder: Path, name: str = "uncased", **options: Any) -> Path:
    function, text = FOLDERS[name]
    return function(folder, text={"more": PIECES, **text}, **options)


def load_tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def read(tokenizer: Any, *texts: str) -> tuple[Any, ...]:
    """Tokens, offsets, segments and the decoded text."""
    inputs = tokenizer(*texts, return_offsets_mapping=True)
    ids = inputs["input_ids"]
    return (
        tokenizer.convert_ids_to_tokens(ids),
        inputs["offset_mapping"],
        inputs["token_type_ids"],
        tokenizer.decode(ids),
    )


def fill_mask(folder: Path, text: str) -> list[tuple[str, str, float]]:
    """The likeliest words, the text with each of them, and their probabilities."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    fill = transformers.pipeline("fill-mask", model, tokenizer=load_tokenizer(folder))
    return [(fill["token_str"], fill["sequence"], fill["score"]) for fill in fill(text)]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FOLDERS)
def test_an_export_has_the_tokens_and_offsets_of_the_original(name, tmp_path):
    folder = build(tmp_path / "folder", name)
    take_back(folder, tmp_path / "out")
    export(tmp_path / "out" / "model.pt", tmp_path / "hf")
    theirs, ours = load_tokenizer(folder), load_tokenizer(tmp_path / "hf")
    assert ours.is_fast
    for text in TEXTS:
        assert read(ours, text) == read(theirs, text)
        assert read(ours, text, TEXTS[1]) == read(theirs, text, TEXTS[1])
    words = (tmp_path / "out" / "dict.txt").read_text(encoding="utf-8").splitlines()
    ids = {f"{token} 1": number for token, number in ours.get_vocab().items()}
    assert [ids[word] for word in words if word in ids] == [
        number for number, word in enumerate(words, start=4) if word in ids
    ]
    expected = fill_mask(folder, "The quick [MASK] fox.")
    actual = fill_mask(tmp_path / "hf", "The quick [MASK] fox.")
    assert [words for *words, _ in actual] == [words for *words, _ in expected]
    scores = [[row[-1] for row in rows] for rows in (actual, expected)]
    torch.testing.assert_close(*map(torch.tensor, scores), rtol=1e-4, atol=1e-5)
    ours.save_pretrained(tmp_path / "again")
    assert read(load_tokenizer(tmp_path / "again"), TEXTS[1]) == read(theirs, TEXTS[1])


@pytest.mark.slow
def test_an_imported_export_reads_text_as_before(tmp_path):
    folder = build(tmp_path / "folder", "accents")
    take_back(folder, tmp_path / "out")
    export(tmp_path / "out" / "model.pt", tmp_path / "hf")
    take_back(tmp_path / "hf", tmp_path / "back")
    export(tmp_path / "back" / "model.pt", tmp_path / "again")
    tokenizers = [load_tokenizer(tmp_path / name) for name in ("hf", "again")]
    for text in TEXTS:
        assert read(tokenizers[0], text) == read(tokenizers[1], text)


def test_vocab_txt_is_enough_for_an_encoder_of_fairseq(tmp_path):
    folder = build(tmp_path / "folder", "cased")
    out = tmp_path / "out"
    take_back(folder, out)
    (out / "tokenizer.json").unlink()
    vocabulary = (out / "vocab.txt").rename(tmp_path / "bert-base-cased-vocab.txt")
    text = refused(export, out / "model.pt", tmp_path / "hf")
    assert "contains subwords (such as ##e), but no subword model was found" in text
    export(out / "model.pt", tmp_path / "hf", "--subwords", vocabulary)
    theirs, ours = load_tokenizer(folder), load_tokenizer(tmp_path / "hf")
    for text in TEXTS:
        assert read(ours, text) == read(theirs, text)
    lines = (out / "dict.txt").read_text().replace("fuchs 1\n", "fuchsia 1\n")
    (out / "dict.txt").write_text(lines)
    words = out / "model.pt", tmp_path / "other", "--subwords", vocabulary
    assert "the dictionary lacks 1 of " in (text := refused(export, *words))
    assert "(such as fuchs), which BERT's tokenizer needs: add them to the dictionary" in text
    assert not (tmp_path / "other").exists()


def test_text_of_an_imported_bert_is_read_by_look(tmp_path):
    take_back(build(tmp_path / "folder"), tmp_path / "out")
    loaded = load_transformer(
        resolve_model(tmp_path / "out" / "model.pt", ModelOptions(), translates=False)
    )
    (tmp_path / "text").write_text("The quick FÓX sleeps, [MASK] \u4e2d!\n\nA dog\n")
    words = loaded.task.source_dictionary
    ids = read_ids(loaded, tmp_path / "text", 99, line_ends=True)
    text = " ".join(words[number] for number in ids.tolist())
    assert text == "the quick fox sleeps , <unk> <unk> ! </s> a dog </s>"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [(["the", "##n", "fox"], "the ##n fox"), (["the", "##n", "fox", "The"], "The ##n <unk>")],
)
def test_a_vocabulary_without_capitals_lower_cases_text(pieces, expected, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[unused0]", *BERT_SYMBOLS.keys() - {"[PAD]"}, *pieces]))
    subwords = WordPiece(path)
    assert subwords.encode("Then Fóx") == expected.split()
    assert subwords.decode(["the", "##n", "fox", "."]) == "then fox."
    starts = [subwords.is_word_start(["the", "##n", "fox"], n) for n in range(3)]
    assert starts == [True, False, True]
    vocabulary = {symbol: n for n, symbol in enumerate([*BERT_SYMBOLS.values(), *pieces])}
    tokenizer = wordpiece_tokenizer(vocabulary, subwords, segments=False)
    assert "token_type_ids" not in tokenizer("Then")


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("vocab.txt", "[PAD]\n[UNK]\nthe\n", "it lacks [CLS]"),
        ("vocab.txt", "\n".join([*BERT_SYMBOLS, "the", "the"]), "a piece is repeated"),
        ("tokenizer.json", '{"version": 1}', ""),
        (
            "tokenizer.json",
            json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}),
            "it is of the type BPE",
        ),
    ],
)
def test_a_file_without_word_pieces_is_refused(name, content, error, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as failure:
        WordPiece(tmp_path / name)
    text = str(failure.value)
    assert text.startswith(f"{tmp_path / name} does not have BERT's word pieces ({error}")
    assert text.endswith("): give BERT's vocab.txt or its tokenizer.json")


def test_a_translation_model_has_no_word_pieces(translation, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT_SYMBOLS))
    words = translation, tmp_path / "hf", "--subwords", tmp_path / "vocab.txt"
    text = refused(export, *words)
    assert "vocab.txt has BERT's word pieces, which only encoders read here, but " in text
