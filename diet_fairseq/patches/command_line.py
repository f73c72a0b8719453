"""fairseq's commands: the whole help of our models, ``--bf16`` without a TPU, our beam search."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from ..models.adapters import PositionalDecoder
from .beam_search import QuickBeamSearch
from .patch import intercepts

HELP = {"-h", "--help"}


@intercepts(
    "fairseq.options:parse_args_and_arch",
    compatibility="--bf16 means a TPU, and ends in an AttributeError where there is none",
    plugin="--help, which ends fairseq's first look at the command line, leaves out the options of "
    "our architectures",
)
def parse_options(
    parse_args_and_arch: Callable,
    parser: ArgumentParser,
    input_args: list[str] | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    words = sys.argv[1:] if input_args is None else input_args
    if not HELP.isdisjoint(words) and has_our_architecture(words):
        input_args = [word for word in words if word not in HELP]
        kwargs["modify_parser"] = print_complete_help
    parsed = parse_args_and_arch(parser, input_args, *args, **kwargs)
    options = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(options, "tpu", False) and "--tpu" not in words:
        options.tpu = find_spec("torch_xla") is not None
    return parsed


def has_our_architecture(words: list[str]) -> bool:
    """Whether a command line names an architecture of ours."""
    models = (ARCH_MODEL_REGISTRY.get(word.removeprefix("--arch=")) for word in words)
    return any(getattr(model, "__module__", "").startswith("diet_fairseq.") for model in models)


def print_complete_help(parser: ArgumentParser) -> None:
    """Print the help and exit, unless fairseq has yet to add the model's options."""
    if any(group.title == "Model-specific configuration" for group in parser._action_groups):
        parser.print_help()
        parser.exit()


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
