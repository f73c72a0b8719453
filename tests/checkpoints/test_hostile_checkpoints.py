"""Mutations of a real checkpoint: each loads, is refused, or ends in an error, and no other way."""

import random
import time

import pytest
import torch._dynamo  # what training imports late is here before the processes fork  # noqa: F401
from fairseq.models.transformer import TransformerModel

from tests.support import hostile
from tests.support.commands import TINY

NOW = (*TINY, "--max-update", "3", "--disable-validation")
GENERATE = ("--cpu", "--beam", "2", "--max-len-b", "5", "--num-workers", "0")
SECONDS = 5  # of each test; all but the first 10 are left out if they aren't done by then


def attempts(path, data, folder):
    """Every command and interface that reads a checkpoint."""

    def interface():
        model = TransformerModel.from_pretrained(str(path.parent), path.name, str(data))
        model.translate(["w1 w2"], beam=2)

    train = (data, *NOW, "--save-dir", folder / "save")
    validate = (data, "--task", "translation", "--cpu", "--batch-size", 8, "--num-workers", 0)
    return {
        "generate": hostile.command("generate", data, "--path", path, *GENERATE),
        "restore": hostile.command("train", *train, "--restore-file", path),
        "finetune": hostile.command("train", *train, "--finetune-from-model", path),
        "interface": interface,
        "validate": hostile.command("validate", *validate, "--path", path),
    }


@pytest.mark.slow
def test_the_real_checkpoint_passes_every_attempt(stock, data, tmp_path):
    for name in attempts(stock, data, tmp_path):
        folder = tmp_path / name
        outcome = hostile.attempt(attempts(stock, data, folder)[name], folder)
        assert outcome.status == 0, outcome.err
        assert outcome.fault is None, name


@pytest.mark.slow
@pytest.mark.parametrize("mutation", hostile.MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutated_checkpoint_works_or_ends_the_command(mutation, stock, data, tmp_path):
    end = time.monotonic() + SECONDS
    original, faults, refused = stock.read_bytes(), [], 0
    for number in range(100):
        if number >= 10 and time.monotonic() > end:
            break
        draw = random.Random(f"{mutation.__name__} {number}")
        path, folder = tmp_path / f"{number}.pt", tmp_path / "run"
        path.write_bytes(mutation(original, draw))
        ways = attempts(path, data, folder)
        way = list(ways)[number % len(ways)]
        outcome = hostile.attempt(ways[way], folder)
        refused += outcome.is_refusal
        if outcome.fault:
            faults.append(f"{number} in {way}: {outcome.fault}")
        path.unlink()
    assert not faults
    assert refused  # the mutations are no harmless ones


@pytest.mark.slow
def test_the_watch_sees_what_a_checkpoint_must_not_do(tmp_path):
    """The control: every forbidden outcome is noticed."""
    import os
    import socket
    import sys

    def crash():
        os.abort()

    def connect():
        socket.create_connection(("127.0.0.1", 9), timeout=1)

    def fault(action, limit=20.0):
        return hostile.attempt(action, tmp_path / "run", limit).fault

    assert fault(lambda: None) is None
    assert fault(crash) == "ended by signal 6"
    assert fault(lambda: time.sleep(60), 0.5) == "hung"
    assert fault(lambda: os.system("true")).startswith("touched os.system")
    assert fault(lambda: (tmp_path / "x").write_text("x")).startswith("touched open")
    assert fault(lambda: open("/dev/zero", "rb").close()) == "touched open '/dev/zero'"
    assert "; socket.connect" in fault(connect)
    assert fault(lambda: 1 / 0) is None  # an error of fairseq's is no fault of the checkpoint's
    assert not hostile.attempt(lambda: 1 / 0, tmp_path / "run").is_refusal
    assert fault(lambda: sys.exit(3)) == "status 3: "
