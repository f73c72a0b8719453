"""Clean the training text and normalise the white space of the validation text."""

import hashlib
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.languages import count_words, find_language_and_script
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.whitespace import normalise
from diet_fairseq.translate.service.detection import has_detection_library, load_identifier

#: reasons for dropping a pair, in the order of the checks: a side without visible text; more
#: words or characters than allowed on one side; many more words on one side; a side in another
#: language, if languages are checked; the same as an earlier pair
REASONS = ("blank", "long", "ratio", "language", "duplicate")
#: what to do about many dropped pairs, by their reason
ADVICE = {
    "blank": "check that line n of one file translates line n of the other",
    "long": "raise max_words and max_characters, or split long lines",
    "ratio": "raise max_ratio, or check that line n of one file translates line n of the other",
    "language": "check that the files are in the languages of the config",
    "duplicate": "nothing to do if the text repeats itself",
}
#: share of dropped pairs from which on there is a warning
MAX_DROPPED_SHARE = 0.2
#: a line is in another language if that language is more than so many times as probable. This
#: keeps all pairs of examples/demo, and finds 94% of their lines with the other language's name
MIN_ODDS = 100
#: py3langid's label of text without words, such as "123"
NO_WORDS = "zxx"


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


@cache
def find_labels(language: str) -> set[str]:
    """py3langid's codes of a language, which it does not tell apart by script and region.

    Raises:
        UserError: py3langid is not installed, or does not know the language
    """
    if not has_detection_library():
        raise UserError("check_languages needs the library py3langid: install diet_fairseq[detect]")
    code = find_language_and_script(language)
    labels = {
        label
        for label in load_identifier().labels
        if code and (other := find_language_and_script(label)) and other[0] == code[0]
    }
    if not labels:
        raise UserError(
            f"check_languages needs languages that py3langid knows, but it does not know {language}"
            ": set check_languages to false"
        )
    return labels


def is_other_language(line: str, language: str) -> bool:
    """Whether another language is much more probable for a line."""
    labels, own, other = find_labels(language), 0.0, 0.0
    for label, probability in load_identifier().rank(line):
        if label in labels:
            own += probability
        elif label != NO_WORDS:
            other = max(other, probability)
    return other > MIN_ODDS * own


def fault(source: str, target: str, rules: Namespace) -> str | None:
    """The reason for dropping a normalised pair, apart from its repetition."""
    if not is_visible(source) or not is_visible(target):
        return "blank"
    lengths = [max(1, count_words(side)) for side in (source, target)]
    if max(lengths) > rules.max_words or max(len(source), len(target)) > rules.max_characters:
        return "long"
    if max(lengths) > rules.max_ratio * min(lengths):
        return "ratio"
    if rules.check_languages and any(map(is_other_language, (source, target), rules.languages)):
        return "language"
    return None


def clean(
    sources: Iterable[tuple[Iterable[tuple[str, str]], int]],
    rules: Namespace,
    counts: Counter[str],
) -> Iterator[tuple[str, str]]:
    """The pairs that are fit for training, normalised; ``counts`` is updated.

    Args:
        sources: pairs, and how often each of them is yielded
    """
    # 16 bytes for a pair of any length: 130 MB for a million. The chance that two different pairs
    # of ten million share a digest is 1e-25.
    digests: set[bytes] = set()
    reasons = [name for name in REASONS if name != "language" or rules.check_languages]
    counts.update(dict.fromkeys(["read", *reasons, "kept"], 0))
    for pairs, times in sources:
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
                yield from [(source, target)] * times
                if times > 1:
                    counts["repeated"] += times - 1


def write_pairs(pairs: Iterable[tuple[str, str]], outputs: list[Path]) -> None:
    """Line n of the one file belongs to line n of the other."""
    with atomic_file(outputs[0]) as source_file, atomic_file(outputs[1]) as target_file:
        for source, target in pairs:
            source_file.write(source + "\n")
            target_file.write(target + "\n")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for train.LANG and valid.LANG")
    parser.add_argument("--languages", nargs=2, required=True)
    parser.add_argument("--train", nargs="+", type=Path, required=True, help="pairs of files")
    parser.add_argument(
        "--repeat", nargs="+", type=int, help="for each pair of files: how often its text is used"
    )
    parser.add_argument("--valid", nargs=2, type=Path, required=True)
    parser.add_argument("--max-words", type=int, required=True)
    parser.add_argument("--max-characters", type=int, required=True)
    parser.add_argument("--max-ratio", type=float, required=True)
    parser.add_argument(
        "--check-languages", action="store_true", help="remove pairs in other languages"
    )
    args = parser.parse_args()

    if args.check_languages:
        for language in args.languages:
            find_labels(language)  # refuses a language before it reads any text
    times = args.repeat or [1] * (len(args.train) // 2)
    files = zip(args.train[::2], args.train[1::2], times, strict=True)
    train = ((read_pairs(source, target), number) for source, target, number in files)
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
