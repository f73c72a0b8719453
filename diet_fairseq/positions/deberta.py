"""DeBERTa, He et al. (2021): products of words with relative positions, both ways."""

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

#: epsilon of the LayerNorm, as in DeBERTa-v2
EPSILON = 1e-7
#: the largest distance at which `log_bucket_rows` searches the last bucket
MAX_LENGTH = 1 << 20


class Deberta(PositionScheme):
    """q_i k_j + q_i (P_{b(i-j)} W_K) + k_j (P_{b(i-j)} W_Q), all three divided by sqrt(3 d_h).

    He et al. (2021), section 3.1, equation 4, in the form of the released versions 2 and 3: W_Q
    and W_K are the layer's projections of words (``share_att_key``), b(i - j) is a logarithmic
    bucket, and P passes through a LayerNorm (``norm_rel_ebd``). Both terms read row b(i - j), as in
    the released code; the equation has b(j - i) in the second term. The biases of W_Q and W_K are
    not added to the projections of P, as in the paper (version 2 adds them), so that a model can
    start from a model without these terms.

    ``table`` is P, (2 buckets, d), drawn from N(0, 0.02), and ``norm`` is its LayerNorm. By default
    all layers share them, as in the paper. All heads of a layer always share P:
    ``--position-sharing head`` and ``none`` both give every layer its own P. A decoder does not use
    the rows of later keys.
    """

    score_terms = 3
    options = (BUCKETS.with_default(256), MAX_DISTANCE.with_default(512))
    described_options = ("buckets", "max_distance")
    zero_init = ("norm.",)  # not the table, because then neither would have a gradient

    row_of_offset: Tensor

    def __init__(self, shape: AttentionShape, *, buckets: int, max_distance: int) -> None:
        super().__init__(shape)
        self.rows = log_bucket_rows(buckets, max_distance)
        self.farthest = len(self.rows) // 2  # larger distances have the row of this distance
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
        first, last = (max(-farthest, min(offset, farthest)) for offset in layout.visible_offsets)
        lowest = self.rows[last + farthest]  # rows fall as offsets j - i rise
        positions = self._normalize(self.table[lowest : self.rows[first + farthest] + 1])  # (R, d)
        projected = project(F.pad(positions, (0, 0, 0, 1)))  # (H, R + 1, d_h)
        line = layout.offset_line.clamp(first, last) + farthest
        index = layout.expand_offsets(self.row_of_offset[line].unsqueeze(0))
        # the projection of zeros is the bias
        return Rows(projected[:, :-1] - projected[:, -1:], index - lowest)

    def _normalize(self, rows: Tensor) -> Tensor:
        """Apply the LayerNorm to rows (R, d), in float32 because its gradients sum all rows."""
        wide = torch.promote_types(rows.dtype, torch.float32)
        weight, bias = (parameter.to(wide) for parameter in (self.norm.weight, self.norm.bias))
        return F.layer_norm(rows.to(wide), weight.shape, weight, bias, EPSILON).to(rows.dtype)


def log_bucket_rows(buckets: int, max_distance: int) -> list[int]:
    """The row of `Deberta.table` for each offset j - i from -n to n: b(i - j) + buckets.

    b is DeBERTa-v2's ``make_log_bucket_position``: each distance up to half of ``buckets`` has a
    bucket, larger distances share buckets that grow logarithmically, and all distances from n on
    have the last bucket. n is max_distance, or larger if the number of buckets is odd.

    Raises:
        UserError: the distance is too small for the number of buckets
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
    while bucket(farthest) < buckets and farthest < MAX_LENGTH:
        farthest += 1
    offsets = range(-farthest, farthest + 1)
    signed = (-bucket(offset) if offset > 0 else bucket(-offset) for offset in offsets)
    return [min(max(row + buckets, 0), 2 * buckets - 1) for row in signed]
