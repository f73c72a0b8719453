"""The average of checkpoints: the mean of what is a number, and all else of the newest."""

import os
from argparse import Namespace

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.cli import main
from diet_fairseq.commands.average import average, find_checkpoints
from diet_fairseq.errors import UserError
from tests.support.commands import run


def checkpoint(path, value, dtype=torch.float32, **parameters):
    """Save a checkpoint whose parameters are all ``value``; two of them are tied."""
    tied = torch.full((2, 3), value, dtype=dtype)
    model = {
        "first": tied, "second": tied, "own": torch.full((2, 3), value, dtype=dtype),
        "count": torch.tensor(int(value)), **parameters,
    }  # fmt: skip
    torch.save({
        "args": None, "cfg": {"model": Namespace(arch="transformer")}, "model": model,
        "extra_state": {"epoch": value, "ema": model, "ema_fp32_params": model},
        "last_optimizer_state": {"state": {}},
    }, path)  # fmt: skip
    return path


def read(path):
    with open(path, "rb") as file:
        return checkpoints.read(file)


@pytest.fixture
def folder(tmp_path):
    for epoch in (1, 2, 9, 10):
        checkpoint(tmp_path / f"checkpoint{epoch}.pt", float(epoch))
    for update in (100, 50, 1000):
        checkpoint(tmp_path / f"checkpoint_3_{update}.pt", float(update))
    for name in ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint11.pt.tmp"):
        checkpoint(tmp_path / name, 0.0)
    return tmp_path


def test_the_mean_is_what_arithmetic_says(folder, capsys):
    out = folder / "mean.pt"
    inputs = [str(folder / f"checkpoint{n}.pt") for n in (1, 2, 9)]
    main(["average", "--inputs", *inputs, "--output", str(out)])
    assert capsys.readouterr().out.splitlines() == [
        "averaging 3 checkpoints:", *(f"  {path}" for path in inputs), f"wrote {out}",
    ]  # fmt: skip
    state = read(out)
    for name in ("first", "second", "own"):
        assert torch.equal(state["model"][name], torch.full((2, 3), 4.0))
    assert state["model"]["count"] == 1  # of the first
    assert state["extra_state"] == {"epoch": 1.0}
    assert state["cfg"]["model"].arch == "transformer"
    assert "last_optimizer_state" not in state
    assert not out.with_suffix(".pt.tmp").exists()


def test_tied_parameters_stay_one(folder):
    model = average([folder / "checkpoint1.pt", folder / "checkpoint2.pt"])["model"]
    assert model["first"].data_ptr() == model["second"].data_ptr() != model["own"].data_ptr()


@pytest.mark.parametrize("numbers", [(1, 2, 9), (9, 2, 1), (2, 9, 1)])
def test_parameters_that_only_some_checkpoints_tie_get_separate_means(numbers, folder):
    untied = torch.full((2, 3), 30.0)
    checkpoint(folder / "checkpoint9.pt", 9.0, second=untied)
    model = average([folder / f"checkpoint{number}.pt" for number in numbers])["model"]
    assert torch.equal(model["first"], torch.full((2, 3), 4.0))  # of 1, 2 and 9
    assert torch.equal(model["second"], torch.full((2, 3), 11.0))  # of 1, 2 and 30
    assert model["first"].data_ptr() != model["second"].data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_in_float32_and_the_type_stays(dtype, tmp_path):
    """In bfloat16 256 + 1 is 256: a sum in it would lose what is small."""
    paths = [
        checkpoint(tmp_path / f"{n}.pt", v, dtype) for n, v in enumerate([60000.0] + [2.0] * 7)
    ]
    mean = average(paths)["model"]["own"]
    assert mean.dtype is dtype
    exact = torch.tensor([60000.0] + [2.0] * 7).to(dtype).double().mean()
    assert torch.equal(mean, torch.full((2, 3), exact).to(dtype))


