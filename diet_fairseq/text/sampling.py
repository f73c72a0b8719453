"""Multilingual sampling: number of times that documents of each language are read.

A language's share is proportional to its size to the power of the smoothing, which raises that of
small languages: 0.7 in multilingual BERT (github.com/google-research/bert, multilingual.md). DIET,
which names the 100 languages, states no smoothing.
"""

import random
from collections.abc import Iterator, Mapping, Sequence

SMOOTHING = 0.7


def copies(
    languages: Sequence[str], sizes: Mapping[str, int], smoothing: float, seed: int = 1
) -> Iterator[int]:
    """The number of times that each document is read; the total size stays the same.

    Fractions are rounded up or down at random, with a fixed seed.

    Args:
        languages: the language of each document
        sizes: number of lines of each language
    """
    draw = random.Random(seed)
    scale = sum(sizes.values()) / sum(size**smoothing for size in sizes.values())
    for name in languages:
        whole, part = divmod(scale * sizes[name] ** (smoothing - 1), 1)
        yield int(whole) + (draw.random() < part)
