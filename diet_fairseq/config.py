"""The position options in one flat dataclass, with their defaults and checks."""

import dataclasses
import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from .attention.backends import BACKENDS
from .checks import not_below
from .errors import UserError
from .positions import SCHEMES, AttentionShape, Limit, PositionScheme
from .positions.options import Check, Option, common, options_in
from .positions.segments import SegmentScores

#: schemes for encoder-decoder models
TRANSLATION = tuple(name for name, scheme in SCHEMES.items() if not scheme.compressed)
SHARING = ("none", "head", "layer")
INPUTS = ("none", "sinusoidal", "learned")
SEGMENTS = ("none", "input", "per-head")
#: what segments per head have with any scheme
OF_SEGMENTS = ("position_sharing", "position_gain")
PROJECTIONS = ("none", "key-value", "layer")
BACKEND_CHOICES = ("auto", *BACKENDS)
#: names of earlier versions, which checkpoints still have
RETIRED_BACKENDS = ("auto-measured", "flex")

logger = logging.getLogger(__name__)


def option(
    help: str,
    choices: Iterable[str] | None = None,
    default: Any = None,
    check: Check | None = None,
) -> Any:
    metadata = {"help": help, "choices": choices, "check": check}
    return dataclasses.field(default=default, metadata=metadata)


def declared() -> Iterator[tuple[str, Any, Any]]:
    """The fields for the options that schemes declare: name, type, field."""
    found: dict[str, Option] = {}
    for scheme in SCHEMES.values():
        for name, given in options_in(scheme).items():
            found[name] = given if name not in found else common(name, found[name], given)
    for name, given in found.items():
        kind = bool if given.type is bool else given.type | None
        default = False if given.type is bool else None
        yield f"position_{name}", kind, option(given.help, given.choices, default, given.check)


#: the schemes' options: "position_" and the name of a constructor's argument
SchemeOptions: Any = dataclasses.make_dataclass("SchemeOptions", declared(), frozen=True)


