"""Architectures named after schemes, and the checks of options that all models share."""

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from fairseq.models import register_model_architecture

from ..config import PositionConfig
from ..errors import UserError
from ..positions import SCHEMES, PositionScheme
from ..positions.description import describe, to_text
from ..positions.registry import for_each_scheme
from ..version import __version__

logger = logging.getLogger(__name__)

#: fills in the defaults of a size, like fairseq's architecture functions
Size = Callable[[Namespace], None]


def register_architectures(
    model: str,
    family: str,
    sizes: dict[str, Size],
    defaults: Callable[[type[PositionScheme]], dict[str, Any]] = lambda scheme: {},
) -> None:
    """Register ``family_SCHEME`` and its sizes for every scheme that the family can have.

    Schemes that are registered later get theirs then. Compressed ones have no ``transformer``, as
    no decoder can have them.

    Args:
        sizes: suffix of the architecture's name -> fairseq's function for that size
        defaults: the family's values for options that are not given
    """

    def has_family(scheme: str) -> bool:
        return family != "transformer" or not SCHEMES[scheme].compressed

    def architecture(arch: str, name: str, size: Size) -> Size:
        def fill(args: Namespace) -> None:
            scheme = getattr(args, "position_scheme", None)
            if scheme not in (None, name):
                encoders = f"roberta_{scheme} or bert_{scheme}"
                advice = arch.replace(name, scheme) if has_family(scheme) else encoders
                raise UserError(
                    f"--position-scheme {scheme} contradicts --arch {arch}, whose scheme is "
                    f"{name}: leave it out, or take --arch {advice}"
                )
            args.position_scheme = name
            fill_in(args, defaults(SCHEMES[name]))
            size(args)

        return fill

    def register(name: str) -> None:
        for suffix, size in sizes.items() if has_family(name) else ():
            arch = f"{family}_{name}{suffix}"
            register_model_architecture(model, arch)(architecture(arch, name, size))

    for_each_scheme(register)


def fill_in(args: Namespace, defaults: Mapping[str, Any]) -> None:
    """Set the options that are not given."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


#: fairseq's values of an option that is off
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


def check_no_segments(config: PositionConfig, model: str, instead: str) -> None:
    if config.segment_scheme not in (None, "none"):
        raise UserError(
            f"--segment-scheme {config.segment_scheme}: {model} has no segments: {instead}"
        )
