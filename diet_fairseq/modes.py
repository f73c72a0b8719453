"""The kinds of changes to fairseq, and which of them DIET_FAIRSEQ_PATCHES lets the plugin make."""

import os
from functools import cache

from .errors import UserError

#: reasons of a change, which docs/design.md explains
KINDS = frozenset({"safety", "today", "data", "ours"})

VARIABLE = "DIET_FAIRSEQ_PATCHES"
MODES = {"all": KINDS, "no-data": KINDS - {"data"}, "off": frozenset()}


@cache
def active_kinds() -> frozenset[str]:
    """The kinds of changes that `VARIABLE` allowed at the first call.

    Raises:
        UserError: the variable has an unknown value
    """
    mode = os.environ.get(VARIABLE) or "all"
    if mode not in MODES:
        raise UserError(
            f"{VARIABLE} must be one of {', '.join(MODES)}, in lower case, but is {mode!r}: set it "
            "to one of these, or unset it"
        )
    return MODES[mode]
