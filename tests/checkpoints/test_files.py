"""Reading a checkpoint's file: plain data comes out of it, or one line that says what is wrong."""

import io
import os
import zipfile
from argparse import Namespace
from collections import OrderedDict
from itertools import product

import fairseq
import numpy as np
import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.checkpoints import configuration
from diet_fairseq.errors import UserError
from tests.support import hostile
from tests.support.checkpoints import Touch, refusal, saved
from tests.support.commands import TINY

NOW = (*TINY, "--max-update", "1", "--disable-validation")


# --- Plain data


def test_plain_data_comes_out_as_it_went_in(tmp_path):
    tied = torch.nn.Parameter(torch.arange(4.0))
    half = torch.arange(6).half().view(2, 3).t()
    parts = {
        "extra": [None, True, 3, 2.5, 2**70, "text", (1, (2,)), {1: "a", "b": [3]}],
        "args": Namespace(lr=[0.1], inner=Namespace(a=1)),
        "model": OrderedDict(a=tied, b=tied, half=half),
    }
    state = checkpoints.read(saved(tmp_path / "x.pt", **parts))
    model = state.pop("model")
    assert state == {"cfg": {}, **{key: value for key, value in parts.items() if key != "model"}}
    assert model["a"] is model["b"]
    torch.testing.assert_close(dict(model), {"a": tied.data, "b": tied.data, "half": half})


def cycle():
    value = []
    value.append([value])
    return value


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def shared(depth):
    """2**depth zeros in ``depth`` lists."""
    value = [0]
    for _ in range(depth):
        value = [value, value]
    return value


WITH_METHODS = Namespace(a=1)
vars(WITH_METHODS)["__deepcopy__"] = 1

EVERYWHERE = ("model", "last_optimizer_state", "cfg", "extra_state")
TENSORS = ("model", "last_optimizer_state", "extra_state")
#: a value, the parts of a checkpoint that it stands in, and the reason why it is refused there
ODDITIES = {
    "cycle": (cycle(), EVERYWHERE, "contains itself"),
    "depth": (nested(60), EVERYWHERE, "is nested more than 50 deep"),
    "sharing": (shared(40), EVERYWHERE, "comes to more than 20,000,000 values"),
    "method": (WITH_METHODS, ("cfg",), "__deepcopy__ is not a name"),
    "expanded": (torch.zeros(1).expand(1 << 40), TENSORS, "is a tensor of more numbers than are"),
}
#: types that a checkpoint never holds, or only in other parts
MISPLACED = {
    "bytes": EVERYWHERE,
    **dict.fromkeys(("Tensor", "OrderedDict"), ("cfg",)),
    **dict.fromkeys(("Array", "Scalar", "Size", "dtype"), ("cfg", "model", "last_optimizer_state")),
    "Namespace": ("model", "last_optimizer_state", "extra_state"),
}
VALUES = {
    "bytes": b"print(1)", "Size": torch.Size([2]), "dtype": torch.float16,
    "Tensor": torch.zeros(2), "OrderedDict": OrderedDict(a=1), "Array": np.zeros(2),
    "Scalar": np.float64(1), "Namespace": Namespace(a=1),
}  # fmt: skip
#: values whose pickle uses another name than a checkpoint's
NAMED = {
    "set": {1},
    "bytearray": bytearray(b"print(1)"),
    "complex": 1j,
    "torch._utils._rebuild_sparse_tensor": torch.zeros(2).to_sparse(),
    "torch._utils._rebuild_meta_tensor_no_storage": torch.zeros(2, device="meta"),
    "torch._utils._rebuild_qtensor": torch.quantize_per_tensor(torch.zeros(2), 1, 0, torch.qint8),
    "torch.device": torch.device("cpu"),
}


