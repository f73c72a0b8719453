"""What fairseq's masked language modelling needs to do what its options say.

Each item says when it can go. Masking itself is fairseq's ``MaskTokensDataset``.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from ..errors import UserError

#: What SentencePiece puts before the first subword of a word.
WORD = "\u2581"


def word_starts(_: Any, dictionary: Dictionary) -> Tensor:
    """(V,) uint8: 1 for subwords that begin a word, and for special tokens."""
    starts = [
        number < dictionary.nspecial or symbol.startswith((WORD, "madeupword"))
        for number, symbol in enumerate(dictionary.symbols)
    ]
    if not any(symbol.startswith(WORD) for symbol in dictionary.symbols):
        raise UserError(
            f"--mask-whole-words needs SentencePiece's subwords: no symbol of dict.txt begins with "
            f"{WORD}, which begins a word; prepare the text with --bpe sentencepiece, or leave "
            "--mask-whole-words out"
        )
    return torch.tensor(starts, dtype=torch.uint8)


def fresh_workers(init: Callable) -> Callable:
    """Have new processes fetch every epoch's batches.

    fairseq keeps those of the first epoch, whose copy of the data never hears of another one:
    with ``--num-workers`` 1, its default, dynamic masking masks the same tokens in every epoch.
    """

    @wraps(init)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "persistent_workers": False})

    return wrapper
