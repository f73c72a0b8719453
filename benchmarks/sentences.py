"""Cost of the split into sentences: ``python -m benchmarks.sentences MODEL TEXT [--pairs 20]``.

TEXT has one sentence per line. Its first 1,000 lines are translated sentence by sentence and whole,
alternating. The printed ratio is the time of the first divided by the time of the second: its
median, with a 95% confidence interval of the median.
"""

import argparse
import itertools
import statistics
from pathlib import Path

from diet_fairseq import Translator
from diet_fairseq.text.lines import read_lines

from .harness import in_turn

LINES = 1000


def median_interval(values: list[float]) -> tuple[float, float]:
    """The 95% confidence interval of the median, from the order of the values (binomial)."""
    import scipy.stats

    ordered, count = sorted(values), len(values)
    rank = int(scipy.stats.binom.ppf(0.025, count, 0.5))
    return ordered[max(0, rank - 1)], ordered[min(count, count - rank + 1) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    translator = Translator(args.model, threads=1)
    lines = list(itertools.islice(read_lines(args.text), LINES))
    results: dict[bool, list[str]] = {}

    def translate(is_split: bool) -> None:
        results[is_split] = translator.translate(lines, split_sentences=is_split)

    whole, split = in_turn(
        {"whole": lambda: translate(False), "sentences": lambda: translate(True)}, args.pairs
    )
    differing = sum(a != b for a, b in zip(results[True], results[False], strict=True))
    ratios = [1 / ratio for ratio in split.ratios]
    low, high = median_interval(ratios)
    print(
        f"{len(lines)} lines, {differing} of which have several sentences: whole {whole.median:.2f}"
        f" CPU s, sentence by sentence {split.median:.2f}; ratio {statistics.median(ratios):.4f} "
        f"({low:.4f} to {high:.4f})"
    )


if __name__ == "__main__":
    main()
