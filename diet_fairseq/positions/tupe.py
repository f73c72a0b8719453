"""TUPE, Ke et al. (2021): separate projections of words and positions, and an untied [CLS].

The module also contains the baselines of the paper: BERT-A^d (section 4.3) and a free matrix
(appendix D).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .gain import (
    GAIN,
    PEAK,
    START,
    ScoreParameters,
    first_offsets,
    local_scores,
    wave_frequencies,
)
from .layout import Layout
from .options import Option, Value
from .relative import BUCKETS, MAX_DISTANCE, OffsetProducts, OffsetScalars, OffsetScores, t5_buckets
from .scores import Dense, Factors, Offsets, Score, Sum, look_up, look_up_heads, product

#: theta_1 and theta_2, (H,) each: the scores of the first token as query and as key
Thetas = tuple[Tensor, Tensor]

UNTIE_CLS = Option(
    "position_untie_cls",
    str,
    "tupe: reset the scores of the first token as in the paper or the released code (default: "
    "official in encoders, otherwise no)",
    default="no",
    choices=("no", "paper", "official"),
    encoder_default="official",
)
NO_LAYER_NORM = Option(
    "position_no_layer_norm",
    bool,
    "tupe_a, tupe_r: no LayerNorm on positions (ablation)",
    default=False,
)
NO_RESCALE = Option(
    "position_no_rescale",
    bool,
    "tupe_a, tupe_r: divide the content score and the position score by sqrt(d_h) instead of "
    "sqrt(2 d_h) (ablation)",
    default=False,
)
RELATIVE = Option(
    "position_relative",
    str,
    "tupe_r: the score of a bucket is a scalar, or a product of projections of a vector, which "
    "the paper's appendix D reports as a failed attempt (default: scalar)",
    default="scalar",
    choices=("scalar", "product"),
)


class Projection(nn.Module):
    """x W^T + b, of parameters that start at N(0, 0.02) and 0.

    This is not an `nn.Linear`, and `Table` is not an `nn.Embedding`, because `init_bert_params`
    would initialize them again.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Table(nn.Module):
    """A vector for each row, (rows, d), that starts at N(0, 0.02)."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width).normal_(std=0.02))


class TupeA(PositionScheme):
    """TUPE-A, Ke et al. (2021), eq. 10: score(i, j) = reset((p_i U^Q)(p_j U^K)^T / sqrt(2 d_h)).

    The content score is divided by sqrt(2 d_h), too. As in the released code, p passes through a
    LayerNorm, and U^Q and U^K have biases. The parameters have the names of the released code, so
    that its checkpoints can be loaded. Without the rescaling of appendix B both scores are divided
    by sqrt(d_h).

    reset: if the query is the first token ([CLS]), the score is theta_1; otherwise, if the key is
    the first token, the score is theta_2. Each head has its own theta_1 and theta_2, which are
    products of two more rows of the table (appendix B). The table then has n + 1 rows: row 0 is
    p_theta1, row 1 is p_theta2, and position t has row t + 1. Position 0 can share row 1 with
    p_theta2, because all scores of position 0 are reset.

    A blind start draws p and U from N(0, 0.02), as in the paper. With a local start, the product
    has a peak at a head's offset (`_start_locally`).
    """

    score_type: type[Score] = Factors
    absolute = True
    score_terms = 2
    options: ClassVar[tuple[Option, ...]] = (UNTIE_CLS, START, PEAK, NO_LAYER_NORM, NO_RESCALE)
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {
        "pos.weight": (0,),
        "pos_key.weight": (0,),
    }
    scaled_projections: ClassVar[tuple[str, ...]] = ("pos_q_linear",)
    zero_init: ClassVar[tuple[str, ...]] = ("pos_k_linear.",)

    def __init__(
        self,
        shape: AttentionShape,
        *,
        untie_cls: str,
        no_layer_norm: bool,
        no_rescale: bool,
        start: str = "blind",
        peak: float = 0.0,
    ) -> None:
        super().__init__(shape)
        self.untie_cls = untie_cls
        self.first_row = 0 if untie_cls == "no" else 1
        self.rank = shape.head_dim + 2 * (untie_cls != "no")  # with the columns of `untie`
        if no_rescale:
            self.score_terms = 1
        if self.score_terms != TupeA.score_terms:
            # the names of the parameters do not show this number of terms
            self.register_buffer("terms", torch.tensor(float(self.score_terms)))
        self.scale = (self.score_terms * shape.head_dim) ** -0.5
        width = shape.heads * shape.head_dim
        self.pos = Table(shape.queries.positions + self.first_row, shape.embed_dim)
        self.pos_key = None
        if shape.cross:  # source positions have a separate table
            self.pos_key = Table(shape.keys.positions + self.first_row, shape.embed_dim)
        self.pos_ln = nn.Identity() if no_layer_norm else nn.LayerNorm(shape.embed_dim)
        self.pos_q_linear = Projection(shape.embed_dim, width)
        self.pos_k_linear = Projection(shape.embed_dim, width)
        if start == "local":
            self._start_locally(peak)

    @torch.no_grad()
    def _start_locally(self, peak: float) -> None:
        """Give the product of each head a peak at the head's offset, as `DietAbs` has it.

        p_t contains the sinusoids of t with d / 2 frequencies. U^Q selects d_h / 2 of them in each
        head, others than in the other heads, and U^K selects the same ones and rotates them by the
        offset. Both keep their initial noise.
        """
        heads, half = self.shape.heads, self.shape.head_dim // 2
        frequencies = wave_frequencies(self.shape.embed_dim // 2)
        waves = len(frequencies)
        for table in (self.pos, self.pos_key):
            if table is not None:
                positions = torch.arange(len(table.weight) - self.first_row)
                angles = positions.unsqueeze(1) * frequencies  # (n, d / 2)
                # of variance 1, which the LayerNorm keeps
                rows = math.sqrt(2) * torch.cat([angles.cos(), angles.sin()], dim=1)
                table.weight[self.first_row :, : 2 * waves] = rows
        size = math.sqrt(peak / (self.scale * 2 * half))
        columns = torch.arange(half) * max(1, waves // half) + torch.arange(heads).unsqueeze(1)
        cosines = columns % waves  # (H, d_h / 2)
        sines = waves + cosines
        angles = first_offsets(self.shape).unsqueeze(1) * frequencies[cosines]
        head = torch.arange(heads).unsqueeze(1)
        first, second = torch.arange(half), half + torch.arange(half)  # rows of a head
        query, key = (
            linear.weight.unflatten(0, (heads, -1))  # (H, d_h, d)
            for linear in (self.pos_q_linear, self.pos_k_linear)
        )
        query[head, first, cosines] += size
        query[head, second, sines] += size
        key[head, first, cosines] += size * angles.cos()
        key[head, first, sines] += size * angles.sin()
        key[head, second, sines] += size * angles.cos()
        key[head, second, cosines] -= size * angles.sin()

    @classmethod
    def describe(cls, **options: Value) -> dict[str, Value]:
        first_row = 0 if options["untie_cls"] == "no" else 1
        terms = 1 if options["no_rescale"] else cls.score_terms
        layer_norm = not options["no_layer_norm"]
        described = {"first_row": first_row, "score_terms": terms, "layer_norm": layer_norm}
        return super().describe(**options) | described

    def score(self, layout: Layout) -> Factors:
        return Factors(*self._factors(layout))

    def _factors(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """The factors with the columns of `untie`."""
        query, key, thetas = self._tied_factors(layout)
        return (query, key) if thetas is None else untie(query, key, layout, *thetas)

    def _tied_factors(self, layout: Layout) -> tuple[Tensor, Tensor, Thetas | None]:
        """The factors without the reset of the first token, and theta_1 and theta_2, or None."""
        pos_key = self.pos if self.pos_key is None else self.pos_key
        query = self._project(
            self.pos, layout.query_positions, self.pos_q_linear, layout.query_bound
        )
        query = query * self.scale
        key = self._project(pos_key, layout.key_positions, self.pos_k_linear, layout.key_bound)
        if self.untie_cls == "no":
            return query, key, None  # (B|1, H, Tq, d_h), (B|1, H, Tk, d_h)
        theta_query, theta_key = (
            linear(self.pos_ln(pos.weight[:2])).unflatten(-1, (self.shape.heads, -1))
            for pos, linear in ((self.pos, self.pos_q_linear), (pos_key, self.pos_k_linear))
        )  # (2, H, d_h)
        theta_1, theta_2 = (theta_query * self.scale * theta_key).float().sum(-1)  # (2, H)
        return query, key, (theta_1, theta_2)

    def _project(self, pos: Table, positions: Tensor, linear: Projection, end: int) -> Tensor:
        """Project the embeddings of positions (B|1, T) -> (B|1, H, T, d_h).

        Positions are below ``end``, except positions of padding.
        """
        table = pos.weight[self.first_row :]  # (n, d)
        if positions.size(0) == 1 or positions.size(1) == 1:
            rows = linear(self.pos_ln(F.embedding(positions.clamp(max=len(table) - 1), table)))
            return rows.unflatten(-1, (self.shape.heads, -1)).transpose(1, 2)
        # positions differ between sentences, so project every row once, not once per sentence
        projected = linear(self.pos_ln(table[:end]))  # (end, H * d_h)
        return look_up_heads(projected, positions, self.shape.heads)


TupeA.cross = TupeA


@dataclass(frozen=True, eq=False)
class AbsoluteAndRelative(Sum):
    """The score of TUPE-R: a product of factors plus the scores of offsets, each with its reset.

    Attributes:
        query: (B|1, H, Tq, d_h)
        key: (B|1, H, Tk, d_h)
        offsets: the scores of offsets
        thetas: theta_1 and theta_2 of the factors, (H,) each, and theta_1 and theta_2 of the
            offsets; None: nothing is reset
    """

    part_types = (Factors, Offsets)

    query: Tensor
    key: Tensor
    offsets: Offsets
    thetas: tuple[Thetas, Thetas] | None

    def dense(self, layout: Layout) -> Tensor:
        relative = self.offsets.dense(layout)
        if self.thetas is None:
            return product(self.query, self.key) + relative  # (B|1, H, Tq, Tk)
        absolute, of_offsets = self.thetas
        factors = untie(self.query, self.key, layout, *absolute)
        return product(*factors) + reset(relative, layout, *of_offsets)

    def times(self, factor: float) -> "AbsoluteAndRelative":
        thetas = self.thetas
        if thetas is not None:
            (first, second), (third, fourth) = thetas
            thetas = (first * factor, second * factor), (third * factor, fourth * factor)
        offsets = self.offsets.times(factor)
        return replace(self, query=self.query * factor, offsets=offsets, thetas=thetas)

    def split(self, layout: Layout) -> tuple[Score, ...] | None:
        """Factors, and scores of offsets for all pairs.

        The columns of `untie` also take away the scores of offsets from and to the first token.
        """
        if not layout.is_toeplitz:
            return None
        query, key = self.query, self.key
        if self.thetas is None:
            return Factors(query, key), self.offsets
        if len(layout.key_positions) > 1:  # padding before a sentence would be reset, too
            return None
        (theta_1, theta_2), (of_offsets_1, of_offsets_2) = self.thetas
        first_offset, line = layout.offset_range[0], self.offsets.line
        # (1, H|1, T, 1): the scores of the offsets to the first token, and from it. The latter
        # have no effect if no query is the first token
        to_first, from_first = (
            line[:, (index - first_offset).clamp(max=line.size(1) - 1)]
            .transpose(0, 1)
            .unsqueeze(-1)
            for index in (-layout.query_positions, layout.key_positions)
        )
        query_first = is_first_token(layout.query_indices)  # (B|1, 1, Tq, 1)
        key_first = is_first_token(layout.key_indices)  # (B|1, 1, Tk, 1)
        second = (theta_2 + of_offsets_2)[:, None, None] - to_first
        first = (theta_1 + of_offsets_1)[:, None, None] - from_first
        ones = torch.ones_like(theta_1)[:, None, None]  # (H, 1, 1)
        query = concatenate(
            query.masked_fill(query_first, 0), second * ~query_first, ones * query_first
        )
        key = concatenate(key.masked_fill(key_first, 0), ones * key_first, first)
        return Factors(query, key), self.offsets


class TupeR(TupeA):
    """TUPE-R, Ke et al. (2021), eq. 11: TUPE-A plus T5's buckets, which are not scaled.

    ``untie_cls`` "paper" resets the sum of the two terms, as eq. 11 states. "official" resets each
    term separately, as the released code does. The thetas of the relative term are rows of
    ``relative_attention_bias`` that no offset uses: theta_1 is row buckets / 2, which T5's rule
    never gives, and theta_2 is an additional row at the end. Causal buckets use all rows, so both
    thetas are then additional rows.

    A blind start draws the scalars of the buckets from N(0, 0.02). A local start has the scores of
    `local_scores`, as `T5` has. ``relative`` "product" uses `OffsetProducts` instead of a scalar
    for each bucket, and has a blind start only.
    """

    score_type = AbsoluteAndRelative
    options = (
        UNTIE_CLS,
        BUCKETS,
        MAX_DISTANCE,
        GAIN.with_default(10.0),
        START,
        PEAK,
        NO_LAYER_NORM,
        NO_RESCALE,
        RELATIVE,
    )
    described_options = ("untie_cls", "relative", "buckets", "max_distance")
    #: the scalars of the buckets, or one factor of their products
    zero_init = ("pos_k_linear.", "relative_attention_bias.weight", "relative_attention_bias.key.")

    def __init__(
        self,
        shape: AttentionShape,
        *,
        buckets: int,
        max_distance: int,
        gain: float,
        start: str,
        peak: float,
        relative: str,
        **absolute: Any,
    ) -> None:
        super().__init__(shape, **absolute)
        self.theta_rows = (buckets + 1, buckets) if shape.causal else (buckets // 2, buckets)
        rows = max(self.theta_rows) + 1 if self.untie_cls == "official" else buckets
        row_of_offset = t5_buckets(shape.causal, buckets, max_distance)
        self.relative_attention_bias: OffsetScores = (
            OffsetProducts(shape, row_of_offset, rows, gain)
            if relative == "product"
            else OffsetScalars(shape, row_of_offset, rows, gain, start, peak, std=0.02)
        )

    def score(self, layout: Layout) -> AbsoluteAndRelative:  # type: ignore[override]
        query, key, thetas = self._tied_factors(layout)
        offsets = self.relative_attention_bias.score(layout)
        if thetas is None:
            return AbsoluteAndRelative(query, key, offsets, None)
        theta_1 = theta_2 = torch.zeros_like(offsets.line[:, 0])  # "paper": the sum has one theta
        if self.untie_cls == "official":
            scalars = self.relative_attention_bias.scalars
            theta_1, theta_2 = (scalars[row] for row in self.theta_rows)  # (H,)
        return AbsoluteAndRelative(query, key, offsets, (thetas, (theta_1, theta_2)))


class BertAd(TupeA):
    """BERT-A^d, Ke et al. (2021), section 4.3: all four products of words and positions.

    The logits are (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K)^T / sqrt(4 d_h), which includes the
    content score: words and positions have separate projections, whose sums are multiplied. Nothing
    is reset, and layers share U as in TUPE. As in `TupeA`, p passes through a LayerNorm, and U^Q
    and U^K have biases.
    """

    score = PositionScheme.score  # type: ignore[assignment]
    cross = None
    score_terms = 4
    options = ()
    zero_init = ("pos_k_linear.", "pos_q_linear.")  # both, because each is multiplied by words

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape, untie_cls="no", no_layer_norm=False, no_rescale=False)

    @classmethod
    def describe(cls, **options: Value) -> dict[str, Value]:
        return super().describe(untie_cls="no", no_layer_norm=False, no_rescale=False)

    def prepare(self, layout: Layout) -> None:
        layout.cache[self] = self._factors(layout)

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        query, key = layout.cache[self] if self in layout.cache else self._factors(layout)
        return q + query.to(q.dtype), k + key.to(k.dtype)


class TupeFree(ScoreParameters):
    """TUPE-A with a free matrix, Ke et al. (2021), appendix D: score(i, j) = reset(B_ij).

    ``weight``, times the gain, is B of every head, (H, n, n): an unscaled scalar for every pair of
    positions instead of TUPE-A's product of projections. ``theta`` (2, H), times the gain, is
    theta_1 and theta_2. The content score has TUPE's scale. The paper states neither the initial
    values nor the reset: a blind start is N(0, 0.02), like all parameters of TUPE, and a local
    start has the scores of `local_scores`.
    """

    absolute = True
    score_terms = 2
    options = (UNTIE_CLS, GAIN.with_default(30.0), START, PEAK)
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {"weight": (1, 2)}
    described_options = ("untie_cls",)

    def __init__(
        self, shape: AttentionShape, *, untie_cls: str, gain: float, start: str, peak: float
    ) -> None:
        super().__init__(shape, gain)
        queries, keys = shape.queries.positions, shape.keys.positions
        self.weight = nn.Parameter(torch.empty(shape.heads, queries, keys))
        nn.init.normal_(self.weight, std=0.02 / gain)
        if start == "local":
            offsets = torch.arange(keys) - torch.arange(queries).unsqueeze(1)  # (n, n)
            scores = local_scores(offsets, shape, peak / gain)  # (n, n, H)
            self.weight.data.copy_(scores.permute(2, 0, 1))
        self.register_buffer("terms", torch.tensor(float(self.score_terms)))
        self.untie_cls = untie_cls != "no"  # with one term, "paper" and "official" are the same
        self.theta = nn.Parameter(torch.zeros(2, shape.heads)) if self.untie_cls else None

    @classmethod
    def describe(cls, **options: Value) -> dict[str, Value]:
        return super().describe(**options | {"untie_cls": options["untie_cls"] != "no"})

    def score(self, layout: Layout) -> Dense:
        score = self._score_pairs(layout)  # (B|1, H, Tq, Tk)
        if self.theta is not None:
            score = reset(score, layout, *self.amplify(self.theta))
        return Dense(score)

    def _score_pairs(self, layout: Layout) -> Tensor:
        end = layout.key_bound  # the bound of all positions, because the queries are among the keys
        square = self.amplify(self.weight[:, :end, :end])  # (H, t, t)
        if layout.length == square.size(1):
            return square.unsqueeze(0)
        rows, columns = (  # positions of padding may exceed the matrix
            positions.clamp(max=square.size(1) - 1)
            for positions in (layout.query_positions, layout.key_positions)
        )
        pairs = rows.unsqueeze(2) * square.size(1) + columns.unsqueeze(1)  # (B|1, Tq, Tk)
        return look_up(pairs, square.flatten(1).T).permute(0, 3, 1, 2)


def is_first_token(numbers: Tensor) -> Tensor:
    """Whether a token is the first of its sentence.

    Args:
        numbers: (B|1, T), the number of tokens before each token

    Returns:
        (B|1, 1, T, 1) bool
    """
    return numbers.eq(0)[:, None, :, None]


def concatenate(*columns: Tensor) -> Tensor:
    """Columns (B|1, H|1, T, r_i) beside each other, (B|1, H, T, sum of r_i)."""
    batch, heads = (max(x.size(axis) for x in columns) for axis in (0, 1))
    return torch.cat([x.expand(batch, heads, -1, -1) for x in columns], dim=-1)


def reset(score: Tensor, layout: Layout, theta_1: Tensor, theta_2: Tensor) -> Tensor:
    """Replace the scores of the first token: by theta_1 if it is the query, else by theta_2.

    Args:
        score: (B|1, H, Tq, Tk)
        layout: the positions of queries and keys
        theta_1: (H,)
        theta_2: (H,)

    Returns:
        (B|1, H, Tq, Tk)
    """
    key_first = is_first_token(layout.key_indices).mT  # (B|1, 1, 1, Tk)
    score = torch.where(key_first, theta_2[:, None, None], score)
    query_first = is_first_token(layout.query_indices)  # (B|1, 1, Tq, 1)
    return torch.where(query_first, theta_1[:, None, None], score)


def untie(
    query: Tensor, key: Tensor, layout: Layout, theta_1: Tensor, theta_2: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply `reset` to a product of factors, by adding two columns to each factor.

    The query of the first token is 0 except in the last column, and its key is 0 except in the last
    two columns.

    Args:
        query: (B|1, H, Tq, r)
        key: (B|1, H, Tk, r)
        layout: the positions of queries and keys
        theta_1: (H,)
        theta_2: (H,)

    Returns:
        (B|1, H, Tq, r + 2) and (B|1, H, Tk, r + 2)
    """
    query_first = is_first_token(layout.query_indices)  # (B|1, 1, Tq, 1)
    key_first = is_first_token(layout.key_indices)  # (B|1, 1, Tk, 1)
    ones = torch.ones_like(theta_1)[:, None, None]  # (H, 1, 1)
    second = theta_2[:, None, None] * key_first  # (B|1, H, Tk, 1)
    first = theta_1[:, None, None].expand_as(second)
    return (
        torch.cat([query.masked_fill(query_first, 0), ones * ~query_first, ones * query_first], -1),
        torch.cat([key.masked_fill(key_first, 0), second, first], -1),
    )
