"""``evaluate SCHEME SRC TGT``: averages checkpoints, translates, scores."""

import json
import math
import re
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ...progress import heartbeat
from ...text.whitespace import normalise
from ..common import programs
from ..common.options import at_least, given
from ..common.stages import digest_of
from ..common.subwords import KINDS
from ..common.text import read_lines, read_pairs, write_lines
from . import interactive, test_sets
from .chosen import add_corpus, corpus_of
from .described import describe
from .prepare import prepared_test, shortened
from .score import score
from .train import Run, add_run_arguments

PENALTIES = {"fairseq": "--lenpen", "tensor2tensor": "--tensor2tensor-penalty"}


def add_arguments(parser: ArgumentParser, words: Sequence[str] | None) -> None:
    corpus = add_corpus(parser, words)
    search = corpus.search
    add_run_arguments(parser, corpus)
    parser.add_argument("--checkpoint", type=Path, help="translate with this one")
    parser.add_argument(
        "--average",
        type=at_least(0),
        metavar="N",
        help="translate with the mean of the last N checkpoints; 0: with the last "
        f"({search.average})",
    )
    parser.add_argument("--beam", type=at_least(1), default=search.beam, help="(%(default)s)")
    parser.add_argument(
        "--length-penalty",
        type=at_least(-math.inf),
        metavar="ALPHA",
        default=search.alpha,
        help="(%(default)s)",
    )
    parser.add_argument(
        "--penalty",
        choices=PENALTIES,
        default=search.penalty,
        help="formula: length^alpha or ((5 + length) / 6)^alpha (%(default)s)",
    )
    parser.add_argument(
        "--max-tokens", type=at_least(1), default=4000, help="in a batch (%(default)s)"
    )
    parser.add_argument("--test-set", help="test set by its name in sacreBLEU, such as wmt18")
    parser.add_argument("--input", type=Path, help="text to translate (the prepared test set)")
    parser.add_argument("--reference", type=Path, help="reference translation of --input")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder for translations and scores (evaluation-NAME, of --input input-NAME)",
    )


def evaluate(args: Namespace) -> None:
    if args.checkpoint and args.average is not None:
        raise UserError(
            f"--average {args.average} is of a run's checkpoints, and --checkpoint names one: "
            "give one of them"
        )
    run = given(Run, args)
    folder = run.data
    prepared = programs.prepared(folder, pair=list, bpe=str)
    if {args.source, args.target} != set(prepared["pair"]):
        raise UserError(f"{folder} holds {'-'.join(prepared['pair'])}: name these languages")
    name, sources, references, test_set = test_text(args, prepared)
    model = args.checkpoint
    averaged = corpus_of(args).search.average if args.average is None else args.average
    if not model:
        model = average(run.place, averaged)
        # `translate` takes what was evaluated, with the corpus's own search.
        own = corpus_of(args).search
        describe(run.place, folder, args.source, args.target, own, model)
    if not model.is_file():
        raise UserError(f"{model} is not a file: --checkpoint names one that fairseq-train wrote")
    # A text of one's own may have the name of a test set, whose scores tables and cards show.
    output = args.output or run.place / f"{'input' if args.input else 'evaluation'}-{name}"
    output.mkdir(parents=True, exist_ok=True)

    subwords = KINDS[prepared["bpe"]](folder / "subwords")
    coded = list(shortened(subwords.encode(map(normalise, sources), args.source, 1), name))
    # A model translates a blank line to some sentence, so blank lines are left out.
    spoken = [number for number, line in enumerate(coded) if line]
    write_lines(output / "source.subwords", (coded[number] for number in spoken))
    digest = digest_of(model)  # training may go on, and write another file of this name
    texts = translate(model, output / "source.subwords", len(spoken), args)
    found = dict(zip(spoken, texts, strict=True))
    if lost := [str(number + 1) for number in spoken if not found[number]]:
        print(f"{name}: no translation of line {', '.join(lost)}: see {output / 'translate.log'}")
    whole = (found.get(number, "") for number in range(len(coded)))
    hypotheses = [normalise(subwords.decode(text, args.target)) for text in whole]
    write_lines(output / "translations.txt", hypotheses)
    print(f"{output / 'translations.txt'}: {len(hypotheses):,} lines")
    if references is None:
        return
    scores = score(hypotheses, references, test_set, f"{args.source}-{args.target}")
    search = {name: getattr(args, name) for name in ("beam", "length_penalty", "penalty")}
    averaged = 0 if args.checkpoint else averaged
    scores |= {"model": str(model), "sha256": digest, "averaged": averaged, **search}
    with written(output / "scores.json") as file:
        json.dump(scores, file, indent=1)
    for name in ("BLEU", "chrF"):
        print(f"{name} {scores[name]:.2f}  {scores[f'{name} signature']}")


