"""Changes to fairseq's attributes: how they are declared, selected, made and undone."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from ..errors import UserError

Function = TypeVar("Function", bound=Callable[..., Any])
#: kinds of reasons for a change, which docs/design.md explains
PATCH_REASONS = frozenset({"safety", "compatibility", "correctness", "plugin"})
#: environment variable that selects one of the `PATCHES_MODES`
PATCHES_VARIABLE = "DIET_FAIRSEQ_PATCHES"
PATCHES_MODES = {"all": PATCH_REASONS, "no-correctness": PATCH_REASONS - {"correctness"}}


def active_reasons() -> frozenset[str]:
    """The kinds of reasons that `PATCHES_VARIABLE` selects.

    Raises:
        UserError: the variable has an unknown value
    """
    mode = os.environ.get(PATCHES_VARIABLE) or "all"
    if mode not in PATCHES_MODES:
        raise UserError(
            f"{PATCHES_VARIABLE} must be {' or '.join(PATCHES_MODES)}, in lower case, but is "
            f"{mode!r}: unset it; to use fairseq without the plugin, leave out --user-dir and "
            "`import diet_fairseq`"
        )
    return PATCHES_MODES[mode]


@dataclass(frozen=True)
class Patch:
    """An attribute of a module or class, and the function that replaces it.

    Attributes:
        target: "module:attribute" or "module:Class.attribute"
        replace: takes the attribute and returns its replacement
        reasons: kind of reason (`PATCH_REASONS`) -> the fault without the change; the change is
            made if any of the kinds is active
    """

    target: str
    replace: Callable[[Any], Any]
    reasons: dict[str, str]

    @property
    def replacement(self) -> str:
        """The name of the function that makes the replacement, without the package's."""
        module = self.replace.__module__.removeprefix("diet_fairseq.")
        return f"{module}.{self.replace.__qualname__}"

    def find_target(self) -> tuple[Any, str]:
        """The module or class that has the attribute, and the attribute's name.

        Raises:
            RuntimeError: the attribute is missing
        """
        module, _, path = self.target.partition(":")
        *classes, name = path.split(".")
        owner: Any = import_module(module)
        for part in classes:
            owner = getattr(owner, part, None)
        if name not in vars(owner or object):
            raise RuntimeError(
                f"{self.target} is missing in fairseq {import_module('fairseq').__version__}, and "
                f"diet_fairseq changes it ({next(iter(self.reasons.values()))}): install the "
                "version that diet_fairseq asks for"
            )
        return owner, name


#: all changes, in the order of declaration; written by `replaces` alone
TABLE: list[Patch] = []


def replaces(*targets: str, **reasons: str) -> Callable[[Function], Function]:
    """Decorate a function that takes an attribute and returns its replacement."""

    def declare(replace: Function) -> Function:
        TABLE.extend(Patch(target, replace, reasons) for target in targets)
        return replace

    return declare


def intercepts(target: str, **reasons: str) -> Callable[[Function], Function]:
    """Decorate a function that is called instead of the target, with the target as first argument.

    The other arguments are the arguments of the call.
    """

    def declare(function: Function) -> Function:
        @wraps(function)
        def replace(original: Callable) -> Callable:
            @wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                return function(original, *args, **kwargs)

            return call

        replaces(target, **reasons)(replace)
        return function

    return declare


class Patches:
    """A table of changes, made and undone together."""

    def __init__(self, table: Iterable[Patch]) -> None:
        self.table = tuple(table)
        #: target -> owner, name, original and replacement of each change that is made
        self._made: dict[str, tuple[Any, str, Any, Any]] = {}

    def apply(self) -> None:
        """Make the changes of `active_reasons` that are not made yet.

        Raises:
            RuntimeError: a target is missing; nothing is changed then
            UserError: see `active_reasons`
        """
        reasons = active_reasons()
        new = [p for p in self.table if p.reasons.keys() & reasons and p.target not in self._made]
        for patch, (owner, name) in [(patch, patch.find_target()) for patch in new]:
            original = vars(owner)[name]
            setattr(owner, name, patch.replace(original))
            self._made[patch.target] = owner, name, original, vars(owner)[name]

    def undo(self) -> list[str]:
        """Undo all changes.

        Returns:
            the targets that are not restored, because other code has replaced them, too
        """
        for target, (owner, name, original, replacement) in reversed(self._made.copy().items()):
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
                del self._made[target]
        return list(self._made)


class Proxy:
    """A module or object with some attributes replaced."""

    def __init__(self, original: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
