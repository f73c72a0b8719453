"""Raw parallel text to what fairseq-train reads, in stages that can be interrupted."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ..common import programs
from ..common.options import add_workers, at_least
from ..common.parallel import enough
from ..common.stages import Stage, fingerprint, left, run_all, stage
from ..common.subwords import KINDS, thinned
from ..common.text import read_lines, read_pairs, write_lines
from .chosen import add_corpus, add_folder, corpus_of, folder_of
from .clean import Cleaner, Normaliser, Rules, table
from .corpora.raw import SPLITS, find_pairs, pair_of

#: subwords; fairseq's transformers have positions for 1,024
LONGEST = 1000

#: the test set, not cleaned, in the folder `clean`: what is translated and scored
AS_IT_CAME = "test.{}.as-it-came"


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    rules, corpus = Rules(), add_corpus(parser, words)
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("target", metavar="TGT")
    add_folder(parser, corpus)
    parser.add_argument("--from-dir", type=Path, help="folder with the text (default: download it)")
    for split in SPLITS:
        parser.add_argument(
            f"--{split}",
            metavar="PATTERN",
            default=corpus.files[split],
            help=f"names of its files below --from-dir, without .LANG[.gz] ({corpus.files[split]})",
        )
    parser.add_argument("--bpe", choices=KINDS, default="sentencepiece", help="kind of subwords")
    parser.add_argument(
        "--vocabulary", type=at_least(1), default=corpus.vocabulary, help="subwords (%(default)s)"
    )
    parser.add_argument(
        "--max-words", type=at_least(1), default=rules.max_words, help="(%(default)s)"
    )
    parser.add_argument(
        "--max-characters", type=at_least(1), default=rules.max_characters, help="(%(default)s)"
    )
    parser.add_argument(
        "--max-ratio",
        type=at_least(1.0),
        default=rules.max_ratio,
        help="of one side's words to the other's (%(default)s)",
    )
    add_workers(parser)


def prepare(args: Namespace) -> None:
    corpus, pair = corpus_of(args), pair_of(args.source, args.target)
    folder = folder_of(args.corpus, args.source, args.target, args.folder)
    texts = args.from_dir
    patterns = {split: getattr(args, split) for split in SPLITS}
    if texts is None:
        if pair not in corpus.pairs:
            raise UserError(
                f"{corpus.name} has no {'-'.join(pair)} to download, but "
                f"{', '.join(map('-'.join, corpus.pairs))}: name two of these languages, or a "
                "folder of your own with --from-dir"
            )
        texts, patterns = folder / "raw", corpus.files
        archives = folder / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        settings = {"corpus": corpus.name, "pair": pair}
        stage(texts, settings, lambda partial: corpus.download(partial, archives, pair))
    elif not texts.is_dir():
        raise UserError(f"--from-dir {texts} is not a folder: name the one that holds the text")
    text = Text(
        folder=folder,
        pair=pair,
        files=find_pairs(texts, patterns, pair),
        rules=Rules(args.max_words, args.max_characters, args.max_ratio),
        bpe=args.bpe,
        vocabulary=args.vocabulary,
        most_workers=args.workers,
    )
    run_all(folder, text.stages())
    prepared = {
        "corpus": corpus.name,
        "pair": pair,
        "bpe": args.bpe,
        "test_set": corpus.test_set if args.from_dir is None else None,
    }
    with written(folder / programs.PREPARED) as file:
        json.dump(prepared, file, indent=1)
    print(f"ready: {folder}")


@dataclass(frozen=True)
class Text:
    """Parallel text on its way from raw files to what fairseq-train reads."""

    folder: Path
    pair: tuple[str, str]
    files: dict[str, list[tuple[Path, Path]]]  # split -> pairs of files
    rules: Rules
    bpe: str
    vocabulary: int
    most_workers: int

    def stages(self) -> list[Stage]:
        files = {
            split: [fingerprint(path) for both in pairs for path in both]
            for split, pairs in self.files.items()
        }
        subwords = {"bpe": self.bpe, "vocabulary": self.vocabulary}
        return [
            Stage("clean", {"rules": vars(self.rules), "files": files}, self.clean, self.report),
            Stage("subwords", subwords, self.learn),
            Stage("encoded", {}, self.encode),
            Stage("data-bin", {}, self.binarise),
        ]

    def clean(self, folder: Path) -> None:
        """The training text cleaned; the rest only normalised, so that line n stays line n.

        What is translated is compared with the test text as it came, which is kept for that.
        """
        counts = {}
        for split, pairs in self.files.items():
            lines: Iterable[tuple[str, str]] = tqdm(
                (both for paths in pairs for both in read_pairs(*paths)),
                desc=f"reading {split}",
                unit=" pairs",
                disable=None,
            )
            cleaner = Cleaner(self.rules) if split == "train" else Normaliser()
            outputs = [folder / f"{split}.{language}" for language in self.pair]
            with written(outputs[0]) as one, written(outputs[1]) as other:
                for source, target in cleaner(lines):
                    one.write(source + "\n")
                    other.write(target + "\n")
            counts[split] = dict(cleaner.counts)
        if not counts["train"]["kept"]:
            raise UserError(f"no pair is left to train on: {counts['train']}")
        for language, path in zip(self.pair, self.files["test"][0], strict=True):
            write_lines(folder / AS_IT_CAME.format(language), read_lines(path))
        with written(folder / "counts.json") as file:
            json.dump(counts, file, indent=1)

    def report(self) -> str:
        counts = self.counts
        others = ", ".join(f"{counts[split]['kept']:,} to {split}" for split in ("valid", "test"))
        where = self.folder / "clean" / "counts.json"
        return f"pairs to train on (in {where}):\n{table(counts['train'])}\n{others}"

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Of each split, the pairs read, those kept, and why the others were not."""
        splits = dict.fromkeys(self.files, dict)
        return left(self.folder / "clean", "counts.json", **splits)

    @property
    def kept(self) -> int:
        return self.counts["train"]["kept"]

    @property
    def workers(self) -> int:
        return enough(self.most_workers, self.kept)

    def learn(self, folder: Path) -> None:
        lines = self.kept * len(self.pair)  # which share one vocabulary
        texts = {
            language: thinned(self.folder / "clean" / f"train.{language}", lines)
            for language in self.pair
        }
        KINDS[self.bpe].learn(folder, texts, self.vocabulary, self.workers)

    def encode(self, folder: Path) -> None:
        subwords = KINDS[self.bpe](self.folder / "subwords")
        for name in (f"{split}.{language}" for split in SPLITS for language in self.pair):
            lines = tqdm(
                read_lines(self.folder / "clean" / name),
                desc=f"subwords of {name}",
                unit=" lines",
                disable=None,
            )
            coded = subwords.encode(lines, name.rpartition(".")[2], self.workers)
            write_lines(folder / name, shortened(coded, name))

    def binarise(self, folder: Path) -> None:
        encoded = self.folder / "encoded"
        options: dict[str, Any] = {f"--{split}pref": encoded / split for split in SPLITS}
        options |= {"--source-lang": self.pair[0], "--target-lang": self.pair[1]}
        # Characters without a subword stand in the text as themselves: only frequent ones enter.
        options |= {"--nwordssrc": self.vocabulary, "--nwordstgt": self.vocabulary}
        options |= {"--destdir": folder, "--workers": self.workers}
        programs.preprocess(options, folder / "command.log", "--joined-dictionary")


def prepared_test(folder: Path, language: str) -> Path:
    """One side of the test set in the folder that was prepared."""
    return folder / "clean" / AS_IT_CAME.format(language)


def shortened(lines: Iterable[str], name: str) -> Iterator[str]:
    """The lines, those that no model could take cut at the end."""
    cut = 0
    for line in lines:
        tokens = line.split(" ")
        cut += len(tokens) > LONGEST
        yield " ".join(tokens[:LONGEST])
    if cut:
        print(f"{name}: {cut} lines have more than {LONGEST:,} subwords and were cut there")
