"""Transformer-XL, Dai et al. (2019): projected sinusoids of the offset, and two biases per head."""

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme, Projections
from .layout import Layout
from .scores import Rows, apply_in_float32
from .shaw import index_offsets


class TransformerXL(PositionScheme):
    """((q_i + u) k_j + (q_i + v) W_R r_{i-j}) / sqrt(d_h), Dai et al. (2019), section 3.3.

    r_{i-j} (d,) is the sinusoid of the offset, sines before cosines as in the released code. In
    encoders i - j is signed, as in XLNet (Yang et al., 2019), so the two directions differ.
    ``r_proj.weight`` is W_R, (H d_h, d); ``u`` and ``v`` are (H, 1, d_h). All are drawn from N(0,
    0.02), as in the released code. Every offset has a sinusoid, so there is no length limit.

    By default every layer has its own W_R, u and v, as in XLNet; in the paper's equation layers
    share only u and v. With ``--position-sharing head`` the heads of a layer share one W_R (d ->
    d_h), one u and one v; with ``layer`` all layers share the W_R, u and v of every head.
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
        return q + self._scale(self.u).to(q.dtype), k

    def query_rows(self, layout: Layout, project: Projections) -> Rows:
        offsets, index = index_offsets(layout)
        line = torch.arange(offsets.start, offsets.stop, device=index.device)  # of j - i
        r = sinusoids(-line, self.shape.embed_dim)  # (R, d)
        # float32, because the gradient of W_R is a sum over all offsets
        rows = apply_in_float32(self.r_proj, r).unflatten(-1, (self.shape.heads, -1))
        return Rows(rows.transpose(0, 1), index, self._scale(self.v))

    def _scale(self, bias: Tensor) -> Tensor:
        return bias * self.shape.head_dim**-0.5


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """(R,) -> (R, width), float32: sines, then cosines, of wavelengths from 2 pi to 20000 pi."""
    exponents = torch.arange(0, width, 2, device=positions.device) / width
    angles = positions.unsqueeze(1) * 10000.0**-exponents  # (R, ceil(width / 2))
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
