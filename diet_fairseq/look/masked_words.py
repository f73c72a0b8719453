"""Masked language modelling by input length: loss and accuracy in windows of several lengths.

The text is one stream of subwords, and its masked tokens are sampled once. So the same words are
predicted at all lengths and by all checkpoints with the same subwords.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from tqdm import tqdm

from ..errors import UserError
from ..translate.loading import LoadedModel
from .lengths import Curve
from .windows import read_ids

METRICS = {"loss": "loss of masked tokens, nats", "accuracy": "accuracy of masked tokens"}
#: number of tokens in a batch, unless one window is longer
BATCH_TOKENS = 4096


def measure_masked_words(
    model: LoadedModel, text: Path, lengths: Sequence[int], tokens: int
) -> Curve:
    """The quality of a checkpoint in windows of all lengths.

    Args:
        lengths: numbers of tokens in a window, ascending
        tokens: number of subwords of the text to read

    Raises:
        UserError: the model does not predict masked words, or the text is shorter than a window
    """
    words = model.task.source_dictionary
    mask = words.index("<mask>")
    if getattr(model.model.encoder, "lm_head", None) is None or mask == words.unk():
        raise UserError(
            f"{model.path} predicts no masked words: give a model that was trained with --task "
            "masked_lm, and without --no-lm-head"
        )
    stream = read_ids(model, text, tokens, line_ends=True)
    if len(stream) < lengths[-1] - 1:
        raise UserError(
            f"{text} has {len(stream):,} subwords, fewer than one window of "
            f"{lengths[-1]:,}: give a longer text, or smaller --lengths"
        )
    is_masked = draw_mask(stream, words.eos())
    trained_at = getattr(model.task.cfg, "tokens_per_sample", None)
    curve = Curve(str(model.path), model.scheme, model.max_positions, {}, trained_at)
    for length in tqdm(lengths, desc=curve.name, unit=" lengths", disable=None):
        curve.points[str(length)] = {}
        if length <= model.max_positions:
            curve.points[str(length)] = evaluate(model, stream, is_masked, length, mask)
    return curve


def draw_mask(stream: Tensor, eos: int) -> Tensor:
    """(n,) bool: 15% of the tokens, without line ends; always the same tokens of a stream."""
    draws = torch.rand(len(stream), generator=torch.Generator().manual_seed(1))
    return (draws < 0.15) & stream.ne(eos)


@torch.no_grad()
def evaluate(
    model: LoadedModel, stream: Tensor, is_masked: Tensor, length: int, mask: int
) -> dict[str, float]:
    """The number of masked tokens, their mean loss in nats, and the accuracy.

    Windows are <s> and ``length - 1`` tokens of the stream. An incomplete last window is not read.
    """
    number = len(stream) // (length - 1)
    windows, hidden = (
        pad(x[: number * (length - 1)].view(number, -1), (1, 0), value=start)
        for x, start in ((stream, model.task.source_dictionary.bos()), (is_masked, False))
    )  # (N, T)
    sums = torch.zeros(3, dtype=torch.float64)
    batch = max(1, BATCH_TOKENS // length)
    for tokens, is_hidden in zip(windows.split(batch), hidden.split(batch), strict=True):
        if is_hidden.any():
            inputs, targets = tokens.masked_fill(is_hidden, mask), tokens[is_hidden]
            logits, _ = model.model(inputs, masked_tokens=is_hidden)  # (M, V)
            losses = cross_entropy(logits.float(), targets, reduction="sum")
            hits = logits.argmax(-1).eq(targets).sum()
            sums += torch.tensor([len(targets), losses, hits], dtype=torch.float64)
    loss, accuracy = (sums[1:] / sums[0]).tolist()
    return {"masked tokens": int(sums[0]), "loss": loss, "accuracy": accuracy}
