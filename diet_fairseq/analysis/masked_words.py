"""Masked language modelling by input length: loss and accuracy in windows of several lengths.

The text is one stream of subwords, whose masked tokens are drawn once. So all lengths, and all
checkpoints with the same subwords, predict the same words.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from ..attention.compressed import Compression
from ..errors import UserError
from ..models.diet_electra import DietElectraModel
from .lengths import Curve, Point
from .loaded_model import LoadedModel, read_ids

#: tokens of a batch, unless one window is longer
BATCH_TOKENS = 4096


def measure(
    name: str, model: LoadedModel, text: Path, lengths: Sequence[int], tokens: int
) -> Curve:
    """The quality of a checkpoint at all lengths, in ascending order; ``tokens`` are read."""
    words = model.dictionary
    mask = words.index("<mask>")
    if isinstance(model.model, DietElectraModel) or mask == words.unk():
        raise UserError(
            f"{model.path} predicts no masked words (--arch {model.arch}): give a model that was "
            "trained with --task masked_lm, or for translation"
        )
    stream = read_ids(model, text, tokens, line_ends=True)
    if len(stream) < lengths[-1] - 1:
        raise UserError(
            f"{text} has {len(stream):,} subwords, which is less than one window of "
            f"{lengths[-1]:,}: give a longer text, or smaller --lengths"
        )
    is_masked = draw_mask(stream, words.eos())
    points, places = [], []
    for length in tqdm(lengths, desc=name, unit=" lengths", disable=None):
        edges = [0, *(edge for edge in lengths if edge <= length)]
        sums = evaluate(model, stream, is_masked, length, mask) if length <= model.limit else None
        points.append(mean(length, 0, length, sums))
        places += [mean(length, *span, sums) for span in pairwise(edges)]
    # a longer model keeps the number of compressed keys
    keys = {module.length for module in model.model.modules() if isinstance(module, Compression)}
    flags = [f"--max-positions {lengths[-1]}", *(f"--projection-length {key}" for key in keys)]
    scheme = model.scheme.removeprefix("encoder: ")
    return Curve(name, scheme, model.trained_length, model.limit, " ".join(flags), points, places)


def draw_mask(stream: Tensor, eos: int) -> Tensor:
    """(n,) bool: 15% of the tokens, the same in the same stream, without ends of lines."""
    draws = torch.rand(len(stream), generator=torch.Generator().manual_seed(1))
    return (draws < 0.15) & stream.ne(eos)


@torch.no_grad()
def evaluate(
    model: LoadedModel, stream: Tensor, is_masked: Tensor, length: int, mask: int
) -> Tensor:
    """(length, 3): at each place the number of masked tokens, the sum of their losses, and hits.

    Windows are <s> and ``length - 1`` tokens of the stream, whose rest is not read.
    """
    number = len(stream) // (length - 1)
    windows, hidden = (
        torch.nn.functional.pad(x[: number * (length - 1)].view(number, -1), (1, 0), value=start)
        for x, start in ((stream, model.dictionary.bos()), (is_masked, False))
    )  # (N, T)
    sums = torch.zeros(length, 3, dtype=torch.float64)
    for rows in torch.arange(number).split(max(1, BATCH_TOKENS // length)):
        is_hidden, tokens = hidden[rows], windows[rows]
        if not is_hidden.any():
            continue
        inputs, targets = tokens.masked_fill(is_hidden, mask), tokens[is_hidden]
        logits, _ = model.model(inputs, masked_tokens=is_hidden)  # (M, V)
        losses = cross_entropy(logits.float(), targets, reduction="none")
        hits = logits.argmax(-1).eq(targets)
        values = torch.stack([torch.ones_like(losses), losses, hits.to(losses)], 1)  # (M, 3)
        sums.index_add_(0, is_hidden.nonzero()[:, 1], values.double())
    return sums


def mean(length: int, first: int, last: int, sums: Tensor | None) -> Point:
    """Means over the places first to last - 1; without ``sums`` the model can't read the window."""
    if sums is None:
        return Point(length, first + 1, last, 0, {})
    number, loss, hits = sums[first:last].sum(0).tolist()
    if not number:
        raise UserError(
            f"no token at places {first + 1} to {last} of windows of {length} was masked, there "
            "are so few: give a longer text or more --tokens"
        )
    values = {"loss": loss / number, "accuracy": hits / number}
    return Point(length, first + 1, last, int(number), values)
