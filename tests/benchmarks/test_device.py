"""The GPU's benchmark, tried where there is no GPU."""

import json
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks import device
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_how_to_try_it(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--lengths 8")
    assert "PyTorch finds no GPU; try the command with --device cpu" in capsys.readouterr().err


def test_a_row_that_fails_is_left_out_with_its_reason(capsys):
    def fail():
        raise torch.OutOfMemoryError("17 GB are too much\nand more")

    assert not device.succeeds("t5, sdpa, n = 8", fail)
    assert capsys.readouterr().out == "t5, sdpa, n = 8: OutOfMemoryError: 17 GB are too much\n"


@pytest.mark.parametrize(
    ("scheme", "backend", "computed"),
    [
        ("shaw", "sdpa", True),  # its score reads queries
        ("diet_abs", "factors", True),
        ("diet_rel", "factors", False),
        ("diet_rel", "offsets", True),
        ("diet_rel", "offsets_v2", True),
        ("tupe_r", "cudnn", True),
        ("shaw", "cudnn", False),
        ("none", "cudnn", False),
        ("tupe_r", "offsets", False),
    ],
)
def test_no_row_repeats_another_backends(scheme, backend, computed):
    assert device.computes(scheme, backend) == computed
