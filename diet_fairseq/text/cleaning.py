"""Cleaning of parallel text: rules that drop pairs unfit for training."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .whitespace import normalise

#: reasons for dropping a pair, in the order of the checks
REASONS = {
    "blank": "an empty side",
    "long": "more words or characters than allowed on one side",
    "ratio": "many more words on one side than on the other",
    "duplicate": "the same as an earlier pair",
}


@dataclass(frozen=True)
class Rules:
    """The limits for a pair; words are separated by spaces."""

    max_words: int = 250  # as fairseq's prepare-wmt14en2de.sh
    max_characters: int = 2500  # for text without spaces: 250 words of 10
    max_ratio: float = 3.0

    def fault(self, source: str, target: str) -> str | None:
        """The reason for dropping the normalised pair, if there is one."""
        if not source or not target:
            return "blank"
        lengths = source.count(" ") + 1, target.count(" ") + 1
        if max(lengths) > self.max_words or max(len(source), len(target)) > self.max_characters:
            return "long"
        if max(lengths) > self.max_ratio * min(lengths):
            return "ratio"
        return None


class Cleaner:
    """Filters pairs, normalises white space, and counts ``read``, ``kept`` and each reason."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.counts = Counter(dict.fromkeys(["read", *REASONS, "kept"], 0))
        # 16 bytes for a pair of any length: 130 MB for a million. The chance that two different
        # pairs of ten million share a digest is 1e-25.
        self._digests: set[bytes] = set()

    def __call__(self, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for raw_source, raw_target in pairs:
            source, target = normalise(raw_source), normalise(raw_target)
            fault = self.rules.fault(source, target) or self._duplicate(source, target)
            self.counts["read"] += 1
            self.counts[fault or "kept"] += 1
            if not fault:
                yield source, target

    def _duplicate(self, source: str, target: str) -> str | None:
        # Normalised text holds no newline, so the joined text has one reading only.
        digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
        if digest in self._digests:
            return "duplicate"
        self._digests.add(digest)
        return None


def format_counts(counts: dict[str, int]) -> str:
    """The counts, one line each, with their shares of the pairs read."""
    rows = []
    for name, count in counts.items():
        share = 100 * count / max(1, counts["read"])
        rows.append(f"  {name:10}{count:>12,}{share:8.2f}%  {REASONS.get(name, '')}".rstrip())
    return "\n".join(rows)
