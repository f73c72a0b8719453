"""An encoder's quality by length: loss and accuracy of masked tokens, windows of several lengths.

The text is one stream of subwords, and which of them are masked is drawn once: so at all lengths,
and for all checkpoints with the same subwords, the same words are to be found, in windows that
differ in nothing but their length.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from ..attention.compressed import Compression
from ..errors import UserError
from ..models.diet_electra import DietElectraModel
from ..text.lines import read_lines
from ..text.tokenizer import tokenizers
from .lengths import Point, Reading
from .loaded_model import Trained, check_known

#: the share of tokens that is masked, and the seed by which they are drawn
SHARE, SEED = 0.15, 1
#: tokens that are read at once, where one window is not longer
AT_ONCE = 4096


def reading(name: str, model: Trained, text: Path, lengths: Sequence[int], most: int) -> Reading:
    """One checkpoint at all lengths, in ascending order.

    Args:
        most: so many subwords of the text are read

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
    chosen = masked(stream, words.eos())
    whole, places = [], []
    for length in lengths:
        parts = [0, *(one for one in lengths if one <= length)]
        found = read(model, stream, chosen, length, mask) if length <= model.limit else None
        spans = [(0, length), *pairwise(parts)]
        points = [point(length, *span, found) for span in spans]
        whole.append(points[0])
        places += points[1:]
    at = getattr(model.task.cfg, "tokens_per_sample", None)
    return Reading(
        name, model.scheme.removeprefix("encoder: "), int(at) if at else None, model.limit,
        " ".join(longer(model.model, lengths[-1])), whole, places,
    )  # fmt: skip


def longer(model: torch.nn.Module, positions: int) -> Iterator[str]:
    """The options that lengthen the model, which would otherwise have more compressed keys, too."""
    yield f"--max-positions {positions}"
    keys = {one.length for one in model.modules() if isinstance(one, Compression)}
    yield from (f"--projection-length {number}" for number in keys)


def subwords(model: Trained, text: Path, most: int) -> Tensor:
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


def masked(stream: Tensor, eos: int) -> Tensor:
    """(n,) bool: the same tokens for the same stream; none of them ends a line."""
    drawn = torch.rand(len(stream), generator=torch.Generator().manual_seed(SEED))
    return (drawn < SHARE) & stream.ne(eos)


@torch.no_grad()
def read(model: Trained, stream: Tensor, chosen: Tensor, length: int, mask: int) -> Tensor:
    """(length, 3): at each place the masked tokens, the sum of their losses, and the hits.

    Windows are <s> and ``length - 1`` tokens of the stream; what is left at its end is not read.
    """
    inside = length - 1
    number = len(stream) // inside
    original = stream[: number * inside].view(number, inside)
    hidden = chosen[: number * inside].view(number, inside)
    starts = original.new_full((number, 1), model.dictionary.bos())
    original = torch.cat([starts, original], 1)  # (N, T)
    hidden = torch.cat([torch.zeros_like(starts, dtype=torch.bool), hidden], 1)
    sums = torch.zeros(length, 3, dtype=torch.float64)
    for rows in torch.arange(number).split(max(1, AT_ONCE // length)):
        here, tokens = hidden[rows], original[rows]
        if not here.any():
            continue
        logits = model.model(tokens.masked_fill(here, mask), masked_tokens=here)[0]  # (M, V)
        wanted = tokens[here]
        losses = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
        hits = logits.argmax(-1).eq(wanted)
        values = torch.stack([torch.ones_like(losses), losses, hits.to(losses)], 1)  # (M, 3)
        sums.index_add_(0, here.nonzero()[:, 1], values.double())
    return sums


def point(length: int, first: int, last: int, sums: Tensor | None) -> Point:
    """The places first to last - 1 of windows that came to ``sums``; None: they were not read."""
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
