"""Schemes with one score per offset and head: T5's buckets and DIET-REL's offsets."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from .base import AttentionShape
from .gain import GAIN, PEAK, START, ScoreParameters, local_scores
from .layout import Layout
from .options import Option, at_least
from .scores import Offsets, apply_in_float32, look_up

CLIP = Option(
    "position_clip",
    int,
    "shaw, diet_rel: largest offset with its own parameter (default: 16 for shaw, no limit for "
    "diet_rel)",
    check=at_least(1),
)
BUCKETS = Option(
    "position_buckets",
    int,
    "t5, tupe_r, deberta: number of buckets (default: 32; deberta: 256)",
    default=32,
    check=at_least(4),
)
MAX_DISTANCE = Option(
    "position_max_distance",
    int,
    "t5, tupe_r, deberta: distance at which the last bucket begins (default: 128; deberta: 512)",
    default=128,
)


class OffsetScores(ScoreParameters):
    """score(i, j) = scalars[row(j - i)], with one column per head.

    Offsets beyond c have the row of the offset c, so there is no length limit.

    Args:
        shape: the attention
        row_of_offset: (2 c + 1,) int64, the row of each offset from -c to c
        gain: see `ScoreParameters`
    """

    score_type = Offsets
    row_of_offset: Tensor

    def __init__(self, shape: AttentionShape, row_of_offset: Tensor, gain: float) -> None:
        super().__init__(shape, gain)
        self.outermost = len(row_of_offset) // 2
        self.register_buffer("row_of_offset", row_of_offset, persistent=False)

    @property
    def scalars(self) -> Tensor:
        """(rows, H), float32: the score of each row."""
        raise NotImplementedError

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line.clamp(-self.outermost, self.outermost) + self.outermost
        line = look_up(self.row_of_offset[offsets], self.scalars)  # (number of offsets, H)
        # fused attention copies scores whose keys are not contiguous
        return Offsets(line.T.contiguous(), reach=self.outermost)


class OffsetScalars(OffsetScores):
    """Scores of offsets that are parameters: ``weight`` (rows, H), times the gain.

    A blind start draws the score from N(0, std). A local start has the scores of `local_scores`.
    """

    def __init__(
        self,
        shape: AttentionShape,
        row_of_offset: Tensor,
        rows: int,
        gain: float,
        start: str = "blind",
        peak: float = 0.0,
        std: float = 0.0,
    ) -> None:
        super().__init__(shape, row_of_offset, gain)
        self.weight = nn.Parameter(torch.zeros(rows, shape.heads))
        nn.init.normal_(self.weight, std=std / gain)
        if start == "local":
            self.weight.data.copy_(local_scores(self._nearest_offsets(rows), shape, peak / gain))

    def _nearest_offsets(self, rows: int) -> Tensor:
        """(rows,): the offset nearest to 0 of each row; inf if no offset has the row."""
        outermost = self.outermost
        offsets = torch.arange(-outermost, outermost + 1.0, dtype=torch.float64)
        nothing = torch.full((rows,), math.inf, dtype=torch.float64)
        before, after = (
            nothing.scatter_reduce(0, self.row_of_offset[side], offsets[side].abs(), "amin")
            for side in (slice(outermost), slice(outermost, None))
        )
        return torch.where(after <= before, after, -before).float()

    @property
    def scalars(self) -> Tensor:
        return self.amplify(self.weight)


class OffsetProducts(OffsetScores):
    """Scores of offsets that are products, (r F^Q)(r F^K)^T: Ke et al. (2021), appendix D.

    ``vectors`` (rows, d), times the gain, contains r for each row. ``query`` and ``key`` are F^Q
    and F^K of all heads. All are drawn from N(0, 0.02), and the product is not scaled.
    """

    zero_init = ("key.",)  # one factor only, because a product of two zeros has no gradient

    def __init__(
        self, shape: AttentionShape, row_of_offset: Tensor, rows: int, gain: float
    ) -> None:
        super().__init__(shape, row_of_offset, gain)
        width = shape.heads * shape.head_dim
        self.vectors = nn.Parameter(torch.empty(rows, shape.embed_dim))
        nn.init.normal_(self.vectors, std=0.02 / gain)
        self.query, self.key = (nn.Linear(shape.embed_dim, width, bias=False) for _ in range(2))
        for linear in (self.query, self.key):
            nn.init.normal_(linear.weight, std=0.02)

    @property
    def scalars(self) -> Tensor:
        vectors = self.amplify(self.vectors)  # (rows, d)
        query, key = (apply_in_float32(linear, vectors) for linear in (self.query, self.key))
        return (query * key).unflatten(-1, (self.shape.heads, -1)).sum(-1)  # (rows, H)


class DietRel(OffsetScalars):
    """DIET-REL, Chen et al. (2021), eq. 3: a scalar R_{i-j} for every offset, unscaled.

    ``weight`` is (2 c + 1, H); row r is the scalar of j - i = r - c. By default c = n - 1, so that
    a model of n positions has the paper's 2n - 1 rows, and no offset is clipped. A blind start is
    zero.
    """

    sharing = "none"
    segment_scheme = "per-head"
    offset_axes: ClassVar[dict[str, int]] = {"weight": 0}
    options = (CLIP, GAIN.with_default(30.0), START, PEAK)

    def __init__(
        self, shape: AttentionShape, *, clip: int | None, gain: float, start: str, peak: float
    ) -> None:
        if clip is None:
            clip = max(shape.queries.positions, shape.keys.positions, 2) - 1
        super().__init__(shape, torch.arange(2 * clip + 1), 2 * clip + 1, gain, start, peak)

    def score(self, layout: Layout) -> Offsets:
        first, last = layout.offset_range
        if first < -self.outermost or last > self.outermost:
            return super().score(layout)
        # a slice, because the backward pass of a look-up sorts its rows in every layer
        rows = self.weight[self.outermost + first : self.outermost + last + 1]  # (offsets, H)
        return Offsets(self.amplify(rows).T.contiguous(), reach=self.outermost)


class T5(OffsetScalars):
    """Raffel et al. (2020): a scalar per bucket of offsets, with T5's buckets, unscaled.

    ``weight`` is (buckets, H); a blind start is N(0, d^-1/2), as in transformers. A decoder has
    buckets for earlier keys only. The content score is divided by sqrt(d_h), as in DIET and TUPE.
    """

    options = (BUCKETS, MAX_DISTANCE, GAIN.with_default(30.0), START, PEAK)
    described_options = ("buckets", "max_distance")

    def __init__(
        self, shape: AttentionShape, *, buckets: int, max_distance: int, **scalars: Any
    ) -> None:
        rows = t5_buckets(shape.causal, buckets, max_distance)
        super().__init__(shape, rows, buckets, **scalars, std=shape.embed_dim**-0.5)


def t5_buckets(causal: bool, buckets: int, max_distance: int) -> Tensor:
    """T5's bucket of each offset from -max_distance to max_distance.

    Returns:
        (2 max_distance + 1,) int64

    Raises:
        UserError: the number of buckets or the distance does not fit
    """
    if buckets % 4:
        raise UserError(f"--position-buckets must be a multiple of 4, but is {buckets}")
    if max_distance <= buckets // 2:
        raise UserError(
            "--position-max-distance must be larger than half of --position-buckets "
            f"({buckets // 2}), but is {max_distance}"
        )
    offsets = range(-max_distance, max_distance + 1)
    return torch.tensor(
        [find_t5_bucket(offset, causal, buckets, max_distance) for offset in offsets]
    )


def find_t5_bucket(offset: int, causal: bool, buckets: int, max_distance: int) -> int:
    """T5's bucket of the offset j - i.

    Each small distance has its own bucket, and buckets of larger distances grow logarithmically.
    Keys after the query have the upper half of the buckets; in causal attention they have bucket
    0, like the query itself.
    """
    first, distance = 0, max(-offset, 0)
    if not causal:
        buckets //= 2
        first, distance = (buckets if offset > 0 else 0), abs(offset)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)
