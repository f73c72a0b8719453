"""Raw text to what fairseq-train reads, in stages that can be interrupted."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ..common import programs
from ..common.options import add_workers, at_least
from ..common.parallel import enough
from ..common.stages import Stage, run_all
from ..common.subwords import KINDS, thinned
from ..common.text import read_lines, write_lines
from .documents import Cleaner, Source, held_out, numbered, parted
from .folder import add_folder

SPLITS = ("train", "valid")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="*",
        help="text file, or .gz, with blank lines between documents",
    )
    parser.add_argument(
        "--wikitext",
        metavar="FILE",
        type=Path,
        nargs="+",
        default=[],
        help="text in WikiText's format",
    )
    parser.add_argument(
        "--lines-per-document",
        metavar="N",
        type=at_least(1),
        help="length of a document in a FILE without blank lines (the whole file)",
    )
    parser.add_argument("--lower", action="store_true", help="lower-case the text")
    parser.add_argument(
        "--valid-share",
        metavar="SHARE",
        type=float,
        default=1 / 200,
        help="share of the documents held out for validation (1/200)",
    )
    parser.add_argument("--bpe", choices=KINDS, default="sentencepiece", help="kind of subwords")
    parser.add_argument(
        "--vocabulary", type=at_least(1), default=32_768, help="subwords (%(default)s)"
    )
    parser.add_argument(
        "--language",
        default="en",
        help="language of the text, for the tokenizer of --bpe subword-nmt (%(default)s)",
    )
    parser.add_argument(
        "--longest-line",
        metavar="N",
        type=at_least(1),
        default=126,
        help="split longer lines, so that they fit into a sample of 128 subwords (%(default)s)",
    )
    add_workers(parser)
    add_folder(parser)


def prepare(args: Namespace) -> None:
    check(args)
    sources = [Source(path, lines_per_document=args.lines_per_document) for path in args.files]
    sources += [Source(path, wikitext=True) for path in args.wikitext]
    text = Text(
        folder=args.folder,
        sources=sources,
        lower=args.lower,
        valid_share=args.valid_share,
        bpe=args.bpe,
        vocabulary=args.vocabulary,
        language=args.language,
        longest_line=args.longest_line,
        most_workers=args.workers,
    )
    run_all(args.folder, text.stages())
    with written(args.folder / "prepared.json") as file:
        json.dump({"bpe": args.bpe, "longest_line": args.longest_line}, file, indent=1)
    print(f"ready: {args.folder}")


def check(args: Namespace) -> None:
    if not args.files and not args.wikitext:
        raise UserError("there is nothing to prepare: name one or more files of text")
    if not 0 < args.valid_share < 1:
        raise UserError(
            f"--valid-share {args.valid_share} must be between 0 and 1: a part of the documents"
        )


@dataclass(frozen=True)
class Text:
    """Text on its way from raw files to what fairseq-train reads."""

    folder: Path
    sources: list[Source]
    lower: bool
    valid_share: float
    bpe: str
    vocabulary: int
    language: str
    longest_line: int
    most_workers: int

    def stages(self) -> list[Stage]:
        files = [source.fingerprint() for source in self.sources]
        subwords = {"bpe": self.bpe, "vocabulary": self.vocabulary, "language": self.language}
        return [
            Stage("clean", {"files": files, "lower": self.lower}, self.clean, self.report_cleaned),
            Stage("split", {"valid_share": self.valid_share}, self.split, self.report_split),
            Stage("subwords", subwords, self.learn),
            Stage("encoded", {"longest_line": self.longest_line}, self.encode),
            Stage("data-bin", {}, self.binarise),
        ]

    def counts(self, stage: str) -> dict[str, int]:
        return json.loads((self.folder / stage / "counts.json").read_text(encoding="utf-8"))

    def clean(self, folder: Path) -> None:
        cleaner = Cleaner(self.lower)
        lines = cleaner(
            tqdm(source.lines(), desc=f"reading {source.path.name}", unit=" lines", disable=None)
            for source in self.sources
        )
        write_lines(folder / "text", lines)
        if cleaner.counts["documents"] < 2:
            raise UserError(
                "the text is a single document, so there is nothing to validate with: put blank "
                "lines between documents, or give --lines-per-document N"
                if cleaner.counts["kept"]
                else "the files hold no text: name others"
            )
        with written(folder / "counts.json") as file:
            json.dump(cleaner.counts, file, indent=1)

    def report_cleaned(self) -> str:
        counts = self.counts("clean")
        share = 100 * counts["repeated"] / counts["read"]
        return (
            f"{counts['read']:,} lines, {counts['repeated']:,} of them ({share:.2f}%) left out "
            f"because they repeat an earlier line; {counts['kept']:,} lines of "
            f"{counts['words']:,} words in {counts['documents']:,} documents"
        )

    def split(self, folder: Path) -> None:
        """Divide the documents, and count the lines of each part."""
        chosen = held_out(self.counts("clean")["documents"], self.valid_share)
        counts = dict.fromkeys(SPLITS, 0)
        latest: dict[str, int] = {}
        with ExitStack() as stack:
            files = {name: stack.enter_context(written(folder / name)) for name in SPLITS}
            for document, line in numbered(read_lines(self.folder / "clean" / "text")):
                name = "valid" if document in chosen else "train"
                if latest.setdefault(name, document) != document:
                    files[name].write("\n")
                latest[name] = document
                files[name].write(line + "\n")
                counts[name] += 1
        with written(folder / "counts.json") as file:
            json.dump(counts, file, indent=1)

    def report_split(self) -> str:
        counts = self.counts("split")
        return ", ".join(f"{counts[name]:,} lines to {name}" for name in SPLITS)

    @property
    def lines(self) -> int:
        """Those of the training text."""
        return self.counts("split")["train"]

    @property
    def workers(self) -> int:
        return enough(self.most_workers, self.lines)

    def learn(self, folder: Path) -> None:
        text = {self.language: thinned(self.folder / "split" / "train", self.lines)}
        KINDS[self.bpe].learn(folder, text, self.vocabulary, self.workers)

    def encode(self, folder: Path) -> None:
        subwords = KINDS[self.bpe](self.folder / "subwords")
        for name in SPLITS:
            lines = tqdm(
                read_lines(self.folder / "split" / name),
                desc=f"subwords of {name}",
                unit=" lines",
                disable=None,
            )
            coded = subwords.encode(lines, self.language, self.workers)
            write_lines(folder / name, all_parted(coded, self.longest_line, name))

    def binarise(self, folder: Path) -> None:
        encoded = self.folder / "encoded"
        options: dict[str, Any] = {f"--{name}pref": encoded / name for name in SPLITS}
        # Characters without a subword stand in the text as themselves: only frequent ones enter.
        options |= {"--nwordssrc": self.vocabulary}
        options |= {"--destdir": folder, "--workers": self.workers}
        programs.preprocess(options, folder / "command.log", "--only-source")


def all_parted(lines: Iterable[str], longest: int, name: str) -> Iterator[str]:
    long = 0
    for line in lines:
        parts = list(parted(line, longest))
        long += len(parts) > 1
        yield from parts
    if long:
        print(f"{name}: {long:,} lines have more than {longest:,} subwords and were split")
