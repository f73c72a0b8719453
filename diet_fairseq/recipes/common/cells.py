"""The cells of grids: a finished one is a JSON file and is skipped, an interrupted one resumes."""

import json
import logging
import platform
import re
import shlex
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ...interrupts import Terminated, terminable
from ...progress import heartbeat
from . import turns
from .json_files import kept
from .options import by_name

logger = logging.getLogger(__name__)

#: between the commands of a result
AND = " && "
#: those that run at the moment
programs: set[subprocess.Popen] = set()


class Cell(ABC):
    """One run of a grid: its commands, and what comes out of them, in one JSON file."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def result(self) -> Path:
        """The JSON file; the cell is done when it is there."""

    @abstractmethod
    def steps(self) -> list[tuple[list[str], Path]]:
        """Python commands, each with the log that takes what it prints."""

    @abstractmethod
    def outcome(self) -> dict[str, Any]:
        """The outcome of the commands; a `UserError` if it is not what it should be."""

    @abstractmethod
    def summary(self, outcome: dict[str, Any]) -> str:
        """The outcome in a line."""

    def run(self) -> str:
        """Run it, unless it is done; returns its outcome in a line, or ``FAILED: ...``.

        Raises:
            UserError: the outcome is not what it should be, or the one that is there is another's
        """
        if self.result.exists():
            self.check_result()
            return "done before"
        steps = self.steps()
        for command, log in steps:
            if failure := self.call(command, log):
                return failure
        outcome = self.outcome()
        save(self.result, outcome, [command for command, _ in steps])
        return self.summary(outcome)

    def check_result(self) -> None:
        """Raise a `UserError` if the result that is there can't be read, or is not this cell's."""
        load(self.result)

    def call(self, command: list[str], log: Path) -> str:
        """Run a step; returns what went wrong, or nothing."""
        return run_logged(command, log)


def run_all(cells: Sequence[Cell], jobs: int) -> int:
    """Run them, ``jobs`` side by side, and report each; returns the status to exit with."""
    started = time.monotonic()
    turns.interrupted.clear()
    done = 0
    running: list[str] = []
    one_reports = threading.Lock()

    def say(what: str) -> None:
        when = f"{time.monotonic() - started:6.0f} s, {done} of {len(cells)}"
        with bar.external_write_mode():
            print(f"[{when}] {what}", flush=True)

    def report(cell: Cell, outcome: str) -> None:
        """At once, and not when slower cells that began before are done."""
        nonlocal done
        with one_reports:
            done += 1
            say(f"{cell.name}: {outcome}")
            bar.update()

    def run(cell: Cell) -> bool:
        running.append(cell.name)
        try:
            outcome = cell.run()
        except Exception as error:  # the other cells have their turn
            logger.debug("%s", cell.name, exc_info=True)
            name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            outcome = f"FAILED: {name}{error}"
        finally:
            running.remove(cell.name)
        if not turns.interrupted.is_set():  # which is no failure of the cell's
            report(cell, outcome)
        return outcome.startswith("FAILED")

    with (
        terminable(),
        tqdm(total=len(cells), disable=None) as bar,
        heartbeat(lambda: say(f"at work: {', '.join(running)}")),
        ThreadPoolExecutor(jobs) as pool,
    ):
        try:
            failed = sum(pool.map(run, cells))
        except KeyboardInterrupt as interrupt:  # the pool waits for its threads
            turns.interrupted.set()
            if isinstance(interrupt, Terminated):
                for program in programs.copy():
                    program.terminate()
            raise
    return 1 if failed else 0


def run_logged(command: Sequence[str], log: Path, **more: Any) -> str:
    """Run a Python command, all that it prints into the log; what went wrong, or nothing.

    ``more`` is as `subprocess.Popen` has it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        whole = [sys.executable, *command]
        status = status_of(whole, stdout=file, stderr=subprocess.STDOUT, **more)
    words = command[1:] if command[0] == "-m" else command  # a module, else a script
    name = " ".join(words[:3]) if words[0] == "diet_fairseq" else words[0]
    return f"FAILED: {name} ended with status {status}, see {log}" if status else ""


def status_of(command: Sequence[str], **more: Any) -> int:
    """As `subprocess.call`, but `run_all` can end the program."""
    with subprocess.Popen(command, **more) as program:
        programs.add(program)
        if turns.interrupted.is_set():  # too late to begin
            program.terminate()
        try:
            return program.wait()
        finally:
            programs.remove(program)


def nameable(words: Sequence[str]) -> list[str]:
    """Words of a command line as parts of a file's name: with others, it is another run."""
    return [re.sub(r"[^\w.+=-]+", "~", word.removeprefix("--")) for word in words]


def save(result: Path, found: dict[str, Any], commands: Sequence[Sequence[str]]) -> None:
    """Write down what came out, on which machine, and the commands that give it."""
    found = {
        **found,
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "command": AND.join(shlex.join(["python", *command]) for command in commands),
    }
    result.parent.mkdir(parents=True, exist_ok=True)
    with written(result) as file:
        file.write(json.dumps(found, indent=1) + "\n")


def load(result: Path, **needed: type) -> dict[str, Any]:
    """What came out; see `kept`."""
    return kept(result, "remove it, and run it again", **needed)


def commands_of(found: dict[str, Any]) -> list[dict[str, str]]:
    """Options by name of the commands that a result came from, as far as it says."""
    known = str(found["command"]).split(AND) if "command" in found else []
    return [by_name(shlex.split(one)[1:]) for one in known]
