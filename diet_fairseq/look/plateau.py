"""The plateau of encoders that predict masked words by the words' frequencies alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files import open_text

#: Nats by which the held-out loss must be below the entropy of the words' frequencies. On two texts
#: this margin separates runs on the plateau from runs that have left it: docs/results.md, "The
#: warning about the plateau", has the losses of 143 runs.
MARGIN = 0.4


def word_entropy(dictionary: Path) -> float | None:
    """The entropy of the words' frequencies in nats: sum over words of -p log p.

    A word's frequency p is its share of the counts in fairseq's ``dict.txt``, which
    ``fairseq-preprocess`` takes from the training text. This is an approximation of the loss on
    the plateau: the file has no counts of <s> and </s>, which are masked, too (with one </s> per
    line the entropy of two texts was lower by 0.04 and 0.09 nats); the held-out text may have other
    frequencies; and the model sees some of the words that it predicts (``--leave-unmasked-prob``).

    Returns:
        None if the counts are not frequencies: a count is missing, or all counts that are not 0 are
        equal, as in dictionaries that were made from a list of subwords
    """
    counts = []
    with open_text(dictionary) as file:
        for line in file:
            count = line.rstrip().removesuffix(" #fairseq:overwrite").rpartition(" ")[2]
            if not count.isdecimal():
                return None
            counts.append(int(count))
    total = sum(counts)
    if len({*counts} - {0}) < 2:
        return None
    return -sum(count / total * math.log(count / total) for count in counts if count)


def can_show_plateau(update: int, updates: int) -> bool:
    """Whether a fifth of the updates is done; False if their number ``updates`` is 0, unknown."""
    return 0 < updates <= 5 * update


def describe_plateau(
    loss: float, entropy: float, update: int, updates: int, positions: Mapping[str, Any]
) -> str:
    """A warning if an encoder has not left the plateau, otherwise "".

    Args:
        loss: held-out loss of masked words, in nats
        entropy: see `word_entropy`
        update: number of updates before the loss was measured, see `can_show_plateau`
        updates: number of updates of the whole training
        positions: ``scheme`` and, if the scheme has these options, ``start`` and ``peak``
    """
    has_left = not loss > entropy - MARGIN  # also if the loss is NaN
    if has_left or positions.get("scheme") == "none":
        return ""
    advice = ["lower the learning rate", "lengthen the warm-up"]
    if positions.get("start") == "blind":
        advice.insert(0, "use --position-start local")
    elif positions.get("peak"):
        advice.insert(0, f"raise --position-peak above {float(positions['peak']):g}")
    return (
        f"positions have not been learned: after {update:,} of {updates:,} updates the held-out "
        f"loss must be at least {MARGIN} nats below the entropy of the words' frequencies, "
        f"{entropy:.2f} nats, but is {loss:.2f}: {', '.join(advice[:-1])} or {advice[-1]}"
    )
