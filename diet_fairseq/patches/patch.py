"""Changes to somebody else's code: how they are described, made and undone."""

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .stand_in import StandIn

MISSING = object()
WRAP: Literal["wrap"] = "wrap"
REPLACE: Literal["replace"] = "replace"
NAMES: Literal["names"] = "names"
ADD: Literal["add"] = "add"


class Change(Protocol):
    """One row of a table of changes."""

    @property
    def target(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def until(self) -> str: ...

    def places(self) -> list[Any]:
        """Where the change is made; empty: its target isn't there."""

    def make(self, place: Any) -> Callable[[], bool]:
        """Make it; returns a function that undoes it and tells whether it could."""

    def what(self) -> str:
        """What stands there then, by name."""


@dataclass(frozen=True)
class Patch:
    """An attribute of a module or class, and what stands there instead.

    Attributes:
        target: "module:attribute" or "module:Class.attribute"; "package.*:attribute": in each of
            its modules that is imported by then
        how: WRAP: ``by(what stands there)``; REPLACE: ``by`` itself; NAMES: the module that stands
            there, in which each name of ``by`` means something else; ADD: ``by``, where nothing
            of this name stood
        by: see ``how``
        why: what goes wrong without it
        until: when it can go
        needed_with: the package, and the version of it that makes it necessary
    """

    target: str
    how: Literal["wrap", "replace", "names", "add"]
    by: Any
    why: str
    until: str
    needed_with: str = "fairseq 0.12"

    def places(self) -> list[Any]:
        module, _, path = self.target.partition(":")
        *outer, name = path.split(".")
        if module.endswith(".*"):
            package = module.removesuffix(".*")
            loaded = [m for n, m in sys.modules.items() if f"{n}.".startswith(f"{package}.")]
            places = [place for place in loaded if hasattr(place, "__file__")]
        else:
            place: Any = importlib.import_module(module)
            for part in outer:
                place = getattr(place, part, None)
            places = [place]
        return [place for place in places if self.how == ADD or name in vars(place or object)]

    def make(self, place: Any) -> Callable[[], bool]:
        name = self.target.rpartition(":")[2].rpartition(".")[2]
        before = vars(place).get(name, MISSING)
        setattr(place, name, self._instead_of(before))
        after = vars(place)[name]

        def undo() -> bool:
            if vars(place).get(name, MISSING) is not after:
                return False
            if before is MISSING:
                delattr(place, name)
            else:
                setattr(place, name, before)
            return True

        return undo

    def what(self) -> str:
        if self.how == NAMES:
            return ", ".join(f"{name}: {_named(value)}" for name, value in self.by.items())
        return _named(self.by)

    def _instead_of(self, before: Any) -> Any:
        match self.how:
            case "wrap":
                return self.by(before)
            case "names":
                return StandIn(before, **self.by)
        return self.by


@dataclass(frozen=True)
class Setting:
    """A change to the process that is not an attribute: ``by()`` makes it and returns its undo."""

    target: str
    by: Callable[[], Callable[[], None]]
    why: str
    until: str
    needed_with: str = "fairseq 0.12"

    def places(self) -> list[Any]:
        return [None]

    def make(self, place: Any) -> Callable[[], bool]:
        undo = self.by()

        def undone() -> bool:
            undo()
            return True

        return undone

    def what(self) -> str:
        return _named(self.by)


class Patches:
    """A table of changes, made and undone together."""

    def __init__(self, table: Iterable[Patch | Setting], version: Callable[[], str]) -> None:
        """``version`` names the package that is changed, and its version, for errors."""
        self.table = tuple(table)
        self._version = version
        self._made: dict[tuple[int, int], tuple[Any, Callable[[], bool]]] = {}

    def apply(self) -> None:
        """Make the changes that are not made yet, in the order of the table.

        What was made stays made, whoever has wrapped the target since. A later call reaches the
        modules that were imported in the meantime.

        Raises:
            RuntimeError: a target is not there; nothing is changed then
        """
        found = [(number, change, change.places()) for number, change in enumerate(self.table)]
        for _, change, places in found:
            if not places and ".*:" not in change.target:
                raise RuntimeError(
                    f"{change.target} is not there in {self._version()}, and diet_fairseq changes "
                    f"it ({change.why}): install the version that diet_fairseq asks for"
                )
        for number, change, places in found:
            for place in places:
                if (number, id(place)) not in self._made:
                    self._made[number, id(place)] = change, change.make(place)

    def undo(self) -> list[str]:
        """Undo all changes, the last first.

        Returns:
            the targets that someone else has wrapped or replaced since, which stay as they are
        """
        kept = []
        for key, (change, undo) in reversed(self._made.copy().items()):
            if undo():
                del self._made[key]
            else:
                kept.append(change.target)
        return kept


def _named(value: Any) -> str:
    """The function's name with its module's, without the package's; any other value as it is."""
    if not hasattr(value, "__qualname__"):
        return repr(value)
    return f"{value.__module__.removeprefix('diet_fairseq.')}.{value.__qualname__}"
