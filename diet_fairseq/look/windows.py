"""Windows of text that a model reads for `look` and `extrapolate`."""

from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from ..text.lines import read_lines
from ..translate.loading import LoadedModel

#: number of windows that `look` reads
WINDOWS = 8


def window_length(models: list[LoadedModel], length: int | None) -> int:
    """The number of tokens in a window: ``length``, or fewer if a model's limit is lower.

    Args:
        length: the requested number; None: 128 for encoders, 64 for translation models
    """
    default = 128 if models[0].is_encoder else 64
    return min(length or default, *(model.max_positions for model in models))


def read_windows(model: LoadedModel, length: int, text: Path | None = None) -> Tensor:
    """(B, T) int64: `WINDOWS` windows of a text or of random words, without padding.

    Raises:
        UserError: the text is shorter than a window, or `read_ids` refuses it
    """
    words = model.task.source_dictionary
    tokens = length - (2 if model.is_encoder else 1)
    if text is None:
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(words.nspecial, len(words), (WINDOWS, tokens), generator=generator)
    else:
        stream = read_ids(model, text, WINDOWS * tokens)
        number = len(stream) // tokens
        if not number:
            raise UserError(
                f"{text} has {len(stream)} subwords, fewer than one window of {tokens}: "
                "give a longer text, or a smaller --length"
            )
        ids = stream[: number * tokens].view(number, tokens)
    ends = ids.new_full((len(ids), 1), words.eos())
    starts = [ids.new_full((len(ids), 1), words.bos())] if model.is_encoder else []
    return torch.cat([*starts, ids, ends], 1)


def read_ids(model: LoadedModel, text: Path, max_ids: int, line_ends: bool = False) -> Tensor:
    """(n,) int64: at most ``max_ids`` subwords of a text.

    Args:
        line_ends: whether </s> follows each line

    Raises:
        UserError: the text can't be read, or more than a third of its subwords are unknown
    """
    words, (tokenizer, _) = model.task.source_dictionary, model.description.tokenizers
    ids: list[int] = []
    for line in read_lines(text):
        subwords = [words.index(piece) for piece in tokenizer.encode(line)]
        ids += [*subwords, words.eos()] if subwords and line_ends else subwords
        if len(ids) >= max_ids:
            break
    if ids.count(words.unk()) > len(ids) / 3:
        raise UserError(
            f"over a third of the subwords of {text} are not in the vocabulary of {model.path}: "
            "give its subword model by --subwords"
        )
    return torch.tensor(ids[:max_ids], dtype=torch.int64)
