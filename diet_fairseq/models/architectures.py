"""Architectures named after schemes, and the checks of options that all models share."""

import logging
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, register_model_architecture
from omegaconf import DictConfig, open_dict

from ..config import PositionConfig, registration_hooks, translation_schemes
from ..errors import UserError
from ..positions import SCHEMES, PositionScheme
from ..positions.description import describe, serialize_description
from ..version import __version__

logger = logging.getLogger(__name__)

#: sets the defaults of a size, as fairseq's architecture functions do
ArchitectureFunction = Callable[[Namespace], None]


@dataclass(frozen=True)
class Family:
    """The architectures ``NAME_SCHEME`` of a model, in several sizes.

    Attributes:
        model: the name that fairseq knows the model by
        sizes: end of an architecture's name -> the function for that size
        defaults: the family's values for options of a scheme that are not given
    """

    model: str
    name: str
    sizes: dict[str, ArchitectureFunction]
    defaults: Callable[[type[PositionScheme]], dict[str, Any]]

    def supports(self, scheme: str) -> bool:
        """Whether the family supports the scheme: decoders do not support compressed schemes."""
        return self.name != "transformer" or scheme in translation_schemes()


#: written by `register_architectures` alone
FAMILIES: list[Family] = []


def register_architectures(
    model: str,
    name: str,
    sizes: dict[str, ArchitectureFunction],
    defaults: Callable[[type[PositionScheme]], dict[str, Any]] = lambda _: {},
) -> None:
    """Register the architectures of a `Family` for all schemes."""
    FAMILIES.append(Family(model, name, sizes, defaults))
    for scheme in SCHEMES:
        register_scheme(scheme, FAMILIES[-1:])


def register_scheme(scheme: str, families: Sequence[Family] = FAMILIES) -> None:
    """Register the architectures of a scheme in these families.

    Raises:
        UserError: an architecture exists, and none was registered
    """
    functions = {
        (family.model, f"{family.name}_{scheme}{suffix}"): partial(
            set_architecture, family, scheme, suffix
        )
        for family in families
        for suffix in (family.sizes if family.supports(scheme) else ())
    }
    for _, arch in functions:
        if arch in ARCH_MODEL_REGISTRY:
            raise UserError(
                f"the position scheme {scheme} can't be registered, because --arch {arch} exists "
                "(the end of an architecture's name is its size): rename the scheme"
            )
    for (model, arch), function in functions.items():
        register_model_architecture(model, arch)(function)


registration_hooks.append(register_scheme)


def set_architecture(family: Family, scheme: str, suffix: str, args: Namespace) -> None:
    """Set the options that an architecture's name implies, and its defaults."""
    given = getattr(args, "position_scheme", None)
    if given not in (None, scheme):
        arch = f"{family.name}_{scheme}{suffix}"
        encoders = f"roberta_{given} or bert_{given}"
        advice = f"{family.name}_{given}{suffix}" if family.supports(given) else encoders
        raise UserError(
            f"--position-scheme {given} contradicts --arch {arch}, whose scheme is {scheme}: leave "
            f"it out, or use --arch {advice}"
        )
    args.position_scheme = scheme
    set_defaults(args, family.defaults(SCHEMES[scheme]))
    if (global_scheme := getattr(args, "position_global_scheme", None)) in SCHEMES:
        set_defaults(args, family.defaults(SCHEMES[global_scheme]))
    family.sizes[suffix](args)


def set_defaults(args: Namespace, defaults: Mapping[str, Any]) -> None:
    """Set the options that are not given."""
    for name, value in defaults.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


#: fairseq's values of an option that is off
OFF = (None, False, 0, -1, "")


def validate_options(args: Any, unsupported: tuple[str, ...]) -> PositionConfig:
    """Check the options, and write their final values into the arguments that a checkpoint saves.

    Args:
        unsupported: options of fairseq's own model that would bypass our attention
    """
    for name in unsupported:
        if getattr(args, name, None) not in OFF:
            raise UserError(
                f"--{name.replace('_', '-')} {getattr(args, name)} can't be combined with "
                "position schemes: leave it out, or use fairseq's own model"
            )
    config = PositionConfig.from_args(args)
    for name in ("encoder_layers_to_keep", "decoder_layers_to_keep"):
        layers = getattr(args, name, None)  # fairseq reads 0,2 as a list
        if config.position_layers is not None and layers:
            numbers = layers if isinstance(layers, str) else ",".join(map(str, layers))
            raise UserError(
                f"--{name.replace('_', '-')} {numbers} can't be combined with "
                f"--position-layers {config.position_layers}, because the remaining layers would "
                "have other numbers and thus other kinds: keep all layers"
            )
    with open_dict(args) if isinstance(args, DictConfig) else nullcontext():
        config.write_to(args)
        args.position_description = serialize_description(describe(config))
        args.no_token_positional_embeddings = config.position_input == "none"
        args.encoder_learned_pos = args.decoder_learned_pos = config.position_input == "learned"
    logger.info("%s|version:%s", config, __version__)
    return config


def to_namespace(args: Any) -> Namespace:
    """The arguments as a Namespace: fairseq-hydra-train gives a DictConfig.

    `TransformerConfig.from_namespace` would drop our options of a DictConfig.
    """
    return args if isinstance(args, Namespace) else Namespace(**args)
