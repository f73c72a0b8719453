"""fairseq-validate takes task, criterion and the size of batches from the checkpoint."""

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
    """A checkpoint's task and criterion, and the size of the batches it was trained with."""
    if not Path(path).exists():
        raise UserError(f"there is no checkpoint {path}: check --path")
    cfg = checkpoint_utils.load_checkpoint_to_cpu(path)["cfg"]
    names = {
        kind: getattr(cfg[kind], "_name", None) or getattr(cfg[kind], kind, None)
        for kind in ("task", "criterion")
    }
    return {**names, **{size: cfg["dataset"][size] for size in BATCHES}}


def completed(parse_args_and_arch: Callable) -> Callable:
    """Set the defaults of ``--task``, which has none in this parser alone, and of ``--criterion``,
    whose options the task's may refer to, to the checkpoint's."""

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
            chosen = given.max_tokens or given.batch_size
            parser.set_defaults(**{
                name: value for name, value in defaults.items() if not (chosen and name in BATCHES)
            })  # fmt: skip
        return parse_args_and_arch(parser, input_args, *args, **more)

    return wrapper
