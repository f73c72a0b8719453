"""The position options: their table, defaults and checks."""

import logging
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

from .attention.backends import BACKENDS
from .errors import UserError, check_positive
from .positions import SCHEMES, AttentionShape, Limit, PositionScheme
from .positions.options import Option, at_least
from .positions.registry import for_each_scheme
from .positions.segments import SegmentScores

#: options that any scheme has
ANY_SCHEME = {
    *("position_scheme", "position_sampling", "position_sampling_length", "position_temperature")
}
#: options that per-head segments have with any scheme
SEGMENT_OPTIONS = ("position_sharing", "position_gain")
#: names of earlier versions, which checkpoints still have
RETIRED_BACKENDS = ("auto-measured", "flex", "recompute")

logger = logging.getLogger(__name__)

#: options that no scheme declares
GENERAL_OPTIONS = (
    Option("position_scheme", str, "the position scheme (default: that of --arch)"),
    Option(
        "position_sharing",
        str,
        "parameters that are not shared, shared by the heads of a layer, or by all layers",
        choices=("none", "head", "layer"),
    ),
    Option(
        "position_input",
        str,
        "positions added to the input as well, with any scheme",
        choices=("none", "sinusoidal", "learned"),
    ),
    Option(
        "position_cross_attention",
        bool,
        "alibi, diet_abs, tupe_a, tupe_r: add a term of its own to cross-attention",
        default=False,
    ),
    Option(
        "position_sampling",
        str,
        "positions in training: 0, 1, ... (none), from a random one on (shifted), or random ones "
        "in their order (randomised) (default: none)",
        choices=("none", "shifted", "randomised"),
    ),
    Option(
        "position_sampling_length",
        int,
        "number of positions that --position-sampling draws from (default: all that the model has)",
        check=at_least(1),
    ),
    Option(
        "position_temperature",
        float,
        "at inference: number that the logits of attention are divided by; below 1 for inputs that "
        "are longer than those of training (default: 1)",
        check=check_positive,
    ),
    Option(
        "projection_length",
        int,
        "linear schemes: number k of compressed keys (default: --max-positions / 4)",
        check=at_least(1),
    ),
    Option(
        "projection_sharing",
        str,
        "linear schemes: matrices for the keys and for the values of every layer (none), one for "
        "both (key-value), or one for all layers (layer) (default: none)",
        choices=("none", "key-value", "layer"),
    ),
    Option(
        "segment_scheme",
        str,
        "segments are ignored, an embedding at the input, or a score in every head",
        choices=("none", "input", "per-head"),
    ),
    Option("num_segments", int, "number of segments (default: 2)", check=at_least(1)),
    Option(
        "attention_backend",
        str,
        "how attention is computed; auto: the fastest, by figures of CPUs, an H100 and an H200",
        default="auto",
        choices=("auto", *BACKENDS),
    ),
)


def translation_schemes() -> tuple[str, ...]:
    """The names of the schemes for encoder-decoder models."""
    return tuple(name for name, scheme in SCHEMES.items() if not scheme.compressed)


def position_options() -> dict[str, Option]:
    """All position options by name, with those of schemes that a user registered.

    The default of a scheme's option is that of no scheme.

    Raises:
        TypeError: a scheme's option has a name not allowed, or is declared differently elsewhere
    """
    general = {option.name: option for option in GENERAL_OPTIONS}
    options: dict[str, Option] = {}
    for option in (option for scheme in SCHEMES.values() for option in scheme.options):
        option = option.with_default(False if option.type is bool else None)
        is_new = option.name.startswith("position_") and option.name not in general
        if not is_new or options.setdefault(option.name, option) != option:
            raise TypeError(
                f"the option {option.name!r} of a scheme must begin with position_, and nothing "
                "else may declare it differently: rename it"
            )
    scheme = replace(general["position_scheme"], choices=tuple(SCHEMES))
    return options | general | {"position_scheme": scheme}


for_each_scheme(lambda _: position_options())  # raises where options clash


