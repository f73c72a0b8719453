"""Raw text to what fairseq-train reads, in stages that can be interrupted."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ..common import programs
from ..common.options import add_workers, at_least
from ..common.parallel import enough
from ..common.stages import Stage, left, run_all
from ..common.subwords import KINDS, thinned
from ..common.text import read_lines, write_lines
from .documents import Cleaner, Source, held_out, numbered, parted, squeezed
from .folder import add_folder
from .sampling import SMOOTHING, copies, sources_of

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
    parser.add_argument(
        "--languages",
        metavar="FOLDER",
        type=Path,
        help="instead of FILE: a text for each language, LANGUAGE.txt, .gz or a folder of files",
    )
    parser.add_argument(
        "--smoothing",
        metavar="EXPONENT",
        type=float,
        help="of --languages: each is read in proportion to its lines to this power (0.7)",
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
    if args.languages:
        texts = sources_of(args.languages, args.lines_per_document)
    else:
        of_files = [Source(path, lines_per_document=args.lines_per_document) for path in args.files]
        texts = {args.language: of_files + [Source(path, wikitext=True) for path in args.wikitext]}
    text = Text(
        folder=args.folder,
        texts=texts,
        smoothing=(args.smoothing or SMOOTHING) if args.languages else None,
        lower=args.lower,
        valid_share=args.valid_share,
        bpe=args.bpe,
        vocabulary=args.vocabulary,
        language=args.language,
        longest_line=args.longest_line,
        most_workers=args.workers,
    )
    run_all(args.folder, text.stages())
    with written(args.folder / programs.PREPARED) as file:
        json.dump({"bpe": args.bpe, "longest_line": args.longest_line}, file, indent=1)
    print(f"ready: {args.folder}")


def check(args: Namespace) -> None:
    if args.languages and (args.files or args.wikitext):
        raise UserError("--languages has all the text: leave out FILE and --wikitext")
    if args.smoothing is not None and not (args.languages and 0 < args.smoothing <= 1):
        raise UserError(
            f"--smoothing {args.smoothing} goes with --languages, and is above 0 and at most 1: 1 "
            "reads each language as often as it is there"
        )
    if not args.files and not args.wikitext and not args.languages:
        raise UserError("there is nothing to prepare: name one or more files of text")
    if not 0 < args.valid_share < 1:
        raise UserError(
            f"--valid-share {args.valid_share} must be between 0 and 1: a part of the documents"
        )


@dataclass(frozen=True)
class Text:
    """Text on its way from raw files to what fairseq-train reads.

    Attributes:
        texts: language -> its files
        smoothing: of several languages, how they are sampled (`sampling`), else None
    """

    folder: Path
    texts: dict[str, list[Source]]
    smoothing: float | None
    lower: bool
    valid_share: float
    bpe: str
    vocabulary: int
    language: str
    longest_line: int
    most_workers: int

    def stages(self) -> list[Stage]:
        files = [one.fingerprint() for sources in self.texts.values() for one in sources]
        sampled = []
        if self.smoothing is not None:
            settings = {"languages": list(self.texts), "smoothing": self.smoothing}
            sampled = [Stage("sampled", settings, self.sample, self.report_sampled)]
        subwords = {"bpe": self.bpe, "vocabulary": self.vocabulary, "language": self.language}
        return [
            Stage("clean", {"files": files, "lower": self.lower}, self.clean, self.report_cleaned),
            Stage("split", {"valid_share": self.valid_share}, self.split, self.report_split),
            *sampled,
            Stage("subwords", subwords, self.learn),
            Stage("encoded", {"longest_line": self.longest_line}, self.encode),
            Stage("data-bin", {}, self.binarise),
        ]

    def counts(self, stage: str) -> dict[str, Any]:
        return left(self.folder / stage, "counts.json")

    def clean(self, folder: Path) -> None:
        cleaner = Cleaner(self.lower)
        until: dict[str, int] = {}

        def sources() -> Iterator[Iterable[str]]:
            for language, some in self.texts.items():
                for source in some:
                    said = f"reading {source.path.name}"
                    yield tqdm(source.lines(), desc=said, unit=" lines", disable=None)
                    until[language] = cleaner.counts["documents"]

        write_lines(folder / "text", cleaner(sources()))
        if cleaner.counts["documents"] < 2:
            raise UserError(
                "the text is a single document, so there is nothing to validate with: put blank "
                "lines between documents, or give --lines-per-document N"
                if cleaner.counts["kept"]
                else "the files hold no text: name others"
            )
        with written(folder / "counts.json") as file:
            json.dump(cleaner.counts, file, indent=1)
        with written(folder / "languages.json") as file:  # the documents before each one's end
            json.dump(until, file, indent=1)

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

    def sample(self, folder: Path) -> None:
        """Documents of small languages several times, those of large ones not all."""
        ends = left(self.folder / "clean", "languages.json")
        documents = self.counts("clean")["documents"]
        chosen = held_out(documents, self.valid_share)
        languages = [name for name, end in begun(ends) for _ in range(end)]
        languages = [name for place, name in enumerate(languages) if place not in chosen]
        train = self.folder / "split" / "train"
        sizes = Counter(languages[document] for document, _ in numbered(read_lines(train)))
        times = list(copies(languages, sizes, self.smoothing or 1.0))
        read: Counter[str] = Counter()

        def lines(turn: int) -> Iterator[str]:
            latest = None
            for document, line in numbered(read_lines(train)):
                if times[document] > turn:
                    if document != latest:
                        yield ""
                    read[languages[document]] += 1
                    latest = document
                    yield line

        # Turn by turn, so that no document stands beside its copy.
        write_lines(folder / "train", squeezed(chain.from_iterable(map(lines, range(max(times))))))
        copyfile(self.folder / "split" / "valid", folder / "valid")
        with written(folder / "counts.json") as file:
            json.dump({"train": read.total(), "read": read, "there are": sizes}, file, indent=1)

    def report_sampled(self) -> str:
        counts = self.counts("sampled")
        read, sizes = counts["read"], counts["there are"]
        return "lines read, of those there are: " + ", ".join(
            f"{name} {read.get(name, 0):,} of {sizes[name]:,}" for name in sizes
        )

    @property
    def text(self) -> Path:
        """The folder whose files are made into subwords."""
        return self.folder / ("split" if self.smoothing is None else "sampled")

    @property
    def lines(self) -> int:
        """Those of the training text."""
        return self.counts(self.text.name)["train"]

    @property
    def workers(self) -> int:
        return enough(self.most_workers, self.lines)

    def learn(self, folder: Path) -> None:
        text = {self.language: thinned(self.text / "train", self.lines)}
        KINDS[self.bpe].learn(folder, text, self.vocabulary, self.workers)

    def encode(self, folder: Path) -> None:
        subwords = KINDS[self.bpe](self.folder / "subwords")
        for name in SPLITS:
            lines = tqdm(
                read_lines(self.text / name),
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


def begun(ends: dict[str, int]) -> Iterator[tuple[str, int]]:
    """How many documents each language has, out of how many there were at its end."""
    before = 0
    for name, end in ends.items():
        yield name, end - before
        before = end


def all_parted(lines: Iterable[str], longest: int, name: str) -> Iterator[str]:
    long = 0
    for line in lines:
        parts = list(parted(line, longest))
        long += len(parts) > 1
        yield from parts
    if long:
        print(f"{name}: {long:,} lines have more than {longest:,} subwords and were split")
