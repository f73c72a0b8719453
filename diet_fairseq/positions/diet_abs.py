"""DIET-ABS and DIET-ABS-LIN: a learned matrix of low rank in each head."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import AttentionShape
from .gain import GAIN, PEAK, START, ScoreParameters, first_offsets, wave_frequencies
from .layout import Layout
from .options import Option, at_least
from .scores import Factors, look_up_heads

RANK = Option(
    "position_rank",
    int,
    "rank d_p of DIET-ABS and DIET-ABS-LIN (default: head dimension)",
    check=at_least(1),
)


class DietAbs(ScoreParameters):
    """score(i, j) = (P_Q P_K^T)_ij, Chen et al. (2021), eq. 1: unscaled, of rank at most d_p.

    ``query`` and ``key``, times the gain, are P_Q and P_K of every head, (H, n, d_p). A blind start
    draws them from N(0, 0.02), because the paper does not state initial values and two zero
    matrices would never get a gradient. A local start has a shifted diagonal in every head
    (`shifted_diagonals`), like the trained heads in figures 4 and 7 of the paper. By default d_p is
    d_h, and `gain_for_rank` computes the gain.
    """

    score_type = Factors
    absolute = True
    segment_scheme = "per-head"
    options = (RANK, GAIN, START, PEAK)
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {"query": (1,), "key": (1,)}
    zero_init = ("key",)  # not the query, because two zero factors would have no gradient
    #: the default gain at rank 32, see `gain_for_rank`
    gain_at_32: ClassVar[float] = 10.0

    def __init__(
        self,
        shape: AttentionShape,
        *,
        rank: int | None,
        gain: float | None,
        start: str,
        peak: float,
    ) -> None:
        rank = shape.head_dim if rank is None else rank
        super().__init__(shape, gain_for_rank(rank, self.gain_at_32) if gain is None else gain)
        self.rank = rank
        queries, keys = shape.queries.positions, shape.keys.positions
        self.query = nn.Parameter(torch.empty(shape.heads, queries, rank))
        self.key = nn.Parameter(torch.empty(shape.heads, keys, rank))
        for parameter in (self.query, self.key):
            nn.init.normal_(parameter, std=0.02 / self.gain)
        if start == "local":
            # the position of a compressed key is the middle of its tokens, see `Compression`
            stride = keys / queries if self.compressed else 1.0
            places = (torch.arange(queries) + 0.5) * stride - 0.5, torch.arange(keys)
            factors = shifted_diagonals(first_offsets(shape), *places, rank, peak)
            for parameter, factor in zip((self.query, self.key), factors, strict=True):
                parameter.data[..., : factor.size(-1)] = factor / self.gain

    def score(self, layout: Layout) -> Factors:
        return Factors(
            self._select_rows(self.query, layout.query_positions, layout.length),
            self._select_rows(self.key, layout.key_positions, layout.length),
        )

    def _select_rows(self, parameter: Tensor, positions: Tensor, length: int | None) -> Tensor:
        """The rows of a parameter (H, n, d_p) at positions (B|1, T): (B|1, H, T, d_p)."""
        if length is not None and length <= parameter.size(1):
            return self.amplify(parameter[:, :length]).unsqueeze(0)  # (1, H, T, d_p)
        if positions.size(0) == 1:  # for example in decoding, which needs few rows
            rows = parameter[:, positions[0].clamp(max=parameter.size(1) - 1)]  # (H, T, d_p)
            return self.amplify(rows).unsqueeze(0)  # (1, H, T, d_p)
        table = self.amplify(parameter).transpose(0, 1).flatten(1)  # (n, H * d_p)
        return look_up_heads(table, positions, self.shape.heads)  # (B|1, H, T, d_p)


DietAbs.cross = DietAbs


class DietAbsLin(DietAbs):
    """DIET-ABS-LIN, Chen et al. (2021), eq. 4: Linformer with score(i, j) = (P_Q P_K^T)_ij.

    ``query`` is P_Q of every head, (H, n, d_p), and ``key`` is P_K, (H, k, d_p), where j counts
    compressed keys. The paper writes d for d_p, and states neither the value of this rank nor which
    layers share P; both are as in `DietAbs`. Segments are at the input, as in the paper's tables.
    """

    segment_scheme = "input"
    cross = None
    compressed = True
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {"query": (1,)}
    #: with 10, training collapses (results/pretraining/linear-attention-gain-and-rate.csv)
    gain_at_32 = 3.0

    def score(self, layout: Layout) -> Factors:
        # (B|1, H, Tq, d_p)
        query = self._select_rows(self.query, layout.query_positions, layout.length)
        return Factors(query, self.amplify(self.key).unsqueeze(0))  # (1, H, k, d_p)


def gain_for_rank(rank: int, at_32: float) -> float:
    """The gain at which an update changes the score as much as the gain ``at_32`` at rank 32.

    Adam moves every entry of both factors by up to the gain times the learning rate. With a local
    start the size of the entries is sqrt(2 peak / d_p), so the product of d_p columns moves by up
    to the gain times sqrt(d_p), apart from constants.
    """
    return at_32 * math.sqrt(32 / rank)


def shifted_diagonals(
    offsets: Tensor, queries: Tensor, keys: Tensor, rank: int, peak: float
) -> tuple[Tensor, Tensor]:
    """Factors whose product is ``peak`` for keys at a head's offset from the query.

    The product is a sum of r / 2 cosines of the distance from this offset (`wave_frequencies`). The
    sum is lower at every other distance, the more so the larger r is. With r = 1 there is no peak.

    Args:
        offsets: (H,), the offset of each head
        queries: (Tq,), the positions of the queries
        keys: (Tk,), the positions of the keys
        rank: the largest r allowed
        peak: the score at the offset

    Returns:
        (H, Tq, r) and (H, Tk, r), r even
    """
    waves = rank // 2
    frequencies = wave_frequencies(waves)
    size = math.sqrt(peak / max(waves, 1))

    def compute_waves(places: Tensor) -> Tensor:
        """(H, T) -> (H, T, r)."""
        angles = places.unsqueeze(-1) * frequencies
        return size * torch.cat([angles.cos(), angles.sin()], dim=-1)

    query_places, key_places = queries.expand(len(offsets), -1), keys - offsets.unsqueeze(1)
    return compute_waves(query_places), compute_waves(key_places)
