"""FIRE and CPB: a small network that reads a distance and gives the score of every head."""

import math

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option, at_least
from .scores import Dense, Offsets, at_least_float32, product
from .tables import look_up

FIRE_WIDTH = Option(
    "position_fire_width",
    int,
    "fire: number of hidden units (default: 32)",
    default=32,
    check=at_least(1),
)
#: FIRE's initial L, of which it learns a multiple
FIRE_THRESHOLD = 512.0
#: hidden units of Swin Transformer V2's network, and the largest difference that it can make
CPB_WIDTH, CPB_RANGE = 512, 16.0


class DistanceNetwork(PositionScheme):
    """A network of one hidden layer of rectified linear units: (...) distances -> (..., H).

    Its parameters are no `nn.Linear`, which RoBERTa initializes anew. Its output has no bias, to
    which softmax would be invariant.

    Attributes:
        hidden: (2, width), the weights and the biases of the hidden units
        output: (H, width)
    """

    zeroed = ("output",)  # but not the hidden units: then nothing would have a gradient

    def __init__(self, shape: AttentionShape, width: int) -> None:
        super().__init__(shape)
        self.hidden = nn.Parameter(torch.empty(2, width))
        self.output = nn.Parameter(torch.empty(shape.heads, width))

    def of_distances(self, distances: Tensor) -> Tensor:
        weights, biases = at_least_float32(self.hidden)
        units = torch.relu(distances.unsqueeze(-1) * weights + biases)  # (..., width)
        return product(units, self.output)  # (..., H)


class Fire(DistanceNetwork):
    """FIRE, Li et al. (2023): score(i, j) = f(psi(i - j) / psi(max(L, i))), unscaled.

    psi(x) = log(c x + 1), f is a network of one hidden layer of ``--position-fire-width`` units; as
    in the paper's listing, positions count from 0, c starts at 0.1, L is 512 times ``threshold``,
    absolute values keep both positive, and the network starts as PyTorch's `nn.Linear`. Every layer
    has its own; with ``--position-sharing layer`` it is the paper's FIRE-S.

    The paper has causal attention only. In encoders psi takes the sign of i - j, with the same
    normalizer, as FAT5's (github.com/catie-aq/flashT5, src/utils/positional_encoding.py). From
    position L on a score depends on more than the offset; nothing limits the length.
    """

    sharing = "none"
    options = (FIRE_WIDTH,)

    def __init__(self, shape: AttentionShape, *, fire_width: int) -> None:
        super().__init__(shape, fire_width)
        for parameter, inputs in ((self.hidden, 1), (self.output, fire_width)):
            nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5)
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.threshold = nn.Parameter(torch.ones(1))

    def score(self, layout: Layout) -> Dense:
        query, key = layout.query_positions, layout.key_positions
        if query.size(0) == 1 or query.size(1) == 1:
            return Dense(self._of_positions(query, key).permute(0, 3, 1, 2))
        # positions differ between sentences: the network reads every pair of them once
        device = query.device
        rows, columns = (
            torch.arange(end, device=device) for end in (layout.query_end, layout.key_end)
        )
        pairs = self._of_positions(rows.unsqueeze(0), columns.unsqueeze(0))  # (1, rows, columns, H)
        index = query.unsqueeze(2) * len(columns) + key.unsqueeze(1)  # (B, Tq, Tk)
        return Dense(look_up(index, pairs.flatten(0, 2)).permute(0, 3, 1, 2))

    def _of_positions(self, query: Tensor, key: Tensor) -> Tensor:
        """(B|1, Tq) and (B|1, Tk) -> (B|1, Tq, Tk, H)."""
        c, threshold = at_least_float32(self.c), FIRE_THRESHOLD * at_least_float32(self.threshold)
        offsets = query.unsqueeze(2) - key.unsqueeze(1)  # (B|1, Tq, Tk)
        longest = torch.maximum(query.to(c.dtype), threshold.abs()).unsqueeze(2)  # (B|1, Tq, 1)
        distances = offsets.sign() * torch.log1p((c * offsets).abs())
        return self.of_distances(distances / (torch.log1p((c * longest).abs()) + 1e-6))


class Cpb(DistanceNetwork):
    """Swin Transformer V2's continuous position bias, Liu et al. (2022), section 3.3, unscaled.

    score(i, j) = 16 sigmoid(f(s)) - 8, and s = sign(j - i) log_8(1 + |j - i|) is the log-spaced
    offset, in one dimension. f is a network of one hidden layer of 512 units. As in the released
    code, and not in the paper, there is a sigmoid times 16; softmax is invariant to the 8, which
    makes the score of a zero network zero. s is what that code computes in a window of 9. Weights
    start from N(0, 0.02), biases at 0, and every layer has a network of its own. The content score
    stays the product of queries and keys, not Swin V2's cosine.
    """

    sharing = "none"

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape, CPB_WIDTH)
        for parameter in (self.hidden, self.output):
            nn.init.normal_(parameter, std=0.02)
        self.hidden.data[1].zero_()

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line
        spaced = offsets.sign() * torch.log1p(offsets.abs()) / math.log(8)  # (number of offsets,)
        line = CPB_RANGE * torch.sigmoid(self.of_distances(spaced)) - CPB_RANGE / 2
        return Offsets(line.T.contiguous(), layout)
