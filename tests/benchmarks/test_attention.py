"""The choice of `auto`, beside the times of all that can compute the call."""

import sys

import pytest
import torch

from benchmarks import attention


@pytest.mark.parametrize(("option", "dtype"), [("", torch.float32), (" --bf16", torch.bfloat16)])
def test_every_choice_stands_beside_the_times_of_all_candidates(option, dtype, monkeypatch, capsys):
    command = "attention --choices --lengths 8 --tokens 16 --rounds 1" + option
    monkeypatch.setattr(sys, "argv", command.split())
    requests, request = [], attention.request
    monkeypatch.setattr(
        attention, "request", lambda *a: requests.append(request(*a)) or requests[-1]
    )
    attention.main()
    assert {call.dtype for call in requests} == {dtype}
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = {tuple(cells[:2]): cells[3:] for cells in lines if len(cells) == 7 and cells[2] == "8"}
    assert len(rows) == 4 * 3  # schemes and kinds of calls
    choice, quickest, speed, times = rows["diet_abs", "training"]
    timed = dict(entry.split() for entry in times.split(", "))
    assert timed.keys() == {"reference", "sdpa", "factors"}
    assert {choice, quickest} <= timed.keys()
    assert float(timed[quickest]) == min(map(float, timed.values()))
    assert 0 < float(speed) <= 1
