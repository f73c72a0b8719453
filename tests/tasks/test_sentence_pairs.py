"""Samples of two texts: half of the second texts follow the first, and no text is lost.

Token 1000 d + n is the n-th of document d: a sample says where it is from.
"""

import random

import numpy as np
import pytest
import torch
from fairseq.data import ListDataset

import diet_fairseq  # noqa: F401  # registers
from diet_fairseq.errors import UserError
from diet_fairseq.tasks.sentence_pairs import SentencePairs, cut_span, find_runs

BOS, PAD, EOS = 0, 1, 2


def documents(number=40, lines=12, most=6, seed=1):
    """Lines of 1 to ``most`` tokens and ``</s>``, which stands alone between documents."""
    draw = random.Random(seed)
    text = []
    for document in range(1, number + 1):
        token = 1000 * document
        for _ in range(draw.randint(1, lines)):
            length = draw.randint(1, most)
            text.append([*range(token, token + length), EOS])
            token += length
        text.append([EOS])
    return text


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
        a, b = sides(dataset, index)
        assert len(dataset[index]) <= tokens_per_sample
        for side in (a, b):
            assert side
            assert side == list(range(side[0], side[0] + len(side)))
        if dataset.follows[index]:
            assert a[-1] < b[0]
            assert a[0] // 1000 == b[0] // 1000
        else:
            assert a[0] // 1000 != b[0] // 1000


def test_an_uncut_second_text_follows_at_once():
    dataset = pairs(documents(lines=5, most=3), tokens_per_sample=128)
    followers = np.flatnonzero(dataset.follows)
    assert len(followers) > 5
    for index in followers:
        a, b = sides(dataset, index)
        assert b[0] == a[-1] + 1


def test_samples_hold_all_of_the_text_if_uncut():
    lines = documents(lines=5, most=3)
    dataset = pairs(lines, tokens_per_sample=128)
    tokens = {token for index in range(len(dataset)) for token in dataset[index].tolist()}
    assert tokens == {token for line in lines for token in line} | {BOS}


def test_samples_are_filled_to_their_length():
    dataset = pairs(documents(lines=200, most=6), tokens_per_sample=64, short=0.0)
    assert np.median(dataset.sizes) >= 60


def test_half_of_the_second_texts_follow():
    dataset = pairs(documents(number=20, lines=2000), tokens_per_sample=32)
    assert len(dataset) > 2000
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.04)


def test_lines_as_long_as_a_sample_have_followers_too():
    dataset = pairs(documents(number=20, lines=200, most=60), tokens_per_sample=16)
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.slow
def test_a_tenth_of_the_documents_gives_shorter_samples():
    lines = documents(number=2000, lines=60)
    full, short = (pairs(lines, 64, short=share) for share in (0.0, 1.0))
    mixed = pairs(lines, 64)
    means = [float(dataset.sizes.mean()) for dataset in (full, mixed, short)]
    assert means[0] > means[1] > means[2]
    assert len(mixed) - len(full) == pytest.approx(0.1 * (len(short) - len(full)), rel=0.35)


def test_the_seed_decides_the_pairs():
    lines = documents()
    a, same, b = (pairs(lines, seed=seed) for seed in ("1", "1", "2"))
    assert torch.equal(torch.from_numpy(a.spans), torch.from_numpy(same.spans))
    assert not np.array_equal(a.spans, b.spans)


def test_a_long_text_is_cut_at_both_ends():
    draw = random.Random(1)
    begins = [cut_span((10, 20), 4, draw)[0] - 10 for _ in range(4000)]
    assert set(begins) == set(range(7))
    assert np.mean(begins) == pytest.approx(3, abs=0.1)  # 6 coins


def test_the_longer_text_is_cut_first():
    dataset = pairs([[*range(1000, 1050), EOS], [*range(1050, 1053), EOS], [EOS], [2000, EOS]], 33)
    samples = [sides(dataset, index) for index in range(len(dataset))]
    cut = [(a, b) for a, b in samples if a[0] < 1050 <= b[0]]
    assert cut
    for a, b in cut:
        assert (len(a), len(b)) in ((27, 3), (29, 1))


def test_empty_lines_separate_documents():
    lengths = np.array([0, 3, 1, 0, 0, 2, 0, 4])
    assert find_runs(lengths > 0).tolist() == [[1, 3], [5, 6], [7, 8]]


def test_samples_without_room_for_two_texts_are_refused():
    with pytest.raises(UserError) as error:
        pairs([[5, EOS], [EOS], [6, EOS]], tokens_per_sample=4)
    assert str(error.value) == "--tokens-per-sample must be at least 5, but is 4"


@pytest.mark.parametrize(("lines", "number"), [([[5, EOS], [6, EOS]], 1), ([[EOS]], 0)])
def test_fewer_than_two_documents_are_refused(lines, number):
    with pytest.raises(UserError) as error:
        pairs(lines, name="data-bin/train")
    assert str(error.value) == (
        "--task masked_lm_nsp needs documents separated by blank lines, two or more, but "
        f"data-bin/train holds {number}: put a blank line after each document and run "
        "fairseq-preprocess again, or use --task masked_lm"
    )
