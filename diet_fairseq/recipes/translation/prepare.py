"""Raw parallel text to what fairseq-train reads, in stages that can be interrupted."""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...errors import UserError
from ..common import programs
from ..common.parallel import CHUNK
from ..common.stages import stage
from ..common.subwords import KINDS, Subwords
from ..common.text import read_lines, read_pairs, write_lines, written
from .chosen import add_corpus, add_folder, corpus_of, folder_of
from .clean import Cleaner, Normaliser, Rules, table
from .corpora.raw import SPLITS, find_pairs, pair_of

#: enough to learn subwords from; bounds the memory that takes
MOST_LINES = 1_000_000
#: subwords; fairseq's transformers have positions for 1,024
LONGEST = 1000


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    rules, corpus = Rules(), add_corpus(parser, words)
    parser.add_argument("source", metavar="SRC")
    parser.add_argument("target", metavar="TGT")
    add_folder(parser, corpus)
    parser.add_argument("--from-dir", type=Path, help="take the text from here; else download it")
    for split in SPLITS:
        parser.add_argument(
            f"--{split}",
            metavar="PATTERN",
            default=corpus.files[split],
            help=f"names of its files below --from-dir, without .LANG[.gz] ({corpus.files[split]})",
        )
    parser.add_argument("--bpe", choices=KINDS, default="sentencepiece", help="kind of subwords")
    parser.add_argument(
        "--vocabulary", type=int, default=corpus.vocabulary, help="subwords (%(default)s)"
    )
    parser.add_argument("--max-words", type=int, default=rules.max_words, help="(%(default)s)")
    parser.add_argument(
        "--max-characters", type=int, default=rules.max_characters, help="(%(default)s)"
    )
    parser.add_argument(
        "--max-ratio", type=float, default=rules.max_ratio, help="of the words (%(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes (the cores: %(default)s)",
    )


def prepare(args: Namespace) -> None:
    corpus, pair = corpus_of(args), pair_of(args.source, args.target)
    folder, texts = folder_of(args), args.from_dir
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
        raise UserError(f"--from-dir {texts} is no folder: name the one that holds the text")
    files = find_pairs(texts, patterns, pair)
    rules = Rules(args.max_words, args.max_characters, args.max_ratio)

    clean, subwords = folder / "clean", folder / "subwords"
    encoded, binary = folder / "encoded", folder / "data-bin"
    made_from: dict[str, Any] = {"rules": vars(rules), "files": fingerprint(files)}
    stage(clean, made_from, lambda partial: clean_files(partial, files, pair, rules))
    counts = json.loads((clean / "counts.json").read_text(encoding="utf-8"))
    print(report(counts, clean))
    kept = counts["train"]["kept"]
    workers = min(args.workers, 1 + kept // CHUNK)  # more would have nothing to do
    made_from |= {"bpe": args.bpe, "vocabulary": args.vocabulary}
    learn = KINDS[args.bpe].learn
    options = args.vocabulary, workers
    stage(subwords, made_from, lambda partial: learn(partial, sample(clean, pair, kept), *options))
    model = KINDS[args.bpe](subwords)
    stage(encoded, made_from, lambda partial: encode(partial, clean, model, pair, workers))
    stage(binary, made_from, lambda partial: binarise(partial, encoded, pair, *options))
    prepared = {
        "corpus": corpus.name,
        "pair": pair,
        "bpe": args.bpe,
        "test_set": corpus.test_set if args.from_dir is None else None,
    }
    with written(folder / "prepared.json") as file:
        json.dump(prepared, file, indent=1)
    print(f"ready: {folder}")


def fingerprint(files: dict[str, list[tuple[Path, Path]]]) -> dict[str, list[list[Any]]]:
    """Names, sizes and times of the files: whether these are the ones a stage was made from."""
    return {
        split: [
            [path.name, path.stat().st_size, path.stat().st_mtime_ns]
            for both in pairs
            for path in both
        ]
        for split, pairs in files.items()
    }


def clean_files(
    folder: Path,
    files: dict[str, list[tuple[Path, Path]]],
    pair: tuple[str, str],
    rules: Rules,
) -> None:
    """The training text cleaned; the rest only normalised, so that line n stays line n.

    What is translated is compared with the test text as it came, which is kept for that.
    """
    counts = {}
    for split, pairs in files.items():
        lines: Iterable[tuple[str, str]] = tqdm(
            (both for paths in pairs for both in read_pairs(*paths)),
            desc=f"reading {split}",
            unit=" pairs",
            disable=None,
        )
        cleaner = Cleaner(rules) if split == "train" else Normaliser()
        outputs = [folder / f"{split}.{language}" for language in pair]
        with written(outputs[0]) as one, written(outputs[1]) as other:
            for source, target in cleaner(lines):
                one.write(source + "\n")
                other.write(target + "\n")
        counts[split] = dict(cleaner.counts)
    if not counts["train"]["kept"]:
        raise UserError(f"no pair is left to train on: {counts['train']}")
    for language, path in zip(pair, files["test"][0], strict=True):
        write_lines(folder / f"test.{language}.as-it-came", read_lines(path))
    with written(folder / "counts.json") as file:
        json.dump(counts, file, indent=1)


def report(counts: dict[str, dict[str, int]], clean: Path) -> str:
    others = ", ".join(f"{counts[split]['kept']:,} to {split}" for split in ("valid", "test"))
    return f"pairs to train on (in {clean / 'counts.json'}):\n{table(counts['train'])}\n{others}"


def sample(clean: Path, pair: tuple[str, str], lines: int) -> dict[str, Iterable[str]]:
    """Each language's training text, evenly thinned where there is more than is needed."""
    step = -(-len(pair) * lines // MOST_LINES)
    return {
        language: islice(read_lines(clean / f"train.{language}"), 0, None, step)
        for language in pair
    }


def encode(folder: Path, clean: Path, model: Subwords, pair: tuple[str, str], workers: int) -> None:
    for split in SPLITS:
        for language in pair:
            lines = tqdm(
                read_lines(clean / f"{split}.{language}"),
                desc=f"subwords of {split}.{language}",
                unit=" lines",
                disable=None,
            )
            coded = model.encode(lines, language, workers)
            write_lines(folder / f"{split}.{language}", shortened(coded, f"{split}.{language}"))


def shortened(lines: Iterable[str], name: str) -> Iterator[str]:
    """The lines, those that no model could take cut at the end."""
    cut = 0
    for line in lines:
        tokens = line.split(" ")
        cut += len(tokens) > LONGEST
        yield " ".join(tokens[:LONGEST])
    if cut:
        print(f"{name}: {cut} lines have more than {LONGEST:,} subwords and were cut there")


def binarise(
    folder: Path, encoded: Path, pair: tuple[str, str], vocabulary: int, workers: int
) -> None:
    options: dict[str, Any] = {f"--{split}pref": encoded / split for split in SPLITS}
    options |= {"--source-lang": pair[0], "--target-lang": pair[1], "--destdir": folder}
    # Characters without a subword stand in the text as themselves: only the frequent ones enter.
    options |= {"--nwordssrc": vocabulary, "--nwordstgt": vocabulary, "--workers": workers}
    flat = [value for item in options.items() for value in item]
    command = programs.python("fairseq_cli.preprocess", "--joined-dictionary", *flat)
    programs.run(command, folder / "command.log")
