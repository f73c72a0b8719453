"""The interface of a position scheme."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from ..errors import UserError
from .layout import Layout
from .options import Option
from .scores import Dense, Factors, Offsets, Rows, Score

#: the methods of a scheme's terms beside `PositionScheme.score`
METHODS = ("transform", "query_rows", "key_rows", "value_rows", "content_score")
#: all kinds of terms: the methods, and the types that a score may have
KINDS = frozenset({*METHODS, *(kind.__name__.lower() for kind in (Offsets, Factors, Dense))})

#: attributes of a scheme in version 0.3 -> today; a user's scheme may have the old ones until 0.5
NAMES_OF_0_3 = {
    "tables": "position_axes",
    "offset_tables": "offset_axes",
    "meaning": "described_options",
    "scaled": "scaled_projections",
    "zeroed": "zero_init",
}


@dataclass(frozen=True)
class Limit:
    """The number of positions of a table, and the command-line flag that sets it."""

    positions: int
    flag: str


def check_length(layout: Layout, limit: Limit) -> None:
    """Refuse a layout with more keys than an absolute table has rows (``limit``)."""
    longest = layout.key_positions.size(1)
    if longest <= limit.positions:
        return
    if layout.padding_mask is not None:  # the batch may be padded beyond its longest sentence
        longest = int((~layout.padding_mask).sum(dim=1).max())
    if longest > limit.positions:
        raise UserError(
            f"a sentence of {longest} tokens is longer than the {limit.positions} positions "
            f"of the model ({limit.flag}): shorten it, or train with a larger {limit.flag}"
        )


@dataclass(frozen=True)
class AttentionShape:
    """The attention that a scheme is built for.

    Attributes:
        heads: H; 1 where all heads share one set of parameters (``--position-sharing head``): the
            score then broadcasts over heads
        head_dim: d_h, of q, k and v
        embed_dim: d, of the model
        queries: length limit of the queries (in cross-attention, of the target)
        keys: length limit of the keys (in cross-attention, of the source), or the number k of
            compressed keys
        causal: whether queries see no later keys
        cross: whether this is cross-attention, with queries of the decoder and keys of the encoder
        layer: number of the layer, from 0; 0 if layers share parameters
    """

    heads: int
    head_dim: int
    embed_dim: int
    queries: Limit
    keys: Limit
    causal: bool = False
    cross: bool = False
    layer: int = 0


@dataclass(frozen=True)
class Projections:
    """The layer's projections of queries and keys: (R, d) -> (H, R, d_h)."""

    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]


