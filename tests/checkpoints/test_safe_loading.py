"""Checkpoints are data: nothing in one is run, and the last line says what is wrong with it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fairseq import checkpoint_utils, hub_utils, options  # noqa: F401

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError
from tests.support.checkpoints import HiddenValue, HidingPickle, Touch
from tests.support.commands import TINY, run, without_protection

GENERATE = ("--cpu", "--beam", "2", "--max-len-b", "5", "--num-workers", "0")
NOW = (*TINY, "--max-update", "3", "--disable-validation")


def words_of(command, checkpoint, data, folder, option="--restore-file"):
    """The words of a command that reads a checkpoint."""
    if command == "train":
        return (data, *NOW, option, checkpoint, "--save-dir", folder / "save")
    if command == "validate":
        return (data, "--task", "translation", "--path", checkpoint, "--cpu", "--batch-size", 8)
    return (data, "--path", checkpoint, *GENERATE)


# --- What fairseq wrote loads


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "train"])
def test_stock_checkpoints_work_in_every_command(command, stock, data, tmp_path):
    done = run(command, *words_of(command, stock, data, tmp_path), stdin="w1 w2\n")
    assert done.status == 0, done.err
    line = {
        # the test set has four sentences; fairseq alone drops a last batch of fewer than eight
        "generate": "Translated 4 sentences",
        "interactive": "H-0\t",
        "validate": "valid on 'valid' subset | loss",
        "train": "Loaded checkpoint",
    }[command]
    assert line in done.text


def test_stock_checkpoints_work_in_from_pretrained(stock, data):
    hub = hub_utils.from_pretrained(str(stock.parent), stock.name, str(data))
    assert sum(p.numel() for p in hub["models"][0].parameters()) > 0


def test_threads_that_read_at_once_each_get_their_checkpoint(stock, monkeypatch):
    before = set(torch.serialization.get_safe_globals())
    original = torch.load

    def slowly(*args, **kwargs):
        time.sleep(0.05)
        return original(*args, **kwargs)

    monkeypatch.setattr("torch.load", slowly)
    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(checkpoints.read, [stock] * 6))
    assert all(state["cfg"] for state in states)
    assert set(torch.serialization.get_safe_globals()) == before


def test_other_users_of_torch_load_are_as_they_were(stock):
    before = set(torch.serialization.get_safe_globals())  # PyTorch's list has no order of its own
    with open(stock, "rb") as file:
        checkpoints.read(file)
    assert set(torch.serialization.get_safe_globals()) == before
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(stock)


# --- A program in the pickle


@pytest.fixture
def hostile(tmp_path):
    marker, path = tmp_path / "it-ran", tmp_path / "hostile.pt"
    torch.save({"model": {}, "cfg": {}, "extra_state": Touch(marker)}, path)
    return path, marker


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "first"),
    [
        *(("generate", without_protection), ("train", None)),
        *(("generate", None), ("train", without_protection)),
    ],
)
def test_a_program_in_the_pickle_is_refused(command, first, hostile, data, tmp_path):
    path, marker = hostile
    done = run(command, *words_of(command, path, data, tmp_path), first=first)
    system = f"{os.system.__module__}.system"
    assert done.status == 1
    assert done.last == (
        f"error: {path} is refused: it holds {system}, which no checkpoint needs and which could "
        "run a program; nothing of it was run; use a checkpoint from a source that you trust"
    )
    assert not marker.exists()


# --- A program in the configuration


def touch(marker):
    return f"__import__('os').system('touch {marker}')"


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("protected", [True, False])
def test_a_program_in_the_configuration_is_refused(side, protected, edited, data, tmp_path):
    """With us it is refused by name; without us (and pickles allowed) it runs: the control."""
    marker = tmp_path / "it-ran"
    key = f"model__{side}_xformers_att_config"
    path = edited(**{key: touch(marker)})
    first = None if protected else without_protection
    done = run("generate", data, "--path", path, *GENERATE, plugin=protected, first=first)
    assert marker.exists() is not protected, done.err
    if protected:
        assert done.status == 1
        assert done.last == (
            f"error: {path} is refused: cfg.model.{side}_xformers_att_config of its configuration "
            f"is {touch(marker)!r}, which fairseq could run as a program; use a checkpoint from a "
            "source that you trust"
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "train"])
def test_a_program_in_an_object_of_a_forged_class_is_refused(command, stock, data, tmp_path):
    """The hole of version 0.3.0: a bytearray in the place of numbers, which fairseq evaluates."""
    marker, path = tmp_path / "it-ran", tmp_path / "forged.pt"
    state = checkpoints.read(stock)
    program = HiddenValue(touch(marker).encode())  # a bytearray is refused by its name already
    vars(state["cfg"]["model"]).update(
        arch="fconv", _name="fconv", encoder_layers=program, decoder_layers="[(512, 3)]",
        decoder_attention="True", share_input_output_embed=False, encoder_embed_path=None,
        decoder_embed_path=None,
    )  # fmt: skip
    torch.save(state, path, pickle_module=HidingPickle)
    words = words_of(command, path, data, tmp_path, "--finetune-from-model")
    done = run(command, *words, stdin="w1 w2\n")
    assert not marker.exists()
    assert done.last == (
        f"error: {path} is refused: cfg.model.encoder_layers is a Namespace of anything but named "
        "options; use a checkpoint from a source that you trust"
    )


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("attack", [False, True])
def test_old_configurations_load_and_their_programs_are_refused(attack, stock, data, tmp_path):
    """Old checkpoints have a namespace of all options instead of sections."""
    marker, path = tmp_path / "it-ran", tmp_path / "old.pt"
    with open(stock, "rb") as file:
        state = checkpoints.read(file)
    state["args"], state["cfg"] = state["cfg"]["model"], None
    if attack:
        state["args"].decoder_xformers_att_config = touch(marker)
    torch.save(state, path)
    done = run("generate", data, "--path", path, *GENERATE)
    assert not marker.exists()
    if attack:
        place = "args.decoder_xformers_att_config"
        start = f"error: {path} is refused: {place} of its configuration is {touch(marker)!r}, "
        assert done.last.startswith(start)
    else:
        assert "Translated 4 sentences" in done.text


@pytest.mark.slow
def test_interpolations_are_refused(edited, data):
    path = edited(task__source_lang="${oc.env:HOME}")
    done = run("generate", data, "--path", path, *GENERATE)
    assert done.last == (
        f"error: {path} is refused: cfg.task.source_lang of its configuration is "
        "'${oc.env:HOME}', which is an interpolation that reads other values; use a checkpoint "
        "from a source that you trust"
    )


@pytest.mark.slow
def test_a_folder_named_in_the_configuration_is_not_imported(edited, data, tmp_path):
    marker = tmp_path / "it-ran"
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "__init__.py").write_text(f"open({str(marker)!r}, 'w')")
    path = edited(common__user_dir=str(evil))
    assert run("generate", data, "--path", path, *GENERATE).status == 0
    assert (
        run("train", data, *NOW, "--finetune-from-model", path, "--save-dir", tmp_path).status == 0
    )
    assert not marker.exists()
    run("generate", data, "--path", path, *GENERATE, "--user-dir", evil, plugin=False)
    assert marker.exists()  # the control: this folder would have left its mark


# --- Files that are no checkpoints


def cut(path, stock):
    path.write_bytes(stock.read_bytes()[: stock.stat().st_size // 2])


def empty(path, stock):
    path.touch()


def text(path, stock):
    path.write_text("this is text\n")


def weights(path, stock):
    torch.save({"weight": torch.zeros(1)}, path)


def without_configuration(path, stock):
    torch.save({"model": {}, "cfg": "yaml: ${oc.env:HOME}"}, path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (cut, " is not a checkpoint, or is truncated or damaged: give another, or train again"),
        (empty, " is not a checkpoint, or is truncated or damaged: give another, or train again"),
        (text, " is not a checkpoint, or is truncated or damaged: give another, or train again"),
        (weights, " is not a fairseq checkpoint: it holds no model; give another file"),
        (without_configuration,
         " is not a fairseq checkpoint: it holds no configuration; give another file"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_checkpoint_is_refused(make, words, stock, tmp_path):
    path = tmp_path / "checkpoint.pt"
    make(path, stock)
    with pytest.raises(UserError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert str(error.value) == f"{path}{words}"


@pytest.mark.slow
@pytest.mark.parametrize("make", [cut, empty])
def test_commands_end_with_the_refusal(make, stock, data, tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    make(path, stock)
    for command in (("generate", data, "--path", path, *GENERATE),
                    ("train", data, *NOW, "--save-dir", tmp_path)):  # fmt: skip
        done = run(*command)
        assert done.status == 1
        assert done.last.startswith(f"error: {path} is not a checkpoint, or is truncated or damage")
