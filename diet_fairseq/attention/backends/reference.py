"""The backend "reference": attention's equation, which all other backends must match."""

from functools import reduce

import torch
from torch import Tensor

from ..dropout import softmax_dropout
from ..rows import value_sums
from .call import AttentionCall


def reference(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """softmax(q k^T + scores + mask) v, plus the schemes' terms for values.

    Returns:
        (B, H, Tq, d_h), and the weights before dropout, (B, H, Tq, Tk)
    """
    score = attention_scores(call)
    dropped, weights = softmax_dropout(score, call.dropout)
    out = dropped @ call.v  # (B, H, Tq, Tk) @ (B, H, Tk, d_h) -> (B, H, Tq, d_h)
    for scheme in call.schemes:
        rows = scheme.value_rows(call.layout) if "value_rows" in scheme.kinds else None
        if rows is not None:
            out = out + value_sums(dropped, rows)
    return out, weights


def attention_scores(call: AttentionCall, masked: bool = True) -> Tensor:
    """(q k^T + scores) / temperature + mask, (B, H, Tq, Tk): the logits of the softmax."""
    score = call.q @ call.k.mT  # (B, H, Tq, d_h) @ (B, H, d_h, Tk) -> (B, H, Tq, Tk)
    for scheme in call.schemes:
        if "content_score" in scheme.kinds:
            score = scheme.content_score(score, call.q, call.layout)
    for added in added_scores(call):
        score = score + added
    if call.temperature != 1:  # after the schemes' changes
        score = score / call.temperature
    if masked and call.layout.mask is not None:
        # the last step, because no learned score can raise -inf
        score = score.masked_fill(call.layout.mask, float("-inf"))
    return score


def attention_bias(call: AttentionCall) -> Tensor | None:
    """(B|1, H|1, Tq|1, Tk): the sum of the scores and the mask's -inf; None: neither exists."""
    scores, mask = added_scores(call), call.layout.mask
    if not scores:
        return None if mask is None else call.q.new_zeros(mask.shape).masked_fill(mask, -torch.inf)
    bias = reduce(torch.add, scores)
    return bias if mask is None else bias.masked_fill(mask, float("-inf"))


def added_scores(call: AttentionCall) -> list[Tensor]:
    """The scores of positions and segments, (B|1, H|1, Tq, Tk) each, in the queries' dtype."""
    return [score.dense(call.layout).to(call.q.dtype) for score in call.scores]