@dataclass(frozen=True)
class PositionConfig(SchemeOptions):
    """How position information enters the model. None: the scheme's default."""

    position_scheme: str = option("the position scheme (default: that of --arch)", SCHEMES)
    position_sharing: str | None = option(
        "parameters that are not shared, shared by the heads of a layer, or by all layers", SHARING
    )
    position_input: str | None = option(
        "positions added to the input as well, with any scheme", INPUTS
    )
    position_cross_attention: bool = option(
        "diet_abs, tupe_a, tupe_r: add a term of its own to cross-attention", default=False
    )
    projection_length: int | None = option(
        "linear schemes: number k of compressed keys (default: --max-positions / 4)"
    )
    projection_sharing: str | None = option(
        "linear schemes: matrices for the keys and for the values of every layer (none), one for "
        "both (key-value), or one for all layers (layer) (default: none)",
        PROJECTIONS,
    )
    segment_scheme: str | None = option(
        "segments are ignored, an embedding at the input, or a score in every head",
        SEGMENTS,
    )
    num_segments: int | None = option("number of segments (default: 2)")
    attention_backend: str = option(
        "how attention is computed; auto: the fastest, by figures of CPUs and an H100",
        BACKEND_CHOICES,
        default="auto",
    )

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add one flag per field, without defaults: architectures fill in what is not given."""
        for field in dataclasses.fields(PositionConfig):
            kind: dict[str, Any] = {"action": "store_true"}
            if field.type is not bool:
                [numeric] = {*get_args(field.type), field.type} & {int, float, str}
                kind = {"type": numeric, "choices": field.metadata["choices"]}
            if field.name == "attention_backend":
                kind["type"] = backend_today
            parser.add_argument(flag(field.name), help=field.metadata["help"], **kind)

    @staticmethod
    def of(args: Namespace | Any) -> "PositionConfig":
        """Read and check the options among fairseq's arguments, and fill in the defaults."""
        given: dict[str, Any] = {
            field.name: getattr(args, field.name, field.default)
            for field in dataclasses.fields(PositionConfig)
        }
        if given["position_scheme"] is None:
            raise UserError(
                f"--position-scheme is missing: choose one of {', '.join(SCHEMES)}, "
                "or an --arch that names one"
            )
        given["attention_backend"] = backend_today(given["attention_backend"])
        PositionConfig(**given)._check()
        if given["position_start"] == "blind" and given["position_gain"] is None:
            given["position_gain"] = 1.0
        for name, default in options_of(SCHEMES[given["position_scheme"]]).items():
            # the gain that is not given is each module's own: segments per head have another one
            if given[name] is None and name != "position_gain":
                given[name] = default
        if given["segment_scheme"] == "per-head" and given["position_sharing"] is None:
            given["position_sharing"] = "none"
        if given["segment_scheme"] in ("input", "per-head") and given["num_segments"] is None:
            given["num_segments"] = 2
        return PositionConfig(**given)

    def write_to(self, args: Namespace | Any) -> None:
        """Write every option into fairseq's arguments, which the checkpoint saves."""
        for name, value in dataclasses.asdict(self).items():
            setattr(args, name, value)

    @property
    def scheme(self) -> type[PositionScheme]:
        return SCHEMES[self.position_scheme]

    @property
    def gain(self) -> float | None:
        """The scheme's gain in force; None: it has none, or its default follows from its size."""
        if self.position_gain is not None:
            return self.position_gain
        return options_of(self.scheme).get("position_gain")

    def scheme_in(self, cross: bool) -> type[PositionScheme] | None:
        """What self-attention, or cross-attention, has of the scheme."""
        if cross:
            return self.scheme.cross if self.position_cross_attention else None
        return self.scheme if self.scheme.in_attention else None

    def attention_shape(
        self, heads: int, embed_dim: int, queries: Limit, keys: Limit, **where: Any
    ) -> AttentionShape:
        """What the schemes are built from; ``where``: causal, cross, layer.

        Args:
            queries: the number of query positions
            keys: the number of key positions, before compression
        """
        if self.scheme.compressed:
            keys = Limit(projection_length(self.projection_length, keys), "--projection-length")
        return AttentionShape(
            heads=1 if self.position_sharing == "head" else heads,
            head_dim=embed_dim // heads,
            embed_dim=embed_dim,
            queries=queries,
            keys=keys,
            **where,
        )

    def build(self, shape: AttentionShape, segment_gain: float | None) -> dict[str, PositionScheme]:
        """``positions`` and ``segments`` of attention of this shape, where there are such."""
        built: dict[str, PositionScheme] = {}
        scheme = self.scheme_in(shape.cross)
        if scheme is not None:
            given = {name: getattr(self, f"position_{name}") for name in options_in(scheme)}
            options = {name: value for name, value in given.items() if value is not None}
            built["positions"] = scheme(shape, **options)
        if self.segment_scheme == "per-head":
            gain = {} if segment_gain is None else {"gain": segment_gain}
            built["segments"] = SegmentScores(shape, self.num_segments or 0, **gain)
        return built

    def __str__(self) -> str:
        """One line that identifies a run: every option in force."""
        given = dataclasses.asdict(self) | {"position_gain": self.gain}
        return "|".join(
            f"{name.removeprefix('position_')}:{value}"
            for name, value in sorted(given.items(), key=lambda item: item[0] != "position_scheme")
            if value not in (None, False)
        )

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            if choices is not None and value is not None and value not in choices:
                raise UserError(
                    f"{flag(field.name)} must be one of {', '.join(choices)}, but is {value}"
                )
            if field.metadata["check"] is not None and value is not None:
                field.metadata["check"](flag(field.name), value)
        name, options = self.position_scheme, options_of(self.scheme)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if (
                not field.name.startswith(("position_", "projection_"))
                or field.name == "position_scheme"
                or value in (field.default, options.get(field.name))
                or (field.name in options and acts_in_attention(self.scheme))
                or (field.name in OF_SEGMENTS and self.segment_scheme == "per-head")
            ):
                continue
            having = [
                n
                for n, s in SCHEMES.items()
                if acts_in_attention(s) and field.name in options_of(s)
            ]
            raise UserError(
                f"{flag(field.name)}{'' if value is True else f' {value}'} is not an option of the "
                f"position scheme {name}: leave it out, or take one of {', '.join(having)}"
            )
        if self.position_start == "blind" and self.position_peak not in (
            None,
            options.get("position_peak"),
        ):
            raise UserError(
                f"--position-peak {self.position_peak} means nothing with --position-start blind, "
                "which has no peak: leave one of them out"
            )
        if self.num_segments is not None:
            if self.segment_scheme in (None, "none"):
                raise UserError(
                    f"--num-segments {self.num_segments} means nothing without segments: leave it "
                    "out, or take --segment-scheme input or per-head in a model that has segments"
                )
            not_below("--num-segments", self.num_segments, 1)
        if self.segment_scheme == "per-head" and self.scheme.compressed:
            raise UserError(
                f"--segment-scheme per-head can't be combined with the position scheme {name}: "
                "each of its compressed keys is a mixture of tokens of all segments; take input or "
                "none"
            )
        fused = self.attention_backend in set(BACKENDS) - {"reference"}
        if fused and (self.scheme.reads_queries or self.scheme.adds_to_values):
            why = "whose score depends on the query"
            raise UserError(
                f"--attention-backend {self.attention_backend} can't compute the position scheme "
                f"{name}, {why if self.scheme.reads_queries else 'which adds to the values'}: take "
                "auto or reference"
            )


@cache
def backend_today(name: str) -> str:
    """The backend that a command or a checkpoint names, or auto for one of an earlier version."""
    if name not in RETIRED_BACKENDS:
        return name
    logger.info(f"--attention-backend {name} is no longer there: auto is taken")
    return "auto"


def projection_length(given: int | None, limit: Limit) -> int:
    """k: what ``--projection-length`` says, or a quarter of the positions."""
    if given is None:
        return max(1, limit.positions // 4)
    not_below("--projection-length", given, 1)
    if given > limit.positions:
        raise UserError(
            f"--projection-length must be at most {limit.flag} ({limit.positions}), but is {given}"
        )
    return given


def flag(field: str) -> str:
    """The option of a field, as it is typed."""
    return "--" + field.replace("_", "-")


def acts_in_attention(scheme: type[PositionScheme]) -> bool:
    """Whether the scheme changes attention, so that positions at the input are an option."""
    return scheme.in_attention or scheme.compressed


def options_of(scheme: type[PositionScheme]) -> dict[str, Any]:
    """The fields of `PositionConfig` that apply to the scheme, with their defaults."""
    options = {f"position_{name}": given.default for name, given in options_in(scheme).items()}
    options["position_input"] = scheme.input
    if scheme.in_attention:
        options["position_sharing"] = scheme.sharing
    if scheme.cross is not None:
        options["position_cross_attention"] = False
    if scheme.compressed:
        options |= {"projection_length": None, "projection_sharing": "none"}
    return options
