"""The backend "recompute": the backward pass computes the weights again, so none are kept."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..context import dense_sum
from .call import AttentionCall
from .fused import sdpa
from .reference import reference

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head.


class RecomputedAttention(torch.autograd.Function):
    """softmax(q k^T + score, masked) v, with a gradient for the score.

    PyTorch's fused attention does the forward pass, but has no gradient for an added score, at
    least on a CPU. The backward pass goes head by head, so that its matrices stay in the cache.

    Args:
        q: (B, H, Tq, d_h), scaled; k, v: (B, H, Tk, d_h)
        score: (B|1, H|1, Tq, Tk)
        mask: (B|1, 1, Tq|1, Tk) bool, True at masked keys, or None
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, score: Tensor, mask: Tensor | None
    ) -> Tensor:
        if mask is None:
            out = F.scaled_dot_product_attention(q, k, v, score.to(q.dtype), scale=1.0)
        else:  # a sentence at a time, as a score with its mask takes memory for each sentence
            scores, masks = (x.expand(len(q), *x.shape[1:]) for x in (score, mask))
            out = torch.empty_like(q)
            for first in range(len(q)):
                b = slice(first, first + 1)
                # (1, H, Tq, Tk)
                masked = scores[b].to(q.dtype).masked_fill(masks[b], float("-inf"))
                out[b] = F.scaled_dot_product_attention(q[b], k[b], v[b], masked, scale=1.0)
        ctx.save_for_backward(q, k, v, score, mask)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, score, mask = ctx.saved_tensors
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        grad_score = torch.zeros_like(score, dtype=torch.float32)
        shape = q.shape[:2] + score.shape[2:]
        scores = score.expand(shape)  # no copy, as below
        masks = None if mask is None else mask.expand(shape)
        weights, change = score.new_empty(2, *shape[2:], dtype=torch.float32)  # (Tq, Tk) each
        for b in range(shape[0]):
            for h in range(shape[1]):
                # float32 throughout: sums over many keys
                queries, keys, values = (x[b, h].float() for x in (q, k, v))
                g = gradient[b, h].float()  # (Tq, d_h)
                torch.addmm(scores[b, h].float(), queries, keys.T, out=weights)
                if masks is not None:
                    weights.masked_fill_(masks[b, h], float("-inf"))
                torch.softmax(weights, dim=1, out=weights)
                grad_v[b, h] = weights.T @ g
                torch.mm(g, values.T, out=change)
                # the gradient of a softmax: w (dw - sum w dw)
                change.sub_(torch.linalg.vecdot(change, weights).unsqueeze(1)).mul_(weights)
                grad_q[b, h] = change @ keys
                grad_k[b, h] = change.T @ queries
                grad_score[b % len(score), h % score.size(1)] += change
        return grad_q, grad_k, grad_v, grad_score.to(score.dtype), None


def recomputed(call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """`RecomputedAttention` on a CPU; it goes head by head, which is slow on a GPU.

    With dropout, whose mask the backward pass would draw anew, it is the reference.
    """
    if call.dropout:
        return reference(call)
    call = call.at_temperature()
    score = dense_sum(call.scores)
    if score is None or call.q.device.type != "cpu":
        return sdpa(call)
    return RecomputedAttention.apply(call.q, call.k, call.v, score, call.layout.mask), None
