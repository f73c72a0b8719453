"""DIET's segment score E_S in every head, which can be combined with any position scheme."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from . import AttentionShape
from .gain import ScoreParameters
from .layout import Layout
from .scores import Dense, look_up_heads, product


class SegmentScores(ScoreParameters):
    """score(i, j) = E_S(S(i), S(j)), Chen et al. (2021), eq. 2: unscaled, initially zero.

    ``weight`` times the gain is E_S of every head, (H, S, S): row S(i) of the query, column S(j) of
    the key. It is shared like the position scheme. In a layout without segments every token is in
    segment 0, so the score is constant, and softmax ignores it.
    """

    def __init__(self, shape: AttentionShape, segments: int, gain: float = 30.0) -> None:
        super().__init__(shape, gain)
        self.weight = nn.Parameter(torch.zeros(shape.heads, segments, segments))

    def score(self, layout: Layout) -> Dense:
        segments = layout.segments
        if segments is None:
            segments = torch.zeros_like(layout.key_positions[:1])
        query_segments = segments[:, -layout.query_positions.size(1) :]  # (B|1, Tq)
        table = self.amplify(self.weight).transpose(0, 1).flatten(1)  # (S, H * S)
        query = look_up_heads(table, query_segments, self.shape.heads)  # (B|1, H, Tq, S)
        key = F.one_hot(segments, self.weight.size(-1)).unsqueeze(1)  # (B|1, 1, Tk, S)
        # a matrix, because `Factors` would make vectors longer
        return Dense(product(query, key.to(query.dtype)))


def check_segments(segments: Tensor, tokens: Tensor, number: int | None) -> Tensor:
    """(B, T) segment ids as int64, after a check of their type, their shape and their range.

    Args:
        segments: (B, T) integers
        tokens: (B, T), the tokens of the batch
        number: the number of segments of the model; None: the model ignores segments

    Raises:
        UserError: ids are not integers, their shape differs from the shape of the tokens, or an id
            is out of range
    """
    if segments.shape != tokens.shape:
        raise UserError(
            f"segments must have the shape of tokens, {tuple(tokens.shape)}, but have "
            f"{tuple(segments.shape)}: give one segment id for each token"
        )
    if segments.is_floating_point() or segments.is_complex():
        raise UserError(
            f"segments must be integers, but are {segments.dtype}: convert them with .long()"
        )
    if number is not None and segments.numel():
        lowest, highest = torch.stack(segments.aminmax()).tolist()
        if lowest < 0 or highest >= number:
            raise UserError(
                f"a batch has segment id {lowest if lowest < 0 else highest}, but with "
                f"--num-segments {number} ids are 0 to {number - 1}: correct the data, or train "
                "with more segments"
            )
    return segments.long()
