"""Samples of two texts: half of the second ones follow the first, and all of the text is there.

Token 1000 d + n is the n-th of document d: a sample says where it is from.
"""

import random

import numpy as np
import pytest
import torch
from fairseq.data import ListDataset

import diet_fairseq  # noqa: F401  # registers
from diet_fairseq.data.sentence_pairs import SentencePairs, cut, runs
from diet_fairseq.errors import UserError

BOS, PAD, EOS = 0, 1, 2


def documents(number=40, lines=12, most=6, seed=1):
    """Lines of 1 to ``most`` tokens and ``</s>``, which stands alone between documents."""
    draw = random.Random(seed)
    found = []
    for document in range(1, number + 1):
        token = 1000 * document
        for _ in range(draw.randint(1, lines)):
            length = draw.randint(1, most)
            found.append([*range(token, token + length), EOS])
            token += length
        found.append([EOS])
    return found


def pairs(lines, tokens_per_sample=32, seed="1", **options):
    dataset = ListDataset([torch.tensor(line) for line in lines], np.array(list(map(len, lines))))
    options = {"bos": BOS, "eos": EOS, "tokens_per_sample": tokens_per_sample, **options}
    return SentencePairs(dataset, seed=seed, **options)


def sides(dataset, index):
    """A and B of a sample, whose form is checked."""
    sample, segments = dataset[index].tolist(), dataset.segments(index).tolist()
    assert sample[0] == BOS
    assert sample[-1] == EOS
    assert sample.count(EOS) == 2
    middle = sample.index(EOS)
    assert segments == [0] * (middle + 1) + [1] * (len(sample) - middle - 1)
    assert len(sample) == dataset.size(index) == dataset.num_tokens(index)
    return sample[1:middle], sample[middle + 1 : -1]


@pytest.mark.parametrize("tokens_per_sample", [5, 6, 16, 32, 128])
def test_a_sample_is_two_runs_of_text_of_the_right_documents(tokens_per_sample):
    dataset = pairs(documents(), tokens_per_sample)
    assert len(dataset) > 40
    for index in range(len(dataset)):
        one, other = sides(dataset, index)
        assert len(dataset[index]) <= tokens_per_sample
        for side in (one, other):
            assert side
            assert side == list(range(side[0], side[0] + len(side)))
        if dataset.follows[index]:
            assert one[-1] < other[0]
            assert one[0] // 1000 == other[0] // 1000
        else:
            assert one[0] // 1000 != other[0] // 1000


def test_a_text_that_is_not_cut_follows_at_once():
    dataset = pairs(documents(lines=5, most=3), tokens_per_sample=128)
    followers = np.flatnonzero(dataset.follows)
    assert len(followers) > 5
    for index in followers:
        one, other = sides(dataset, index)
        assert other[0] == one[-1] + 1


def test_all_of_the_text_is_there_where_nothing_is_cut():
    lines = documents(lines=5, most=3)
    dataset = pairs(lines, tokens_per_sample=128)
    found = {token for index in range(len(dataset)) for token in dataset[index].tolist()}
    assert found == {token for line in lines for token in line} | {BOS}


def test_samples_are_filled():
    dataset = pairs(documents(lines=200, most=6), tokens_per_sample=64, short=0.0)
    assert np.median(dataset.sizes) >= 60


def test_half_of_the_second_texts_follow():
    dataset = pairs(documents(number=20, lines=2000), tokens_per_sample=32)
    assert len(dataset) > 2000
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.04)


def test_lines_that_fill_a_sample_alone_have_followers_too():
    dataset = pairs(documents(number=20, lines=200, most=60), tokens_per_sample=16)
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.slow
def test_a_tenth_of_the_documents_is_read_in_shorter_samples():
    lines = documents(number=2000, lines=60)
    full, short = (pairs(lines, 64, short=share) for share in (0.0, 1.0))
    some = pairs(lines, 64)
    means = [float(dataset.sizes.mean()) for dataset in (full, some, short)]
    assert means[0] > means[1] > means[2]
    assert len(some) - len(full) == pytest.approx(0.1 * (len(short) - len(full)), rel=0.35)


def test_the_pairs_are_those_of_the_seed():
    lines = documents()
    one, same, other = (pairs(lines, seed=seed) for seed in ("1", "1", "2"))
    assert torch.equal(torch.from_numpy(one.spans), torch.from_numpy(same.spans))
    assert not np.array_equal(one.spans, other.spans)


def test_what_is_too_long_is_cut_at_both_ends():
    draw = random.Random(1)
    begins = [cut((10, 20), 4, draw)[0] - 10 for _ in range(4000)]
    assert set(begins) == set(range(7))
    assert np.mean(begins) == pytest.approx(3, abs=0.1)  # 6 coins


def test_the_longer_text_is_cut_first():
    dataset = pairs([[*range(1000, 1050), EOS], [*range(1050, 1053), EOS], [EOS], [2000, EOS]], 33)
    found = [sides(dataset, index) for index in range(len(dataset))]
    cut = [(one, other) for one, other in found if one[0] < 1050 <= other[0]]
    assert cut
    for one, other in cut:
        assert (len(one), len(other)) in ((27, 3), (29, 1))


def test_documents_are_what_empty_lines_part():
    lengths = np.array([0, 3, 1, 0, 0, 2, 0, 4])
    assert runs(lengths > 0).tolist() == [[1, 3], [5, 6], [7, 8]]


@pytest.mark.parametrize(("lines", "number"), [([[5, EOS], [6, EOS]], 1), ([[EOS]], 0)])
def test_one_document_can_not_be_paired(lines, number):
    with pytest.raises(UserError) as error:
        pairs(lines, name="data-bin/train")
    assert str(error.value) == (
        "--task masked_lm_nsp needs documents separated by blank lines, two or more, but "
        f"data-bin/train holds {number}: put a blank line after each document and run "
        "fairseq-preprocess again, or take --task masked_lm"
    )


def test_a_sample_needs_room_for_two_texts():
    with pytest.raises(UserError) as error:
        pairs(documents(), tokens_per_sample=4)
    assert str(error.value) == (
        "--tokens-per-sample 4 has no room for <s> A </s> B </s>: take 5 or more"
    )
