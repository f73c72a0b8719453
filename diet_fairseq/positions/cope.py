"""CoPE, Golovneva et al. (2024): positions that depend on the content of query and keys."""

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option, at_least

NUM_POSITIONS = Option(
    "position_cope_length",
    int,
    "cope: number of integer positions with an embedding (default: 64)",
    check=at_least(2),
)


class Cope(PositionScheme):
    """q_i (k_j + e[p_ij]) / sqrt(d_h), where p_ij is the sum of the gates g_ij, ..., g_ii.

    Golovneva et al. (2024), section 4: the gate g_ij = sigmoid(q_i k_j / sqrt(d_h)) is the share
    with which query i counts token j. A position is at most L - 1, and e is interpolated between
    two integers. As in the equation and in the released code e is divided by sqrt(d_h); the listing
    of appendix B omits the division. A query needs all its gates at once, which only the reference
    backend provides.

    The paper has causal attention only, and x-transformers refuses encoders. The form in encoders
    is ours and not published: for a key after the query, gates are summed from the query to the
    key, g_ii + ... + g_ij, and e has separate embeddings for this direction, like T5's buckets.

    ``embeddings`` is e, (H, L, d_h), or (H, 2 L, d_h) in encoders, where the embeddings of later
    keys are last. It is initially 0. By default the heads of a layer share it, as in the released
    code.
    """

    sharing = "head"
    options = (NUM_POSITIONS.with_default(64),)

    def __init__(self, shape: AttentionShape, *, cope_length: int) -> None:
        super().__init__(shape)
        self.length = cope_length
        rows = cope_length if shape.causal else 2 * cope_length
        self.embeddings = nn.Parameter(torch.zeros(shape.heads, rows, shape.head_dim))

    def content_score(self, logits: Tensor, q: Tensor, layout: Layout) -> Tensor:
        gates = logits.float().sigmoid()  # float32, because sums are over many keys
        if layout.mask is not None:
            gates = gates.masked_fill(layout.mask, 0.0)
        later = layout.slot_offsets > 0  # (Tq, Tk)
        # sums from the key to the query; 0 for later keys, which a decoder masks
        positions = gates.masked_fill(later, 0.0).flip(-1).cumsum(-1).flip(-1)  # (B, H, Tq, Tk)
        if not self.shape.causal:
            after = gates.masked_fill(layout.slot_offsets < 0, 0.0).cumsum(-1)
            positions = torch.where(later, after, positions)
        positions = positions.clamp(max=self.length - 1)
        below = positions.floor()
        share = positions - below  # weight of the next integer
        first = below.long() if self.shape.causal else below.long() + later * self.length
        scores = (q @ self.embeddings.to(q.dtype).mT).float()  # (B, H, Tq, L or 2 L)
        lower, upper = (scores.gather(-1, rows) for rows in (first, first + share.gt(0)))
        return logits + torch.lerp(lower, upper, share).to(logits.dtype)
