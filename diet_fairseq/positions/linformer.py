"""Position schemes of attention with compressed keys: Linformer and DIET-ABS-LIN."""

from typing import ClassVar

from .diet_abs import DietAbs
from .input import InputPositions
from .layout import Layout
from .scores import Factors


class Linformer(InputPositions):
    """Wang et al. (2020): keys and values compressed along time, learned positions at the input."""

    input = "learned"
    absolute = True
    compressed = True


class DietAbsLin(DietAbs):
    """DIET-ABS-LIN, Chen et al. (2021), eq. 4: Linformer with score(i, j) = (P_Q P_K^T)_ij.

    ``query`` is P_Q of every head, (H, n, d_p), ``key`` is P_K, (H, k, d_p): j counts compressed
    keys. The paper writes d for d_p and states neither this rank nor how P is shared; both are as
    in `DietAbs`. Segments are at the input, as in the paper's tables.
    """

    segment_scheme = "input"
    cross = None
    compressed = True
    tables: ClassVar[dict[str, tuple[int, ...]]] = {"query": (1,)}
    #: with 10, training collapses (results/pretraining/linear-attention-gain-and-rate.csv)
    gain_at_32 = 3.0

    def score(self, layout: Layout) -> Factors:
        query = self._of(self.query, layout.query_positions, layout.length)  # (B|1, H, Tq, d_p)
        return Factors(query, self.gained(self.key).unsqueeze(0))  # (1, H, k, d_p)
