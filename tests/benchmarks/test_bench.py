"""`make bench` says what it will do and how long that takes, and compares figures with floors."""

import json
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks.harness import Timing, save


@pytest.fixture
def called(monkeypatch, tmp_path, capsys):
    """A function that runs it with stand-ins; it returns the output and the benchmarks' words."""
    told = []

    def measured(name):
        def main():
            output = capsys.readouterr().out
            words = sys.argv[1:]
            told.append((output, words))
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


def test_every_step_is_announced_with_its_time(called):
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


def test_figures_are_saved_and_compared(called, tmp_path):
    output, _ = called()
    assert "| training_tiny.json | diet_rel | 2.00 | 1.10 |  |" in output
    figures = json.loads((tmp_path / "bench" / "training_tiny.json").read_text())
    assert figures["timings"][1]["ratios"] == [2.0]


def test_further_options_reach_the_benchmarks(called, tmp_path):
    _, told = called("--out", str(tmp_path / "other"), "--schemes", "shaw")
    for _, words in told:
        assert words[-2:] == ["--schemes", "shaw"]
        assert words[words.index("--out") + 1] == str(tmp_path / "other")


# --- Floors


def write(folder, name, **ratios):
    save(folder / name, "", [Timing(row, [1.0], [ratio]) for row, ratio in ratios.items()])


def test_ratios_at_their_floors_or_a_little_below_pass(tmp_path, capsys):
    write(tmp_path, "training_tiny.json", stock=1.0, diet_rel=1.05, shaw=0.95)
    write(tmp_path, "encoders-base-128-full-inference.json", stock=1.0, shaw=0.5, t5=0.97)
    bench.compare(tmp_path)
    printed = capsys.readouterr().out
    assert "| training_tiny.json | diet_rel | 1.05 | 1.10 | below, within the margin |" in printed
    assert "| t5 | 0.97 | 0.97 |  |" in printed
    assert "stock" not in printed


@pytest.mark.parametrize(
    ("file", "row", "ratio"),
    [
        ("training_tiny.json", "diet_abs", 0.98),
        ("training_iwslt.json", "shaw", 0.85),
        ("generation-trained.json", "t5", 1.16),
        ("encoders-base-512-full-inference.json", "tupe_a", 0.87),
        ("encoders-base-512-full-training.json", "tupe_a", 0.89),
        ("encoders-base-512-mixed-inference.json", "shaw", 0.89),
        ("linear-attention-forward-8192.json", "linformer", 3.5),
        ("linear-layer-forward-8192.json", "diet_abs_lin", 2.2),
    ],
)
def test_a_ratio_far_below_its_floor_fails(tmp_path, file, row, ratio):
    write(tmp_path, file, stock=1.0, **{row: ratio})
    with pytest.raises(SystemExit, match=r"1 of 1 ratios are below 0\.9 of their floor"):
        bench.compare(tmp_path)


def test_schemes_that_were_compared_among_each_other_have_no_floor(tmp_path):
    write(tmp_path, "linear-layer-forward-8192.json", linformer=1.0, diet_abs_lin=0.9)
    with pytest.raises(SystemExit, match="holds no figures that have a floor"):
        bench.compare(tmp_path)


def test_stock_in_bfloat16_has_no_floor_and_our_rows_have_theirs(tmp_path, capsys):
    rows = {"stock": 1.0, "stock, bf16": 0.5, "diet_rel, bf16": 2.5}
    write(tmp_path, "training_tiny.json", **rows)
    bench.compare(tmp_path)
    printed = capsys.readouterr().out
    assert "stock, bf16" not in printed
    assert "| diet_rel, bf16 | 2.50 | 1.10 |" in printed


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="holds no figures that have a floor"):
        bench.compare(tmp_path)


def test_finished_figures_are_compared_without_measuring(called, tmp_path, capsys):
    write(tmp_path, "training_tiny.json", stock=1.0, diet_rel=1.2)
    printed, told = called("--compare", str(tmp_path))
    assert "| training_tiny.json | diet_rel | 1.20 | 1.10 |  |" in printed
    assert told == []
