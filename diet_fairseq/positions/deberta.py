"""He et al. (2021): words meet relative positions through the layer's own projections."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .base import AttentionShape, PositionScheme, Projections
from .layout import Layout
from .relative import BUCKETS, MAX_DISTANCE
from .scores import Rows

#: the LayerNorm's epsilon, as in DeBERTa-v2
EPSILON = 1e-7
#: tokens of an input that may need a bucket of its own for its farthest offset
LONGEST = 1 << 20


class Deberta(PositionScheme):
    """q_i k_j + q_i (P_{b(i-j)} W_K) + k_j (P_{b(i-j)} W_Q), all three divided by sqrt(3 d_h).

    He et al. (2021), section 3.1, equation 4, as DeBERTa-v2 and v3 are released: W_Q and W_K are
    the layer's projections of words (``share_att_key``), b are logarithmic buckets, and P passes
    through a LayerNorm (``norm_rel_ebd``). As released, both terms read row b(i - j), where the
    equation has b(j - i) in the second. The biases of W_Q and W_K are not applied to P, as in the
    paper (v2 applies them), so a model can start from a model without these terms.

    ``table`` is P, (2 buckets, d), from N(0, 0.02); ``norm`` its LayerNorm. By default all layers
    share them, as in the paper. All heads read one P in any case: ``--position-sharing head`` and
    ``none`` both give every layer its own. A decoder does not use the rows of later keys.
    """

    score_terms = 3
    options = (BUCKETS.with_default(256), MAX_DISTANCE.with_default(512))
    described_options = ("buckets", "max_distance")
    zero_init = ("norm.",)  # but not the table: neither would have a gradient

    row_of_offset: Tensor

    def __init__(self, shape: AttentionShape, *, buckets: int, max_distance: int) -> None:
        super().__init__(shape)
        self.buckets, self.max_distance = buckets, max_distance
        self.rows = rows_of_log_buckets(buckets, max_distance)
        self.farthest = len(self.rows) // 2  # offsets beyond it have its row
        self.register_buffer("row_of_offset", torch.tensor(self.rows), persistent=False)
        self.table = nn.Parameter(torch.empty(2 * buckets, shape.embed_dim))
        nn.init.normal_(self.table, std=0.02)
        self.norm = nn.LayerNorm(shape.embed_dim, eps=EPSILON)
        self.register_buffer("terms", torch.tensor(float(self.score_terms)))

    def query_rows(self, layout: Layout, project: Projections) -> Rows:
        return self._rows(layout, project.key)

    def key_rows(self, layout: Layout, project: Projections) -> Rows:
        return self._rows(layout, project.query)

    def _rows(self, layout: Layout, project: Callable[[Tensor], Tensor]) -> Rows:
        farthest = self.farthest
        first, last = (max(-farthest, min(offset, farthest)) for offset in layout.seen_range)
        lowest = self.rows[last + farthest]  # rows fall as offsets j - i rise
        positions = self._normalized(self.table[lowest : self.rows[first + farthest] + 1])  # (R, d)
        projected = project(F.pad(positions, (0, 0, 0, 1)))  # (H, R + 1, d_h)
        line = layout.offset_line.clamp(first, last) + farthest
        index = layout.expand_offsets(self.row_of_offset[line].unsqueeze(0))
        # the projection of zeros is the bias
        return Rows(projected[:, :-1] - projected[:, -1:], index - lowest)

    def _normalized(self, rows: Tensor) -> Tensor:
        """Normalized rows, in float32 because the LayerNorm's gradients are sums over all rows."""
        wide = torch.promote_types(rows.dtype, torch.float32)
        weight, bias = (parameter.to(wide) for parameter in (self.norm.weight, self.norm.bias))
        return F.layer_norm(rows.to(wide), weight.shape, weight, bias, EPSILON).to(rows.dtype)


def rows_of_log_buckets(buckets: int, max_distance: int) -> list[int]:
    """The row of each offset j - i from -n to n: b(i - j) + buckets.

    b is DeBERTa-v2's ``make_log_bucket_position``: offsets below half of ``buckets`` have a bucket
    each, larger ones share buckets that grow logarithmically, and all from n on have the last row.
    n is max_distance, or more where the number of buckets is odd.
    """
    half = buckets // 2
    if max_distance <= half + 1:
        raise UserError(
            "--position-max-distance must be larger than half of --position-buckets plus 1 "
            f"({half + 1}), but is {max_distance}"
        )

    def bucket(distance: int) -> int:
        if distance <= half:
            return distance
        share = math.log(distance / half) / math.log((max_distance - 1) / half)
        return half + math.ceil(share * (half - 1))

    farthest = max_distance
    while bucket(farthest) < buckets and farthest < LONGEST:
        farthest += 1
    offsets = range(-farthest, farthest + 1)
    signed = (-bucket(offset) if offset > 0 else bucket(-offset) for offset in offsets)
    return [min(max(row + buckets, 0), 2 * buckets - 1) for row in signed]
