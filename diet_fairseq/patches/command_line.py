"""fairseq's command lines: a mistake is one line, and ``--help`` shows all options."""

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any, NoReturn

from .option_rules import check


class Parser(argparse.ArgumentParser):
    """Says what is wrong without the hundred lines of usage, and checks what it has read."""

    def error(self, message: str) -> NoReturn:
        # fairseq's readers of lists have no name of their own.
        said = message.replace("invalid <lambda> value", "invalid value")
        self.exit(2, f"error: {said} (--help shows all options)\n")

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        parsed = super().parse_args(*args, **kwargs)
        check(parsed)
        return parsed


def whole_help(parse_args_and_arch: Callable) -> Callable:
    """Show the help when all options are known: those of ``--arch`` and ``--task``, too.

    fairseq adds them after its first look at the command line, which ``--help`` would end.
    """

    @wraps(parse_args_and_arch)
    def wrapper(
        parser: argparse.ArgumentParser,
        input_args: list[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        given = sys.argv[1:] if input_args is None else input_args
        rest = [word for word in given if word not in ("-h", "--help")]
        modify = kwargs.get("modify_parser")
        known, _ = parser.parse_known_args(rest)
        for option in ("arch", "task"):  # fairseq looks them up, given or not
            if modify is None and getattr(known, option, "") is None:
                if len(rest) < len(given):
                    parser.print_help()
                    parser.exit()
                parser.error(f"the following arguments are required: --{option}")
        if len(rest) == len(given):
            return parse_args_and_arch(parser, input_args, *args, **kwargs)
        calls = count(1)

        def show(parser: argparse.ArgumentParser) -> None:
            if modify is not None:
                modify(parser)
            if next(calls) == 2:  # fairseq calls it before and after it has added options
                parser.print_help()
                parser.exit()

        return parse_args_and_arch(parser, rest, *args, **{**kwargs, "modify_parser": show})

    return wrapper
