"""Changes to fairseq's attributes: how they are described, made and undone."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..modes import Kind, active_kinds


@dataclass(frozen=True)
class Reason:
    """Why an attribute is changed.

    Attributes:
        kind: see `Kind`
        why: the fault without the change
        until: the change in fairseq that makes it unnecessary
        needed_with: the package whose version makes it necessary
    """

    kind: Kind
    why: str
    until: str
    needed_with: str = "fairseq 0.12"


@dataclass(frozen=True)
class Patch:
    """An attribute of a module or class, and the one function that replaces it.

    Attributes:
        target: "module:attribute" or "module:Class.attribute"
        replace: takes the attribute and returns its replacement
        reasons: the change is made if the kind of any reason is active
    """

    target: str
    replace: Callable[[Any], Any]
    reasons: tuple[Reason, ...]

    @property
    def is_active(self) -> bool:
        return any(reason.kind in active_kinds() for reason in self.reasons)

    @property
    def replacement(self) -> str:
        """The name of the function that makes the replacement, without the package's."""
        module = self.replace.__module__.removeprefix("diet_fairseq.")
        return f"{module}.{self.replace.__qualname__}"

    def owner(self) -> Any:
        """The module or class that has the attribute; None where it is missing."""
        module, _, path = self.target.partition(":")
        *classes, name = path.split(".")
        owner: Any = importlib.import_module(module)
        for part in classes:
            owner = getattr(owner, part, None)
        return owner if name in vars(owner or object) else None

    @property
    def name(self) -> str:
        """The attribute's name."""
        return self.target.rpartition(":")[2].rpartition(".")[2]


class Patches:
    """A table of changes, made and undone together."""

    def __init__(self, table: Iterable[Patch], version: Callable[[], str]) -> None:
        """``version`` names the package that is changed, and its version, for errors."""
        self.table = tuple(table)
        self._version = version
        #: target -> owner, original and replacement of each change that is made
        self._made: dict[str, tuple[Any, Any, Any]] = {}

    def apply(self) -> None:
        """Make the changes whose kind is active and that are not made yet.

        Raises:
            RuntimeError: a target is missing; nothing is changed then
        """
        owners = {patch.target: patch.owner() for patch in self.table if patch.is_active}
        for patch in self.table:
            if patch.is_active and owners[patch.target] is None:
                raise RuntimeError(
                    f"{patch.target} is missing in {self._version()}, and diet_fairseq changes it "
                    f"({patch.reasons[0].why}): install the version that diet_fairseq asks for"
                )
        for patch in self.table:
            if patch.is_active and patch.target not in self._made:
                owner = owners[patch.target]
                original = vars(owner)[patch.name]
                setattr(owner, patch.name, patch.replace(original))
                self._made[patch.target] = owner, original, vars(owner)[patch.name]

    def undo(self) -> list[str]:
        """Undo all changes.

        Returns:
            the targets that stay, as somebody else has replaced them since
        """
        for target, (owner, original, replacement) in reversed(self._made.copy().items()):
            name = target.rpartition(":")[2].rpartition(".")[2]
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
                del self._made[target]
        return list(self._made)


class ModuleView:
    """A module in which some names have another meaning, for one module that imports it."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
