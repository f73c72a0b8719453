"""Clean the training text and normalise the white space of the validation text."""

from argparse import ArgumentParser
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.cleaning import Cleaner, Rules, format_counts
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.whitespace import normalise


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
    cleaner = Cleaner(Rules(args.max_words, args.max_characters, args.max_ratio))
    write_pairs(cleaner(train), [args.folder / f"train.{lang}" for lang in args.languages])
    if not cleaner.counts["kept"]:
        raise UserError(f"no pair is left to train on: {dict(cleaner.counts)}")
    valid = ((normalise(source), normalise(target)) for source, target in read_pairs(*args.valid))
    write_pairs(valid, [args.folder / f"valid.{lang}" for lang in args.languages])
    table = f"pairs to train on:\n{format_counts(cleaner.counts)}\n"
    print(table, end="")
    with atomic_file(args.folder / "counts.txt") as counts:
        counts.write(table)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
