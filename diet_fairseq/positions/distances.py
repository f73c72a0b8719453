"""Schemes whose score is a function of the distance: a formula or a small network.

ALiBi, KERPLE and Sandwich have a formula; FIRE and CPB have a network.
"""

import math

import torch
from torch import Tensor, nn

from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option, at_least
from .scores import Dense, Offsets, look_up, product, promote_to_float32

SLOPES = Option(
    "position_slopes",
    str,
    "alibi: the published slopes (fixed), or slopes learned from them (default: fixed)",
    default="fixed",
    choices=("fixed", "learned"),
)
ALIBI = Option(
    "position_alibi",
    str,
    "alibi: keys after the query count as keys before it at the same distance (symmetric), or as "
    "half a token nearer (shifted) (default: symmetric)",
    default="symmetric",
    choices=("symmetric", "shifted"),
)
KERPLE = Option(
    "position_kerple",
    str,
    "kerple: the score falls with the logarithm or with a power of the distance (default: log)",
    default="log",
    choices=("log", "power"),
)
#: the smallest r2 of KERPLE, as in the authors' code, and the largest r2 of the form "power"
MIN_R2, MAX_POWER = 0.01, 2.0
#: width of Sandwich's sinusoidal positions, as in the paper's experiments; not the model's width
SANDWICH_WIDTH = 128
FIRE_WIDTH = Option(
    "position_fire_width",
    int,
    "fire: number of hidden units (default: 32)",
    default=32,
    check=at_least(1),
)
#: FIRE's initial L; the parameter ``threshold`` is a multiple of it
FIRE_THRESHOLD = 512.0
#: hidden units of Swin Transformer V2's network, and the range of its scores
CPB_WIDTH, CPB_RANGE = 512, 16.0


class Alibi(PositionScheme):
    """ALiBi, Press et al. (2022), section 3: score(i, j) = -m_h |i - j|, unscaled.

    The paper has causal attention only. In encoders and in cross-attention the score is symmetric,
    as its first author proposes (github.com/ofirpress/attention_with_linear_biases/issues/5). With
    ``alibi`` "shifted" a key after the query counts as half a token nearer, so that an encoder can
    distinguish left from right, as in the encoders of github.com/EIFY/fairseq. `published_slopes`
    computes m. ``slopes`` (H,) are learned slopes, which can have either sign;
    the paper reports that they did not extrapolate. Fixed slopes are not parameters, so
    ``--position-sharing`` does not affect them. If the heads of a layer share one learned slope,
    its initial value is the published slope of a single head.
    """

    score_type = Offsets
    options = (SLOPES, ALIBI)

    def __init__(self, shape: AttentionShape, *, slopes: str, alibi: str) -> None:
        super().__init__(shape)
        self.shift = 0.5 if alibi == "shifted" else 0.0
        self.slopes = nn.Parameter(published_slopes(shape.heads)) if slopes == "learned" else None

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line
        distances = offsets.abs()  # (number of offsets,)
        if self.shift:
            distances = distances - self.shift * (offsets > 0)
        if self.slopes is None:
            heads = self.shape.embed_dim // self.shape.head_dim
            slopes = published_slopes(heads, distances.device)
        else:
            slopes = promote_to_float32(self.slopes)
        return Offsets(-slopes.unsqueeze(1) * distances)


Alibi.cross = Alibi


def published_slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """(H,) float32: ALiBi's slopes, as in the paper and in its code.

    If H is a power of 2, the slopes are 2^(-8/H), 2^(-16/H), ... 2^-8. Otherwise they are the
    slopes of the next lower power of 2, followed by every other slope of the next higher power.
    """
    power = 1 << (heads.bit_length() - 1)
    exponents = [
        torch.arange(1, power + 1, device=device) * (8 / power),
        (2 * torch.arange(heads - power, device=device) + 1) * (4 / power),
    ]
    return torch.exp2(-torch.cat(exponents))


