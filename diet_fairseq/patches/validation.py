"""fairseq-validate takes the task and the size of batches from the checkpoint."""

from argparse import ArgumentParser
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.tasks import TASK_REGISTRY

from ..errors import UserError

BATCHES = ("max_tokens", "batch_size")


@cache
def trained_with(path: str) -> dict[str, Any]:
    """A checkpoint's task, and the size of the batches it was trained with."""
    if not Path(path).exists():
        raise UserError(f"there is no checkpoint {path}: check --path")
    cfg = checkpoint_utils.load_checkpoint_to_cpu(path)["cfg"]
    task = getattr(cfg["task"], "_name", None) or getattr(cfg["task"], "task", None)
    return {"task": task, **{size: cfg["dataset"][size] for size in BATCHES}}


def completed(parse_args_and_arch: Callable) -> Callable:
    """Set the default of ``--task`` to the checkpoint's, in the one parser that has none."""

    @wraps(parse_args_and_arch)
    def wrapper(parser: ArgumentParser, input_args: Any = None, *args: Any, **more: Any) -> Any:
        names = {action.dest for action in parser._actions}
        if {"task", "path"} <= names and parser.get_default("task") is None:
            given, _ = parser.parse_known_args(input_args)
            if given.path is None:
                raise UserError("--path is needed: name the checkpoint to validate")
            defaults = trained_with(given.path)
            if not given.task and defaults["task"] not in TASK_REGISTRY:
                raise UserError(
                    f"{given.path} was trained for the task {defaults['task']!r}, which is unknown "
                    "here: name its --user-dir"
                )
            if given.max_tokens or given.batch_size:
                defaults = {"task": defaults["task"]}
            parser.set_defaults(**defaults)
        return parse_args_and_arch(parser, input_args, *args, **more)

    return wrapper
