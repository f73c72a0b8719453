"""The choice of `auto`, beside the times of all that can compute the call."""

import sys

import pytest
import torch

from benchmarks import attention


@pytest.mark.parametrize(("more", "dtype"), [("", torch.float32), (" --bf16", torch.bfloat16)])
def test_every_choice_stands_beside_the_times_of_all_candidates(more, dtype, monkeypatch, capsys):
    command = "attention --choices --lengths 8 --tokens 16 --rounds 1" + more
    monkeypatch.setattr(sys, "argv", command.split())
    asked, request = [], attention.request
    monkeypatch.setattr(attention, "request", lambda *a: asked.append(request(*a)) or asked[-1])
    attention.main()
    assert {one.dtype for one in asked} == {dtype}
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {tuple(cells[:2]): cells[3:] for cells in lines if len(cells) == 7 and cells[2] == "8"}
    assert len(rows) == 4 * 3  # schemes and kinds of calls
    chosen, quickest, speed, times = rows["diet_abs", "training"]
    timed = dict(one.split() for one in times.split(", "))
    assert timed.keys() == {"reference", "sdpa", "factors"}
    assert {chosen, quickest} <= timed.keys()
    assert float(timed[quickest]) == min(map(float, timed.values()))
    assert 0 < float(speed) <= 1
