"""The interface of a position scheme."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from ..errors import UserError
from .layout import Layout
from .options import Option, Value
from .scores import Dense, Factors, Offsets, Rows, Score, Sum

#: the methods, besides `PositionScheme.score`, that a scheme overrides to add a term
METHODS = ("transform", "query_rows", "key_rows", "value_rows", "content_score")
#: types of a score -> their kind of term
SCORE_KINDS: dict[type[Score], str] = {
    Offsets: "offsets",
    Factors: "factors",
    Sum: "sum",
    Dense: "dense",
}
#: all kinds of terms
KINDS = frozenset({*METHODS, *SCORE_KINDS.values()})


def find_score_kind(score_type: type[Score]) -> str:
    """The kind of a type of score, which is one of `SCORE_KINDS` or a subclass.

    Raises:
        TypeError: the type is another one, which no backend reads
    """
    for known, kind in SCORE_KINDS.items():
        if issubclass(score_type, known):
            return kind
    names = ", ".join(known.__name__ for known in SCORE_KINDS)
    raise TypeError(
        f"score_type must be {names} or a subclass, but is {score_type.__name__}: return Dense, "
        "which has the score as a matrix"
    )


@dataclass(frozen=True)
class Limit:
    """The number of positions of a table, and the command-line flag that sets it."""

    positions: int
    flag: str


def check_length(layout: Layout, limit: Limit) -> None:
    """Refuse a layout with more keys than a table of absolute positions has rows.

    Raises:
        UserError: a sentence has more tokens than ``limit``
    """
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
        heads: H; 1 if all heads share one set of parameters (``--position-sharing head``), whose
            score then broadcasts over the heads
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
    """The layer's projections of queries and keys, applied to vectors of positions.

    Attributes:
        query: (R, d) -> (H, R, d_h)
        key: (R, d) -> (H, R, d_h)
    """

    query: Callable[[Tensor], Tensor]
    key: Callable[[Tensor], Tensor]


class PositionScheme(nn.Module):
    """Positions of queries and keys in every attention head.

    With q (B, H, Tq, d_h), divided by sqrt(score_terms d_h), and k (B, H, Tk, d_h), attention is

        softmax(q' k'^T + score + q_i . rows_ij + k'_j . rows_ij + mask) v
            + weights . rows
        q', k' = transform(q, k)

    Positions count tokens, unless `steps` makes them depend on what the tokens are.

    A scheme overrides the methods of its terms; a method that it does not override takes no time.
    The overridden methods and `score_type` are the scheme's `kinds`, which determine the attention
    backend. A subclass drops the score of its base class with ``score = PositionScheme.score``.

    The constructor has a keyword for each option: ``rank`` for the option ``position_rank``. It
    raises `UserError` for options that contradict one another. `create` adds the defaults of the
    options that are not set. Options that a scheme does not list are refused.

    Tensors that are not learned are buffers with ``persistent=False``, computed only from the
    constructor's arguments. No parameter may be called ``gain`` or ``terms``, because state dicts
    use these names for other values.
    """

    #: the scheme's options, with the scheme's defaults
    options: ClassVar[tuple[Option, ...]] = ()
    #: defaults of ``--position-sharing``, ``--position-input`` and, in models that have segments,
    #: ``--segment-scheme``
    sharing: ClassVar[str] = "layer"
    input: ClassVar[str] = "none"
    segment_scheme: ClassVar[str] = "input"
    #: whether the scheme adds terms to attention; False: positions are at the input, or there are
    #: none
    in_attention: ClassVar[bool] = True
    #: whether scores depend on absolute positions, so that the length of inputs is limited
    absolute: ClassVar[bool] = False
    #: whether keys and values are compressed along time (`attention.compressed`), in encoders only;
    #: Tk above is then the number k of compressed keys
    compressed: ClassVar[bool] = False
    #: names of parameters with a row for every position -> the axes that count positions, for
    #: `models.lengthening`. Position 0 has row ``first_row``, or row 0 without this attribute
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {}
    #: names of parameters with a row for every offset from -c to c -> the axis that counts offsets
    offset_axes: ClassVar[dict[str, int]] = {}
    #: keywords of the options on which the meaning of parameters depends; `describe` lists them
    described_options: ClassVar[tuple[str, ...]] = ()
    #: names of the modules whose output is divided by sqrt(score_terms d_h), like the queries
    scaled_projections: ClassVar[tuple[str, ...]] = ()
    #: the scheme of cross-attention with ``--position-cross-attention``
    cross: ClassVar[type["PositionScheme"] | None] = None
    #: prefixes of the names of parameters that `zero` sets to 0 (default: all parameters)
    zero_init: ClassVar[tuple[str, ...]] = ("",)
    #: whether `zero` makes the term zero; False: only as near to zero as it still learns, so that a
    #: warm start warns that the model begins with another function than the checkpoint
    can_be_zero: ClassVar[bool] = True
    #: the number of terms that share the scale of the content score; an option may change it. If
    #: it does not follow from the names of the parameters, a buffer ``terms`` contains it, which
    #: `models.warm_start` reads
    score_terms: int = 1
    #: the type of `score`: `Offsets`, `Factors`, `Dense`, `Sum` or a subclass. A scheme with steps
    #: may return `Dense` in some layouts, whatever its type
    score_type: type[Score] = Dense
    #: the number of columns of a score of the type `Factors`, or of such a part of a `Sum`: its
    #: rank r, or 6 for `Differences`
    rank: int = 0
    #: whether `query_rows` belong to offsets (`Rows.low`), so that kernels can read their products
    has_offset_rows: ClassVar[bool] = False
    #: the factor by which `transform` widens queries and keys
    widening: ClassVar[int] = 1
    #: the kinds of the scheme's terms, a subset of `KINDS`; an option may remove a kind
    kinds: frozenset[str] = frozenset()
    #: whether tokens move positions: whether the scheme has a method `steps`
    moves: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        kinds = {
            name for name in METHODS if getattr(cls, name) is not getattr(PositionScheme, name)
        }
        if cls.score is not PositionScheme.score:
            kinds.add(find_score_kind(cls.score_type))
        cls.kinds = frozenset(kinds)
        cls.moves = callable(getattr(cls, "steps", None))

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        if self.moves and (shape.cross or self.compressed):
            raise TypeError(
                f"{type(self).__name__}.steps must be in self-attention with all keys, but is in "
                f"{'cross-attention' if shape.cross else 'a scheme that compresses keys'}: leave "
                f"out {'cross' if shape.cross else 'compressed'} in the class"
            )
        self.shape = shape

    @classmethod
    def create(cls, shape: AttentionShape, **options: Value) -> "PositionScheme":
        """The scheme with these options (keywords of the constructor), and other defaults."""
        return cls(shape, **cls.with_defaults(options))

    @classmethod
    def with_defaults(cls, options: dict[str, Value]) -> dict[str, Value]:
        """These options (keywords of the constructor), and the defaults of all other options."""
        return {option.argument: option.default for option in cls.options} | options

    @classmethod
    def describe(cls, **options: Value) -> dict[str, Value]:
        """The meaning of the parameters beyond names and shapes, see `positions.description`.

        Args:
            options: the keywords of the constructor
        """
        return {
            "first_row": 0,
            "compressed": cls.compressed,
            "score_terms": cls.score_terms,
            **{name: options[name] for name in cls.described_options},
        }

    def zero(self) -> None:
        """Set the parameters of `zero_init` to 0, so that all terms are zero but can be trained.

        A scheme whose terms can't be zero and learn has ``can_be_zero = False``.
        """
        for name, parameter in self.named_parameters():
            if name.startswith(self.zero_init):
                nn.init.zeros_(parameter)

    if TYPE_CHECKING:
        # no attribute at run time, so that a scheme may have a buffer or parameter of this name

        def steps(self, x: Tensor, layout: Layout) -> Tensor:
            """How far each token moves its own position and the positions of all later tokens.

            The sums of the steps, up to and including each token, are `Layout.moved` in the layout
            that `score` and `transform` get. Both are then called in every layer, even if layers
            share the scheme. Padding moves nothing: its steps are replaced by 0.

            In incremental decoding x contains only the new tokens, so that the step of a token must
            not depend on other tokens. A scheme with steps can't be in cross-attention or compress
            keys.

            Args:
                x: (B, Tq, d), the input of the layer's attention, in float32 or wider
                layout: the positions of these tokens and of all keys

            Returns:
                (B, H|1, Tq, r) for any r, in float32
            """
            raise NotImplementedError

    def score(self, layout: Layout) -> Score | None:
        """The score of positions, of the type `score_type`, or None.

        It is in float32, even if the parameters are in half precision.
        """
        return None

    def prepare(self, layout: Layout) -> None:
        """Compute values for `transform` once for all layers, and store them in ``layout.cache``.

        This method is not called if every layer has its own scheme.
        """

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Change queries and keys before their product.

        In incremental decoding transformed keys are cached. ``k`` then contains only the new keys,
        possibly none, and ``layout`` has the positions of these keys.

        Args:
            q: (B, H, Tq, d_h), scaled
            k: (B, H, Tk, d_h)
            layout: the positions of these queries and keys

        Returns:
            q and k, in the same shapes, or both `widening` times as wide
        """
        return q, k

    def query_rows(self, layout: Layout, project: Projections) -> Rows | None:
        """Rows that are multiplied by the queries before `transform`, or None."""
        return None

    def key_rows(self, layout: Layout, project: Projections) -> Rows | None:
        """Rows that are multiplied by the keys after `transform`, or None.

        They are not scaled, and have no bias.
        """
        return None

    def value_rows(self, layout: Layout) -> Rows | None:
        """Rows whose sum, weighted by the attention weights, is added to the output, or None."""
        return None

    def content_score(self, logits: Tensor, q: Tensor, layout: Layout) -> Tensor:
        """Change the content score depending on its values.

        Args:
            logits: (B, H, Tq, Tk), q k^T without other scores and without the mask
            q: (B, H, Tq, d_h), scaled
            layout: the positions of queries and keys, and the mask

        Returns:
            (B, H, Tq, Tk)
        """
        return logits
