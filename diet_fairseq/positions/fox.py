"""The Forgetting Transformer: every token fades all earlier tokens by a gate."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import AttentionShape
from .gain import GAIN, START, ScoreParameters
from .layout import Layout
from .options import Option
from .scores import Dense, Differences, Score, apply_in_float32

GATES = Option(
    "position_fox_gates",
    str,
    "fox: gates that depend on each token (token), or one gate for each head, a fixed decay (head) "
    "(default: token)",
    default="token",
    choices=("token", "head"),
)
#: decay times in tokens of a local start: the shortest and the longest
SHORTEST, LONGEST = 1.0, 32.0
#: the decay time in tokens after `Fox.zero`
UNNOTICED = 4096.0


class Fox(ScoreParameters):
    """FoX, Lin et al. (2025), eq. 8: score(i, j) = c_i - c_j, where c sums up log forget gates.

    c_t is the sum over l <= t of log f_l, where f_l = sigmoid(w x_l + b) is the gate of a head and
    x_l the input of the layer. ``gates`` (H, d) is w, and ``gate_bias`` (H,), times the gain, is b.
    With ``fox_gates`` "head" there is no w: these are the paper's data-independent gates.

    The paper has causal attention only. In encoders the score is -|c_i - c_j|: the gates between
    two tokens fade each for the other. This form is not published.

    A blind start, the default, is the start of the paper's gates: w from N(0, 0.02), and b = 0, so
    that every token halves the weight of earlier tokens. In a local start heads differ: they fade
    to 1/e in 1 to 32 tokens, as the data-independent gates of the authors' code do in other times.
    """

    sharing = "none"
    options = (GATES, GAIN.with_default(30.0), START.with_default("blind"))
    score_type: type[Score] = Differences
    rank = 6
    can_be_zero: ClassVar[bool] = False  # a gate of exactly 1 has no gradient

    def __init__(self, shape: AttentionShape, *, fox_gates: str, gain: float, start: str) -> None:
        super().__init__(shape, gain)
        self.gates: nn.Linear | None = None
        if fox_gates == "token":
            self.gates = nn.Linear(shape.embed_dim, shape.heads, bias=False)
            nn.init.normal_(self.gates.weight, std=0.02)
        logits = local_logits(shape.heads) if start == "local" else torch.zeros(shape.heads)
        self.gate_bias = nn.Parameter(logits / gain)
        if not shape.causal:
            self.score_type, self.kinds, self.rank = Dense, frozenset({"dense"}), 0

    def zero(self) -> None:
        """Open the gates so far that a token fades to 1/e in `UNNOTICED` tokens."""
        super().zero()
        nn.init.constant_(self.gate_bias, decay_logit(UNNOTICED) / self.gain)

    def steps(self, x: Tensor, layout: Layout) -> Tensor:
        logits = self.amplify(self.gate_bias).expand(*x.shape[:2], -1)  # (B, Tq, H)
        if self.gates is not None:
            logits = logits + apply_in_float32(self.gates, x)
        return F.logsigmoid(logits).transpose(1, 2).unsqueeze(-1)  # (B, H, Tq, 1)

    def score(self, layout: Layout) -> Differences | Dense:
        query, key = layout.moved  # (B, H, Tq, 1), (B, H, Tk, 1)
        # with fairseq's full_context_alignment the queries of a decoder see later keys, too
        if self.shape.causal and layout.causal:
            return Differences(query, key)
        return Dense(-(query - key.mT).abs())


def local_logits(heads: int) -> Tensor:
    """(H,): logits of gates with decay times from `SHORTEST` to `LONGEST`, evenly in logarithms."""
    shares = ((head + 0.5) / heads for head in range(heads))
    return torch.tensor([decay_logit(SHORTEST * (LONGEST / SHORTEST) ** s) for s in shares])


def decay_logit(tokens: float) -> float:
    """The logit of a gate exp(-1 / tokens), which fades a token to 1/e in so many tokens."""
    return -math.log(math.expm1(1 / tokens))
