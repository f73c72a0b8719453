"""The plugin's options, their defaults, their checks: all of them, in one flat dataclass."""

import dataclasses
import inspect
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

from .errors import UserError
from .positions import SCHEMES, AttentionShape, PositionScheme
from .positions.base import check_at_least
from .positions.tupe import UNTIE_CLS

#: schemes that decoders can have, too
TRANSLATION = tuple(name for name, scheme in SCHEMES.items() if not scheme.compressed)
SHARING = ("none", "head", "layer")
INPUTS = ("none", "sinusoidal", "learned")
SEGMENTS = ("none", "input", "per-head")
PROJECTIONS = ("none", "key-value", "layer")
BACKENDS = ("auto", "reference", "sdpa", "factors", "recompute")


def option(help: str, choices: Iterable[str] | None = None, default: Any = None) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class PositionConfig:
    """How a model is told about positions. None: the scheme's own default."""

    position_scheme: str = option("how attention learns positions", SCHEMES)
    position_sharing: str | None = option(
        "parameters shared by nothing, by the heads of a layer, or by all layers", SHARING
    )
    position_input: str | None = option(
        "positions added to the input as well, with any scheme", INPUTS
    )
    position_rank: int | None = option(
        "rank d_p of DIET-ABS and DIET-ABS-LIN (default: head dimension)"
    )
    position_clip: int | None = option(
        "largest offset with a parameter of its own (default: 16 for shaw, all for diet_rel)"
    )
    position_values: bool = option("shaw: offsets meet the values, too", default=False)
    position_buckets: int | None = option("buckets of t5 and tupe_r (default: 32)")
    position_max_distance: int | None = option(
        "offset from which on all share t5's and tupe_r's last bucket (default: 128)"
    )
    position_untie_cls: str | None = option(
        "tupe: reset the scores of the first token as the paper or as the released code does",
        UNTIE_CLS,
    )
    position_cross_attention: bool = option(
        "absolute schemes: a term of their own in cross-attention, too", default=False
    )
    projection_length: int | None = option(
        "linear schemes: how many keys are left, Linformer's k (default: max positions / 4)"
    )
    projection_sharing: str | None = option(
        "linear schemes: a matrix for the keys and one for the values of every layer (none), one "
        "for both, or one for all layers (default: none)",
        PROJECTIONS,
    )
    segment_scheme: str | None = option(
        "what tells segments apart: nothing, a vector at the input, or a score in every head",
        SEGMENTS,
    )
    num_segments: int | None = option("segments that are told apart (default: 2)")
    attention_backend: str = option(
        "how attention is computed; auto goes by what was measured", BACKENDS, default="auto"
    )

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add one flag per field. No defaults: fairseq's architectures fill what is not given."""
        for field in dataclasses.fields(PositionConfig):
            kind: dict[str, Any] = {"action": "store_true"}
            if field.type is not bool:
                numeric = int in get_args(field.type)
                kind = {"type": int if numeric else str, "choices": field.metadata["choices"]}
            parser.add_argument(
                "--" + field.name.replace("_", "-"), help=field.metadata["help"], **kind
            )

    @staticmethod
    def of(args: Namespace | Any) -> "PositionConfig":
        """The options among fairseq's arguments, checked, the scheme's defaults filled in."""
        given: dict[str, Any] = {
            field.name: getattr(args, field.name, field.default)
            for field in dataclasses.fields(PositionConfig)
        }
        if given["position_scheme"] is None:
            raise UserError(
                f"--position-scheme is missing: choose one of {', '.join(SCHEMES)}, "
                "or an --arch that names one"
            )
        PositionConfig(**given)._check()
        for name, default in options_of(SCHEMES[given["position_scheme"]]).items():
            if given[name] is None:
                given[name] = default
        if given["segment_scheme"] == "per-head" and given["position_sharing"] is None:
            given["position_sharing"] = "none"
        if given["segment_scheme"] in ("input", "per-head") and given["num_segments"] is None:
            given["num_segments"] = 2
        return PositionConfig(**given)

    def write_to(self, args: Namespace | Any) -> None:
        """Let fairseq's arguments, and so the checkpoint, carry every option's value."""
        for name, value in dataclasses.asdict(self).items():
            setattr(args, name, value)

    @property
    def scheme(self) -> type[PositionScheme]:
        return SCHEMES[self.position_scheme]

    def build(
        self, shape: AttentionShape, scheme: type[PositionScheme] | None = None
    ) -> PositionScheme:
        """The module of this scheme, or of another that shares its options."""
        scheme = scheme or self.scheme
        options = {name: getattr(self, f"position_{name}") for name in keyword_options(scheme)}
        return scheme(shape, **options)

    def __str__(self) -> str:
        """One line that names a run: every option that is in force."""
        return "|".join(
            f"{name.removeprefix('position_')}:{value}"
            for name, value in dataclasses.asdict(self).items()
            if value not in (None, False)
        )

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), field.metadata["choices"]
            if choices is not None and value is not None and value not in choices:
                raise UserError(
                    f"{flag(field.name)} must be one of {', '.join(choices)}, but is {value}"
                )
        name, options = self.position_scheme, options_of(self.scheme)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if (
                not field.name.startswith(("position_", "projection_"))
                or field.name == "position_scheme"
                or value in (field.default, options.get(field.name))
                or (field.name in options and acts_in_attention(self.scheme))
                or (field.name == "position_sharing" and self.segment_scheme == "per-head")
            ):
                continue
            having = [
                n
                for n, s in SCHEMES.items()
                if acts_in_attention(s) and field.name in options_of(s)
            ]
            raise UserError(
                f"{flag(field.name)}{'' if value is True else f' {value}'} is no option of the "
                f"position scheme {name}: leave it out, or take one of {', '.join(having)}"
            )
        if self.num_segments is not None:
            if self.segment_scheme in (None, "none"):
                raise UserError(
                    f"--num-segments {self.num_segments} means nothing without segments: leave it "
                    "out, or take --segment-scheme input or per-head in a model that has segments"
                )
            check_at_least("--num-segments", self.num_segments, 1)
        if self.segment_scheme == "per-head" and self.scheme.compressed:
            raise UserError(
                f"--segment-scheme per-head can't be with the position scheme {name}: each of its "
                "compressed keys is a mixture of tokens of all segments; take input or none"
            )
        fused = self.attention_backend not in (None, "auto", "reference")
        if fused and self.scheme.reads_queries:
            raise UserError(
                f"--attention-backend {self.attention_backend} can't compute the position scheme "
                f"{name}, whose score "
                "depends on the query: take auto or reference"
            )


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def acts_in_attention(scheme: type[PositionScheme]) -> bool:
    """Whether it is more than its positions at the input, which then are an option of their own."""
    return scheme.in_attention or scheme.compressed


def keyword_options(scheme: type[PositionScheme]) -> dict[str, Any]:
    """The scheme's own options and their defaults, as its constructor names them."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(scheme).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def options_of(scheme: type[PositionScheme]) -> dict[str, Any]:
    """All fields of `PositionConfig` that mean something to the scheme, and their defaults."""
    options = {f"position_{name}": value for name, value in keyword_options(scheme).items()}
    options["position_input"] = scheme.input
    if scheme.in_attention:
        options["position_sharing"] = scheme.sharing
    if scheme.cross is not None:
        options["position_cross_attention"] = False
    if scheme.compressed:
        options |= {"projection_length": None, "projection_sharing": "none"}
    return options
