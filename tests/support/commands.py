"""fairseq's commands, run as a user runs them, but without the seconds that imports take.

Each runs in a process of its own, forked from one that has imported fairseq (and not our plugin),
on a corpus of sixty sentences.
"""

import json
import multiprocessing.pool
import os
import random
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Any, NamedTuple

import pytest
import torch

PLUGIN = ("--user-dir", str(Path(__file__).parents[2] / "diet_fairseq"))
COMMANDS = ("preprocess", "train", "generate", "interactive", "validate", "eval_lm")

_processes = multiprocessing.get_context("forkserver")
# PyTorch imports these two with the first optimizer, which takes longer than a tiny training.
_OF_TRAINING = ("torch._dynamo", "torch.distributed.fsdp")
# Snakemake imports these while it reads a workflow.
_OF_WORKFLOWS = (
    *("snakemake.cli", "snakemake.report.html_reporter", "sacrebleu"),
    *("smart_open", "yte"),
)
_processes.set_forkserver_preload(
    [*(f"fairseq_cli.{name}" for name in COMMANDS), *_OF_TRAINING, *_OF_WORKFLOWS]
)


def slow(values: Sequence[Any]) -> list[Any]:
    """Parameters of a test that only the slow run takes."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


#: A model that trains in no time, stock fairseq's.
TINY = [
    *("--arch", "transformer", "--dropout", "0.1", "--seed", "1"),
    *(f"--{side}-{size}={n}" for side in ("encoder", "decoder") for size, n in
      {"layers": 1, "embed-dim": 8, "ffn-embed-dim": 8, "attention-heads": 2}.items()),
    *("--optimizer", "adam", "--lr", "0.01", "--max-tokens", "160", "--num-workers", "0"),
    *("--cpu", "--log-format", "json", "--log-interval", "1"),
]  # fmt: skip


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both outputs: the first import decides to which of them fairseq logs."""
        return self.out + self.err

    @property
    def last(self) -> str:
        """The last line of stderr."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def log_lines(done: Done) -> list[dict[str, str]]:
    """The lines of the JSON log (``--log-format json``) of a command that ended well."""
    assert done.status == 0, done.err
    return [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]


def saved_tensors(folder: Path) -> dict[str, Any]:
    """The last checkpoint's parameters, and the optimizer's state as NUMBER.NAME."""
    from diet_fairseq import checkpoints  # later than fairseq alone

    with open(folder / "checkpoint_last.pt", "rb") as file:
        state = checkpoints.read(file, "cpu")
    moments = state["last_optimizer_state"]["state"]
    values = {f"{n}.{name}": v for n, entries in moments.items() for name, v in entries.items()}
    return {**state["model"], **values}


def assert_same_tensors(folder: Path, expected: Path) -> None:
    """Two runs end with the same parameters and the same state of the optimizer, bit for bit."""
    ours, theirs = saved_tensors(folder), saved_tensors(expected)
    assert ours.keys() == theirs.keys()
    differing = [
        name
        for name, value in theirs.items()
        if not torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value))
    ]
    assert differing == []


def run(
    command: str,
    *arguments: Any,
    plugin: bool = True,
    first: Callable[[], Any] | None = None,
    stdin: str = "",
    limit: float = 120,
) -> Done:
    """Run ``fairseq-COMMAND`` (or a module:function) to its end, or kill it at the limit.

    A function returns the status to exit with, or None for 0.
    ``first`` is called in its process before it starts.
    """
    argv = [str(a) for a in (*arguments, *(PLUGIN if plugin else ()))]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").write_text(stdin)
        process = _processes.Process(target=_child, args=(command, argv, folder, first))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
        texts = [(Path(folder) / name).read_text() for name in ("out", "err")]
        return Done(process.exitcode or 0, *texts)


def _child(command: str, argv: list[str], folder: str, first: Callable[[], Any] | None) -> None:
    write = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    for number, (name, mode) in enumerate({"in": os.O_RDONLY, "out": write, "err": write}.items()):
        os.dup2(os.open(Path(folder) / name, mode), number)
    sys.argv = [f"fairseq-{command}", *argv]
    sys.stdin = open(0)  # noqa: SIM115  # multiprocessing closed it
    # A user's command forks its data loader workers, which takes no time; without this line they
    # would come from a forkserver of their own and import everything anew.
    multiprocessing.set_start_method("fork", force=True)
    status: Any = 0
    try:
        if first:
            first()
        module, _, function = command.rpartition(":")
        program = import_module(module or f"fairseq_cli.{command}")
        status = getattr(program, function if module else "cli_main")() or 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1)


def train_as_main() -> None:
    """``python -m fairseq_cli.train``, in a process that has imported the program as a module."""
    run_module("fairseq_cli.train", run_name="__main__", alter_sys=True)


def together(
    data: Path,
    *options: Any,
    first: Sequence[Callable[[], Any] | None] = (None, None),
    limit: float = 120,
) -> list[Done]:
    """Train on two processes; both are started at once, as they wait for each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ("--distributed-world-size", 2, "--distributed-no-spawn", "--device-id", 0,
             "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp",
             "--distributed-init-method", f"tcp://127.0.0.1:{port}")  # fmt: skip
    start = partial(run, "train", data, *flags, *options, limit=limit)
    with multiprocessing.pool.ThreadPool(2) as threads:
        return threads.map(
            lambda rank: start("--distributed-rank", rank, first=first[rank]), (0, 1)
        )


def corpus(folder: Path) -> Path:
    """Sixty sentences and their mirror images, preprocessed."""
    draw = random.Random(1)
    for split, size in (("train", 60), ("valid", 8), ("test", 4)):
        lines = [[f"w{draw.randrange(12)}" for _ in range(draw.randint(2, 8))] for _ in range(size)]
        for side, step in (("de", 1), ("en", -1)):
            text = "".join(" ".join(line[::step]) + "\n" for line in lines)
            (folder / f"{split}.{side}").write_text(text)
    sets = [a for s in ("train", "valid", "test") for a in (f"--{s}pref", folder / s)]
    done = run("preprocess", "-s", "de", "-t", "en", *sets, "--destdir", folder / "data", "--cpu")
    assert done.status == 0, done.err
    return folder / "data"


def documents(folder: Path) -> Path:
    """Twelve documents of ten lines, preprocessed for language modelling."""
    draw = random.Random(1)
    for split, size in (("train", 12), ("valid", 3)):
        texts = [
            "".join(
                " ".join(f"w{draw.randrange(12)}" for _ in range(draw.randint(3, 8))) + "\n"
                for _ in range(10)
            )
            for _ in range(size)
        ]
        (folder / split).write_text("\n".join(texts))
    sets = [a for s in ("train", "valid") for a in (f"--{s}pref", folder / s)]
    done = run("preprocess", "--only-source", *sets, "--destdir", folder / "data", "--cpu")
    assert done.status == 0, done.err
    return folder / "data"


def kill_on_call(target: str, number: int) -> None:
    """Have this process killed at the ``number``th call of ``module:attribute``."""
    module, _, path = target.partition(":")
    owner = import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    calls = iter(range(1, number + 1))

    def counted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, counted)


def set_environment(**variables: str) -> None:
    """Set environment variables of this process."""
    os.environ.update(variables)


def without_protection() -> None:
    """Let PyTorch load any pickle, as stock fairseq needs for its checkpoints."""
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
