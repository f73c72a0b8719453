"""Shaw et al. (2018): an embedding for each clipped offset, added to keys and optionally values."""

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

    ``keys`` and, with ``--position-values``, ``values`` are (H, 2k + 1, d_h). Multiplied by the
    gain they are a^K and a^V, with Xavier initialization; row r belongs to the offset j - i =
    r - k. By default k = 16, the gain is 1, and all heads of a layer share one table, as in
    tensor2tensor. Unlike the scalars of DIET and T5, the term is divided by sqrt(d_h), like q.
    """

    sharing = "head"
    has_offset_rows = True
    offset_axes: ClassVar[dict[str, int]] = {"keys": 1, "values": 1}
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
        return self._rows(self.keys, layout)

    def value_rows(self, layout: Layout) -> Rows | None:
        return None if self.values is None else self._rows(self.values, layout)

    def _rows(self, table: Tensor, layout: Layout) -> Rows:
        offsets, index = index_offsets(layout, self.clip)
        rows = table[:, offsets.start + self.clip : offsets.stop + self.clip]  # (H|1, R, d_h)
        return Rows(self.amplify(rows), index, low=offsets.start)


def index_offsets(layout: Layout, clip: int | None = None) -> tuple[range, Tensor]:
    """The clipped offsets of a layout, and for each pair the index of its offset.

    Args:
        layout: the positions of queries and keys; masked later keys have the offset of the last
            visible key
        clip: the largest offset; None: no clipping

    Returns:
        the range of offsets j - i, and the indices (B|1, 1, Tq, Tk) int64
    """
    first, last = layout.visible_offsets
    if clip is not None:
        first, last = max(first, -clip), min(last, clip)
    return range(first, last + 1), (layout.offsets.clamp(first, last) - first).unsqueeze(1)