@pytest.mark.parametrize("name", NAMED)
def test_only_the_names_of_a_checkpoint_are_looked_up(name, tmp_path):
    text = refusal(saved(tmp_path / "x.pt", extra_state=[NAMED[name]]))
    assert text.startswith(f"refused: it holds {name}, which no checkpoint needs")


@pytest.mark.parametrize("old_format", [False, True])
def test_the_formats_since_and_before_pytorch_1_6_are_read(old_format, tmp_path):
    state = {"model": {"a": torch.arange(6.0).view(2, 3)[:, 1:]}, "cfg": {"b": [1]}}
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=not old_format)
    read = checkpoints.read(tmp_path / "x.pt")
    torch.testing.assert_close(read["model"]["a"], state["model"]["a"])
    assert read["cfg"] == state["cfg"]


@pytest.mark.parametrize(
    ("oddity", "part"), [(name, part) for name in ODDITIES for part in ODDITIES[name][1]]
)
def test_unusual_values_are_refused_with_their_place(oddity, part, tmp_path):
    value, _, words = ODDITIES[oddity]
    text = refusal(saved(tmp_path / "x.pt", **{part: {"a": [0, {"b": value}]}}))
    assert text.startswith(f"refused: {part}.a.1.b")
    assert words in text


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in MISPLACED for part in MISPLACED[name]]
)
def test_every_part_of_a_checkpoint_holds_only_its_types(name, part, tmp_path):
    text = refusal(saved(tmp_path / "x.pt", **{part: {"a": [0, {"b": VALUES[name]}]}}))
    assert text.startswith(
        f"refused: {part}.a.1.b is of the type {name}, which checkpoints don't have there"
    )


def test_types_are_checked_at_every_place_of_a_shared_value(tmp_path):
    value = [np.zeros(2)]
    text = refusal(saved(tmp_path / "x.pt", extra_state={"a": value}, cfg={"a": value}))
    assert text.startswith("refused: cfg.a.0 is of the type Array")


@pytest.mark.parametrize("value", ["text", 1, None, {}])
def test_weights_that_are_no_tensors_are_refused(value, tmp_path):
    text = refusal(saved(tmp_path / "x.pt", model={"encoder.w\x1b[2J": value}))
    assert text == r"refused: encoder.w\x1b[2J of its model is not a tensor; give another file"


class Named:
    """An object whose pickle names a function with a name that acts on a terminal."""

    def __reduce__(self):
        return os.getcwd, ()


def test_nothing_in_a_refusal_acts_on_a_terminal(tmp_path):
    path = saved(tmp_path / "x.pt", x=Named())
    path.write_bytes(hostile._repacked(path.read_bytes(), lambda p: (
        p.replace(b"cposix\ngetcwd\n", b"cevil\n\x1b[2J\x07" + b"x" * 5000 + b"\n"))))  # fmt: skip
    assert r"it holds evil.\x1b[2J\x07xxx" in refusal(path)
    assert r"cfg.\x1b[2J" in refusal(saved(path, cfg={"\x1b[2J": "${a}"}))
    assert r"'\x1b[2J${a}'" in refusal(saved(path, cfg={"a": "\x1b[2J${a}"}))
    assert len(refusal(saved(path, cfg={"a" * 10000: "${" + "b" * 10000}))) < 1000


def test_a_checkpoint_that_cant_be_opened_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    with pytest.raises(UserError, match=r"x\.pt can't be read: No such file or directory; give"):
        checkpoints.read(path)
    saved(path)

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(UserError, match=r"x\.pt can't be read: Permission denied; give"):
        checkpoints.read(path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "needs more memory than there is: free some, or, if the file is small, g"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            "needs more mem",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "needs more memory than there is"),
    ],
    ids=["memory", "allocator", "gpu"],
)
def test_a_good_checkpoint_is_not_blamed_for_the_machine(error, words, tmp_path, monkeypatch):
    path = saved(tmp_path / "x.pt")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(UserError) as refused:
        checkpoints.read(path)
    assert str(refused.value).startswith(f"{path} {words}")


