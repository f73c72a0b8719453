"""The least that a number on a command line may be."""

import math
from argparse import Namespace

LEAST = {
    "average": 0,
    "batch": 1,
    "beam": 1,
    "epochs": 1,
    "gpus": 0,
    "jobs": 1,
    "length": 1,
    "length_penalty": -math.inf,
    "max_characters": 1,
    "max_ratio": 1,
    "max_tokens": 1,
    "max_words": 1,
    "nbest": 1,
    "nodes": 1,
    "per_gpu": 1,
    "rates": 0,
    "seed": 0,
    "seeds": 0,
    "threads": 1,
    "tokens_per_gpu": 1,
    "updates": 1,
    "vocabulary": 1,
    "workers": 1,
}


def fault_in(args: Namespace) -> str | None:
    """What is wrong with a number that is too small, or not finite, if there is one."""
    for name, least in LEAST.items():
        given = getattr(args, name, None)
        for value in given if isinstance(given, list) else [given]:
            if value is not None and not (least <= value and math.isfinite(value)):
                flag = "--" + name.replace("_", "-")
                rule = f"at least {least}" if math.isfinite(least) else "a number"
                return f"{flag} must be {rule}, but is {value}"
    return None
