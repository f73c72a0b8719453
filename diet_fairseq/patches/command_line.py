"""fairseq's command lines: the whole help of our architectures, and ``--bf16`` without a TPU."""

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from itertools import count
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from .patch import replaces


@replaces(
    "fairseq.options:parse_args_and_arch",
    today="--bf16 means a TPU, and ends in an AttributeError where there is none",
    ours="--help, which ends fairseq's first look at the command line, leaves out the options of "
    "our architectures",
)
def parse_options(parse_args_and_arch: Callable) -> Callable:
    @wraps(parse_args_and_arch)
    def wrapper(
        parser: argparse.ArgumentParser,
        input_args: list[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        words = sys.argv[1:] if input_args is None else input_args
        if asks_for_our_help(words):
            input_args = [word for word in words if word not in ("-h", "--help")]
            kwargs["modify_parser"] = _print_help_at_second_call()
        parsed = parse_args_and_arch(parser, input_args, *args, **kwargs)
        options = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(options, "tpu", False) and "--tpu" not in words:
            options.tpu = find_spec("torch_xla") is not None
        return parsed

    return wrapper


def asks_for_our_help(words: list[str]) -> bool:
    """Whether the command line has ``--help`` and an ``--arch`` of ours."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    reader.add_argument("--arch", "-a")
    model = ARCH_MODEL_REGISTRY.get(reader.parse_known_args(words)[0].arch)
    ours = getattr(model, "__module__", "").startswith("diet_fairseq.")
    return ours and not {"-h", "--help"}.isdisjoint(words)


def _print_help_at_second_call() -> Callable[[argparse.ArgumentParser], None]:
    """A ``modify_parser``: fairseq calls it before and after it has added a model's options."""
    calls = count(1)

    def modify(parser: argparse.ArgumentParser) -> None:
        if next(calls) == 2:
            parser.print_help()
            parser.exit()

    return modify
