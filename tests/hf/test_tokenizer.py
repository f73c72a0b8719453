"""The tokenizer gives `text.tokenizer`'s tokens, and SentencePiece's offsets."""

import copy
import gzip
import pickle
import shutil
from collections import Counter

import pytest
import sentencepiece
from fairseq.data import Dictionary

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from diet_fairseq.errors import UserError
from diet_fairseq.hf import DietEncoderTokenizer
from diet_fairseq.text.tokenizer import Tokenizer
from tests.support.texts import train_sentencepiece

ODD = [
    "",
    " ",
    " a  b\u3000c\u2028 ",
    "x\x07y\x85z\ttab\r\nnew",
    "\u200bzero\u200bwidth\ufeff",
    "Ⅻ ﬁne ½ ① …",
    "e\u0301 e\u0301\u0301 \u1100\u1161\u11a8",
    "====== aaaaaaaa",
    "▁odd ▁▁",
    "日本語 爪 \U0001f600\U0001f601 x\U0001f600",
]


def lines_of(folder):
    """Language -> 40 lines."""
    texts = {}
    for path in sorted(folder.glob("flores-dev.*")):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        name = path.name.split(".")[1]
        texts[name] = [line for line in content.decode().split("\n") if line][:40]
    return texts


def write(folder, lines, minimum=1, **options):
    """A SentencePiece model, and the dictionary of what occurs ``minimum`` times."""
    (folder / "sentencepiece.model").write_bytes(train_sentencepiece(lines, 3000, **options))
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    counts = Counter(piece for line in lines for piece in model.encode(line, out_type=str))
    entries = [f"{piece} {count}\n" for piece, count in counts.items() if count >= minimum]
    (folder / "dict.txt").write_text("".join(entries), encoding="utf-8")
    return folder


def tokenizer_of(folder, **options):
    """An encoder's tokenizer."""
    return DietEncoderTokenizer(
        vocab_file=str(folder / "dict.txt"),
        sentencepiece_file=str(folder / "sentencepiece.model"),
        mask_token="<mask>",
        **options,
    )


def ids_of(folder, line, lower=False):
    """``<s> A </s>`` by our tokenizer and the dictionary."""
    text = Tokenizer("sentencepiece", folder / "sentencepiece.model", "en", lower=lower)
    entries = (folder / "dict.txt").read_text(encoding="utf-8").split("\n")
    ids = {entry.rpartition(" ")[0]: number for number, entry in enumerate(entries, 4)}
    return [0, *(ids.get(token, 3) for token in text.encode(line)), 2]


@pytest.fixture(scope="module")
def texts(shared_data):
    return lines_of(shared_data / "flores-dev")


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory):
    """Half the text is learned from; pieces that occur once are not in the dictionary."""
    lines = [line for text in texts.values() for line in text[::2]]
    return write(tmp_path_factory.mktemp("subwords"), lines, minimum=2, character_coverage=0.999)


@pytest.mark.slow
@pytest.mark.parametrize("lower", [False, True])
def test_ids_are_our_tokenizer_s_in_18_languages(folder, texts, lower):
    tokenizer = tokenizer_of(folder, do_lower_case=lower)
    assert len(texts) == 18
    for language, lines in texts.items():
        expected = [ids_of(folder, line, lower) for line in lines]
        assert tokenizer(lines)["input_ids"] == expected, language
        assert any(tokenizer.unk_token_id in ids for ids in expected) or language in "en de es"


@pytest.mark.parametrize("text", ODD)
def test_odd_white_space_and_characters_are_the_same(folder, text):
    assert tokenizer_of(folder)(text)["input_ids"] == ids_of(folder, text)


def test_marks_are_tokens_of_their_own(folder):
    tokenizer = tokenizer_of(folder)
    [a], [b] = (ids_of(folder, letter)[1:-1] for letter in "ab")
    assert tokenizer("a <mask> b</s>")["input_ids"] == [0, a, tokenizer.mask_token_id, b, 2, 2]


def test_spans_are_sentencepiece_s_in_18_languages(folder, texts):
    tokenizer = tokenizer_of(folder)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    for language, lines in texts.items():
        for line in [*lines, *ODD[4:]]:
            right = model.encode(line, out_type="offset_mapping", return_bytes=False)
            expected = [
                span
                for piece, span in zip(right["pieces"], right["offsets"], strict=True)
                if piece.strip()
            ]
            spans = tokenizer(line, return_offsets_mapping=True)["offset_mapping"][1:-1]
            pairs = [
                pair
                for pair in zip(expected, spans, strict=True)
                # some pieces have no place in SentencePiece, and of several spaces we take one
                if pair[0][0] < pair[0][1] and not line.startswith("  ", pair[0][0])
            ]
            assert pairs or not line.strip()
            assert [right for right, _ in pairs] == [span for _, span in pairs], (language, line)


WORDS = ["Newton wrote it", "ทำให้ นำ", "दिया ज़्यादा", "e\u0301 ﬁne"]


