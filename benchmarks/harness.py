"""Pairs in turn, medians, ratios: the one way in which anything is timed here."""

import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate, and its speed against the baseline's, round by round."""

    name: str
    seconds: list[float]
    ratios: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """How many times as fast as the baseline: the median over the rounds."""
        return statistics.median(self.ratios)


def in_turn(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> list[Timing]:
    """Time every candidate once a round, ``rounds`` times; the first one is the baseline.

    A machine's speed drifts; what is compared is therefore measured next to each other, and the
    ratio is taken within each round. Seconds are those this process computed, on all its threads,
    so that other programs on the machine don't count; compare at one thread (OMP_NUM_THREADS=1),
    where nothing waits for anything. A device's time needs another ``clock``.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_ in range(-warmup, rounds):
        for name, run in candidates.items():
            start = clock()
            run()
            if round_ >= 0:
                seconds[name].append(clock() - start)
    return against_first(seconds)


def against_first(seconds: Mapping[str, list[float]]) -> list[Timing]:
    """The first is the baseline."""
    baseline = next(iter(seconds.values()))
    return [
        Timing(name, taken, [base / mine for base, mine in zip(baseline, taken, strict=True)])
        for name, taken in seconds.items()
    ]


def in_fork(run: Callable[..., Any], *args: object) -> Any:
    """What ``run(*args)`` returns, in a process of its own.

    A fork, because importing fairseq takes longer than most of what is measured.
    """
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=lambda: theirs.send(run(*args)))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def memory(field: str) -> float:
    """MiB, as Linux counts this process's: "VmRSS", "VmSize", "VmHWM" (the peak of VmRSS)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(field + ":")) / 1024


def forget_peak() -> None:
    """From here on "VmHWM" counts anew."""
    Path("/proc/self/clear_refs").write_text("5")


def machine() -> dict[str, str]:
    """What a reader must know to place the figures."""
    from importlib.metadata import version

    return {
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq-fixed": version("fairseq-fixed"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def save(path: Path, what: str, timings: list[Timing], **more: object) -> None:
    record = {"what": what, "machine": machine(), "timings": [asdict(t) for t in timings], **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
