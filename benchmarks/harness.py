"""Timing of candidates in turn, with medians and ratios, memory of processes, files of figures."""

import json
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import diet_fairseq
from diet_fairseq.distributions import find_distributions


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
        """The speed against the baseline: the median over the rounds."""
        return statistics.median(self.ratios)


def in_turn(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> list[Timing]:
    """Time every candidate once a round, ``rounds`` times; the first one is the baseline.

    A machine's speed drifts, so candidates are measured next to each other, and the ratio is taken
    within each round. Seconds are CPU seconds of all threads of this process, without other
    programs. Compare with one thread (OMP_NUM_THREADS=1), because then no thread waits. Times of
    a device need another ``clock``.
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
    """Timings with the first one as the baseline."""
    baseline = next(iter(seconds.values()))
    return [
        Timing(name, times, [base / time for base, time in zip(baseline, times, strict=True)])
        for name, times in seconds.items()
    ]


def in_fork(run: Callable[..., Any], *args: object) -> Any:
    """The result of ``run(*args)`` in a fork of this process, which need not import fairseq."""
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=lambda: theirs.send(run(*args)))
    process.start()
    theirs.close()
    result = ours.recv()
    process.join()
    return result


def memory(field: str) -> float:
    """A field of Linux's process status in MiB: "VmRSS", "VmSize", "VmHWM" (the peak of VmRSS)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(field + ":")) / 1024


def forget_peak() -> None:
    """Reset "VmHWM" of this process."""
    Path("/proc/self/clear_refs").write_text("5")


def machine() -> dict[str, str]:
    """The processor, threads and versions of the figures."""
    return {
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": _fairseq(),
        "diet_fairseq": diet_fairseq.__version__,
    }


def _fairseq() -> str:
    """Name and version of the installed distribution of fairseq, which is not imported."""
    spec = find_spec("fairseq")
    if spec is None or spec.origin is None:
        return "not installed"
    installed = find_distributions(Path(spec.origin).parents[1])
    return " and ".join(map(" ".join, installed)) or "without metadata"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def save(path: Path, what: str, timings: list[Timing], **facts: object) -> None:
    record = {
        "what": what,
        "machine": machine(),
        "timings": [asdict(t) for t in timings],
        **facts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")


def append_line(path: Path, record: dict[str, object]) -> None:
    """Append a record to a file of JSON lines, which keeps its rows if a measurement is cut."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
