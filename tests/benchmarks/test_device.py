"""The GPU's benchmarks, tried where there is no GPU."""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from benchmarks import attention, device, kernels
from diet_fairseq.attention.backends import BACKENDS


def run(monkeypatch, command):
    monkeypatch.setattr(sys, "argv", ["device", *command.split()])
    device.main()


@pytest.mark.slow
def test_every_backend_of_a_scheme_has_a_row_and_the_baseline_two(monkeypatch, tmp_path):
    called = set()
    for name, backend in BACKENDS.items():

        def compute(call, name=name, backend=backend):
            called.add(name)
            return backend(call)

        monkeypatch.setitem(BACKENDS, name, replace(backend, compute=compute))
    run(
        monkeypatch,
        "--device cpu --size tiny --lengths 8 --tokens 20 --rounds 1 --schemes shaw diet_abs "
        f"--backends reference sdpa --out {tmp_path / 'steps.jsonl'}",
    )
    rows = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    pairs = [f"{scheme}, {by}" for scheme in ("shaw", "diet_abs") for by in ("reference", "sdpa")]
    assert [row["row"] for row in rows] == ["none, sdpa", *pairs, "none, sdpa, again"]
    assert all(row["kernels"] for row in rows)
    assert called == {"reference", "sdpa"}  # "auto" would call one of them


def test_a_row_that_fails_is_left_out_with_its_reason(capsys):
    def fail():
        raise torch.OutOfMemoryError("17 GB are too much\nand more")

    assert not device.succeeds("t5, sdpa, n = 8", fail)
    assert capsys.readouterr().out == "t5, sdpa, n = 8: OutOfMemoryError: 17 GB are too much\n"


def test_no_row_repeats_another_backend_s():
    pairs = [
        ("shaw", "sdpa"),
        ("diet_abs", "factors"),
        ("diet_rel", "offsets"),
        ("tupe_r", "cudnn"),
        *((scheme, "offsets") for scheme in ("tupe_r", "shaw", "diet_abs")),
    ]
    assert all(device.computes(*pair) for pair in pairs)
    pairs = [("diet_rel", "factors"), ("shaw", "cudnn"), ("none", "cudnn")]
    pairs += [("rope", "offsets"), ("deberta", "offsets"), ("fire", "offsets"), ("t5", "banded")]
    assert not any(device.computes(*pair) for pair in pairs)


def test_the_kernel_with_the_gradient_of_the_line_is_measured_under_its_function_s_name(
    monkeypatch, capsys
):
    profile = {"offset_backward_queries": (3.0, 2), "offset_line": (1.0, 2)}
    monkeypatch.setattr(kernels, "profile_kernels", lambda run, device: profile)
    args = Namespace(device="cuda", calls=2, label="", out=None)
    inputs = SimpleNamespace(length=512)
    kernels.measure_tile(args, inputs, "row", "backward_queries_and_line", (64, 64, 4, 2), print)
    assert "64 x 64, 4 warps, 2 stages | 1.5000" in capsys.readouterr().out


def test_the_choice_of_auto_is_printed_beside_the_times_of_all_candidates(monkeypatch, capsys):
    command = "attention --choices --lengths 8 --tokens 16 --rounds 1"
    monkeypatch.setattr(sys, "argv", command.split())
    attention.main()
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {tuple(cells[:2]): cells[3:] for cells in lines if len(cells) == 7 and cells[2] == "8"}
    assert len(rows) == 4 * 3  # schemes and kinds of calls
    choice, quickest, speed, times = rows["diet_abs", "training"]
    timed = dict(entry.split() for entry in times.split(", "))
    assert timed.keys() == {"reference", "sdpa", "factors"}
    assert {choice, quickest} <= timed.keys()
    assert float(timed[quickest]) == min(map(float, timed.values()))
    assert 0 < float(speed) <= 1