class PositionConfig(SimpleNamespace):
    """How position information enters the model: an attribute for each of `position_options`.

    The value is None if the option is not given and the scheme decides.
    """

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add one flag per option, without defaults: architectures fill in what is not given."""
        for option in position_options().values():
            if option.type is bool:
                parser.add_argument(option.flag, help=option.help, action="store_true")
                continue
            kind = backend_today if option.name == "attention_backend" else option.type
            parser.add_argument(option.flag, help=option.help, type=kind, choices=option.choices)

    @staticmethod
    def of(args: Namespace | Any) -> "PositionConfig":
        """Read and check the options among fairseq's arguments, and fill in the defaults."""
        given: dict[str, Any] = {
            name: getattr(args, name, option.default) for name, option in position_options().items()
        }
        if given["position_scheme"] not in SCHEMES:
            raise UserError(
                f"--position-scheme must be one of {', '.join(SCHEMES)}, but is "
                f"{given['position_scheme']}: if a package of your own registers it, import that "
                "package first (--user-dir in commands)"
            )
        given["attention_backend"] = backend_today(given["attention_backend"])
        PositionConfig(**given)._check()
        if given["position_start"] == "blind" and given["position_gain"] is None:
            given["position_gain"] = 1.0
        for name, default in options_of(SCHEMES[given["position_scheme"]]).items():
            # each module has its default gain: that of segments per head differs
            if given[name] is None and name != "position_gain":
                given[name] = default
        if given["segment_scheme"] == "per-head" and given["position_sharing"] is None:
            given["position_sharing"] = "none"
        if given["segment_scheme"] in ("input", "per-head") and given["num_segments"] is None:
            given["num_segments"] = 2
        return PositionConfig(**given)

    def write_to(self, args: Namespace | Any) -> None:
        """Write every option into fairseq's arguments, which the checkpoint saves."""
        for name, value in vars(self).items():
            setattr(args, name, value)

    @property
    def scheme(self) -> type[PositionScheme]:
        return SCHEMES[self.position_scheme]

    @property
    def temperature(self) -> float:
        """Divisor of the logits of attention at inference, Chi et al. (2024).

        It divides q k^T and all that is added to it, in every attention that a scheme may act in.
        """
        return 1.0 if self.position_temperature is None else self.position_temperature

    def scheme_in(self, cross: bool) -> type[PositionScheme] | None:
        """The scheme that acts in self-attention, or in cross-attention, if one does."""
        if cross:
            return self.scheme.cross if self.position_cross_attention else None
        return self.scheme if self.scheme.in_attention else None

    def attention_shape(
        self, heads: int, embed_dim: int, queries: Limit, keys: Limit, **where: Any
    ) -> AttentionShape:
        """The shape that schemes are built for; ``where``: causal, cross, layer.

        Args:
            queries: the number of query positions
            keys: the number of key positions, before compression
        """
        if self.scheme.compressed:
            length = self.projection_length or max(1, keys.positions // 4)
            if length > keys.positions:
                raise UserError(
                    f"--projection-length must be at most {keys.flag} ({keys.positions}), but is "
                    f"{length}"
                )
            keys = Limit(length, "--projection-length")
        return AttentionShape(
            heads=1 if self.position_sharing == "head" else heads,
            head_dim=embed_dim // heads,
            embed_dim=embed_dim,
            queries=queries,
            keys=keys,
            **where,
        )

    def build(self, shape: AttentionShape, segment_gain: float | None) -> dict[str, PositionScheme]:
        """The schemes ``positions`` and ``segments`` of one attention, where it has them."""
        built: dict[str, PositionScheme] = {}
        scheme = self.scheme_in(shape.cross)
        if scheme is not None:
            given = {option.argument: getattr(self, option.name) for option in scheme.options}
            options = {name: value for name, value in given.items() if value is not None}
            built["positions"] = scheme.create(shape, **options)
            self._check_backend(built["positions"])
        if self.segment_scheme == "per-head":
            gain = {} if segment_gain is None else {"gain": segment_gain}
            built["segments"] = SegmentScores(shape, self.num_segments or 0, **gain)
        return built

    def __str__(self) -> str:
        """One line that identifies a run: every option in force."""
        given = vars(self).copy()
        if self.position_gain is None:  # the scheme's default, unless it follows from its size
            given["position_gain"] = options_of(self.scheme).get("position_gain")
        return "|".join(
            f"{name.removeprefix('position_')}:{value}"
            for name, value in sorted(given.items(), key=lambda item: item[0] != "position_scheme")
            if value not in (None, False)
        )

    def _check(self) -> None:
        for option in position_options().values():
            value = getattr(self, option.name)
            if value is not None:
                if option.choices is not None and value not in option.choices:
                    raise UserError(
                        f"{option.flag} must be one of {', '.join(option.choices)}, but is {value}"
                    )
                if option.check is not None:
                    option.check(option.flag, value)
                self._check_option(option, value)
        self._check_effect()
        if self.segment_scheme == "per-head" and self.scheme.compressed:
            raise UserError(
                "--segment-scheme per-head can't be combined with the position scheme "
                f"{self.position_scheme}: each of its compressed keys is a mixture of tokens of "
                "all segments; take input or none"
            )

    def _check_option(self, option: Option, value: Any) -> None:
        """Refuse an option of other schemes, unless its value changes nothing."""
        options = options_of(self.scheme)
        if (
            not option.name.startswith(("position_", "projection_"))
            or option.name in ANY_SCHEME
            or value in (option.default, options.get(option.name))
            or (option.name in options and acts_in_attention(self.scheme))
            or (option.name in SEGMENT_OPTIONS and self.segment_scheme == "per-head")
        ):
            return
        fit = [
            name
            for name, scheme in SCHEMES.items()
            if acts_in_attention(scheme) and option.name in options_of(scheme)
        ]
        raise UserError(
            f"{option.flag}{'' if value is True else f' {value}'} is not an option of the position "
            f"scheme {self.position_scheme}: leave it out, or take one of {', '.join(fit)}"
        )

    def _check_effect(self) -> None:
        """Refuse options that would have no effect beside the others."""
        scheme, has_sampling = self.scheme, self.position_sampling not in (None, "none")
        has_peak = self.position_start != "blind"
        reads_positions = (
            scheme.compressed
            or (self.position_input or scheme.input) != "none"
            or (scheme.in_attention and not scheme.kinds <= {"content_score"})
        )
        for name, has_effect, need in (
            ("position_peak", has_peak, "--position-start local"),
            ("position_sampling", reads_positions or not has_sampling, "a scheme with positions"),
            ("position_sampling_length", has_sampling, "--position-sampling"),
            ("num_segments", self.segment_scheme not in (None, "none"), "--segment-scheme"),
        ):
            value = getattr(self, name)
            if not has_effect and value not in (None, options_of(scheme).get(name)):
                raise UserError(
                    f"--{name.replace('_', '-')} {value} has no effect without {need}: leave it "
                    "out, or add that"
                )

    def _check_backend(self, scheme: PositionScheme) -> None:
        """Refuse a backend that doesn't serve all kinds of terms that the scheme has."""
        backend = BACKENDS.get(self.attention_backend)
        lacking = () if backend is None else scheme.kinds - backend.serves
        if lacking:
            fit = [name for name in BACKENDS if scheme.kinds <= BACKENDS[name].serves]
            raise UserError(
                f"--attention-backend {self.attention_backend} can't compute the position scheme "
                f"{self.position_scheme}, which has {' and '.join(sorted(lacking))}: take "
                f"{', '.join(('auto', *fit))}"
            )


@cache
def backend_today(name: str) -> str:
    """The backend of this name; auto for a name of an earlier version."""
    if name not in RETIRED_BACKENDS:
        return name
    logger.info(f"--attention-backend {name} is no longer there: auto is taken")
    return "auto"


def encoder_defaults(scheme: type[PositionScheme], has_segments: bool) -> dict[str, Any]:
    """The defaults of encoders for a scheme's options, where they differ from `options_of`."""
    defaults: dict[str, Any] = {}
    if "position_untie_cls" in options_of(scheme):
        defaults["position_untie_cls"] = "official"
    if has_segments:
        defaults["segment_scheme"] = scheme.segment_scheme
    return defaults


def acts_in_attention(scheme: type[PositionScheme]) -> bool:
    """Whether the scheme changes attention, so that positions at the input are an option."""
    return scheme.in_attention or scheme.compressed


def options_of(scheme: type[PositionScheme]) -> dict[str, Any]:
    """The names of the options that apply to the scheme, with their defaults."""
    options = {option.name: option.default for option in scheme.options}
    options["position_input"] = scheme.input
    if scheme.in_attention:
        options["position_sharing"] = scheme.sharing
    if scheme.cross is not None:
        options["position_cross_attention"] = False
    if scheme.compressed:
        options |= {"projection_length": None, "projection_sharing": "none"}
    return options
