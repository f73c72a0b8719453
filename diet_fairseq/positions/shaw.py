"""Shaw et al. (2018): an embedding per clipped offset, added to keys and optionally values."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import AttentionShape
from .gain import GAIN, ScoreParameters
from .layout import Layout
from .options import Option
from .relative import CLIP

VALUES = Option(
    "position_values",
    bool,
    "shaw: also add relative embeddings to the values",
    default=False,
)


class Shaw(ScoreParameters):
    """query_score(i, j) = q_i . a^K_{clip(j-i)} / sqrt(d_h), Shaw et al. (2018), eq. 3-5.

    ``keys`` and, with ``--position-values``, ``values`` are (H, 2k + 1, d_h); times the gain they
    are a^K and a^V, Xavier at the start; row r holds offset j - i = r - k. By default k = 16, the
    gain is 1 and one table serves all heads of a layer, as in tensor2tensor. Unlike DIET's and T5's
    scalars the term is scaled, like q.
    """

    sharing = "head"
    offset_tables: ClassVar[dict[str, int]] = {"keys": 1, "values": 1}
    options = (CLIP.with_default(16), VALUES, GAIN.with_default(1.0))

    def __init__(self, shape: AttentionShape, *, clip: int, values: bool, gain: float) -> None:
        super().__init__(shape, gain)
        self.clip = clip
        table = (shape.heads, 2 * clip + 1, shape.head_dim)
        self.keys = nn.Parameter(torch.empty(table))
        self.values = nn.Parameter(torch.empty(table)) if values else None
        self.adds_to_values = values
        for parameter in self.parameters():
            for head in parameter:
                nn.init.xavier_uniform_(head, gain=1 / self.gain)

    def query_score(self, query: Tensor, layout: Layout) -> Tensor:
        rows, row_of_pair = self._rows(layout)
        # the product with each row that occurs, from which each pair of tokens picks one
        table = self.gained(self.keys[:, rows]).to(query.dtype)  # (H, rows, d_h)
        products = query @ table.mT  # (B, H, Tq, rows)
        # in float32, as below: the gradient of a product sums up to Tk numbers
        score = products.float().gather(-1, row_of_pair.expand(*query.shape[:2], -1, -1))
        return score.to(query.dtype)

    def value_term(self, weights: Tensor, layout: Layout) -> Tensor | None:
        if self.values is None:
            return None
        rows, row_of_pair = self._rows(layout)
        table = self.gained(self.values[:, rows])  # (H, rows, d_h)
        shape = (*weights.shape[:3], table.size(1))
        weight_of_row = weights.new_zeros(shape, dtype=torch.float32).scatter_add(
            -1, row_of_pair.expand(*weights.shape[:2], -1, -1), weights.float()
        )  # (B, H, Tq, rows)
        return weight_of_row.to(weights.dtype) @ table.to(weights.dtype)

    def _rows(self, layout: Layout) -> tuple[slice, Tensor]:
        """The rows whose offsets occur, and which of them (i, j) has: (B|1, 1, Tq, Tk) int64."""
        queries, keys = layout.query_positions.size(1), layout.key_positions.size(1)
        first, last = -min(self.clip, keys - 1), min(self.clip, queries - 1)
        rows = slice(first + self.clip, last + self.clip + 1)
        return rows, (layout.offsets.clamp(first, last) - first).unsqueeze(1)
