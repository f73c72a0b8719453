"""How the constructor of a scheme declares its options."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from ..checks import not_below, positive

#: takes the flag and its value; raises `UserError`
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """The option ``--position-NAME``, where NAME is a keyword-only argument of a constructor.

    A scheme annotates that argument with it,

        def __init__(self, shape, *, clip: Annotated[int, Option("largest ...", check=...)] = 16)

    An argument with a plain type, such as ``clip: int = 16``, is an option without help or checks.

    Attributes:
        help: for ``--help``
        choices: the values allowed; None: any value of the type
        check: refuses values that have the type and are not allowed
        type: int, float, str or bool; by default that of the annotation
        default: by default that of the argument; None: the scheme decides
    """

    help: str = ""
    choices: tuple[str, ...] | None = None
    check: Check | None = None
    type: type = NoneType
    default: Any = None


def options_in(scheme: type) -> dict[str, Option]:
    """The options that the scheme's constructor declares, by name."""
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


def common(name: str, one: Option, other: Option) -> Option:
    """What two schemes say of the option that both have; one may give it a type alone.

    Raises:
        TypeError: they contradict each other
    """
    plain = Option(type=one.type)
    said = {replace(given, default=None) for given in (one, other)} - {plain}
    if len(said) > 1:
        raise TypeError(
            f"two schemes declare the option {name!r} differently: give both one annotation, or "
            "rename one"
        )
    return said.pop() if said else plain


def _annotated(hint: Any) -> bool:
    return hasattr(hint, "__metadata__")


def at_least(least: int) -> Check:
    """A check that the value is not below ``least``."""
    return partial(not_below, least=least)


#: the options that several schemes have
Clip = Annotated[
    int | None,
    Option(
        "largest offset with a parameter of its own (default: 16 for shaw, all for diet_rel)",
        check=at_least(1),
    ),
]
_gain = Option(
    "factor between the parameters and the score, or each factor of the score "
    "(default: by scheme; 1 with --position-start blind)",
    check=positive,
)
Gain = Annotated[float, _gain]
#: None: it depends on the rank
GainOfRank = Annotated[float | None, _gain]
Start = Annotated[
    str,
    Option(
        "initial score: as in the papers, with gain 1 (blind), or with a peak at an offset of its "
        "own in every head (local)",
        choices=("blind", "local"),
    ),
]
Peak = Annotated[
    float,
    Option(
        "initial score at the offset of each head with --position-start local (default: 3)",
        check=positive,
    ),
]
Buckets = Annotated[int, Option("t5, tupe_r: number of buckets (default: 32)", check=at_least(4))]
MaxDistance = Annotated[
    int,
    Option("t5, tupe_r: distance from which on offsets share the last bucket (default: 128)"),
]
