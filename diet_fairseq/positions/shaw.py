"""Shaw et al. (2018): an embedding per clipped offset, added to keys and optionally values."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import AttentionShape, Projections
from .gain import GAIN, ScoreParameters
from .layout import Layout
from .options import Option
from .relative import CLIP
from .scores import Rows

VALUES = Option(
    "position_values",
    bool,
    "shaw: also add relative embeddings to the values",
    default=False,
)


class Shaw(ScoreParameters):
    """q_i . a^K_{clip(j-i)} / sqrt(d_h) is added to the score, Shaw et al. (2018), eq. 3-5.

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
        if not values:
            self.kinds = self.kinds - {"value_rows"}
        for parameter in self.parameters():
            for head in parameter:
                nn.init.xavier_uniform_(head, gain=1 / self.gain)

    def query_rows(self, layout: Layout, project: Projections) -> Rows:
        rows, index = rows_of_offsets(layout, self.clip)
        return Rows(self.gained(self.keys[:, rows]), index)

    def value_rows(self, layout: Layout) -> Rows | None:
        if self.values is None:
            return None
        rows, index = rows_of_offsets(layout, self.clip)
        return Rows(self.gained(self.values[:, rows]), index)


def rows_of_offsets(layout: Layout, clip: int) -> tuple[slice, Tensor]:
    """The rows of a table of the offsets from -clip to clip that occur, and the index of pairs.

    Returns:
        the rows, and the place among them of each pair's offset, clipped: (B|1, 1, Tq, Tk) int64
    """
    first, last = layout.offset_range
    first, last = max(first, -clip), min(last, clip)
    rows = slice(first + clip, last + clip + 1)
    return rows, (layout.offsets.clamp(first, last) - first).unsqueeze(1)
