"""Dai et al. (2019): projected sinusoids of the offset, and two biases per head."""

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme, Projections
from .layout import Layout
from .scores import Rows, apply_in_float32
from .shaw import rows_by_offset


class TransformerXL(PositionScheme):
    """((q_i + u) k_j + (q_i + v) W_R r_{i-j}) / sqrt(d_h), Dai et al. (2019), section 3.3.

    r_{i-j} (d,) is the sinusoid of the offset, sines before cosines as in the released code. In
    encoders i - j is signed, as in XLNet (Yang et al., 2019), so the two directions differ.
    ``r_proj.weight`` is W_R, (H d_h, d); ``u`` and ``v`` are (H, 1, d_h); all start from N(0,
    0.02), as released. Every offset has a sinusoid, so length has no limit.

    By default every layer has its own W_R, u and v, as in XLNet; the paper's equation shares
    only u and v over layers. With ``--position-sharing head`` the heads of a layer share one map,
    d -> d_h, one u and one v; with ``layer`` all layers share the W_R, u and v of every head.
    """

    sharing = "none"

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.r_proj = nn.Linear(shape.embed_dim, shape.heads * shape.head_dim, bias=False)
        self.u, self.v = (
            nn.Parameter(torch.empty(shape.heads, 1, shape.head_dim)) for _ in range(2)
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        return q + self._scaled(self.u).to(q.dtype), k

    def query_rows(self, layout: Layout, project: Projections) -> Rows:
        offsets, index = rows_by_offset(layout)
        line = torch.arange(offsets.start, offsets.stop, device=index.device)  # of j - i
        r = sinusoids(-line, self.shape.embed_dim)  # (R, d)
        # float32, because the gradient of W_R sums those of all offsets
        rows = apply_in_float32(self.r_proj, r).unflatten(-1, (self.shape.heads, -1))
        return Rows(rows.transpose(0, 1), index, self._scaled(self.v))

    def _scaled(self, bias: Tensor) -> Tensor:
        return bias * self.shape.head_dim**-0.5


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """(R,) -> (R, width), float32: sines, then cosines, of wavelengths from 2 pi to 20000 pi."""
    exponents = torch.arange(0, width, 2, device=positions.device) / width
    angles = positions.unsqueeze(1) * 10000.0**-exponents  # (R, ceil(width / 2))
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