def test_one_checkpoint_is_its_own_average(folder):
    averaged = average([folder / "checkpoint9.pt"])["model"]
    for name, value in read(folder / "checkpoint9.pt")["model"].items():
        assert torch.equal(averaged[name], value)


def test_numbers_are_ordered_as_numbers(folder):
    names = [path.name for path in find_checkpoints(folder, "epoch", 3)]
    assert names == ["checkpoint10.pt", "checkpoint9.pt", "checkpoint2.pt"]
    names = [path.name for path in find_checkpoints(folder, "update", 2)]
    assert names == ["checkpoint_3_1000.pt", "checkpoint_3_100.pt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}", "--num-epoch-checkpoints", "5"],
         "--num-epoch-checkpoints must be at most 4, the number of epoch checkpoints in {0}, but "
         "is 5: lower it, or train longer"),
        (["{0}", "--num-epoch-checkpoints", "0"],
         "--num-epoch-checkpoints must be at least 1, but is 0"),
        (["{0}/checkpoint1.pt", "--num-epoch-checkpoints", "1"],
         "--inputs must be one folder with --num-epoch-checkpoints, but is {0}/checkpoint1.pt: "
         "give the folder that holds the checkpoints"),
        (["{0}/typo.pt"], "{0}/typo.pt can't be read: No such file or directory; give a "
         "checkpoint, such as checkpoint_best.pt"),
        (["{0}"], "{0} is a folder: give a checkpoint, such as checkpoint_best.pt"),
        (["{0}/checkpoint1.pt", "{0}/named.pt"],
         "{0}/named.pt has a parameter other, which {0}/checkpoint1.pt lacks: average checkpoints "
         "of one run"),
        (["{0}/named.pt", "{0}/checkpoint1.pt"],
         "{0}/named.pt has a parameter other, which {0}/checkpoint1.pt lacks: average checkpoints "
         "of one run"),
        (["{0}/checkpoint1.pt", "{0}/wide.pt"],
         "own is (2, 3) in {0}/checkpoint1.pt and (4,) in {0}/wide.pt: average checkpoints of one "
         "run"),
        (["{0}/empty.pt"], "{0}/empty.pt is not a checkpoint, or is truncated or damaged: give "
         "another, or train again"),
        (["{0}/pipe"], "{0}/pipe is not a regular file: give a checkpoint, such as "
         "checkpoint_best.pt"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(arguments, message, folder):
    checkpoint(folder / "named.pt", 1.0, other=torch.zeros(1))
    checkpoint(folder / "wide.pt", 1.0, own=torch.zeros(4))
    (folder / "empty.pt").touch()
    os.mkfifo(folder / "pipe")
    arguments = [argument.format(folder) for argument in arguments]
    with pytest.raises(UserError) as error:
        main(["average", "--inputs", *arguments, "--output", str(folder / "out.pt")])
    assert str(error.value) == message.format(folder)
    assert not (folder / "out.pt").exists()


@pytest.mark.slow
def test_the_command_ends_with_the_error(folder):
    done = run("diet_fairseq.cli:main", "average", "--inputs", folder / "typo.pt",
               "--output", folder / "out.pt", plugin=False)  # fmt: skip
    assert done.status == 1
    assert done.last.startswith(f"error: {folder}/typo.pt can't be read: No such file")


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ("nosuch/x.pt", "{0}/nosuch is not a folder"),
        ("checkpoint1.pt/x.pt", "{0}/checkpoint1.pt is not a folder"),
        ("", "{0} is a folder"),
    ],
)
def test_an_output_that_can_t_be_written_is_refused_before_checkpoints_are_read(
    folder, output, fault, monkeypatch
):
    monkeypatch.setattr("diet_fairseq.commands.average.average", None)
    words = ["--inputs", str(folder / "checkpoint1.pt"), "--output", str(folder / output)]
    with pytest.raises(UserError) as error:
        main(["average", *words])
    assert str(error.value) == (
        f"--output must be a file in a folder that exists, but {fault.format(folder)}: make the "
        "folder, or name another file"
    )
