"""What the constructor of a scheme says of its options: all else follows from it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from ..errors import UserError

#: the flag and the value given -> nothing, or a `UserError`
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """The option ``--position-NAME``, where NAME is a keyword-only argument of a constructor.

    A scheme gives it as the annotation of that argument,

        def __init__(self, shape, *, clip: Annotated[int, Option("largest ...", check=...)] = 16)

    An argument of a plain type, such as ``clip: int = 16``, is an option without help and checks.

    Attributes:
        help: for ``--help``
        choices: what may be given; None: whatever has the type
        check: refuses what has the type and can't be
        type: int, float, str or bool; by default that of the annotation
        default: by default that of the argument; None: the scheme knows
    """

    help: str = ""
    choices: tuple[str, ...] | None = None
    check: Check | None = None
    type: type = NoneType
    default: Any = None


def options_in(scheme: type) -> dict[str, Option]:
    """The scheme's own options by their names, as its constructor declares them."""
    hints = get_type_hints(scheme.__init__, include_extras=True)  # type: ignore[misc]
    found = {}
    for name, parameter in inspect.signature(scheme).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        kind, *details = get_args(hints[name]) if _annotated(hints[name]) else (hints[name],)
        option = next((detail for detail in details if isinstance(detail, Option)), Option())
        [kind] = {*(get_args(kind) or (kind,))} - {NoneType}
        found[name] = replace(option, type=kind, default=parameter.default)
    return found


def _annotated(hint: Any) -> bool:
    return hasattr(hint, "__metadata__")


def at_least(least: int) -> Check:
    """A check that the value is not below ``least``."""

    def check(flag: str, value: int) -> None:
        check_at_least(flag, value, least)

    return check


def check_at_least(option: str, value: int, least: int) -> int:
    if value < least:
        raise UserError(f"{option} must be at least {least}, but is {value}")
    return value


def positive(flag: str, value: float) -> None:
    """A check that the value is a number above zero."""
    if not 0 < value < float("inf"):
        raise UserError(f"{flag} must be a number above 0, but is {value}")


#: how far offsets have parameters of their own
Clip = Annotated[
    int | None,
    Option(
        "largest offset with a parameter of its own (default: 16 for shaw, all for diet_rel)",
        check=at_least(1),
    ),
]
Gain = Annotated[
    float,
    Option(
        "the score is so many times what the parameters say, each factor where it is a product "
        "(default: by scheme; 1 with --position-start blind)",
        check=positive,
    ),
]
Start = Annotated[
    str,
    Option(
        "training starts with no say in positions (blind, as the papers have it, with gain 1) or "
        "with every head looking at an offset of its own (local)",
        choices=("blind", "local"),
    ),
]
Buckets = Annotated[int, Option("buckets of t5 and tupe_r (default: 32)", check=at_least(4))]
MaxDistance = Annotated[
    int,
    Option("offset from which on all share t5's and tupe_r's last bucket (default: 128)"),
]
