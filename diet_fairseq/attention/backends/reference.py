"""The equation itself, which all other backends must match."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..dropout import dropout as drop
from .call import AttentionCall


def reference(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """softmax(q k^T + position + segment + mask) v, with weights (B, H, Tq, Tk)."""
    q, k, v, layout = call.q, call.k, call.v, call.layout
    score = q @ k.mT  # (B, H, Tq, d_h) @ (B, H, d_h, Tk) -> (B, H, Tq, Tk)
    position = call.term.dense()
    if position is not None:
        score = score + position.to(score.dtype)
    for scheme in call.schemes:
        query_score = scheme.query_score(q, layout)
        if query_score is not None:
            score = score + query_score
    if layout.mask is not None:
        # after all else: no learned score beats -inf
        score = score.masked_fill(layout.mask, float("-inf"))
    # float32: half precision has too few digits for a sum over many keys
    weights = F.softmax(score, dim=-1, dtype=torch.float32).to(score.dtype)
    kept = drop(weights, call.dropout) if call.dropout else weights
    out = kept @ v  # (B, H, Tq, Tk) @ (B, H, Tk, d_h) -> (B, H, Tq, d_h)
    for scheme in call.schemes:
        values = scheme.value_term(kept, layout)
        if values is not None:
            out = out + values
    return out, weights
