"""Clean the training text and normalise the white space of the validation text."""

import hashlib
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.languages import count_words
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.whitespace import normalise

#: reasons for dropping a pair, in the order of the checks: a side without visible text; more
#: words or characters than allowed on one side; many more words on one side; the same as an earlier
#: pair
REASONS = ("blank", "long", "ratio", "duplicate")
#: what to do about many dropped pairs, by their reason
ADVICE = {
    "blank": "check that line n of one file translates line n of the other",
    "long": "raise max_words and max_characters, or split long lines",
    "ratio": "raise max_ratio, or check that line n of one file translates line n of the other",
    "duplicate": "nothing to do if the text repeats itself",
}
#: share of dropped pairs from which on there is a warning
MAX_DROPPED_SHARE = 0.2


def is_visible(line: str) -> bool:
    """Whether a line has more than spaces and marks such as U+200B, which subwords leave out."""
    return any(char.isprintable() and char != " " for char in line)


def report(counts: Counter[str]) -> str:
    """A table of reasons, numbers and shares of all pairs, and a warning if many are dropped."""
    rows = [
        f"  {name:10}{number:>12,}{number / counts['read']:>8.1%}\n"
        for name, number in counts.items()
    ]
    table = "".join(["pairs to train on:\n", *rows])
    if counts["kept"] > (1 - MAX_DROPPED_SHARE) * counts["read"]:
        return table
    reason = max(REASONS, key=counts.__getitem__)
    return table + (
        f"warning: {1 - counts['kept'] / counts['read']:.0%} of the pairs are dropped, most by the "
        f"rule {reason!r}: {ADVICE[reason]}\n"
    )


def fault(source: str, target: str, rules: Namespace) -> str | None:
    """The reason for dropping a normalised pair, apart from its repetition."""
    if not is_visible(source) or not is_visible(target):
        return "blank"
    lengths = [max(1, count_words(side)) for side in (source, target)]
    if max(lengths) > rules.max_words or max(len(source), len(target)) > rules.max_characters:
        return "long"
    return "ratio" if max(lengths) > rules.max_ratio * min(lengths) else None


def clean(
    pairs: Iterable[tuple[str, str]], rules: Namespace, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """The pairs that are fit for training, normalised; ``counts`` is updated."""
    # 16 bytes for a pair of any length: 130 MB for a million. The chance that two different pairs
    # of ten million share a digest is 1e-25.
    digests: set[bytes] = set()
    counts.update(dict.fromkeys(["read", *REASONS, "kept"], 0))
    for pair in pairs:
        source, target = map(normalise, pair)
        reason = fault(source, target, rules)
        if reason is None:
            # Normalised text holds no newline, so the joined text has one reading only.
            digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
            reason = "duplicate" if digest in digests else None
            digests.add(digest)
        counts.update(["read", reason or "kept"])
        if reason is None:
            yield source, target


def write_pairs(pairs: Iterable[tuple[str, str]], outputs: list[Path]) -> None:
    """Line n of the one file belongs to line n of the other."""
    with atomic_file(outputs[0]) as source_file, atomic_file(outputs[1]) as target_file:
        for source, target in pairs:
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="takes train.LANG and valid.LANG")
    parser.add_argument("--languages", nargs=2, required=True)
    parser.add_argument("--train", nargs="+", type=Path, required=True, help="pairs of files")
    parser.add_argument("--valid", nargs=2, type=Path, required=True)
    parser.add_argument("--max-words", type=int, required=True)
    parser.add_argument("--max-characters", type=int, required=True)
    parser.add_argument("--max-ratio", type=float, required=True)
    args = parser.parse_args()

    files = zip(args.train[::2], args.train[1::2], strict=True)
    train = chain.from_iterable(read_pairs(*pair) for pair in files)
    counts: Counter[str] = Counter()
    write_pairs(clean(train, args, counts), [args.folder / f"train.{k}" for k in args.languages])
    if not counts["kept"]:
        raise UserError(
            f"cleaning keeps no pair to train on: {dict(counts)}; correct the files or the limits"
        )
    valid = ((normalise(source), normalise(target)) for source, target in read_pairs(*args.valid))
    write_pairs(valid, [args.folder / f"valid.{lang}" for lang in args.languages])
    table = report(counts)
    print(table, end="")
    (args.folder / "counts.txt").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
