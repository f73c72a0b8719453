"""Gain and local initialization of position parameters."""

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import check_positive
from .base import AttentionShape, PositionScheme
from .options import Option
from .scores import promote_to_float32

GAIN = Option(
    "position_gain",
    float,
    "constant factor between the parameters and the score, or each factor of the score "
    "(default: by scheme; 1 with --position-start blind, except for fox)",
    check=check_positive,
)
START = Option(
    "position_start",
    str,
    "initial scores: as in the papers, with gain 1 (blind), or with a peak at a different offset "
    "in each head, or for fox with a different decay (local) (default: local; fox: blind)",
    default="local",
    choices=("blind", "local"),
)
#: in encoders, which read more than a sentence, the default is higher: among 128 tokens a peak of 3
#: gives 13% of the attention to the head's offset, and a peak of 6 gives 73%
PEAK = Option(
    "position_peak",
    float,
    "height of the initial peak of --position-start local (default: 3; 6 in encoders)",
    default=3.0,
    check=check_positive,
    encoder_default=6.0,
)
#: the largest distance in `first_offsets`; later heads restart at 0
MAX_FIRST_OFFSET = 4


class ScoreParameters(PositionScheme):
    """A scheme whose score, or each factor of it, is its parameters multiplied by a gain.

    Adam moves a parameter by at most about the learning rate in an update. Without a gain, a scalar
    that is added to a score therefore needs hundreds of updates to reach the values of 1 to 2 of a
    trained head, while an equal step of TUPE's U is multiplied by a row of norm sqrt(d). For this
    reason the parameters are multiplied by ``gain``, with any optimizer (docs/results.md has
    measurements). The initial score does not depend on the gain.

    The gain belongs to the parameters and is saved with them in the state dict. A state dict
    without it, such as all checkpoints of version 0.1 and of TUPE's released code, has gain 1.
    """

    def __init__(self, shape: AttentionShape, gain: float) -> None:
        super().__init__(shape)
        self.gain = gain

    def amplify(self, parameter: Tensor) -> Tensor:
        """The parameter times the gain, in float32 or wider."""
        return promote_to_float32(parameter) * self.gain

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # not a buffer, which `half()` would round
        destination[f"{prefix}gain"] = torch.tensor(self.gain, dtype=torch.float64)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        gain = state_dict.pop(f"{prefix}gain", None)
        if any(f"{prefix}{name}" in state_dict for name, _ in self.named_parameters()):
            self.gain = 1.0 if gain is None else float(gain)
        super()._load_from_state_dict(state_dict, prefix, *args)


def first_offsets(shape: AttentionShape) -> Tensor:
    """(H,) int64: the offset j - i to which each head attends initially: 0, -1, 1, -2, 2, ...

    In causal attention the offsets are 0, -1, -2, ... After the distance `MAX_FIRST_OFFSET` they
    restart at 0. If all heads of a layer share one score, each layer has one of these offsets.
    """
    signs = (-1,) if shape.causal else (-1, 1)
    offsets = [0, *(sign * d for d in range(1, MAX_FIRST_OFFSET + 1) for sign in signs)]
    first = shape.layer if shape.heads == 1 else 0
    return torch.tensor([offsets[(first + head) % len(offsets)] for head in range(shape.heads)])


def local_scores(offsets: Tensor, shape: AttentionShape, peak: float) -> Tensor:
    """Initial scores with a peak in each head, which falls to 1/e with each token.

    Args:
        offsets: (...), the offsets j - i
        shape: the attention, see `first_offsets`
        peak: the score at a head's offset

    Returns:
        (..., H)
    """
    return peak * torch.exp(-(offsets.unsqueeze(-1) - first_offsets(shape)).abs())


def wave_frequencies(count: int) -> Tensor:
    """(count,): frequencies, in radians a token, of cosines whose sum has one peak.

    With equally spaced frequencies, pi (k + 1/2) / count, the sum is 0 at other distances than 0
    but repeats every 4 * count tokens, so that several keys share the attention of the peak. The
    exponent spaces the frequencies unequally: with 16 of them the sum stays below half of the peak
    at all distances from 1 to 2,000.
    """
    return math.pi * ((torch.arange(count) + 0.5) / max(count, 1)) ** 1.2
