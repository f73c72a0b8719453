"""The smallest change to a module of fairseq: a name that it looks up means something else.

A function finds ``eval``, ``torch`` or ``np`` in its own module before it looks anywhere else. So
a name set there changes that one module, and nobody else's ``torch.load``.
"""

from typing import Any


class StandIn:
    """Stands in for a module or class: has all its attributes, but for those given."""

    def __init__(self, original: Any, **changes: Any) -> None:
        self.__dict__.update(changes, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
