"""Sandwich: the product of two sinusoidal positions, as a fixed score of their distance."""

import torch

from .base import PositionScheme
from .layout import Layout
from .scores import Offsets

#: the paper's width of the sinusoidal positions, by its experiments; not that of the model
WIDTH = 128


class Sandwich(PositionScheme):
    """Sandwich, Chi et al. (2023): (p_i . p_j - w / 2) / (8 h / H) of head h = 1 ... H.

    p are Vaswani et al.'s sinusoidal positions of width w = 128, so that the product is the sum of
    cos((i - j) 10000^(-2k/w)) over k = 0 ... w/2 - 1, and w/2 its largest value. It is symmetric,
    and unscaled; the paper has causal attention only. There is nothing to learn or to share.
    """

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line
        heads = self.shape.embed_dim // self.shape.head_dim
        waves = torch.arange(WIDTH // 2, device=offsets.device) * (2 / WIDTH)
        cosines = torch.cos(offsets.unsqueeze(1) * 10000.0**-waves)  # (number of offsets, w / 2)
        ratios = torch.arange(1, heads + 1, device=offsets.device) * (8 / heads)  # (H,)
        return Offsets((cosines.sum(1) - WIDTH / 2) / ratios.unsqueeze(1), layout)