class PositionScheme(nn.Module):
    """Positions of queries and keys in every attention head.

    With q (B, H, Tq, d_h), divided by sqrt(score_terms d_h), and k (B, H, Tk, d_h), attention is

        softmax(q' k'^T + score + q_i . rows_ij + k'_j . rows_ij + mask) v  + weights . rows
        q', k' = transform(q, k)

    A scheme overrides the methods of its terms; methods that it does not override cost nothing.
    The overridden methods and `score_type` are its `kinds`, by which attention backends are
    selected. A subclass drops its parent's score with ``score = PositionScheme.score``.

    The constructor takes the value of the option ``position_rank`` as its keyword ``rank``, and
    raises `UserError` for options that contradict one another; `create` fills in the defaults.
    Options that a scheme does not list are refused. Tensors that are not learned are buffers with
    ``persistent=False``, computed from the arguments alone. No parameter may be called ``gain`` or
    ``terms``, because state dicts use these names for other values.
    """

    #: the scheme's options, with its defaults
    options: ClassVar[tuple[Option, ...]] = ()
    #: defaults of ``--position-sharing``, ``--position-input`` and, in models that have segments,
    #: ``--segment-scheme``
    sharing: ClassVar[str] = "layer"
    input: ClassVar[str] = "none"
    segment_scheme: ClassVar[str] = "input"
    #: False: positions are only added to the input, and attention is the plain one
    in_attention: ClassVar[bool] = True
    #: True: scores depend on absolute positions, so the length of inputs is limited
    absolute: ClassVar[bool] = False
    #: True: keys and values are compressed along time (`attention.compressed`), and Tk above is the
    #: number k of compressed keys; for encoders only
    compressed: ClassVar[bool] = False
    #: names of parameters with a row for every position -> the axes that count positions, for
    #: `models.lengthening`. Position 0 has row ``first_row``, or 0 without such an attribute
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {}
    #: names of parameters with a row for every offset from -c to c -> the axis that counts offsets
    offset_axes: ClassVar[dict[str, int]] = {}
    #: keywords of the options on which the meaning of parameters depends; `describe` lists them
    described_options: ClassVar[tuple[str, ...]] = ()
    #: names of modules whose product is divided by the root of score_terms d_h, like the content
    #: score
    scaled_projections: ClassVar[tuple[str, ...]] = ()
    #: the scheme of cross-attention with ``--position-cross-attention``
    cross: ClassVar[type["PositionScheme"] | None] = None
    #: prefixes of the names of parameters that `zero` sets to 0 (default: all parameters)
    zero_init: ClassVar[tuple[str, ...]] = ("",)
    #: the number of terms that share the scale of the content score; an option may change it. Where
    #: the names of the parameters don't tell, a buffer ``terms`` does, for `models.warm_start`
    score_terms: int = 1
    #: the type of `score`: `Offsets`, `Factors` or `Dense`
    score_type: ClassVar[type[Score]] = Dense
    #: the columns of a score of `Factors`
    rank: int = 0
    #: the kinds of its terms, of `KINDS`; an option may take one away
    kinds: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for old, new in NAMES_OF_0_3.items():
            if old in vars(cls):
                setattr(cls, new, vars(cls)[old])
        kinds = {
            name for name in METHODS if getattr(cls, name) is not getattr(PositionScheme, name)
        }
        if cls.score is not PositionScheme.score:
            kinds.add(cls.score_type.__name__.lower())
        cls.kinds = frozenset(kinds)

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape

    @classmethod
    def create(cls, shape: AttentionShape, **options: Any) -> "PositionScheme":
        """The scheme with these options (the constructor's keywords) and defaults of others."""
        return cls(shape, **cls.with_defaults(options))

    @classmethod
    def with_defaults(cls, options: dict[str, Any]) -> dict[str, Any]:
        """These options (the constructor's keywords) and the defaults of all others."""
        return {option.argument: option.default for option in cls.options} | options

    @classmethod
    def describe(cls, **options: Any) -> dict[str, Any]:
        """The meaning of parameters beyond names and shapes, see `positions.description`.

        Takes the constructor's keywords.
        """
        return {
            "first_row": 0,
            "compressed": cls.compressed,
            "score_terms": cls.score_terms,
            **{name: options[name] for name in cls.described_options},
        }

    def zero(self) -> None:
        """Set the parameters of `zero_init` to 0: all terms are then zero, but can be trained."""
        for name, parameter in self.named_parameters():
            if name.startswith(self.zero_init):
                nn.init.zeros_(parameter)

    def score(self, layout: Layout) -> Score | None:
        """The score of positions alone, in float32 even if parameters are in half precision.

        It is of the type `score_type`.
        """
        return None

    def prepare(self, layout: Layout) -> None:
        """Compute once for all layers what `transform` needs, and store it in ``layout.cache``.

        It is not called if every layer has its own scheme.
        """

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Queries (B, H, Tq, d_h), scaled, and keys (B, H, Tk, d_h) before their product.

        In decoding, transformed keys are cached: k holds only the new keys (perhaps none), and
        ``layout`` holds their positions.
        """
        return q, k

    def query_rows(self, layout: Layout, project: Projections) -> Rows | None:
        """Rows that queries are multiplied by before `transform`, or None."""
        return None

    def key_rows(self, layout: Layout, project: Projections) -> Rows | None:
        """Rows that keys are multiplied by after `transform`, unscaled, without bias, or None."""
        return None

    def value_rows(self, layout: Layout) -> Rows | None:
        """Rows whose sum, weighted with the attention weights, is added to the output, or None."""
        return None

    def content_score(self, logits: Tensor, q: Tensor, layout: Layout) -> Tensor:
        """The content score q k^T (B, H, Tq, Tk), changed depending on its values.

        It contains neither scores nor the mask (``layout.mask``) yet.
        """
        return logits
