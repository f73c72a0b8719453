"""TUPE's baselines: BERT-A^d (Ke et al. 2021, section 4.3) and a free matrix (appendix D)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .gain import GAIN, PEAK, START, ScoreParameters, local_scores
from .layout import Layout
from .scores import Dense
from .tables import look_up
from .tupe import UNTIE_CLS, TupeA, reset


class BertAd(TupeA):
    """BERT-A^d, Ke et al. (2021), section 4.3: all four products of words and positions.

    score(i, j) = (x_i W^Q + p_i U^Q)(x_j W^K + p_j U^K)^T / sqrt(4 d_h), with the content score in
    it: words and positions are projected by matrices of their own, and added. Nothing is reset, and
    U is shared as in TUPE. p passes through a LayerNorm, and U^Q and U^K have biases (`TupeA`).
    """

    score = PositionScheme.score  # type: ignore[assignment]
    cross = None
    score_terms = 4
    options = ()

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape, untie_cls="no", no_layer_norm=False, no_rescale=False)

    def zero(self) -> None:
        super().zero()
        # otherwise the product of positions and words would not be zero
        for parameter in self.pos_q_linear.parameters():
            nn.init.zeros_(parameter)

    def prepare(self, layout: Layout) -> None:
        layout.cache[self] = self._factors(layout)

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        query, key = layout.cache[self] if self in layout.cache else self._factors(layout)
        return q + query.to(q.dtype), k + key.to(k.dtype)


class TupeFree(ScoreParameters):
    """TUPE-A with a free matrix, Ke et al. (2021), appendix D: score(i, j) = reset(B_ij).

    ``weight``, times the gain, is B of every head, (H, n, n): a scalar for every pair of positions,
    unscaled, where TUPE-A has the product of projections. ``theta`` (2, H), times the gain, is
    theta_1 and theta_2. The content score keeps TUPE's scale. The paper states neither start nor
    reset: a blind start is N(0, 0.02), as that of all of TUPE's parameters; a local start is that
    of `OffsetScalars`.
    """

    absolute = True
    score_terms = 2
    options = (UNTIE_CLS, GAIN.with_default(30.0), START, PEAK)
    tables: ClassVar[dict[str, tuple[int, ...]]] = {"weight": (1, 2)}
    meaning = ("untie_cls",)

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
        self.untie_cls = untie_cls != "no"  # both ways to reset are one here
        self.theta = nn.Parameter(torch.zeros(2, shape.heads)) if self.untie_cls else None

    def score(self, layout: Layout) -> Dense:
        score = self._of_pairs(layout)  # (B|1, H, Tq, Tk)
        if self.theta is not None:
            score = reset(score, layout, *self.gained(self.theta))
        return Dense(score)

    def _of_pairs(self, layout: Layout) -> Tensor:
        end = layout.key_end  # all positions are below it, as queries are among the keys
        square = self.gained(self.weight[:, :end, :end])  # (H, t, t)
        if layout.length == square.size(1):
            return square.unsqueeze(0)
        rows, columns = (  # those of padding may lie beyond
            positions.clamp(max=square.size(1) - 1)
            for positions in (layout.query_positions, layout.key_positions)
        )
        pairs = rows.unsqueeze(2) * square.size(1) + columns.unsqueeze(1)  # (B|1, Tq, Tk)
        return look_up(pairs, square.flatten(1).T).permute(0, 3, 1, 2)
