"""The registry of position schemes, for schemes of a user's own package."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from ..errors import UserError
from . import SCHEMES, PositionScheme

Scheme = TypeVar("Scheme", bound=type[PositionScheme])

_actions: list[Callable[[str], object]] = []


def register_position_scheme(name: str) -> Callable[[Scheme], Scheme]:
    """Register a subclass of `PositionScheme` under a name, as a decorator.

        @register_position_scheme("rotate")
        class Rotate(PositionScheme): ...

    From then on ``--position-scheme rotate`` and the architectures ``transformer_rotate``,
    ``roberta_rotate``, ``bert_rotate`` and ``electra_rotate`` exist, with the scheme's options. The
    module that does this must be imported wherever a checkpoint or an exported model with the
    scheme is used: fairseq's commands and ours import the package that ``--user-dir`` names.

    Raises:
        UserError: the name is taken or not allowed
        TypeError: an option of the scheme is declared differently elsewhere
    """

    def register(scheme: Scheme) -> Scheme:
        if not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise UserError(
                f"the name of a position scheme must be lower-case letters, digits and _, but is "
                f"{name!r}: rename it"
            )
        if name in SCHEMES:
            first = SCHEMES[name]
            raise UserError(
                f"the position scheme {name} is registered already, by "
                f"{first.__module__}.{first.__qualname__}: give {scheme.__qualname__} another name"
            )
        SCHEMES[name] = scheme
        try:
            for act in _actions:
                act(name)
        except Exception:
            del SCHEMES[name]
            raise
        return scheme

    return register


def for_each_scheme(act: Callable[[str], object]) -> None:
    """Call a function with the name of every scheme: of those registered now, and later."""
    for name in tuple(SCHEMES):
        act(name)
    _actions.append(act)


def import_user_dir(folder: Path) -> None:
    """Import a package by its folder, as fairseq's ``--user-dir``, without importing fairseq.

    Raises:
        UserError: the folder is not a package, or another module with its name is imported
    """
    folder = folder.resolve()
    if not (folder / "__init__.py").is_file():
        raise UserError(f"{folder} is not a Python package: give a folder with an __init__.py")
    sys.path.insert(0, str(folder.parent))
    module = import_module(folder.name)
    if Path(module.__file__ or "").parent != folder:
        raise UserError(
            f"{folder} has the name of another module, {module.__file__}: rename the folder"
        )
