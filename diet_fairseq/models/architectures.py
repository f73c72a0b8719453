"""What all models have in common: architectures named after schemes, and checks of options."""

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fairseq.tasks import TASK_REGISTRY

from ..config import PositionConfig
from ..errors import UserError
from ..positions import SCHEMES, PositionScheme
from ..positions.description import describe, to_text
from ..positions.registry import for_each_scheme
from ..registration import register_model_architecture
from ..version import __version__

logger = logging.getLogger(__name__)

#: fills in the defaults of a size, like fairseq's architecture functions
Size = Callable[[Namespace], None]


def register_architectures(
    model: str,
    family: str,
    sizes: dict[str, Size],
    defaults: Callable[[type[PositionScheme]], dict[str, Any]] = lambda scheme: {},
    input_flags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Register ``family_SCHEME`` and its sizes for every scheme that the family can have.

    Schemes that are registered later get theirs then.

    Args:
        sizes: suffix of the architecture's name -> fairseq's function for that size
        defaults: the family's values for options that are not given
        input_flags: fairseq's flags for positions at the input, with the ``--position-input`` that
            replaces each
    """

    def architecture(arch: str, name: str, size: Size) -> Size:
        def fill(args: Namespace) -> None:
            chosen = getattr(args, "position_scheme", None)
            if chosen not in (None, name):
                other = arch.replace(name, chosen)
                if SCHEMES[chosen].compressed and family == "transformer":
                    other = f"roberta_{chosen} or bert_{chosen}"  # no decoder can have it
                raise UserError(
                    f"--position-scheme {chosen} contradicts --arch {arch}, whose scheme is "
                    f"{name}: leave it out, or take --arch {other}"
                )
            args.position_scheme = name
            for flag, meant in input_flags.items():
                if getattr(args, flag, False) and getattr(args, "position_input", None) != meant:
                    raise UserError(
                        f"--{flag.replace('_', '-')} can't be combined with --arch {arch}: "
                        f"use --position-input {meant} instead"
                    )
            for option, value in defaults(SCHEMES[name]).items():
                if getattr(args, option, None) is None:
                    setattr(args, option, value)
            size(args)

        return fill

    def register(name: str) -> None:
        if SCHEMES[name].compressed and family == "transformer":
            return  # no decoder can have it
        for suffix, size in sizes.items():
            arch = f"{family}_{name}{suffix}"
            register_model_architecture(model, arch)(architecture(arch, name, size))

    for_each_scheme(register)


#: fairseq's ways to say that an option is off
OFF = (None, False, 0, -1, "")


def settle(args: Namespace, unsupported: tuple[str, ...]) -> PositionConfig:
    """Check the options, and write those in force into the arguments that a checkpoint saves.

    Args:
        unsupported: options of fairseq's own model that would bypass our attention
    """
    for name in unsupported:
        if getattr(args, name, None) not in OFF:
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(args, name)} can't be combined with "
                "position schemes: leave it out, or use fairseq's own model"
            )
    config = PositionConfig.of(args)
    config.write_to(args)
    args.position_description = to_text(describe(config))
    args.no_token_positional_embeddings = config.position_input == "none"
    args.encoder_learned_pos = args.decoder_learned_pos = config.position_input == "learned"
    logger.info("%s|version:%s", config, __version__)
    return config


def check_no_cross_attention(config: PositionConfig, model: str) -> None:
    if config.position_cross_attention:
        raise UserError(f"--position-cross-attention: {model} has no cross-attention: leave it out")


def check_no_segments(config: PositionConfig, model: str, instead: str) -> None:
    if config.segment_scheme not in (None, "none"):
        raise UserError(
            f"--segment-scheme {config.segment_scheme}: {model} has no segments: {instead}"
        )


def check_task(task: Any, unfit: tuple[type, ...], family: str, instead: str) -> None:
    """Refuse tasks whose samples the family's models can't read."""
    if isinstance(task, unfit):
        names = {kind: name for name, kind in TASK_REGISTRY.items()}
        raise UserError(
            f"--task {names.get(type(task), type(task).__name__)} can't be combined with "
            f"--arch {family}_...: {instead}"
        )


def refuse_torchscript() -> None:
    raise UserError(
        "TorchScript can't compile models with position schemes: use the model as it is, or "
        "torch.compile"
    )
