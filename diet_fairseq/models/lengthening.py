"""Extension of position tables for a model with more positions than its checkpoint.

Every position table is extended by repeating its rows from position 1 on. All scores within the
checkpoint's length stay equal, bit for bit, and two neighbouring new positions have the score of
two old positions, so a head that looks at the next token still does. Position 0 is not repeated,
because its row is specific to the beginning of a text ([CLS]). The drawback: a score also repeats
at the period, and it is wrong where one copy ends and the next copy begins, which training
corrects. Interpolation would change every score and stretch each head's preferred offset
(results/lengths/lengthened-rows.csv).

A table of offsets is extended with copies of its outer rows, which already served all offsets
beyond the table, so no score changes.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)


def lengthen(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint's parameters, with tables lengthened to the model's lengths.

    A position table that is as long as the model's or longer is not changed; an offset table with
    a larger reach loses its outer rows.
    """
    model_state, parameters = model.state_dict(), dict(checkpoint)
    lengths: dict[str, None] = {}  # in order, without duplicates
    reaches: dict[str, None] = {}  # in order, without duplicates
    for name, module, axes in listed_parameters(model, "position_axes"):
        table, first = parameters.get(name), getattr(module, "first_row", 0)
        if table is None or table.dim() != model_state[name].dim():
            continue
        for axis in axes:
            old, new = table.size(axis) - first, model_state[name].size(axis) - first
            if 1 <= old < new:
                parameters[name] = table = continue_table(table, new - old, axis, first)
                lengths[f"{old:,} to {new:,}"] = None
    for name, _, axis in listed_parameters(model, "offset_axes"):
        table = parameters.get(name)
        if table is None or table.dim() != model_state[name].dim() or table.size(axis) % 2 == 0:
            continue
        old, new = table.size(axis) // 2, model_state[name].size(axis) // 2
        if old != new:
            parameters[name] = change_reach(table, new, axis)
            reaches[f"{old:,} to {new:,}"] = None
    for changes, message in (
        (reaches, "changing the reach of offset tables from %s: outer rows are repeated"
         " or dropped"),
        (lengths, "lengthening position tables from %s: rows are repeated from position 1 on"),
    ):  # fmt: skip
        if changes:
            logger.info(message, " and from ".join(changes))
    return parameters


def listed_parameters(model: nn.Module, attribute: str) -> Iterator[tuple[str, nn.Module, Any]]:
    """Names of the parameters that modules list in an attribute, the module, and the entry.

    The attributes are "position_axes" and "offset_axes", as in `PositionScheme`.
    """
    names = model.state_dict().keys()
    for place, module in model.named_modules():
        for parameter, entry in getattr(module, attribute, {}).items():
            if f"{place}.{parameter}" in names:  # the schemes of cross-attention have more
                yield f"{place}.{parameter}", module, entry


def change_reach(table: Tensor, reach: int, axis: int) -> Tensor:
    """The table with rows for the offsets -reach to reach; outer rows are repeated or dropped."""
    outermost = table.size(axis) // 2
    offsets = torch.arange(-reach, reach + 1, device=table.device)
    return table.index_select(axis, offsets.clamp(-outermost, outermost) + outermost)


def continue_table(table: Tensor, count: int, axis: int, first: int) -> Tensor:
    """The table with ``count`` more positions along the axis; position 0 has row ``first``."""
    positions = table.size(axis) - first
    start = min(1, positions - 1)  # 0 in a table of one position
    rows = first + start + torch.arange(count, device=table.device) % (positions - start)
    return torch.cat([table, table.index_select(axis, rows)], axis)
