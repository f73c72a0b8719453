"""Subwords of both kinds keep lines and text."""

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.whitespace import normalise
from tests.support.road import ODD, sentences, subwords

LINES = sentences(400) + [normalise(f"über {odd} Länge, naïve 世界 😀 Müller.") for odd in ODD]


@pytest.fixture(scope="module", params=subwords.KINDS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    kind = subwords.KINDS[request.param]
    kind.learn(folder, {"de": LINES, "en": LINES[::-1]}, 200, 1)
    return kind(folder)


def test_text_comes_back(model):
    for line, coded in zip(LINES, model.encode(LINES, "de", 1), strict=True):
        assert model.decode(coded, "de") == normalise(line.replace("\u2581", " ")) or any(
            odd in line for odd in "\u200b\u2060\ufeff|@<\u2581"
        )


def test_every_line_has_one_line_of_subwords(model):
    lines = ["", "a", "", *LINES, "x" * 100_000, ""]
    coded = list(model.encode(lines, "de", 1))
    assert len(coded) == len(lines)
    assert all(len(line.splitlines()) <= 1 for line in coded)
    assert [not line for line in coded] == [not line for line in lines]
    assert model.decode(coded[-2], "de") == "x" * 100_000
    assert model.decode("", "de") == ""


def test_places_are_those_of_the_subwords_characters(model):
    """Nothing but spaces lies between them, whatever characters a line has."""
    for line, coded, placed in zip(
        LINES, model.encode(LINES, "de", 1), model.places(LINES, "de", 1), strict=True
    ):
        assert placed.subwords.split(" ") == coded.split(" ")
        spans = list(zip(placed.begins, placed.ends, strict=True))
        assert len(spans) == len(coded.split(" "))
        assert spans == sorted(spans)
        if not any(odd in line for odd in "\u200b\u2060\ufeff@\u2581"):  # not kept
            shown = "".join(line[begin:end] for begin, end in spans)
            assert shown.replace(" ", "") == "".join(line.split())


def test_places_of_spaces_of_all_kinds_and_of_combining_marks(model):
    line = "  u\u0308ber\tdie\u00a0Länge  & 'naïve' 世界"
    [placed] = model.places([line], "de", 1)
    # a character that Moses escapes may be several subwords
    spans = dict.fromkeys(zip(placed.begins, placed.ends, strict=True))
    shown = [line[begin:end] for begin, end in spans]
    assert not any(text != text.strip() for text in shown)
    assert "".join(shown).replace("\u00a0", "") == "".join(line.split())


def test_several_processes_give_what_one_gives(model):
    lines = LINES * 25  # more than one chunk
    assert list(model.encode(lines, "de", 2)) == list(model.encode(lines, "de", 1))


@pytest.mark.parametrize("kind", subwords.KINDS.values())
def test_learning_is_deterministic(kind, tmp_path):
    learnt = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        kind.learn(folder, {"de": LINES, "en": LINES[::-1]}, 200, workers)
        learnt.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert learnt[0] == learnt[1]


def test_a_vocabulary_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"can't learn 2 subwords .* try another --vocabulary"):
        subwords.SentencePiece.learn(tmp_path, {"de": LINES}, 2, 1)
    assert list(tmp_path.iterdir()) == []


def test_more_characters_than_subwords_are_no_obstacle(tmp_path):
    lines = ["".join(chr(n) for n in range(start, start + 50)) for start in range(256, 9999, 50)]
    subwords.SentencePiece.learn(tmp_path, {"de": lines}, 100, 1)
    coded = list(subwords.SentencePiece(tmp_path).encode(lines, "de", 1))
    assert len(coded) == len(lines)


def test_words_of_subword_nmt_are_joined_as_its_language_does(model):
    if isinstance(model, subwords.SubwordNmt):
        line = "Das ist „gut“, sagt er (und geht)."
        [coded] = model.encode([line], "de", 1)
        assert "," in coded.split()
        assert model.decode(coded, "de").replace(" ", "") == line.replace(" ", "")


def test_more_characters_than_subwords_still_leave_room_for_merges(tmp_path):
    subwords.SubwordNmt.learn(tmp_path, {"de": LINES}, 20, 1)
    coded = list(subwords.SubwordNmt(tmp_path).encode(LINES, "de", 1))
    assert len(coded) == len(LINES)


def test_text_without_a_repeated_pair_is_refused_by_subword_nmt(tmp_path):
    with pytest.raises(UserError) as error:
        subwords.SubwordNmt.learn(tmp_path, {"de": ["ab cd"]}, 20, 1)
    assert str(error.value) == (
        "subword-nmt finds no pair of characters that occurs twice in the training text: "
        "give more text, or take --bpe sentencepiece"
    )
    assert not (tmp_path / "codes").exists()