def test_an_archive_that_unpacks_to_more_than_its_file_is_refused(tmp_path):
    path = saved(tmp_path / "x.pt", x="a" * 1_000_000)
    with zipfile.ZipFile(path) as good:
        entries = {name: good.read(name) for name in good.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name, content in entries.items():
            bomb.writestr(name, content)
    assert torch.load(path)["x"] == "a" * 1_000_000  # the control: PyTorch unpacks it
    assert refusal(path).startswith("refused: it is compressed, and unpacks to more than its size")
    with open(path, "rb") as file, pytest.raises(UserError, match="unpacks to more"):
        checkpoints.read(file)


# --- Regular files


KINDS = ("folder", "pipe", "device", "broken link")


@pytest.fixture(params=KINDS)
def no_file(request, tmp_path):
    path = tmp_path / "x.pt"
    match request.param:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "broken link":
            path.symlink_to(tmp_path / "nowhere")
    fault = {
        "folder": "is a folder: ",
        "broken link": "can't be read: No such file or directory; ",
    }.get(request.param, "is not a regular file: ")
    return path, f"{path} {fault}give a checkpoint, such as checkpoint_best.pt"


def test_only_regular_files_are_read(no_file):
    path, words = no_file
    with pytest.raises(UserError) as error:
        checkpoints.read(path)
    assert str(error.value) == words


TRAINING = ("--restore-file", "--finetune-from-model", "--save-dir")


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("way", "no_file"),
    [*product(["--path"], KINDS), *product(TRAINING, ["pipe", "broken link"])],
    indirect=["no_file"],
)
def test_commands_read_regular_files_only(way, no_file, data, tmp_path):
    """Otherwise training would start from scratch, and generation would wait for the pipe."""
    path, words = no_file
    saving = ("--save-dir", tmp_path / "save")
    match way:
        case "--path":
            action = hostile.command("generate", data, "--path", path, "--cpu")
        case "--save-dir":
            path.rename(path.with_name("checkpoint_last.pt"))
            words = words.replace("x.pt", "checkpoint_last.pt")
            action = hostile.command("train", data, *NOW, "--save-dir", tmp_path)
        case _:
            action = hostile.command("train", data, *NOW, way, path, *saving)
    outcome = hostile.attempt(action, tmp_path / "run")
    assert outcome.status == 1
    if path.is_symlink() and not path.exists() and way in ("--path", "--finetune-from-model"):
        assert str(path) in outcome.err.splitlines()[-1]  # fairseq's own words
    else:
        assert outcome.err.splitlines()[-1] == f"error: {words}"


# --- What processes broadcast


def test_no_program_in_a_broadcast_object_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    marker, path = tmp_path / "it-ran", tmp_path / "x.pt"
    torch.save(Touch(marker), path)
    for module in (fairseq.checkpoint_utils, fairseq.distributed.utils):
        for file in (str(path), io.BytesIO(path.read_bytes())):
            with pytest.raises(UserError, match="is refused: it holds"):
                module.torch.load(file)
    assert not marker.exists()
    torch.load(path)
    assert marker.exists()  # the control


def test_what_fairseq_broadcasts_about_tensors_is_read():
    sent = [{"size": torch.Size([2]), "dtype": torch.float16, "device": torch.device("cpu")}]
    file = io.BytesIO()
    torch.save(sent, file)
    file.seek(0)
    assert fairseq.distributed.utils.torch.load(file) == sent


def test_buffers_count_among_the_numbers_of_a_model():
    module, numbers = torch.nn.Module(), torch.empty(1 << 30, device="meta")
    with (
        configuration.no_larger_than(1000),
        pytest.raises(configuration.Refused, match="more parameters than the file contains"),
    ):
        module.register_buffer("table", numbers)
    with configuration.no_larger_than(1000):
        module.register_buffer("none", None)
        module.register_buffer("small", torch.empty(9))
