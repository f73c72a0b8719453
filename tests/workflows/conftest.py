"""Tiny experiments for tests of the workflows, and Snakemake as a user runs it."""

import importlib.util
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from filelock import FileLock

from diet_fairseq.text.lines import read_lines
from tests.support import commands
from tests.support.pages import end_group
from tests.support.programs import start_server
from tests.support.texts import sentences, write

EXAMPLES = Path(__file__).parents[2] / "examples"
#: a model and a budget that take seconds
TINY = {
    "folder": "out",
    "languages": ["en", "de"],
    "train": "text/train",
    "valid": "text/valid",
    "test": "text/test",
    "vocabulary": 300,
    "schemes": ["diet_rel"],
    # as long as it takes to learn that sentences end: fairseq-generate limits those that don't by
    # the longest source of their batch
    "updates": 150,
    "batch": 1000,
    "learning_rate": 0.02,
    "warmup": 20,
    "average": 2,
    "save_interval": 50,
    "threads": 1,  # also those of other tests' processes
    "precision": "float32",  # on any machine
    "options": "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 "
    "--decoder-embed-dim 16 --encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 --dropout 0.1",
}

#: what a fairseq checkpoint of the layout of M2M-100 consists of
M2M = {"checkpoint": "model/model.pt", "data": "model", "subwords": "model/spm.model"}


def script(name):
    """A script as a module; it does nothing when imported."""
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def begin_in(folder: Path, environment: dict[str, str]) -> None:
    """The folder of this process, without the logging that fairseq's commands set up."""
    os.chdir(folder)
    os.environ.update(environment)
    logging.getLogger().handlers.clear()


def line_of_config(output: str) -> str:
    """The only line about the config in Snakemake's output."""
    [line] = re.findall(r"^ *((?:a key of )?config.*)$", output, re.MULTILINE)
    return line


