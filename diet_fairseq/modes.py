"""The kinds of changes to fairseq, and which of them DIET_FAIRSEQ_PATCHES lets the plugin make."""

import os
from functools import cache
from typing import Literal, get_args

from .errors import UserError

#: Why a change is made.
#:
#: - safety: a file from elsewhere could run code, corrupt memory or lead a path out of its folder
#: - today: fairseq doesn't run, or ends good work with a failure, with a supported Python,
#:   PyTorch or NumPy
#: - data: fairseq loses data or computes a wrong number in silence
#: - ours: our own models, optimizers and criteria need it, or a value that only the plugin offers
Kind = Literal["safety", "today", "data", "ours"]
KINDS: frozenset[str] = frozenset(get_args(Kind))

VARIABLE = "DIET_FAIRSEQ_PATCHES"
MODES: dict[str, frozenset[str]] = {"all": KINDS, "no-data": KINDS - {"data"}, "off": frozenset()}


@cache
def active_kinds() -> frozenset[str]:
    """The kinds of changes that `VARIABLE` allowed at the first call.

    Raises:
        UserError: the variable has an unknown value
    """
    mode = os.environ.get(VARIABLE) or "all"
    if mode not in MODES:
        raise UserError(f"{VARIABLE} must be one of {', '.join(MODES)}, but is {mode!r}")
    return MODES[mode]
