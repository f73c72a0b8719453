"""A command's options as a dataclass: one that calls another makes these, no command line."""

from argparse import Namespace
from dataclasses import fields
from typing import Any, TypeVar

Options = TypeVar("Options")


def given(kind: type[Options], args: Namespace, **more: Any) -> Options:
    """The dataclass's fields out of what was parsed; those in ``more`` out of that."""
    names = {one.name for one in fields(kind)} - set(more)  # type: ignore[arg-type]
    return kind(**{name: getattr(args, name) for name in names}, **more)