def test_text(
    args: Namespace, prepared: dict[str, Any]
) -> tuple[str, list[str], list[str] | None, str]:
    """Name, sources, references, and sacreBLEU's name of what is to be translated."""
    if args.test_set:
        for option in ("input", "reference"):
            if getattr(args, option):
                raise UserError(
                    f"--{option} {getattr(args, option)} can't be combined with --test-set "
                    f"{args.test_set}, which has texts of its own: leave one of them out"
                )
        pair = f"{args.source}-{args.target}"
        return args.test_set, *test_sets.lines_of(args.test_set, pair), args.test_set
    if args.reference and not args.input:
        raise UserError("--reference needs --input: name the text that it is a translation of")
    if args.input and not args.reference:
        return args.input.name, list(read_lines(args.input)), None, ""
    source, target = (
        prepared_test(given(Run, args).data, language) for language in (args.source, args.target)
    )
    name, test_set = "test", prepared["test_set"] or ""
    if args.input:
        source, target = args.input, args.reference
        name, test_set = source.name, ""
    sources, references = zip(*read_pairs(source, target), strict=True)
    return name, list(sources), list(references), test_set


def average(run: Path, number: int) -> Path:
    last = run / "checkpoint_last.pt"
    if not last.exists():
        raise UserError(f"{last} does not exist: train first, or name --run or --checkpoint")
    if not number:
        return last
    mean = run / f"average-{number}.pt"
    options = ["--inputs", run, "--num-update-checkpoints", number, "--output", mean]
    programs.run(programs.python("diet_fairseq", "average", *options), run / "average.log")
    return mean


def translate(model: Path, source: Path, lines: int, args: Namespace) -> list[str]:
    """The best hypothesis of every line, in subwords; nothing for one too long for the model."""
    if not lines:
        return []
    options = [
        *["--user-dir", programs.PLUGIN, "--path", model, "--input", source],
        *["--source-lang", args.source, "--target-lang", args.target],
        *["--beam", args.beam, PENALTIES[args.penalty], args.length_penalty],
        *["--max-len-a", 1, "--max-len-b", 50],  # Vaswani 6.1: input length + 50
        *["--max-tokens", args.max_tokens, "--buffer-size", 2000],
        *([] if programs.devices(args.gpus) else ["--cpu"]),
    ]
    command = programs.python(
        interactive.__name__, programs.data_of(given(Run, args).data), *options
    )
    log = source.with_name("translate.log")
    found: list[str] = []
    with (
        open(log, "wb") as file,
        programs.started(command, stdout=subprocess.PIPE, stderr=file) as process,
    ):
        assert process.stdout
        raw = (line.decode("utf-8") for line in process.stdout)
        found = list(hypotheses(counted(raw, lines)))
    if process.returncode or len(found) != lines:
        print("\n".join(log.read_text("utf-8").split("\n")[-15:]))
        raise UserError(
            f"translating ended with status {process.returncode} after {len(found):,} of {lines:,} "
            f"lines: see {log}"
        )
    return found


def counted(output: Iterable[str], total: int) -> Iterator[str]:
    """Pass on what fairseq-interactive prints, and report progress."""
    done = 0
    with (
        tqdm(total=total, desc="translating", disable=None) as bar,
        heartbeat(lambda: bar.disable and print(f"translated: {done:,} of {total:,}", flush=True)),
    ):
        for line in output:
            if line.startswith(interactive.DONE):
                done += int(line.removeprefix(interactive.DONE))
                bar.update(done - bar.n)
            else:
                yield line


def hypotheses(output: Iterable[str]) -> Iterator[str]:
    """The hypotheses among fairseq-interactive's output, which is in the order of its input."""
    number = 0
    for line in output:
        if match := re.fullmatch(r"H-(\d+)\t[^\t]*\t(.*)\n?", line):
            if int(match[1]) != number:
                raise UserError(f"translation {match[1]} came instead of {number}")
            number += 1
            yield match[2]
