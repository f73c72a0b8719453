"""The command lines of all roads: ``--help`` is there at once, and a mistake is one line.

Nothing of fairseq is imported here, which takes seconds.
"""

import math
from argparse import ArgumentParser, Namespace
from typing import NoReturn

#: the least that a number may be
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
    "nodes": 1,
    "per_gpu": 1,
    "rates": 0,
    "seed": 0,
    "seeds": 0,
    "tokens_per_gpu": 1,
    "updates": 1,
    "vocabulary": 1,
    "workers": 1,
}


class Parser(ArgumentParser):
    """Says what is wrong without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (--help shows all options)\n")

    def check(self, args: Namespace) -> None:
        """End at a number that is too small, or none."""
        for name, least in LEAST.items():
            given = getattr(args, name, None)
            for value in given if isinstance(given, list) else [given]:
                if value is not None and not (least <= value and math.isfinite(value)):
                    flag = "--" + name.replace("_", "-")
                    rule = f"at least {least}" if math.isfinite(least) else "a number"
                    self.error(f"{flag} must be {rule}, but is {value}")