class Kerple(PositionScheme):
    """KERPLE, Chi et al. (2022): kernels of the distance, unscaled.

    The form "log" is score(i, j) = -r1 log(1 + r2 |i - j|), and the form "power" is -r1 |i - j|^r2.
    ``r1`` and ``r2`` (H,) are parameters of every head, which all layers share. Their initial
    values are uniform: r1 below 2 and r2 below 1 (log), or r1 below 1 and r2 below 2 (power), as in
    the authors' code (github.com/chijames/KERPLE). The kernels are symmetric; the paper uses them
    in causal attention only. The parameters have no gain, because their initial values have the
    size of trained parameters and are multiplied by the distance.

    The theory requires r1 > 0, r2 > 0 and, for "power", r2 <= 2. The authors' code sets parameters
    outside 0.01 to 2 to the nearest bound before each use. Here the forward pass uses the bound
    instead of such a parameter, and the parameter gets the gradient of the bound
    (`clamp_parameter`), so that no forward pass writes to a parameter. r1 can be 0, so that a warm
    start begins without the term.
    """

    score_type = Offsets
    options = (KERPLE,)
    described_options = ("kerple",)
    zero_init = ("r1",)

    def __init__(self, shape: AttentionShape, *, kerple: str) -> None:
        super().__init__(shape)
        self.kerple = kerple
        largest = (2.0, 1.0) if kerple == "log" else (1.0, 2.0)
        self.r1, self.r2 = (nn.Parameter(torch.rand(shape.heads) * most) for most in largest)

    def score(self, layout: Layout) -> Offsets:
        distances = layout.offset_line.abs()  # (number of offsets,)
        r1 = clamp_parameter(self.r1, 0.0).unsqueeze(1)  # (H, 1)
        if self.kerple == "log":
            r2 = clamp_parameter(self.r2, MIN_R2).unsqueeze(1)  # (H, 1)
            return Offsets(-r1 * torch.log1p(r2 * distances))
        r2 = clamp_parameter(self.r2, MIN_R2, MAX_POWER).unsqueeze(1)  # (H, 1)
        return Offsets(-r1 * distances.to(r2.dtype).pow(r2))


def clamp_parameter(parameter: Tensor, least: float, largest: float | None = None) -> Tensor:
    """The parameter clamped, in float32 or wider, with the gradient of the clamped value."""
    value = promote_to_float32(parameter)
    return value + (value.clamp(least, largest) - value).detach()


