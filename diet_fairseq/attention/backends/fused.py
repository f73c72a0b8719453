"""PyTorch's fused attention, which keeps no weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .call import AttentionCall


def fused(call: AttentionCall) -> tuple[Tensor, None]:
    """`torch.nn.functional.scaled_dot_product_attention`: scores as its mask, factors appended."""
    q, k, v, term = call.q, call.k, call.v, call.term
    mask, width = call.layout.mask, v.size(3)  # (B|1, 1, Tq|1, Tk), d_h
    if term.factors:
        queries, keys = (
            [factor.to(q.dtype).expand(*q.shape[:2], -1, -1) for factor in side]
            for side in zip(*term.factors, strict=True)
        )
        q, k = torch.cat([q, *queries], dim=-1), torch.cat([k, *keys], dim=-1)  # (B, H, T, d_h+r)
        # PyTorch's fused kernels want one width, or it takes one that builds the score
        v = F.pad(v, (0, q.size(3) - width))  # (B, H, Tk, d_h+r)
    if term.score is not None:
        score = term.score.to(q.dtype)
        mask = score if mask is None else score.masked_fill(mask, float("-inf"))
    elif mask is not None:
        mask = ~mask  # torch's boolean masks say what is seen
    out = F.scaled_dot_product_attention(q, k, v, mask, call.dropout, scale=1.0)
    return out[..., :width], None