@pytest.mark.parametrize("text", ["Newton wrote it", "it <mask> Newton", "it นำ", "e\u0301 ﬁne"])
def test_every_word_has_all_its_characters(text, tmp_path):
    """The first word, words after a mark, and pieces that normalization lengthens or shortens."""
    tokenizer = tokenizer_of(write(tmp_path, WORDS * 20, vocab_size=200))
    encoded = tokenizer(text, return_offsets_mapping=True)
    spans = encoded["offset_mapping"][1:-1]
    covered = {place for begin, end in spans for place in range(begin, end)}
    assert covered | {text.find(" "), text.rfind(" ")} >= set(range(len(text)))
    place = text.find("Newton")
    if place >= 0:
        assert encoded.char_to_token(place) == encoded.char_to_token(place + 5)


def test_copies_and_pickles_give_the_same(folder, tmp_path):
    tokenizer = tokenizer_of(folder)
    tokenizer.save_pretrained(tmp_path)
    text = "The quick fox, 東京 <mask>"
    for copied in (
        copy.deepcopy(tokenizer),
        pickle.loads(pickle.dumps(tokenizer)),
        DietEncoderTokenizer.from_pretrained(tmp_path),
    ):
        assert copied(text, text)["input_ids"] == tokenizer(text, text)["input_ids"]
    assert not (tmp_path / "tokenizer.json").exists()
    assert len(tokenizer) == len(tokenizer.get_vocab())


@pytest.mark.parametrize("kind", ["unigram", "char"])
def test_any_kind_of_sentencepiece_model_is_read(kind, texts, tmp_path):
    write(tmp_path, texts["en"], model_type=kind, vocab_size=500, user_defined_symbols=["the"])
    expected = [ids_of(tmp_path, line) for line in texts["en"]]
    assert tokenizer_of(tmp_path)(texts["en"])["input_ids"] == expected


def test_tokens_cover_their_text_but_for_repeated_spaces(folder):
    tokenizer = tokenizer_of(folder)
    text = "two  spaces \u2026 \ufb01ne"
    pairs = tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]
    covered = {place for begin, end in pairs for place in range(begin, end)}
    assert set(range(11)) - covered == {3}
    assert all(begin < end for begin, end in pairs)


def test_new_tokens_follow_the_vocabulary_and_are_kept(folder, tmp_path):
    tokenizer = tokenizer_of(folder)
    size = len(tokenizer)
    assert tokenizer.add_tokens(["<new>"]) == 1
    tokenizer.save_pretrained(tmp_path)
    for copied in (
        tokenizer,
        copy.deepcopy(tokenizer),
        DietEncoderTokenizer.from_pretrained(tmp_path),
    ):
        assert copied("a<new>")["input_ids"][-2:] == [size, 2]
        assert (copied.mask_token_id, len(copied)) == (tokenizer.mask_token_id, size + 1)


def test_ids_beyond_the_target_dictionary_are_unknown_words(folder, tmp_path):
    """Source ids may be, which users decode to look at them."""
    (tmp_path / "dict.txt").write_text("\u2581a 1\n", encoding="utf-8")
    files = {"target_vocab_file": str(tmp_path / "dict.txt")}
    tokenizer = tokenizer_of(folder, **files)
    beyond = len(tokenizer.get_vocab()) + 7
    assert tokenizer.convert_ids_to_tokens([4, 6, beyond]) == ["\u2581a", "<unk>", "<unk>"]
    assert tokenizer.convert_ids_to_tokens(beyond) == "<unk>"
    assert tokenizer.decode([4, beyond]) == "a <unk>"


def test_new_tokens_follow_a_dictionary_with_repeated_symbols(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "dict.txt"
    entries = path.read_text(encoding="utf-8")
    first = entries.partition(" ")[0]
    entries += f"<s> 9 #fairseq:overwrite\n{first} 9 #fairseq:overwrite\nlast 1\n"
    path.write_text(entries, encoding="utf-8")
    dictionary = Dictionary.load(str(path))
    tokenizer = tokenizer_of(tmp_path)
    for symbol in (first, "last"):
        assert tokenizer.convert_tokens_to_ids(symbol) == dictionary.index(symbol)
    assert tokenizer.mask_token_id == dictionary.add_symbol("<mask>")
    assert tokenizer.bos_token_id == dictionary.bos()
    assert tokenizer("a")["input_ids"] == [0, dictionary.index("\u2581a"), 2]


def test_offsets_of_subword_nmt_are_refused(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nt h</w>\n")
    (tmp_path / "dict.txt").write_text("th 1\n")
    codes, dictionary = str(tmp_path / "codes"), str(tmp_path / "dict.txt")
    tokenizer = DietEncoderTokenizer(dictionary, codes_file=codes)
    assert tokenizer("th")["input_ids"] == [0, 4, 2]
    with pytest.raises(UserError, match="return_offsets_mapping needs a SentencePiece model"):
        tokenizer("th", return_offsets_mapping=True)
