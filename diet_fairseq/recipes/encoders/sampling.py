"""How often the documents of each of many languages are read.

Text of a language is read in proportion to its size to the power of the smoothing, so that small
languages are seen more often than their share and large ones less: 0.7 in multilingual BERT
(github.com/google-research/bert, multilingual.md); DIET, which names the 100 languages, says
nothing of it.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import UserError
from .documents import Source

SMOOTHING = 0.7


def sources_of(folder: Path, lines_per_document: int | None) -> dict[str, list[Source]]:
    """Language -> its text: a file ``de.txt`` or ``de.gz``, or all files of a folder ``de``."""
    try:
        entries = sorted(one for one in folder.iterdir() if not one.name.startswith("."))
    except OSError as error:
        raise UserError(f"--languages {folder} can't be read: {error.strerror}") from error
    found: dict[str, list[Source]] = {}
    for entry in entries:
        files = sorted(p for p in entry.rglob("*") if p.is_file()) if entry.is_dir() else [entry]
        name = entry.name.partition(".")[0]
        sources = [Source(path, lines_per_document=lines_per_document) for path in files]
        found.setdefault(name, []).extend(sources)
    found = {name: sources for name, sources in found.items() if sources}
    if len(found) < 2:
        raise UserError(
            f"--languages {folder} has {len(found)} languages: put two or more texts there, called "
            "LANGUAGE.txt, or folders of them"
        )
    return found


def shares(sizes: Mapping[str, int], smoothing: float) -> dict[str, float]:
    """Language -> the share of what is read that is its text; ``sizes`` are lines."""
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
