"""ALiBi: a score that falls with the distance, by a slope of its own in every head."""

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option
from .scores import Offsets, at_least_float32

SLOPES = Option(
    "position_slopes",
    str,
    "alibi: the published slopes, or slopes that are learned and start from them (default: fixed)",
    default="fixed",
    choices=("fixed", "learned"),
)


class Alibi(PositionScheme):
    """ALiBi, Press et al. (2022), section 3: score(i, j) = -m_h |i - j|, unscaled.

    The paper has causal attention only. In encoders and across the score is the symmetric one that
    its first author proposes for them (github.com/ofirpress/attention_with_linear_biases/issues/5).
    `published_slopes` has m. ``slopes`` (H,) are the learned ones, which may take either sign: the
    paper reports that they did not extrapolate. Fixed slopes are no parameters, so
    ``--position-sharing`` means nothing to them; learned ones of a layer whose heads share one
    start from the published slope of a single head.
    """

    options = (SLOPES,)

    def __init__(self, shape: AttentionShape, *, slopes: str) -> None:
        super().__init__(shape)
        start = published_slopes(shape.heads) if slopes == "learned" else None
        self.slopes = None if start is None else nn.Parameter(start)

    def score(self, layout: Layout) -> Offsets:
        distances = layout.offset_line.abs()  # (number of offsets,)
        if self.slopes is None:
            heads = self.shape.embed_dim // self.shape.head_dim
            slopes = published_slopes(heads, distances.device)
        else:
            slopes = at_least_float32(self.slopes)
        return Offsets(-slopes.unsqueeze(1) * distances, layout)


Alibi.cross = Alibi


def published_slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """(H,) float32: the slopes of the paper, and of its code for other than a power of 2 heads.

    For H a power of 2 they are 2^(-8/H), 2^(-16/H), ... 2^-8. Otherwise they are those of the next
    lower power of 2, and then every other one of the next higher power.
    """
    power = 1 << (heads.bit_length() - 1)
    exponents = [
        torch.arange(1, power + 1, device=device) * (8 / power),
        (2 * torch.arange(heads - power, device=device) + 1) * (4 / power),
    ]
    return torch.exp2(-torch.cat(exponents))
