"""Linformer: the same attention with compressed keys and values, at a cost linear in n."""

from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..positions.base import look_up
from ..positions.layout import Layout
from .context import Context
from .multihead import PositionalAttention

# Notation: B sentences, T tokens, k compressed keys, n positions, d model dimension.


class Compression(nn.Module):
    """E X, Wang et al. (2020), eq. 7: T tokens become k mixtures of them.

    ``weight`` is E, (k, n); its column t belongs to the token at position t, wherever padding has
    put it. Drawn from N(0, 0.02) like all of BERT's, as in fairseq's Linformer, whose names these
    are (the paper's theory has N(0, 1/k)). With a local start every mixture is the mean of n / k
    neighbours, so that a compressed key has a place, which a local score can point at.

    It is no `nn.Linear`, because `init_bert_params` would initialise that again.
    """

    #: as `PositionScheme.tables`
    tables: ClassVar[dict[str, tuple[int, ...]]] = {"weight": (1,)}

    def __init__(self, positions: int, length: int, start: str | None = None) -> None:
        super().__init__()
        self.positions, self.length, self.start = positions, length, start
        self.weight = nn.Parameter(self.initial())

    def initial(self) -> Tensor:
        """(k, n): what training starts from."""
        if self.start != "local":
            return torch.empty(self.length, self.positions).normal_(std=0.02)
        slots = torch.arange(self.positions) * self.length // self.positions  # (n,)
        members = F.one_hot(slots, self.length).T.float()  # (k, n)
        # FSDP takes no transposed parameter
        return (members / members.sum(dim=1, keepdim=True)).contiguous()

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """x (T, B, d), zero at padding -> (k, B, d)"""
        if layout.length is not None and layout.length <= self.positions:
            # all stand at 0, 1, ...: one product for the whole batch
            mixed = self.weight[:, : layout.length] @ x.flatten(1)  # (k, T) @ (T, B d)
            return mixed.unflatten(1, x.shape[1:])
        # tokens that are padding may lie beyond the matrix
        positions = layout.key_positions.clamp(max=self.positions - 1)  # (B|1, T)
        columns = look_up(positions, self.weight.T).to(x.dtype)  # (B|1, T, k)
        return torch.einsum("btk,tbd->kbd", columns, x)


class LinformerAttention(PositionalAttention):
    """softmax(q (E X W_K)^T / sqrt(d_h) + position) (F X W_V): Linformer, eq. 7; DIET, eq. 4.

    As in eq. 4 and in fairseq's Linformer keys and values are compressed before they are projected;
    the paper's figure has it the other way round, which differs by a bias. Padding contributes
    nothing, and nothing of it is left to be masked: all k keys are seen by all queries.

    Args:
        compress_k: E of this layer; None: the one in the `Context`
        compress_v: F of this layer; None: it is E
    """

    def __init__(
        self,
        *args: Any,
        compress_k: Compression | None = None,
        compress_v: Compression | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.compress_k = compress_k
        self.compress_v = compress_v

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Context | None = None,
        *rest: Any,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """As `PositionalAttention.forward` in self-attention; weights are (.., Tq, k)."""
        context = key_padding_mask
        if context is None or key is None:
            raise TypeError("LinformerAttention takes its keys and a Context")
        compress, layout = self.compress_k or context.compress, context.layout
        if compress is None:
            raise TypeError("LinformerAttention has no E, of its own or in the Context")
        if layout.causal:
            raise TypeError("compressed keys mix all tokens: they can't be causal")
        if context.packing is not None:
            tokens = context.packing.unpack(key)  # (T, B, d)
        else:
            tokens = without_padding(key, layout)  # (T, B, d)
        keys = values = compress(tokens, layout)  # (k, B, d)
        if self.compress_v is not None:
            values = self.compress_v(tokens, layout)  # (k, B, d)
        compressed = replace(context, layout=layout.compressed(len(keys)))
        return super().forward(query, keys, values, compressed, *rest, **options)


def without_padding(x: Tensor, layout: Layout) -> Tensor:
    """x (T, B, d), zero at padding: so it contributes nothing to any mixture."""
    if layout.padding_mask is None:
        return x
    return x.masked_fill(layout.padding_mask.T.unsqueeze(-1), 0.0)
