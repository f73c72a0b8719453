"""Text of many languages: how often each is read, by one rule and always in the same way."""

from collections import Counter

import pytest

from diet_fairseq.text import sampling

SIZES = {"de": 9000, "sw": 900, "yo": 100}


def test_copies_keep_the_size_and_have_the_given_shares():
    languages = [name for name, size in SIZES.items() for _ in range(size)]
    times = list(sampling.copies(languages, SIZES, 0.7))
    read = Counter()
    for name, number in zip(languages, times, strict=True):
        read[name] += number
    assert read.total() == pytest.approx(10_000, rel=0.01)
    weights = {name: size**0.7 for name, size in SIZES.items()}
    for name, weight in weights.items():
        assert read[name] / 10_000 == pytest.approx(weight / sum(weights.values()), rel=0.05)
    assert times == list(sampling.copies(languages, SIZES, 0.7))
    assert times != list(sampling.copies(languages, SIZES, 0.7, seed=2))
