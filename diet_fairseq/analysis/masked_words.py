"""Masked language modelling by input length: loss and accuracy in windows of several lengths.

The text is one stream of subwords, whose masked tokens are drawn once. So all lengths, and all
checkpoints with the same subwords, predict the same words, in windows that differ in length alone.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from ..attention.compressed import Compression
from ..errors import UserError
from ..models.diet_electra import DietElectraModel
from ..text.lines import read_lines
from ..text.tokenizer import tokenizers
from .lengths import Point, Reading
from .loaded_model import LoadedModel, check_known

#: the share of masked tokens, and the seed of their draw
SHARE, SEED = 0.15, 1
#: tokens of a batch, unless one window is longer
BATCH_TOKENS = 4096


def reading(
    name: str, model: LoadedModel, text: Path, lengths: Sequence[int], most: int
) -> Reading:
    """One checkpoint at all lengths, in ascending order.

    Args:
        most: the number of subwords to read

    Raises:
        UserError: the model predicts no words, or the text can't be read or is too short
    """
    words = model.dictionary
    mask = words.index("<mask>")
    if isinstance(model.model, DietElectraModel) or mask == words.unk():
        raise UserError(
            f"{model.path} predicts no masked words (--arch {model.arch}): give a model that was "
            "trained with --task masked_lm, or for translation"
        )
    stream = subwords(model, text, most)
    if len(stream) < lengths[-1] - 1:
        raise UserError(
            f"{text} has {len(stream):,} subwords, which is less than one window of "
            f"{lengths[-1]:,}: give a longer text, or smaller --lengths"
        )
    is_masked = draw_mask(stream, words.eos())
    whole, places = [], []
    for length in tqdm(lengths, desc=name, unit=" lengths", disable=None):
        edges = [0, *(edge for edge in lengths if edge <= length)]
        sums = evaluate(model, stream, is_masked, length, mask) if length <= model.limit else None
        whole.append(point(length, 0, length, sums))
        places += [point(length, *span, sums) for span in pairwise(edges)]
    trained_at = getattr(model.task.cfg, "tokens_per_sample", None)
    return Reading(
        name, model.scheme.removeprefix("encoder: "), int(trained_at) if trained_at else None,
        model.limit, " ".join(lengthening_flags(model.model, lengths[-1])), whole, places,
    )  # fmt: skip


def lengthening_flags(model: torch.nn.Module, positions: int) -> Iterator[str]:
    """The options of a longer model with the same number of compressed keys."""
    yield f"--max-positions {positions}"
    keys = {module.length for module in model.modules() if isinstance(module, Compression)}
    yield from (f"--projection-length {number}" for number in keys)


def subwords(model: LoadedModel, text: Path, most: int) -> Tensor:
    """(n,) int64, n <= most: lines with </s> after each, as fairseq-preprocess stores them."""
    words, (tokenizer, _) = model.dictionary, tokenizers(model.about)
    ids: list[int] = []
    for line in read_lines(text):
        pieces = tokenizer.encode(line)
        if pieces:
            ids += [*(words.index(piece) for piece in pieces), words.eos()]
        if len(ids) >= most:
            break
    stream = torch.tensor(ids[:most], dtype=torch.int64)
    check_known(stream, model, text)
    return stream


def draw_mask(stream: Tensor, eos: int) -> Tensor:
    """(n,) bool: masked tokens, the same in the same stream, without ends of lines."""
    draws = torch.rand(len(stream), generator=torch.Generator().manual_seed(SEED))
    return (draws < SHARE) & stream.ne(eos)


@torch.no_grad()
def evaluate(
    model: LoadedModel, stream: Tensor, is_masked: Tensor, length: int, mask: int
) -> Tensor:
    """(length, 3): at each place the number of masked tokens, the sum of their losses, and hits.

    Windows are <s> and ``length - 1`` tokens of the stream; the rest at its end is not read.
    """
    inside = length - 1
    number = len(stream) // inside
    original = stream[: number * inside].view(number, inside)
    hidden = is_masked[: number * inside].view(number, inside)
    starts = original.new_full((number, 1), model.dictionary.bos())
    original = torch.cat([starts, original], 1)  # (N, T)
    hidden = torch.cat([torch.zeros_like(starts, dtype=torch.bool), hidden], 1)
    sums = torch.zeros(length, 3, dtype=torch.float64)
    for rows in torch.arange(number).split(max(1, BATCH_TOKENS // length)):
        is_hidden, tokens = hidden[rows], original[rows]
        if not is_hidden.any():
            continue
        logits = model.model(tokens.masked_fill(is_hidden, mask), masked_tokens=is_hidden)[
            0
        ]  # (M, V)
        targets = tokens[is_hidden]
        losses = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
        hits = logits.argmax(-1).eq(targets)
        values = torch.stack([torch.ones_like(losses), losses, hits.to(losses)], 1)  # (M, 3)
        sums.index_add_(0, is_hidden.nonzero()[:, 1], values.double())
    return sums


def point(length: int, first: int, last: int, sums: Tensor | None) -> Point:
    """Means over the places first to last - 1; without ``sums`` the model can't read the window."""
    if sums is None:
        return Point(length, first + 1, last, 0, {})
    number, loss, hits = sums[first:last].sum(0).tolist()
    if not number:
        raise UserError(
            f"no token at places {first + 1} to {last} of windows of {length} was masked, there "
            "are so few: give a longer text or more --tokens"
        )
    return Point(
        length, first + 1, last, int(number), {"loss": loss / number, "accuracy": hits / number}
    )