class Experiment:
    """A folder with text and a config, and Snakemake in it."""

    snakefile = "Snakefile"
    tiny: ClassVar = TINY
    processes: ClassVar[list[subprocess.Popen]] = []

    def __init__(self, folder: Path, /, **changes: object) -> None:
        self.folder = folder
        self.environment = {"PYTHONPATH": str(EXAMPLES.parent)}
        self.configure(**changes)

    def configure(self, **changes: object) -> None:
        self.config = self.tiny | changes
        path, text = self.folder / "config.yaml", yaml.safe_dump(self.config)
        if not path.exists() or path.read_text() != text:  # a process beside may read it
            path.write_text(text)

    def words(self, *words: object) -> list[str]:
        """The words of its command."""
        start = ["-s", EXAMPLES / self.snakefile, "--configfile", "config.yaml", "-j", 2]
        return [*map(str, [*start, *words])]

    def start(self, *words: object, forked: bool = False) -> subprocess.Popen:
        """Snakemake at work, with a process group of its own.

        Args:
            forked: whether the server of programs starts Snakemake and its jobs, in other groups
        """
        python = start_server() / "python" if forked else sys.executable
        process = subprocess.Popen(
            [python, "-m", "snakemake", *self.words(*words)],
            cwd=self.folder, env=os.environ | self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def plan(self, *words: object) -> tuple[int, str]:
        """Status and output of a dry run."""
        return self.in_a_fork("-n", *words)

    def in_a_fork(self, *words: object) -> tuple[int, str]:
        """Status and output of what runs no job, in a fork of a process with Snakemake imported."""
        done = commands.run(
            "snakemake.cli:main", *self.words(*words),
            plugin=False, first=partial(begin_in, self.folder, self.environment),
        )  # fmt: skip
        return done.status, done.text

    def planned(self, *words: object) -> str:
        """Output of a dry run that must succeed."""
        status, output = self.plan(*words)
        assert status == 0, output
        return output

    def refusal(self) -> str:
        """The one line of a config that is refused before anything runs."""
        status, output = self.plan()
        assert status == 1
        return line_of_config(output)

    def run(self, *words: object) -> tuple[int, str]:
        """Status and output."""
        process = self.start(*words, forked=True)
        output, _ = process.communicate(timeout=3000)
        return process.returncode, output

    def made(self, *words: object) -> str:
        """Output of a run that must succeed."""
        status, output = self.run(*words)
        logs = [p.read_text()[-2000:] for p in self.folder.glob("out/**/*.log")] if status else []
        assert status == 0, output + "\n".join(logs)
        return output

    def path(self, pattern: str) -> Path:
        [path] = self.folder.glob(pattern)
        return path

    def start_until(self, rule: str, pattern: str, **changes: object) -> subprocess.Popen:
        """Snakemake, whose job of this rule has far to go when the pattern finds some content."""
        self.configure(**changes)
        process = self.start("--until", rule)
        end = time.monotonic() + 900
        while not any(path.stat().st_size for path in self.folder.glob(pattern)):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < end
            time.sleep(0.05)
        return process

    def kill(self, process: subprocess.Popen) -> None:
        """Kill Snakemake with its jobs, and unlock the folder as the documentation says."""
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.unlock()

    def unlock(self) -> None:
        status, output = self.in_a_fork("--unlock")
        assert status == 0, output

    def kill_in(self, rule: str) -> None:
        """Kill a job of this rule that has run for a second."""
        # a quick rule may have run before its predecessor was killed
        process = self.start("--forcerun", rule)
        has_begun = any(re.match(rf"\[\d+ of \d+\] {rule}\b", line) for line in process.stdout)
        time.sleep(1)
        self.kill(process)
        assert has_begun, f"{rule} did not run"


@pytest.fixture(autouse=True)
def _no_test_leaves_a_training_behind() -> Iterator[None]:
    yield
    for process in Experiment.processes:
        end_group(process)
    Experiment.processes.clear()


def write_corpus(folder: Path, shared_data: Path | None = None) -> None:
    """The first lines of Multi30k, or sentences that mean nothing."""
    folder.mkdir(parents=True)
    for split, name, size in (
        ("train", "train", 300), ("valid", "val", 20), ("test", "test_2016_flickr", 12)
    ):  # fmt: skip
        for lang in ("en", "de"):
            lines = sentences(size, seed=size)
            if shared_data:
                lines = list(read_lines(shared_data / "multi30k" / f"{name}.{lang}.gz"))[:size]
            if split == "test":
                lines[4:6] = ["", "\u200b\ufeff"]  # blank lines stay blank
            write(folder / f"{split}.{lang}", lines)


@pytest.fixture
def experiment(tmp_path):
    """An experiment of which nothing is made yet."""
    write_corpus(tmp_path / "text")
    return Experiment(tmp_path)


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """A function that makes a folder, by its name, once for all processes of pytest."""

    def once(name: str, make: Callable[[Path], object]) -> Path:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
        with FileLock(f"{folder}.lock"):
            if not Path(f"{folder}.made").exists():
                make(folder)
                Path(f"{folder}.made").touch()
        return folder

    return once


@pytest.fixture(scope="session")
def finished(make_once, shared_data):
    """An experiment that ran to its end: two seeds, and their ensemble."""
    config = {
        "seeds": [1, 2], "ensemble": True, "penalty": "tensor2tensor", "length_penalty": 0.6,
        "metrics": {"lines": "grep -c '' {hypotheses}"},
    }  # fmt: skip

    def make(folder):
        write_corpus(folder / "text", shared_data)
        Experiment(folder, **config).made()

    return Experiment(make_once("finished", make), **config)


def copy_without(experiment: Experiment, folder: Path, *names: str) -> Path:
    """A copy of an experiment's folder but for these folders of its results."""
    ignore = shutil.ignore_patterns("locks")  # of a test that runs Snakemake meanwhile
    shutil.copytree(experiment.folder, folder, copy_function=shutil.copy2, ignore=ignore)
    for name in names:
        shutil.rmtree(folder / "out" / name)
    return folder


@pytest.fixture
def prepared(finished, tmp_path):
    """An experiment whose text is prepared, and nothing is trained."""
    return Experiment(copy_without(finished, tmp_path / "copy", "runs", "ensembles", "results"))


class EncoderExperiment(Experiment):
    """A tiny encoder, fine-tuned on one task and on questions."""

    snakefile = "roberta/Snakefile"
    tiny: ClassVar = {
        "folder": "out",
        "text": {"en": ["text/en.txt"]},
        "lines_per_document": 10,
        "valid_share": 0.1,
        "vocabulary": 300,
        "models": {"diet_rel": "bert_diet_rel"},
        "length": 90,
        "threads": 1,
        "updates": 30,
        "batch": 8,
        "save_interval": 10,
        "validate_interval": 10,
        "keep": -1,
        "options": "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
        "--encoder-attention-heads 2",
        "tasks": {"RTE": {"data": "RTE"}},
        "questions": {
            "train": "squad.json",
            "tests": {"XQuAD": {"de": "squad.json"}},
            "stride": 10,
        },
        "tuning": {"rates": [0.001], "epochs": [2], "seeds": [1], "batch": 8, "length": 90},
    }

    def __init__(self, folder: Path, /, **changes: object) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, **changes)
        if not (folder / "RTE").exists():
            self.write_text()

    def write_text(self) -> None:
        """Write text, and files of RTE's and of SQuAD's form."""
        (self.folder / "text").mkdir(exist_ok=True)
        write(self.folder / "text" / "en.txt", sentences(300))
        (self.folder / "RTE").mkdir()
        pairs = zip(sentences(40), sentences(40, seed=2), strict=True)
        rows = [
            f"{number}\t{first}\t{second}\t{'not_' * (number % 2)}entailment"
            for number, (first, second) in enumerate(pairs)
        ]
        for split in ("train", "dev"):
            write(
                self.folder / "RTE" / f"{split}.tsv",
                ["index\tsentence1\tsentence2\tlabel", *rows],
            )
        paragraphs = [
            {"context": line, "qas": [{"id": str(number), "question": line[:9], "answers": [
                {"text": line.split()[1], "answer_start": line.index(" ") + 1}]}]}
            for number, line in enumerate(sentences(40, seed=3))
        ]  # fmt: skip
        content = json.dumps({"data": [{"paragraphs": paragraphs}]})
        (self.folder / "squad.json").write_text(content)
