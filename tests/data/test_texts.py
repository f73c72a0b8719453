"""One or two texts as a sample: their marks, their segments, how they are shortened."""

import pytest
from fairseq.data import ListDataset

from diet_fairseq.data.texts import Texts
from diet_fairseq.errors import UserError
from tests.support.tiny import EOS, WORDS, sentences

BOS = WORDS.bos()


def lines(*lengths, seed=1):
    some = sentences(*lengths, seed=seed)
    return ListDataset(some, [len(one) for one in some])


# Samples


def test_one_text_has_its_two_marks_and_is_all_of_the_first_segment():
    one = lines(4, 1)
    texts = Texts(one, bos=BOS, longest=16)
    assert texts[0].tolist() == [BOS, *one[0].tolist()]
    assert texts[1].tolist() == [BOS, EOS]
    assert texts.segments(0).tolist() == [0] * 5
    assert texts.sizes.tolist() == [5, 2]


def test_a_pair_is_laid_out_as_in_pretraining_and_the_second_segment_ends_with_its_mark():
    one, other = lines(4), lines(3, seed=2)
    texts = Texts(one, other, bos=BOS, longest=16)
    assert texts[0].tolist() == [BOS, *one[0].tolist(), *other[0].tolist()]
    assert texts.segments(0).tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_separator_stands_before_the_second_text_and_belongs_to_it():
    one, other = lines(4), lines(3, seed=2)
    texts = Texts(one, other, bos=BOS, longest=16, separator=EOS)
    assert texts[0].tolist() == [BOS, *one[0].tolist(), EOS, *other[0].tolist()]
    assert texts.segments(0).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert texts.size(0) == 9


def shortened_by_bert(one, other, room):
    """As BERT's code: a token at a time off the end of the longer text."""
    one, other = list(one), list(other)
    while len(one) + len(other) > room:
        (one if len(one) > len(other) else other).pop()
    return one, other


@pytest.mark.parametrize("longest", range(5, 20))
def test_long_pairs_are_shortened_as_bert_did(longest):
    sizes = [(1, 1), (9, 2), (2, 9), (9, 9), (8, 9), (5, 5), (12, 1), (1, 12), (7, 3)]
    one, other = lines(*(a for a, _ in sizes)), lines(*(b for _, b in sizes), seed=2)
    texts = Texts(one, other, bos=BOS, longest=longest)
    cut = 0
    for index in range(len(sizes)):
        first, second = one[index].tolist()[:-1], other[index].tolist()[:-1]
        expected = shortened_by_bert(first, second, longest - 3)
        cut += expected != (first, second)
        assert texts[index].tolist() == [BOS, *expected[0], EOS, *expected[1], EOS]
        assert len(texts[index]) == texts.size(index) == len(texts.segments(index))
    assert texts.shortened == cut


def test_a_long_single_text_loses_its_end_and_keeps_its_marks():
    one = lines(9)
    texts = Texts(one, bos=BOS, longest=6)
    assert texts[0].tolist() == [BOS, *one[0].tolist()[:4], EOS]


@pytest.mark.parametrize(
    ("pair", "separator", "least", "what"),
    [(False, None, 3, "a text"), (True, None, 5, "two texts"), (True, EOS, 6, "two texts")],
)
def test_a_sample_has_room_for_a_token_of_every_text(pair, separator, least, what):
    def texts(longest):
        return Texts(lines(9), lines(9) if pair else None, bos=BOS, longest=longest,
                     separator=separator)  # fmt: skip

    assert texts(least).kept.min(axis=0)[: 1 + pair].tolist() == [1] * (1 + pair)
    with pytest.raises(UserError) as error:
        texts(least - 1)
    assert str(error.value) == (
        f"--max-length {least - 1} has no room for {what}: take {least} or more"
    )
