"""Pairs that don't fit are dropped, each for one counted reason."""

import subprocess
import sys

import pytest

from diet_fairseq.text import cleaning

GOOD = ("ein Satz", "a sentence")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "a"), "blank"),
        (("\xa0\u2028 ", "a"), "blank"),
        (("a", "\ufeff".strip("\ufeff")), "blank"),
        (("w " * 251, "w " * 250), "long"),
        (("x" * 100_000, "x"), "long"),
        (("a b c d", "a"), "ratio"),
        (("@@", "four words in English"), "ratio"),
        (("ein\u2003Satz", "a sentence "), "duplicate"),
        (("ein Satz", "another sentence"), "kept"),
        (("w " * 250, "w " * 250), "kept"),
        (("a b c", "a"), "kept"),
        (("tab\tin it", "a\ttab in it"), "kept"),
    ],
)
def test_each_fault_has_its_reason(pair, reason):
    cleaner = cleaning.Cleaner(cleaning.Rules())
    cleaned = list(cleaner([GOOD, pair]))
    assert len(cleaned) == 1 + (reason == "kept")
    assert cleaner.counts["read"] == 2
    assert cleaner.counts[reason] == 1 + (reason == "kept")


def test_every_pair_is_kept_or_has_a_reason():
    cleaner = cleaning.Cleaner(cleaning.Rules(max_words=3, max_ratio=2))
    pairs = [(f"{i % 7} " * (i % 5), f"{i % 3} " * (i % 4)) for i in range(1000)]
    cleaned = list(cleaner(pairs))
    counts = cleaner.counts
    assert counts["read"] == 1000
    assert counts["kept"] == len(cleaned) == len(set(cleaned))
    assert sum(counts.values()) == 2000
    assert all(counts[reason] for reason in cleaning.REASONS)


def test_the_table_names_every_count():
    cleaner = cleaning.Cleaner(cleaning.Rules())
    list(cleaner([GOOD, GOOD, ("", "")]))
    rows = [line.split()[:3] for line in cleaning.format_counts(cleaner.counts).splitlines()]
    assert ["read", "3", "100.00%"] in rows
    assert ["duplicate", "1", "33.33%"] in rows
    assert {row[0] for row in rows} == {"read", "kept", *cleaning.REASONS}


def test_only_the_same_pair_is_a_duplicate():
    cleaner = cleaning.Cleaner(cleaning.Rules())
    assert len(list(cleaner([("a b", "c"), ("a", "b c"), ("a b", "c d"), ("a b", "c")]))) == 3


@pytest.mark.slow
def test_a_million_pairs_fit_into_memory():
    program = """
import resource, sys
from diet_fairseq.text import cleaning
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cleaner = cleaning.Cleaner(cleaning.Rules())
for pair in cleaner((f"sentence {n} " * 8, f"Satz {n} " * 8) for n in range(1_000_000)):
    pass
assert cleaner.counts["kept"] == 1_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400_000  # KiB
