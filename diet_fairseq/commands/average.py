"""``diet-fairseq average``: the mean of several checkpoints' parameters.

The flags are from fairseq's average_checkpoints.py, which fairseq's packages do not include.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, silent_interrupts

#: KIND of --num-KIND-checkpoints -> pattern of the files' names
CHECKPOINT_PATTERNS = {
    "epoch": re.compile(r"checkpoint(\d+)\.pt"),
    "update": re.compile(r"checkpoint_\d+_(\d+)\.pt"),
}


def find_checkpoints(folder: Path, kind: str, count: int) -> list[Path]:
    """The last ``count`` checkpoints in a folder, newest first; `UserError` if there are fewer."""
    if count < 1:
        raise UserError(f"--num-{kind}-checkpoints must be at least 1, but is {count}")
    numbers = {
        path: int(match[1])
        for path in folder.iterdir()
        if (match := CHECKPOINT_PATTERNS[kind].fullmatch(path.name))
    }
    if len(numbers) < count:
        raise UserError(
            f"--num-{kind}-checkpoints must be at most {len(numbers)}, the number of {kind} "
            f"checkpoints in {folder}, but is {count}: lower it, or train longer"
        )
    return sorted(numbers, key=numbers.__getitem__, reverse=True)[:count]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """A checkpoint with the mean of each parameter, and everything else from the first file.

    Sums are in float32 or wider; integer tensors are the first file's. The optimizer's state and
    the averages of ``--store-ema`` are dropped, because they belong to one file.

    Raises:
        UserError: the files differ in the names or shapes of parameters
    """
    with silent_interrupts():
        import torch

        from .. import checkpoints

    result = checkpoints.read(str(paths[0]), "cpu")
    result.pop("last_optimizer_state", None)
    for name in ("ema", "ema_fp32_params"):
        result.get("extra_state", {}).pop(name, None)
    first = result["model"]
    sums = {
        name: tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
        for name, tensor in first.items()
        if tensor.is_floating_point()
    }
    for path in paths[1:]:
        model = checkpoints.read(str(path), "cpu")["model"]
        for name in first.keys() ^ model.keys():
            complete, incomplete = (paths[0], path) if name in first else (path, paths[0])
            raise UserError(
                f"{complete} has a parameter {name}, which {incomplete} lacks: average "
                "checkpoints of one run"
            )
        for name, total in sums.items():
            if model[name].shape != total.shape:
                raise UserError(
                    f"{name} is {tuple(total.shape)} in {paths[0]} and {tuple(model[name].shape)} "
                    f"in {path}: average checkpoints of one run"
                )
            total += model[name]
    means: dict[Any, torch.Tensor] = {}  # memory, which tied parameters share -> mean
    for name, total in sums.items():
        tensor = first[name]
        mean = (total / len(paths)).to(tensor.dtype)
        memory = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        tied = means.setdefault(memory, mean)
        first[name] = tied if torch.equal(tied, mean) else mean  # another file may not tie them
    return result


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--inputs", nargs="+", required=True, type=Path, metavar="PATH",
        help="checkpoints, or a folder of checkpoints")  # fmt: skip
    add("--output", required=True, type=Path, metavar="FILE", help="checkpoint to write")
    kinds = parser.add_mutually_exclusive_group()
    for kind in CHECKPOINT_PATTERNS:
        kinds.add_argument(f"--num-{kind}-checkpoints", type=int, metavar="N", dest=kind,
                           help=f"average the last N {kind} checkpoints of the folder")  # fmt: skip


def run(args: Namespace) -> None:
    with silent_interrupts():
        from ..patches import saving

    paths, folder = args.inputs, args.output.parent
    if not folder.is_dir() or args.output.is_dir():
        rule = "must be a file in a folder that exists"
        fault = f"{folder} is not a folder" if not folder.is_dir() else f"{args.output} is a folder"
        raise UserError(f"--output {rule}, but {fault}: make the folder, or name another file")
    kind = next((kind for kind in CHECKPOINT_PATTERNS if getattr(args, kind) is not None), None)
    if kind:
        if len(paths) > 1 or not paths[0].is_dir():
            raise UserError(
                f"--inputs must be one folder with --num-{kind}-checkpoints, but is "
                f"{' '.join(map(str, paths))}: give the folder that holds the checkpoints"
            )
        paths = find_checkpoints(paths[0], kind, getattr(args, kind))
    print(f"averaging {len(paths)} checkpoints:", *paths, sep="\n  ")
    saving.save(average(paths), str(args.output))
    print(f"wrote {args.output}")
