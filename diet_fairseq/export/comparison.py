"""Comparison of a model with its export or import, on random sentences."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..errors import UserError

#: the same output of the new model and of the original model
Pair = tuple[Tensor, Tensor]


def random_sentences(
    words: Tensor, lengths: Iterable[int], draw: torch.Generator, end: Sequence[int] = ()
) -> list[Tensor]:
    """(T,) int64 each: sentences of these numbers of ``words`` (V,), which end in ``end``."""
    indices = [torch.randint(len(words), (length,), generator=draw) for length in lengths]
    return [torch.cat([words[index], torch.tensor(end, dtype=torch.int64)]) for index in indices]


def compare(pairs: Iterable[Pair]) -> tuple[float, float]:
    """The largest difference of outputs relative to their scale, and this scale.

    The scale is the original model's largest output, and at least 1.
    """
    measured = [((new - old).abs().max(), old.abs().max().clamp(min=1)) for new, old in pairs]
    differences, scales = map(torch.stack, zip(*measured, strict=True))
    worst = (differences / scales).argmax()  # the first NaN, if there is one
    return float(differences[worst]), float(scales[worst])


def refuse_differences(pairs: Iterable[Pair], tolerance: float, fault: str, advice: str) -> None:
    """Refuse outputs that differ by more than ``tolerance``, relative to their scale."""
    difference, scale = compare(pairs)
    if not difference <= tolerance * scale:
        raise UserError(f"{fault} (outputs differ by {difference:.2g}): {advice}")
