"""Raw text to what fairseq-train reads, in stages that can be interrupted."""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...errors import UserError
from ..common import programs
from ..common.parallel import CHUNK
from ..common.stages import stage
from ..common.subwords import KINDS, Subwords
from ..common.text import read_lines, write_lines, written
from .documents import Cleaner, Source, held_out, numbered, parted
from .folder import add_folder

SPLITS = ("train", "valid")
#: enough to learn subwords from; bounds the memory that takes
MOST_LINES = 1_000_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="*",
        help="text, gzipped where its name ends in .gz, with blank lines between documents",
    )
    parser.add_argument(
        "--wikitext", metavar="FILE", type=Path, nargs="+", default=[], help="as WikiText has it"
    )
    parser.add_argument(
        "--lines-per-document",
        metavar="N",
        type=int,
        help="a document is so many lines in a FILE without blank lines (all of the file)",
    )
    parser.add_argument("--lower", action="store_true", help="lower-case the text")
    parser.add_argument(
        "--valid-share",
        metavar="SHARE",
        type=float,
        default=1 / 200,
        help="part of the documents to validate with (1/200)",
    )
    parser.add_argument("--bpe", choices=KINDS, default="sentencepiece", help="kind of subwords")
    parser.add_argument("--vocabulary", type=int, default=32_768, help="subwords (%(default)s)")
    parser.add_argument(
        "--language", default="en", help="whose words --bpe subword-nmt parts (%(default)s)"
    )
    parser.add_argument(
        "--longest-line",
        metavar="N",
        type=int,
        default=126,
        help="longer lines are parted: a sample of 128 has room for so many subwords (%(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes (the cores: %(default)s)",
    )
    add_folder(parser)


def prepare(args: Namespace) -> None:
    check(args)
    sources = [Source(path, lines_per_document=args.lines_per_document) for path in args.files]
    sources += [Source(path, wikitext=True) for path in args.wikitext]
    folder = args.folder
    clean, split, subwords = folder / "clean", folder / "split", folder / "subwords"
    encoded, binary = folder / "encoded", folder / "data-bin"

    made_from: dict[str, Any] = {"files": list(map(fingerprint, sources)), "lower": args.lower}
    folder.mkdir(parents=True, exist_ok=True)
    stage(clean, made_from, lambda partial: clean_files(partial, sources, args.lower))
    counts = json.loads((clean / "counts.json").read_text(encoding="utf-8"))
    print(report(counts))
    made_from |= {"valid_share": args.valid_share}
    chosen = held_out(counts["documents"], args.valid_share)
    stage(split, made_from, lambda partial: split_documents(partial, clean, chosen))
    kept = json.loads((split / "counts.json").read_text(encoding="utf-8"))
    print(", ".join(f"{kept[name]:,} lines to {name}" for name in SPLITS))

    workers = min(args.workers, 1 + kept["train"] // CHUNK)  # more would have nothing to do
    made_from |= {name: getattr(args, name) for name in ("bpe", "vocabulary", "language")}
    learn = KINDS[args.bpe].learn
    text = {args.language: sample(split / "train", kept["train"])}
    stage(subwords, made_from, lambda partial: learn(partial, text, args.vocabulary, workers))
    made_from |= {"longest_line": args.longest_line}
    model = KINDS[args.bpe](subwords)
    stage(encoded, made_from, lambda partial: encode(partial, split, model, args, workers))
    stage(binary, made_from, lambda partial: binarise(partial, encoded, args.vocabulary, workers))
    with written(folder / "prepared.json") as file:
        json.dump({name: made_from[name] for name in ("bpe", "longest_line")}, file, indent=1)
    print(f"ready: {folder}")


def check(args: Namespace) -> None:
    if not args.files and not args.wikitext:
        raise UserError("there is nothing to prepare: name one or more files of text")
    if not 0 < args.valid_share < 1:
        raise UserError(
            f"--valid-share {args.valid_share} must be between 0 and 1: a part of the documents"
        )
    for name in ("longest_line", "lines_per_document"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value} must be 1 or more")


def fingerprint(source: Source) -> list[Any]:
    """Name, size and time of a file, and how it is read: whether a stage was made from this."""
    try:
        stat = source.path.stat()
    except OSError as error:
        raise UserError(f"{source.path} can't be read: {error.strerror}") from error
    reading = "wikitext" if source.wikitext else source.lines_per_document
    return [source.path.name, stat.st_size, stat.st_mtime_ns, reading]


def clean_files(folder: Path, sources: list[Source], lower: bool) -> None:
    cleaner = Cleaner(lower)
    lines = cleaner(
        tqdm(source.lines(), desc=f"reading {source.path.name}", unit=" lines", disable=None)
        for source in sources
    )
    write_lines(folder / "text", lines)
    if cleaner.counts["documents"] < 2:
        raise UserError(
            "the text is a single document, so there is nothing to validate with: put blank lines "
            "between documents, or give --lines-per-document N"
            if cleaner.counts["kept"]
            else "no line of text is in the files: name others"
        )
    with written(folder / "counts.json") as file:
        json.dump(cleaner.counts, file, indent=1)


def report(counts: dict[str, int]) -> str:
    share = 100 * counts["repeated"] / counts["read"]
    return (
        f"{counts['read']:,} lines, {counts['repeated']:,} of them ({share:.2f}%) left out because "
        f"the same line stood there before; {counts['kept']:,} lines of {counts['words']:,} words "
        f"in {counts['documents']:,} documents"
    )


def split_documents(folder: Path, clean: Path, chosen: set[int]) -> None:
    """Part the documents, and count the lines of each part."""
    counts = dict.fromkeys(SPLITS, 0)
    latest: dict[str, int] = {}
    with ExitStack() as stack:
        files = {name: stack.enter_context(written(folder / name)) for name in SPLITS}
        for document, line in numbered(read_lines(clean / "text")):
            name = "valid" if document in chosen else "train"
            if latest.setdefault(name, document) != document:
                files[name].write("\n")
            latest[name] = document
            files[name].write(line + "\n")
            counts[name] += 1
    with written(folder / "counts.json") as file:
        json.dump(counts, file, indent=1)


def sample(text: Path, lines: int) -> Iterable[str]:
    """The text's lines, evenly thinned where there are more than are needed."""
    return islice(filter(None, read_lines(text)), 0, None, -(-lines // MOST_LINES))


def encode(folder: Path, split: Path, model: Subwords, args: Namespace, workers: int) -> None:
    for name in SPLITS:
        lines = tqdm(
            read_lines(split / name), desc=f"subwords of {name}", unit=" lines", disable=None
        )
        coded = model.encode(lines, args.language, workers)
        write_lines(folder / name, all_parted(coded, args.longest_line, name))


def all_parted(lines: Iterable[str], longest: int, name: str) -> Iterator[str]:
    long = 0
    for line in lines:
        parts = list(parted(line, longest))
        long += len(parts) > 1
        yield from parts
    if long:
        print(f"{name}: {long:,} lines have more than {longest:,} subwords and were parted")


def binarise(folder: Path, encoded: Path, vocabulary: int, workers: int) -> None:
    options: dict[str, Any] = {f"--{name}pref": encoded / name for name in SPLITS}
    # Characters without a subword stand in the text as themselves: only the frequent ones enter.
    options |= {"--nwordssrc": vocabulary, "--destdir": folder, "--workers": workers}
    flat = [value for item in options.items() for value in item]
    command = programs.python("fairseq_cli.preprocess", "--only-source", *flat)
    programs.run(command, folder / "command.log")
