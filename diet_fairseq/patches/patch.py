"""Changes to fairseq's attributes: how they are declared, made and undone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar

from ..modes import active_kinds

Replace = TypeVar("Replace", bound=Callable[[Any], Any])


@dataclass(frozen=True)
class Patch:
    """An attribute of a module or class, and the one function that replaces it.

    Attributes:
        target: "module:attribute" or "module:Class.attribute"
        replace: takes the attribute and returns its replacement
        reasons: kind (`modes.Kind`) -> the fault without the change, which is made if the kind of
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
        """The module or class that has the attribute (None: it is missing), and its name."""
        module, _, path = self.target.partition(":")
        *classes, name = path.split(".")
        owner: Any = import_module(module)
        for part in classes:
            owner = getattr(owner, part, None)
        return (owner if name in vars(owner or object) else None), name


#: all changes, in the order of declaration
TABLE: list[Patch] = []


def replaces(*targets: str, **reasons: str) -> Callable[[Replace], Replace]:
    """Decorate the function that replaces the targets, with a reason for each kind."""

    def declare(replace: Replace) -> Replace:
        TABLE.extend(Patch(target, replace, reasons) for target in targets)
        return replace

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
        places = [patch.place() for patch in new]
        for patch, (owner, _) in zip(new, places, strict=True):
            if owner is None:
                raise RuntimeError(
                    f"{patch.target} is missing in fairseq {version('fairseq-fixed')}, and "
                    f"diet_fairseq changes it ({next(iter(patch.reasons.values()))}): install the "
                    "version that diet_fairseq asks for"
                )
        for patch, (owner, name) in zip(new, places, strict=True):
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
