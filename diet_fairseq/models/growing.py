"""A model with more tokens than the checkpoint that it starts from.

The new tokens, such as the tag of a language that is added to a multilingual model, are at the end
of the dictionary. Tasks that mask words add <mask> after the dictionary's tokens, so its row moves
to the new end.
"""

import logging
import re
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError

logger = logging.getLogger(__name__)

MASK = "<mask>"
#: names of parameters with a row for each token of a dictionary
ROWS = re.compile(
    r"(encoder|decoder|generator)\.(\w+\.)?"
    r"(embed_tokens\.weight|embed_out|output_projection\.(weight|bias)|lm_head\.(weight|bias))"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--new-rows-from",
        metavar="TOKEN",
        help="with --finetune-from-model: token whose embedding initialises the embeddings of "
        "new tokens (default: random, with the mean and spread of the other embeddings)",
    )


def grow(model: Any, checkpoint: Mapping[str, Tensor], ends_in_mask: bool) -> dict[str, Tensor]:
    """The checkpoint's parameters, with rows for the new tokens of the model's dictionaries.

    New rows are copies of the row of ``--new-rows-from``, or random, with the mean and the standard
    deviation of the old rows in each dimension.

    Args:
        ends_in_mask: whether <mask> is the last token of the checkpoint's dictionaries

    Raises:
        UserError: the checkpoint has more tokens, or lacks the token to copy
    """
    parameters = dict(checkpoint)
    token = getattr(model.args, "new_rows_from", None)
    changes: dict[str, None] = {}  # without duplicates
    for name, table in checkpoint.items():
        if not ROWS.fullmatch(name):
            continue
        stack = model.decoder if name.startswith("decoder.") else model.encoder
        dictionary = stack.dictionary
        old, new = len(table), len(dictionary)
        if old == new:
            continue
        if old > new:
            raise UserError(
                f"--finetune-from-model has {old:,} tokens ({name}), more than the {new:,} of "
                "this model's dictionary: use the checkpoint's dictionary, with new tokens at its "
                "end"
            )
        # number of rows that stay in front; the others move to the end
        front = old - (ends_in_mask and dictionary.index(MASK) == new - 1)
        if token:
            index = dictionary.index(token)
            if index == dictionary.unk() or index >= front:
                raise UserError(
                    f"--new-rows-from must be a token that --finetune-from-model has, but is "
                    f"{token}: give another token, or leave it out"
                )
            rows = table[[index] * (new - old)]
        else:
            generator = torch.Generator().manual_seed(1)  # equal in every process and tied table
            noise = torch.randn(new - old, *table.shape[1:], generator=generator)
            rows = table.float().mean(0) + noise.to(table.device) * table.float().std(0)
        parameters[name] = torch.cat([table[:front], rows.to(table.dtype), table[front:]])
        changes[f"{old:,} to {new:,} tokens, from {dictionary[front]} on"] = None
    if changes:
        origin = f"copies of {token}" if token else "random, with mean and spread of the others"
        logger.info("the dictionary grows from %s; new rows are %s", "; ".join(changes), origin)
    return parameters
