"""The guard of speed compares ratios with floors, and says what is below."""

import sys

import pytest

from benchmarks import guard
from benchmarks.harness import Timing, save


def write(folder, name, **ratios):
    save(folder / name, "", [Timing(row, [1.0], [found]) for row, found in ratios.items()])


def guarded(folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["guard", str(folder)])
    guard.main()


def test_ratios_at_their_floors_or_a_little_below_pass(tmp_path, monkeypatch, capsys):
    write(tmp_path, "training_tiny.json", stock=1.0, diet_rel=1.05, shaw=0.95)
    write(tmp_path, "encoders-base-128-full-inference.json", stock=1.0, shaw=0.5, t5=0.97)
    guarded(tmp_path, monkeypatch)
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
def test_a_ratio_far_below_its_floor_fails(tmp_path, monkeypatch, file, row, ratio):
    write(tmp_path, file, stock=1.0, **{row: ratio})
    with pytest.raises(SystemExit, match=r"1 of 1 ratios are below 0\.9 of their floor"):
        guarded(tmp_path, monkeypatch)


def test_schemes_that_were_compared_among_each_other_have_no_floor(tmp_path, monkeypatch):
    write(tmp_path, "linear-layer-forward-8192.json", linformer=1.0, diet_abs_lin=0.9)
    with pytest.raises(SystemExit, match="holds no figures that have a floor"):
        guarded(tmp_path, monkeypatch)


def test_stock_in_bfloat16_has_no_floor_and_our_rows_have_theirs(tmp_path, monkeypatch, capsys):
    rows = {"stock": 1.0, "stock, bf16": 0.5, "diet_rel, bf16": 2.5}
    write(tmp_path, "training_tiny.json", **rows)
    guarded(tmp_path, monkeypatch)
    printed = capsys.readouterr().out
    assert "stock, bf16" not in printed
    assert "| diet_rel, bf16 | 2.50 | 1.10 |" in printed


def test_a_folder_without_figures_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="holds no figures that have a floor"):
        guarded(tmp_path, monkeypatch)
