"""Linformer's compression of keys and values, which makes the cost of attention linear in n."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..positions.layout import Layout
from ..positions.scores import look_up

# Notation: B sentences, T tokens, k compressed keys, n positions, d model dimension.


class Compression(nn.Module):
    """E X, Wang et al. (2020), eq. 7: T tokens become k mixtures of tokens.

    ``weight`` is E, (k, n). Column t belongs to the token at position t; padding is not counted.
    Its name and its initial values, N(0, 0.02) as for all parameters of BERT, are as in fairseq's
    Linformer (the paper's theory has N(0, 1/k)). With a local start every mixture is initially the
    mean of n / k neighbouring tokens, so that a compressed key has a position, at which the local
    start of a scheme can have its peak.

    This is not an `nn.Linear`, because `init_bert_params` would initialize an `nn.Linear` again.
    """

    #: see `PositionScheme.position_axes`
    position_axes: ClassVar[dict[str, tuple[int, ...]]] = {"weight": (1,)}

    def __init__(self, positions: int, length: int, start: str | None = None) -> None:
        super().__init__()
        self.positions, self.length, self.start = positions, length, start
        self.weight = nn.Parameter(self.initial_values())

    def initial_values(self) -> Tensor:
        """(k, n): the initial values."""
        if self.start != "local":
            return torch.empty(self.length, self.positions).normal_(std=0.02)
        slots = torch.arange(self.positions) * self.length // self.positions  # (n,)
        members = F.one_hot(slots, self.length).T.to(torch.get_default_dtype())  # (k, n)
        # FSDP does not support a transposed parameter
        return (members / members.sum(dim=1, keepdim=True)).contiguous()

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """x (T, B, d), zero at padding -> (k, B, d)."""
        if layout.length is not None and layout.length <= self.positions:
            # positions are 0, 1, ... in all sentences, so one product serves the whole batch
            mixed = self.weight[:, : layout.length] @ x.flatten(1)  # (k, T) @ (T, B d)
            return mixed.unflatten(1, x.shape[1:])
        # positions of padding may exceed the matrix
        positions = layout.key_positions.clamp(max=self.positions - 1)  # (B|1, T)
        columns = look_up(positions, self.weight.T).to(x.dtype)  # (B|1, T, k)
        return torch.einsum("btk,tbd->kbd", columns, x)


def zero_padding(x: Tensor, layout: Layout) -> Tensor:
    """x (T, B, d) with zeros at padding, so that padding does not contribute to any mixture."""
    if layout.padding_mask is None:
        return x
    return x.masked_fill(layout.padding_mask.T.unsqueeze(-1), 0.0)
