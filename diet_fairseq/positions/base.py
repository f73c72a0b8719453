"""The interface of a position scheme."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .layout import Layout
from .options import Option


@dataclass(frozen=True)
class Limit:
    """How many positions a table has, and the command-line flag that sets it."""

    positions: int
    flag: str


@dataclass(frozen=True)
class AttentionShape:
    """What a scheme must know about the attention that it is part of.

    Attributes:
        heads: H; 1 where all heads share one set of parameters (``--position-sharing head``): the
            score then broadcasts over heads
        head_dim: d_h, of q, k and v
        embed_dim: d, of the model
        queries: the longest input; in cross-attention, of the target
        keys: the same as ``queries``; in cross-attention of the source, with compressed keys their
            number k
        causal: queries don't see keys that come after them
        cross: queries are the decoder's, keys the encoder's
        layer: counts the layers that have parameters of their own
    """

    heads: int
    head_dim: int
    embed_dim: int
    queries: Limit
    keys: Limit
    causal: bool = False
    cross: bool = False
    layer: int = 0


class PositionScheme(nn.Module):
    """Gives every attention head the positions of queries and keys.

    With q, k and v already split into heads, attention computes

        softmax(q k^T + score + query_score(q) + mask) v  [+ value_term]

    where q is divided by sqrt(score_terms d_h), and q and k may be shifted first. A scheme
    overrides the methods of the terms that it has: `factors`, `line` or `score`, `query_score`,
    `shifts`, `value_term`. Which of them decides what attention backends can compute it. A subclass
    that lacks a term of its parent takes the method back: ``factors = PositionScheme.factors``.
    Positions that multiply queries and keys (rotary embeddings) are beyond this interface.

    ``options`` lists the scheme's position options; the constructor takes the value of
    ``position_rank`` as its keyword argument ``rank``, and `create` fills in the defaults. Position
    options that a scheme does not list are refused for it. The constructor raises `UserError` for
    options that contradict one another. Tensors that are not learned are buffers with
    ``persistent=False``, made from the arguments alone. No parameter is called ``gain`` or
    ``terms``: state dicts have these names for something else.
    """

    #: the scheme's options, with its defaults
    options: ClassVar[tuple[Option, ...]] = ()
    #: default of ``--position-sharing``
    sharing: ClassVar[str] = "layer"
    #: default of ``--position-input``
    input: ClassVar[str] = "none"
    #: default of ``--segment-scheme`` in models that have segments
    segment_scheme: ClassVar[str] = "input"
    #: False: the scheme only adds positions to the input, and attention is the plain one
    in_attention: ClassVar[bool] = True
    #: True: the score depends on absolute positions, so the length of inputs is limited
    absolute: ClassVar[bool] = False
    #: True: keys and values are compressed along time (`linformer.py`), so that Tk above is the
    #: number k of compressed keys; for encoders only
    compressed: ClassVar[bool] = False
    #: parameters with a row for every position: name -> the axes that count positions, for
    #: `stack.lengthening`. Position 0 has row ``first_row``, or 0 where there is no such attribute
    tables: ClassVar[dict[str, tuple[int, ...]]] = {}
    #: parameters with a row for every offset from -c to c: name -> the axis that counts them
    offset_tables: ClassVar[dict[str, int]] = {}
    #: parts whose product is divided by the root of score_terms d_h, as the content score is
    scaled: ClassVar[tuple[str, ...]] = ()
    #: the scheme of cross-attention with ``--position-cross-attention``
    cross: ClassVar[type["PositionScheme"] | None] = None
    #: how many terms share the scale of the content score; an option may change it. Where the names
    #: of the parameters don't tell, a buffer ``terms`` does, for `warm_start`
    score_terms: int = 1

    # The following say which methods a class overrides.
    #: True: it has `factors`, and adds nothing else
    factored: ClassVar[bool] = False
    #: True: it has `line`, and adds nothing else
    of_offsets: ClassVar[bool] = False
    #: True: it has `shifts`, and adds nothing else
    shifting: ClassVar[bool] = False
    #: True: it has `query_score`, so no fused attention can compute it
    reads_queries: ClassVar[bool] = False
    #: True: it has `value_term`, so no fused attention can compute it; an option may change it
    adds_to_values: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        terms = ("factors", "line", "score", "query_score", "shifts", "value_term")
        has = {name for name in terms if getattr(cls, name) is not getattr(PositionScheme, name)}
        said = {
            "factored": has - {"score"} == {"factors"},
            "of_offsets": has - {"score"} == {"line"},
            "shifting": has == {"shifts"},
            "reads_queries": "query_score" in has,
            "adds_to_values": "value_term" in has,
        }
        for name, value in said.items():
            if name not in vars(cls):
                setattr(cls, name, value)

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape

    @classmethod
    def create(cls, shape: AttentionShape, **options: Any) -> "PositionScheme":
        """The scheme with these options, by the constructor's keywords, and defaults for others."""
        defaults = {option.argument: option.default for option in cls.options}
        return cls(shape, **(defaults | options))

    def zero(self) -> None:
        """Make the score zero but trainable, for a model that starts from another one.

        A scheme without parameters keeps its score.
        """
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def description(self) -> dict[str, Any]:
        """What parameters mean beyond names and shapes, for `positions.description`; JSON's types.

        A scheme adds the options on which the meaning of its parameters depends.
        """
        return {
            "first_row": getattr(self, "first_row", 0),
            "compressed": self.compressed,
            "score_terms": self.score_terms,
        }

    def term(self, layout: Layout, factored: bool) -> Tensor | tuple[Tensor, Tensor] | None:
        """The score, or its factors if they are wanted and exist. Attention calls this.

        Raises:
            UserError: a sentence is longer than a table of absolute positions
        """
        if self.absolute:
            # In self-attention the limit applies to tokens, not to compressed keys.
            check_length(layout, self.shape.keys if self.shape.cross else self.shape.queries)
        pair = self.factors(layout) if factored else None
        return self.score(layout) if pair is None else pair

    def factors(self, layout: Layout) -> tuple[Tensor, Tensor] | None:
        """((B|1, H|1, Tq, r), (B|1, H|1, Tk, r)) if the score is their product, otherwise None.

        Attention may append them to q and k and never build a Tq x Tk score.
        """
        return None

    def line(self, layout: Layout) -> Tensor | None:
        """(H|1, Tq + Tk - 1), float32, if the score is of the offset alone, otherwise None.

        It has the score of every offset in ``layout.offset_line``.
        """
        return None

    def score(self, layout: Layout) -> Tensor | None:
        """(B|1, H|1, Tq, Tk), added unscaled, or None: by default that of `line` or `factors`.

        It is in float32 even if parameters are in half precision (`look_up`); attention casts it.
        """
        line = self.line(layout)
        if line is not None:
            return layout.of_offsets(line)  # (B|1, H|1, Tq, Tk)
        factors = self.factors(layout)
        if factors is None:
            return None
        return product(*factors)  # (B|1, H|1, Tq, Tk)

    def query_score(self, query: Tensor, layout: Layout) -> Tensor | None:
        """(B, H, Tq, Tk), from q (B, H, Tq, d_h), which is scaled as for the content score."""
        return None

    def shifts(self, layout: Layout) -> tuple[Tensor, Tensor] | None:
        """((B|1, H|1, Tq, d_h), (B|1, H|1, Tk, d_h)), added to q, which is scaled already, and k.

        They give all four products of words and positions, at the price of one.
        """
        return None

    def value_term(self, weights: Tensor, layout: Layout) -> Tensor | None:
        """(B, H, Tq, d_h), added to the output, from the weights (B, H, Tq, Tk)."""
        return None


