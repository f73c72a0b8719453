"""A translation model with more tokens than the checkpoint that it starts from.

The new tokens, such as the tag of a language that is added to a multilingual model, are at the end
of the dictionary. An encoder's dictionary ends in <mask>, so its tokens can't be added there.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

logger = logging.getLogger(__name__)

#: parameters with a row for each token of the source's or target's dictionary
ROWS = {
    "encoder.embed_tokens.weight": "encoder",
    "decoder.embed_tokens.weight": "decoder",
    "decoder.output_projection.weight": "decoder",
}


def grow(model: Any, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint's parameters, with rows for the new tokens of the model's dictionaries.

    New rows are copies of the row of ``--new-rows-from``, or random, with the mean and the standard
    deviation of the old rows in each dimension.

    Raises:
        UserError: the checkpoint has more tokens, or lacks the token to copy
    """
    parameters = dict(checkpoint)
    token = getattr(model.args, "new_rows_from", None)
    changes: dict[str, None] = {}  # each once
    for name, side in ROWS.items():
        dictionary, table = getattr(model, side).dictionary, parameters.get(name)
        if table is None or len(table) == len(dictionary):
            continue
        old, new = len(table), len(dictionary)
        if old > new:
            raise UserError(
                f"--finetune-from-model has {old:,} tokens ({name}), more than the {new:,} of "
                "this model's dictionary: use the checkpoint's dictionary, with new tokens at its "
                "end"
            )
        if token:
            index = dictionary.index(token)
            if index == dictionary.unk() or index >= old:
                raise UserError(
                    f"--new-rows-from must be a token that --finetune-from-model has, but is "
                    f"{token}: give another one, or leave it out"
                )
            rows = table[index].expand(new - old, -1)
        else:
            draw = torch.Generator().manual_seed(1)  # the same in every process and tied table
            noise = torch.randn(new - old, table.size(1), generator=draw)
            rows = table.float().mean(0) + noise.to(table.device) * table.float().std(0)
        parameters[name] = torch.cat([table, rows.to(table.dtype)])
        changes[f"{old:,} to {new:,} tokens, from {dictionary[old]} on"] = None
    if changes:
        origin = f"copies of {token}" if token else "random, with mean and spread of the others"
        logger.info("the dictionary grows from %s; new rows are %s", "; ".join(changes), origin)
    return parameters
