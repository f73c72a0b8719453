"""fairseq's command-line tools, run with this plugin."""

import os
import shlex
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY

from ...config import flag
from ...errors import UserError
from ...interrupts import Terminated, terminable
from . import settings
from .json_files import kept

#: in place of a scheme: fairseq's own model, to compare with
STOCK = "stock"
#: in a folder of data, what `prepare` made
PREPARED = "prepared.json"
#: for --user-dir
PLUGIN = Path(__file__).parents[2]
#: seconds for a program to end in order
PATIENCE = 10


def environment() -> dict[str, str]:
    """This process's environment, in which Python reads and writes UTF-8."""
    return {**os.environ, "PYTHONUTF8": "1"}


def shape_of(arch: str) -> list[str]:
    """Options that give fairseq's own model the size and the dropout of an architecture of ours."""
    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    parts = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    names = [f"{side}_{part}" for side in ("encoder", "decoder") for part in parts]
    given = [name for name in (*names, "dropout") if hasattr(args, name)]
    return [word for name in given for word in (flag(name), str(getattr(args, name)))]


def python(module: str, *arguments: object) -> list[str]:
    return [sys.executable, "-m", module, *map(str, arguments)]


def run(command: list[str], log: Path) -> None:
    """Run a command; its output goes to the log, whose end is shown if the command fails."""
    with (
        open(log, "ab") as file,
        started(command, stdout=file, stderr=subprocess.STDOUT) as program,
    ):
        status = program.wait()
    if status:
        end = log.read_text(encoding="utf-8", errors="replace").split("\n")[-15:]
        print("\n".join(end), file=sys.stderr)
        raise UserError(f"{' '.join(command[1:4])} ended with status {status}: see {log}")


@contextmanager
def started(command: list[str], **more: Any) -> Iterator[subprocess.Popen]:
    """A program at work, which is ended where this context is left early, as by SIGTERM.

    ``more`` is as `subprocess.Popen` has it.
    """
    with terminable(), subprocess.Popen(command, env=environment(), **more) as program:
        try:
            yield program
        except BaseException as error:
            if isinstance(error, Terminated):
                # As Ctrl-C, for which a program ends those that it has started itself.
                program.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    program.wait(PATIENCE)
            program.kill()
            raise


def preprocess(options: dict[str, Any], log: Path, *flags: str) -> None:
    """fairseq-preprocess with these options and flags."""
    flat = [value for item in options.items() for value in item]
    run(python("fairseq_cli.preprocess", *flags, *flat), log)


def train(
    command: list[str],
    same: list[str],
    run: Path,
    show: bool,
    describe: Callable[[], None] = lambda: None,
) -> None:
    """Show the fairseq-train command and, unless ``show``, replace this process by it.

    ``same`` is the command as it would be on any machine, for any number of updates. ``describe``
    puts beside the checkpoints what the model needs, as soon as it is clear that this run is it.
    """
    print("fairseq-train", shlex.join(command[3:]), flush=True)
    if not show:
        run.mkdir(parents=True, exist_ok=True)
        settings.keep(run, same[3:])
        describe()
        os.execve(sys.executable, command, environment())


def data_of(folder: Path) -> Path:
    data = folder / "data-bin"
    if not (folder / PREPARED).exists():
        raise UserError(f"{folder} holds no finished data: run `prepare` first, or name --folder")
    return data


def prepared(folder: Path, **needed: type) -> dict[str, Any]:
    """What `prepare` says of the folder's data; see `kept`."""
    return kept(data_of(folder).with_name(PREPARED), "run `prepare` again", **needed)


def devices(gpus: int | None) -> int:
    """How many GPUs to use; 0 is the CPU."""
    import torch

    there = torch.cuda.device_count()
    if gpus is not None and gpus > there:
        raise UserError(f"--gpus {gpus}: there are {there}; 0 is the CPU")
    return there if gpus is None else gpus
