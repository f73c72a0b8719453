"""fairseq's commands: complete help for our models, ``--bf16`` without a TPU, our beam search."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from ..errors import UserError
from ..models.adapters import PositionalDecoder
from .beam_search import QuickBeamSearch
from .patch import intercepts

HELP = {"-h", "--help"}


@intercepts(
    "fairseq.options:parse_args_and_arch",
    compatibility="--bf16 implies --tpu, and ends in an AttributeError without a TPU",
    plugin="--help leaves out the options of our architectures, and the error of a misspelled "
    "architecture lists the names of all architectures",
)
def parse_options(
    parse_args_and_arch: Callable,
    parser: ArgumentParser,
    input_args: list[str] | None = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[ArgumentParser], None] | None = None,
) -> Any:
    words = sys.argv[1:] if input_args is None else input_args
    wants_help = not HELP.isdisjoint(words) and has_our_architecture(words)
    if wants_help:
        input_args = [word for word in words if word not in HELP]

    def modify(parser: ArgumentParser) -> None:
        """Called when a package of --user-dir has registered its architectures."""
        check_architecture_spelling(words)
        if modify_parser:
            modify_parser(parser)
        # fairseq calls this again after it has added the model's options
        titles = [group.title for group in parser._action_groups]
        if wants_help and "Model-specific configuration" in titles:
            parser.print_help()
            parser.exit()

    parsed = parse_args_and_arch(parser, input_args, parse_known, suppress_defaults, modify)
    options = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(options, "tpu", False) and "--tpu" not in words:
        options.tpu = find_spec("torch_xla") is not None
    return parsed


def check_architecture_spelling(words: list[str]) -> None:
    """Check that a command line does not misspell an architecture of ours.

    Raises:
        UserError: the name is unknown, and the most similar one is ours
    """
    names = [word.removeprefix("--arch=") for word in words if word.startswith("--arch=")]
    names += [value for option, value in pairwise(words) if option in ("--arch", "-a")]
    for name in names:
        similar = get_close_matches(name, ARCH_MODEL_REGISTRY, n=1, cutoff=0.9)
        if name not in ARCH_MODEL_REGISTRY and has_our_architecture(similar):
            raise UserError(
                f"--arch must be a registered architecture, but is {name}: did you mean "
                f"{similar[0]}? `diet-fairseq schemes` lists the schemes"
            )


def has_our_architecture(words: list[str]) -> bool:
    """Whether a command line names an architecture of ours."""
    models = (ARCH_MODEL_REGISTRY.get(word.removeprefix("--arch=")) for word in words)
    return any(getattr(model, "__module__", "").startswith("diet_fairseq.") for model in models)


@intercepts(
    "fairseq.tasks.fairseq_task:FairseqTask.build_generator",
    plugin="beam search sorts the scores of whole vocabularies, and reorders identical caches",
)
def search_quickly(
    build_generator: Callable,
    self: Any,
    models: Any,
    args: Any,
    seq_gen_cls: Any = None,
    *rest: Any,
    **options: Any,
) -> Any:
    decoders = [getattr(model, "decoder", None) for model in models]
    ours = all(isinstance(decoder, PositionalDecoder) for decoder in decoders)
    if ours and seq_gen_cls is None and not getattr(args, "print_alignment", False):
        seq_gen_cls = QuickBeamSearch
    return build_generator(self, models, args, seq_gen_cls, *rest, **options)
