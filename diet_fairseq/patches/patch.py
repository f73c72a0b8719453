"""Changes to fairseq's attributes: how they are declared, made and undone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

from ..modes import active_kinds

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Patch:
    """An attribute of a module or class, and the one function that replaces it.

    Attributes:
        target: "module:attribute" or "module:Class.attribute"
        replace: takes the attribute and returns its replacement
        reasons: kind (`modes.KINDS`) -> the fault without the change, which is made if the kind of
            any reason is active
    """

    target: str
    replace: Callable[[Any], Any]
    reasons: dict[str, str]

    @property
    def is_active(self) -> bool:
        return not active_kinds().isdisjoint(self.reasons)

    @property
    def replacement(self) -> str:
        """The name of the function that makes the replacement, without the package's."""
        module = self.replace.__module__.removeprefix("diet_fairseq.")
        return f"{module}.{self.replace.__qualname__}"

    def place(self) -> tuple[Any, str]:
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


#: all changes, in the order of declaration
TABLE: list[Patch] = []


def replaces(*targets: str, **reasons: str) -> Callable[[Function], Function]:
    """Decorate a function that takes an attribute and returns its replacement."""

    def declare(replace: Function) -> Function:
        TABLE.extend(Patch(target, replace, reasons) for target in targets)
        return replace

    return declare


def intercepts(target: str, **reasons: str) -> Callable[[Function], Function]:
    """Decorate a function that is called instead of the target, with the target as first argument.

    The other arguments are those of the call.
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
        """Make the changes whose kind is active and that are not made yet.

        Raises:
            RuntimeError: a target is missing; nothing is changed then
        """
        new = [p for p in self.table if p.is_active and p.target not in self._made]
        for patch, (owner, name) in [(patch, patch.place()) for patch in new]:
            original = vars(owner)[name]
            setattr(owner, name, patch.replace(original))
            self._made[patch.target] = owner, name, original, vars(owner)[name]

    def undo(self) -> list[str]:
        """Undo all changes.

        Returns:
            the targets that stay, as somebody else has replaced them since
        """
        for target, (owner, name, original, replacement) in reversed(self._made.copy().items()):
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
                del self._made[target]
        return list(self._made)


class View:
    """A module or object in which some names have another meaning."""

    def __init__(self, viewed: Any, **names: Any) -> None:
        self.__dict__.update(names, _viewed=viewed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._viewed, name)