class Sandwich(PositionScheme):
    """Sandwich, Chi et al. (2023): (p_i . p_j - w / 2) / (8 h / H) of head h = 1 ... H.

    p are Vaswani et al.'s sinusoidal positions of width w = 128. The product is the sum of
    cos((i - j) 10000^(-2k/w)) over k = 0 ... w/2 - 1, whose largest value is w/2. The score is
    symmetric and unscaled, and has no parameters. The paper has causal attention only.
    """

    score_type = Offsets

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line
        heads = self.shape.embed_dim // self.shape.head_dim
        waves = torch.arange(SANDWICH_WIDTH // 2, device=offsets.device) * (2 / SANDWICH_WIDTH)
        cosines = torch.cos(offsets.unsqueeze(1) * 10000.0**-waves)  # (number of offsets, w / 2)
        ratios = torch.arange(1, heads + 1, device=offsets.device) * (8 / heads)  # (H,)
        return Offsets((cosines.sum(1) - SANDWICH_WIDTH / 2) / ratios.unsqueeze(1))


class DistanceNetwork(PositionScheme):
    """A network of distances with one hidden layer of rectified linear units.

    Its parameters are not in an `nn.Linear`, because RoBERTa would initialize an `nn.Linear` again.
    The output has no bias, because softmax is invariant to a bias.

    Attributes:
        hidden: (2, width), the weights and the biases of the hidden units
        output: (H, width)
    """

    zero_init = ("output",)  # not the hidden units, because then nothing would have a gradient

    def __init__(self, shape: AttentionShape, width: int) -> None:
        super().__init__(shape)
        self.hidden = nn.Parameter(torch.empty(2, width))
        self.output = nn.Parameter(torch.empty(shape.heads, width))

    def score_distances(self, distances: Tensor) -> Tensor:
        """Distances (...) -> scores (..., H), float32."""
        weights, biases = promote_to_float32(self.hidden)
        units = torch.relu(distances.unsqueeze(-1) * weights + biases)  # (..., width)
        return product(units, self.output)  # (..., H)


class Fire(DistanceNetwork):
    """FIRE, Li et al. (2023): score(i, j) = f(psi(i - j) / psi(max(L, i))), unscaled.

    psi(x) = log(c x + 1), and f is a network with one hidden layer of ``--position-fire-width``
    units. As in the paper's listing, positions count from 0, c is initially 0.1, L is 512 times
    ``threshold``, absolute values keep c and L positive, and the network has the initial values of
    PyTorch's `nn.Linear`. Every layer has its own network; ``--position-sharing layer`` gives the
    paper's FIRE-S.

    The paper has causal attention only. In encoders psi has the sign of i - j and the same
    normalizer, as in FAT5 (github.com/catie-aq/flashT5, src/utils/positional_encoding.py). From
    position L on a score depends on more than the offset. There is no length limit.
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
        pairs_in_batch = query.numel() * key.size(1)
        if query.size(0) == 1 or pairs_in_batch <= layout.query_bound * layout.key_bound:
            return Dense(self._score_positions(query, key).permute(0, 3, 1, 2))
        # positions differ between sentences, so compute every pair of positions once
        device = query.device
        rows, columns = (
            torch.arange(end, device=device) for end in (layout.query_bound, layout.key_bound)
        )
        pairs = self._score_positions(rows[None], columns[None])  # (1, rows, columns, H)
        index = query.unsqueeze(2) * len(columns) + key.unsqueeze(1)  # (B, Tq, Tk)
        return Dense(look_up(index, pairs.flatten(0, 2)).permute(0, 3, 1, 2))

    def _score_positions(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of queries at positions (B|1, Tq) and keys at (B|1, Tk): (B|1, Tq, Tk, H)."""
        c = promote_to_float32(self.c)
        threshold = FIRE_THRESHOLD * promote_to_float32(self.threshold)
        offsets = query.unsqueeze(2) - key.unsqueeze(1)  # (B|1, Tq, Tk)
        longest = torch.maximum(query.to(c.dtype), threshold.abs()).unsqueeze(2)  # (B|1, Tq, 1)
        distances = offsets.sign() * torch.log1p((c * offsets).abs())
        return self.score_distances(distances / (torch.log1p((c * longest).abs()) + 1e-6))


class Cpb(DistanceNetwork):
    """Swin Transformer V2's continuous position bias, Liu et al. (2022), section 3.3, unscaled.

    score(i, j) = 16 sigmoid(f(s)) - 8, where s = sign(j - i) log_8(1 + |j - i|) is the log-spaced
    offset in one dimension (the offset of Swin V2 is i - j), and f is a network with one hidden
    layer of 512 units. The sigmoid and the factor 16 are from the released code, not from the
    paper. Subtracting 8 makes the score of a zero network 0; softmax is invariant to a constant. s
    is the offset that the released code computes in a window of 9. Weights are drawn from
    N(0, 0.02), biases are initially 0, and every layer has its own network. The content score is
    the product of queries and keys, not the cosine of Swin V2.
    """

    score_type = Offsets
    sharing = "none"

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape, CPB_WIDTH)
        for parameter in (self.hidden, self.output):
            nn.init.normal_(parameter, std=0.02)
        self.hidden.data[1].zero_()

    def score(self, layout: Layout) -> Offsets:
        offsets = layout.offset_line
        spaced = offsets.sign() * torch.log1p(offsets.abs()) / math.log(8)  # (number of offsets,)
        line = CPB_RANGE * torch.sigmoid(self.score_distances(spaced)) - CPB_RANGE / 2
        return Offsets(line.T.contiguous())
