"""Ctrl-C ends a command with status 130 and one line that says how to continue."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.commands import TINY, run, two_ranks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STEP = "fairseq.trainer:Trainer.train_step"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


def interrupt_on_call(target, number):
    """Have this process interrupted at the ``number``th call of ``module:Class.method``."""
    module, _, path = target.partition(":")
    owner, name = path.split(".")
    owner = getattr(import_module(module), owner)
    original = getattr(owner, name)
    calls = iter(range(1, number + 1))
    # what a shell has started in the background ignores Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def counted(*args, **kwargs):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    setattr(owner, name, counted)


def assert_told(done, advice, status=130):
    assert done.status == status
    assert done.last == f"interrupted: {advice}"
    assert "Traceback" not in done.text
    assert "KeyboardInterrupt" not in done.text


@pytest.mark.slow
def test_an_interrupted_training_says_from_where_it_goes_on(data, tmp_path):
    command = ("train", data, *TINY, "--max-epoch", 2, "--save-dir", tmp_path)
    first = run(*command, first=partial(interrupt_on_call, STEP, 2))
    assert_told(first, "there is no checkpoint yet: run the same command to start over")
    second = run(*command, first=partial(interrupt_on_call, STEP, 6))
    last = tmp_path / "checkpoint_last.pt"
    assert_told(second, f"run the same command to resume from {last}")
    other = shutil.copy(last, tmp_path / "other.pt")
    third = run(*command, "--restore-file", other, first=partial(interrupt_on_call, STEP, 2))
    assert_told(third, f"run the same command without --restore-file to resume from {last}")
    assert run(*command).status == 0


@pytest.mark.slow
def test_other_commands_begin_anew(data, tmp_path):
    command = ("train", data, *TINY, "--max-update", 1, "--disable-validation")
    assert run(*command, "--save-dir", tmp_path).status == 0
    where = "fairseq.tasks.fairseq_task:FairseqTask.inference_step"
    done = run("generate", data, "--cpu", "--path", tmp_path / "checkpoint_last.pt",
               first=partial(interrupt_on_call, where, 1))  # fmt: skip
    # Python itself makes 130 of it, which this way of running a command is without.
    assert_told(done, "run the same command to start over", status=1)


@pytest.mark.slow
def test_a_program_that_nothing_else_ends_has_status_130_in_a_shell(tmp_path):
    (tmp_path / "wait.py").write_text("import time, diet_fairseq\nprint('ready', flush=True)\n"
                                      "time.sleep(60)\n")  # fmt: skip
    command = ["bash", "-c", f"trap : INT; '{sys.executable}' '{tmp_path}/wait.py'; echo $? >&2"]
    _, said = interrupted(started(command, tmp_path), tmp_path / "log", "ready")
    assert said.splitlines()[-2:] == ["interrupted: run the same command to start over", "130"]


@pytest.mark.slow
def test_both_processes_of_a_run_say_so(data, tmp_path):
    interrupt = partial(interrupt_on_call, STEP, 4)  # they share the 4 updates of an epoch
    done = two_ranks(data, tmp_path, "--max-epoch", 2, first=(interrupt, interrupt))
    for one in done:
        assert_told(one, f"run the same command to resume from {tmp_path}/checkpoint_last.pt")


def started(command, folder):
    """A program that leads a group of its own, as one that a terminal starts."""
    with open(folder / "log", "w") as log:
        return subprocess.Popen(
            list(map(str, command)),
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
            # as a terminal starts it: a shell's background jobs ignore Ctrl-C, and so do theirs
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )


def interrupted(process, log, when, limit=120):
    """The program's status and what it said, interrupted with all its children at that line."""
    end = time.monotonic() + limit
    while not re.search(when, log.read_text()) and time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    return process.wait(limit), log.read_text()


@pytest.mark.slow
def test_processes_that_read_data_are_quiet(data, tmp_path):
    command = [sys.executable, "-m", "fairseq_cli.train", data, *TINY, "--num-workers", 2,
               "--max-epoch", 10_000, "--save-dir", tmp_path, *commands.PLUGIN]  # fmt: skip
    status, said = interrupted(
        started(command, tmp_path), tmp_path / "log", r"valid \| [\s\S]*train_inner"
    )
    assert status == 130, said
    assert said.splitlines()[-1].startswith("interrupted: run the same command to resume from")
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_preparation_goes_on(tmp_path, workers):
    from tests.support.texts import corpus

    texts = corpus(tmp_path / "texts", train=60_000, odd=False)
    command = [sys.executable, EXAMPLES / "wmt18/run.py", "prepare", "en", "de", "--from-dir"]
    command += [texts, "--folder", tmp_path / "out", "--bpe", "subword-nmt"]
    command += ["--workers", workers, "--vocabulary", 100]
    status, said = interrupted(
        started(command, tmp_path), tmp_path / "log", r"(subwords|encoded): working"
    )
    assert (status, said.splitlines()[-1]) == (
        130, "interrupted: run the same command to continue"
    )  # fmt: skip
    assert "Traceback" not in said
