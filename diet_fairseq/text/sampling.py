"""Multilingual sampling: how often the documents of each language are read.

Text of a language is read in proportion to its size to the power of the smoothing, so that small
languages are seen more often than their share and large ones less: 0.7 in multilingual BERT
(github.com/google-research/bert, multilingual.md); DIET, which names the 100 languages, says
nothing of it.
"""

import random
from collections.abc import Iterator, Mapping, Sequence

SMOOTHING = 0.7


def shares(sizes: Mapping[str, int], smoothing: float) -> dict[str, float]:
    """Language -> its share of the text that is read; ``sizes`` are lines."""
    weights = {name: size**smoothing for name, size in sizes.items() if size}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def copies(
    languages: Sequence[str], sizes: Mapping[str, int], smoothing: float, seed: int = 1
) -> Iterator[int]:
    """How many times each document is read, so that as much is read in all as there is.

    A number of times that is not whole is rounded up or down by chance, always in the same way.

    Args:
        languages: of the documents
        sizes: lines of each language
    """
    draw, total = random.Random(seed), sum(sizes.values())
    times = {name: total * share / sizes[name] for name, share in shares(sizes, smoothing).items()}
    for name in languages:
        whole, part = divmod(times[name], 1)
        yield int(whole) + (draw.random() < part)
