"""A corpus, how it is trained and translated, and where each setting comes from.

DIET (appendix A) names the data, Adam, 6 layers, 250k updates, beam 10 and length penalty 0.6; for
all else it says that it follows Vaswani et al. 2017, whose sections are named here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Recipe:
    """How a corpus is trained: by default as in the paper, or Vaswani's where it is silent."""

    size: str = "base"  # DIET: 6 layers; Vaswani 3: 512 / 2048, 8 heads
    updates: int = 250_000  # DIET, appendix A
    batch: int = 25_000  # Vaswani 5.1: "approximately 25000 source tokens and 25000 target tokens"
    peak_rate: float = 0.000699  # Vaswani 5.3: 512^-0.5 * warmup^-0.5, reached at the warm-up's end
    warmup: int = 4000  # Vaswani 5.3
    dropout: float | None = 0.1  # Vaswani 5.4; None: the architecture's
    save_every: int = 2500
    keep: int = 5  # checkpoints to average; Vaswani 6.1: the last 5


@dataclass(frozen=True)
class Search:
    """How translations are searched, and how many checkpoints are averaged."""

    beam: int = 10  # DIET, appendix A
    alpha: float = 0.6  # DIET, appendix A
    penalty: str = "tensor2tensor"  # what DIET used
    average: int = 5  # Vaswani 6.1, base models


@dataclass(frozen=True)
class Corpus:
    """A corpus and its defaults."""

    name: str
    # (folder to fill with the files named below, folder for archives, pair of languages)
    download: Callable[[Path, Path, tuple[str, str]], None]
    files: dict[str, str]  # split -> pattern of file names, without .LANGUAGE[.gz]
    vocabulary: int
    recipe: Recipe = field(default_factory=Recipe)
    search: Search = field(default_factory=Search)
    test_set: str | None = None  # sacreBLEU's name of it
    pairs: tuple[tuple[str, str], ...] = ()  # what it can be downloaded for
