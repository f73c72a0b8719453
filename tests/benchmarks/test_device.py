"""The GPU's benchmark, tried where there is no GPU."""

import sys

import pytest
import torch

from benchmarks import device


def run(monkeypatch, command):
    monkeypatch.setattr(sys, "argv", ["device", *command.split()])
    device.main()


@pytest.mark.slow
def test_every_backend_of_a_scheme_has_a_row_of_whole_sentences(monkeypatch, capsys):
    run(
        monkeypatch,
        "--device cpu --size tiny --lengths 8 --tokens 20 --rounds 1 --schemes shaw diet_abs "
        "--backends reference sdpa",
    )
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {cells[0]: cells[1:] for cells in lines if len(cells) == 5 and ", " in cells[0]}
    computed = [
        f"{scheme}, {by}" for scheme in ("shaw", "diet_abs") for by in ("reference", "sdpa")
    ]
    assert list(rows) == ["none, sdpa", *computed]
    for ms, rate, *_ in rows.values():
        tokens = float(ms) / 1000 * float(rate.replace(",", ""))
        assert tokens == pytest.approx(16, rel=0.02)  # two sentences of 8


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_how_to_try_it(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--lengths 8")
    assert "PyTorch finds no GPU here: take --device cpu" in capsys.readouterr().err


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_a_row_that_fails_is_left_out_with_its_reason(error, capsys):
    def fail():
        raise error("17 GB are too much\nand more")

    assert not device.runs("t5, sdpa, n = 8", fail)
    assert capsys.readouterr().out == f"t5, sdpa, n = 8: {error.__name__}: 17 GB are too much\n"
    assert device.runs("t5, sdpa, n = 8", lambda: None)


@pytest.mark.parametrize(
    ("scheme", "backend", "computed"),
    [
        ("shaw", "sdpa", True),  # its score reads queries
        ("diet_abs", "factors", True),
        ("diet_rel", "factors", False),
        ("diet_rel", "offsets", True),
        ("diet_rel", "split", True),
        ("diet_abs", "split", False),
        ("tupe_r", "offsets", False),
    ],
)
def test_no_row_repeats_another_backends(scheme, backend, computed):
    assert device.computes(scheme, backend) == computed