class InputPositions(PositionScheme):
    """Positions that are added to the input, or none at all; attention is the plain one."""

    in_attention = False


def check_length(layout: Layout, limit: Limit) -> None:
    """Refuse a layout with more keys than an absolute table of ``limit`` rows has."""
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


def product(query: Tensor, key: Tensor) -> Tensor:
    """query key^T, (..., Tq, r) and (..., Tk, r) -> (..., Tq, Tk), in float32 despite autocast."""
    with torch.autocast(query.device.type, enabled=False):
        return query.float() @ key.float().mT


def look_up(rows: Tensor, table: Tensor) -> Tensor:
    """`F.embedding`, with a table in half precision cast to float32.

    The gradient of a row sums those of thousands of tokens, which half precision would lose.
    """
    return F.embedding(rows, table.to(torch.promote_types(table.dtype, torch.float32)))


def take_rows(table: Tensor, positions: Tensor, heads: int) -> Tensor:
    """Rows of a table, split into heads.

    Args:
        table: (n, H * r)
        positions: (B|1, T) int64; those of padding may lie beyond the table

    Returns:
        (B|1, H, T, r)
    """
    rows = look_up(positions.clamp(max=table.size(0) - 1), table)  # (B|1, T, H * r)
    return rows.unflatten(-1, (heads, -1)).transpose(1, 2)
