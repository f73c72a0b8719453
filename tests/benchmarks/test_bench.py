"""`make bench` says what it will do and how long that takes, and leaves its figures."""

import json
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks.harness import Timing, save


@pytest.fixture
def called(monkeypatch, tmp_path, capsys):
    """Runs it with stand-ins; returns what it printed, and what the benchmarks were told."""
    told = []

    def measured(name):
        def main():
            said = capsys.readouterr().out
            words = sys.argv[1:]
            told.append((said, words))
            out = bench.Path(words[words.index("--out") + 1])
            save(out / f"{name}_tiny.json", "", [Timing("stock", [1.0], [1.0]),
                                                 Timing("diet_rel", [0.5], [2.0])])  # fmt: skip

        return main

    monkeypatch.chdir(tmp_path)
    steps = [step._replace(main=measured("training")) for step in bench.STEPS]
    monkeypatch.setattr(bench, "STEPS", steps)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["bench", *words])
        bench.main()
        return capsys.readouterr().out, told

    return call


def test_it_says_first_what_it_will_do_and_for_how_long(called):
    _, told = called()
    assert told[0][0].splitlines() == [
        "Every scheme against stock fairseq, 3 rounds: about 8 minutes",
        "  translation: train, translate, peak memory: `_tiny`",
        "  encoders: inference and training: `_small`, 128 tokens",
        "The figures go to bench/, and are compared with their floors.",
        "",
        "translation",
    ]
    assert "about 16 minutes" in called("--rounds", "6")[1][2][0]


def test_it_leaves_its_figures_and_compares_them(called, tmp_path):
    said, _ = called()
    assert "| training_tiny.json | diet_rel | 2.00 | 1.10 |  |" in said
    found = json.loads((tmp_path / "bench" / "training_tiny.json").read_text())
    assert found["timings"][1]["ratios"] == [2.0]


def test_other_words_are_passed_on(called, tmp_path):
    _, told = called("--out", str(tmp_path / "other"), "--schemes", "shaw")
    for _, words in told:
        assert words[-2:] == ["--schemes", "shaw"]
        assert words[words.index("--out") + 1] == str(tmp_path / "other")
