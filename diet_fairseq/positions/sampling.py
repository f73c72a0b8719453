"""Random positions in training, which are larger than the positions 0, 1, ... of a sentence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from .layout import Layout

# Notation: B sentences of n tokens, padded to T; positions are 0 to L - 1.


@dataclass(frozen=True)
class PositionSampling:
    """Draws new positions for every sentence in every forward pass of training.

    "shifted": the positions of a sentence are k, k + 1, ..., where k is uniform in 0 to L - n.
    Kiyono et al. (2021, SHAPE) shift tables at the input, up to a separate limit. Here the target
    has the k of its source, so that the offsets between source and target do not change, or the
    largest k that keeps its positions below L.

    "randomised": a sentence has n of the L positions in ascending order, and all choices are
    equally likely, as in Ruoss et al. (2023). The positions of source and target are independent;
    the paper has only one text.

    Attributes:
        kind: "shifted" or "randomised"
        length: L
    """

    kind: str
    length: int

    def draw(self, layout: Layout, batch: int, source_positions: Tensor | None = None) -> Layout:
        """The layout of ``batch`` sentences at random positions.

        Args:
            layout: the layout of self-attention in which every token is a query
            batch: B
            source_positions: (B, S), the positions of the sources, if the sentences are targets

        Raises:
            UserError: a sentence has more than L tokens
        """
        tokens, device = layout.key_positions.size(1), layout.key_positions.device
        numbers = layout.key_positions.expand(batch, -1)  # (B, T): each token's place
        lengths = torch.full((batch,), tokens, device=device)  # (B,)
        if layout.padding_mask is not None:
            lengths = (~layout.padding_mask).sum(dim=1)
        if tokens > self.length and int(lengths.max()) > self.length:
            raise UserError(
                f"a sentence of {int(lengths.max())} tokens is longer than "
                f"--position-sampling-length {self.length}: shorten it, or raise this option"
            )
        if self.kind == "shifted":
            room = self.length - lengths
            if source_positions is None:
                first = (torch.rand(batch, device=device) * (room + 1)).long()
            else:
                first = source_positions.amin(dim=1)
            positions = numbers + torch.minimum(first, room).unsqueeze(1)
        else:
            drawn = torch.rand(batch, self.length, device=device).argsort(dim=1)[:, :tokens]
            beyond = torch.arange(drawn.size(1), device=device) >= lengths.unsqueeze(1)
            ordered = drawn.masked_fill(beyond, self.length).sort(dim=1).values  # (B, T|L)
            positions = ordered.gather(1, numbers.clamp(max=drawn.size(1) - 1))
        return layout.with_positions(positions.clamp(max=self.length - 1), self.length)
