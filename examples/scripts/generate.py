"""Translate a binarised test set with fairseq-generate; plain text comes out, line for line."""

import re
import shlex
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import read_lines, write_lines
from diet_fairseq.translate.engine import Hypothesis, Search
from diet_fairseq.translate.model_json import PENALTIES, read_model_json


def read_hypotheses(output: Iterable[str]) -> dict[int, list[Hypothesis]]:
    """Line number -> its hypotheses."""
    hypotheses = defaultdict(list)
    for line in output:
        if match := re.match(r"H-(\d+)\t(\S+)\t(.*)\n?", line):
            tokens = match[3].split(" ")
            hypothesis = Hypothesis(tokens, float(match[2]), steps=len(tokens) + 1)
            hypotheses[int(match[1])].append(hypothesis)
    return hypotheses


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder of fairseq-preprocess with a test set")
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        type=Path,
        required=True,
        help="checkpoint, or the checkpoints of an ensemble",
    )
    parser.add_argument("--source", type=Path, required=True, help="the test set's plain text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--beam", type=int, help="default: as in model.json, as the next three")
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--penalty", choices=PENALTIES)
    parser.add_argument("--max-len-a", type=float)
    parser.add_argument("--languages", nargs=2, required=True, help="source and target language")
    parser.add_argument(
        "--task-options", default="", help="options of a task with several directions"
    )
    parser.add_argument("--user-dir", required=True, help="--user-dir of fairseq-generate")
    args = parser.parse_args()

    from fairseq_cli import generate  # takes over the log

    description = read_model_json(args.checkpoints[0].parent)
    if args.task_options:
        source_lang, target_lang = description.all_directions.match(*args.languages)
        description = replace(description, source_lang=source_lang, target_lang=target_lang)
    search = Search(
        description.beam if args.beam is None else args.beam,
        lenpen=description.lenpen if args.length_penalty is None else args.length_penalty,
        penalty=args.penalty or description.penalty,
    )
    max_len_a = description.max_len_a if args.max_len_a is None else args.max_len_a
    # fairseq-generate has its own penalty only; the other one ranks all that the beam has kept.
    lenpen, nbest = (search.lenpen, 1) if search.penalty == "fairseq" else (0, search.beam)
    direction = description.source_lang, description.target_lang
    framing = description.all_directions.frame(*direction)
    if description.suppress_sequences or description.end_tokens:
        print(
            "warning: fairseq-generate lacks the options suppress_sequences and end_tokens of "
            "model.json: diet-fairseq translate may translate otherwise",
            file=sys.stderr,
        )
    raw = args.output.with_name("generate.out")
    sys.argv = [
        "fairseq-generate", str(args.data), "--path", ":".join(map(str, args.checkpoints)),
        "--user-dir", args.user_dir,
        "--source-lang", args.languages[0], "--target-lang", args.languages[1],
        "--beam", str(search.beam), "--lenpen", str(lenpen), "--nbest", str(nbest),
        "--max-len-a", str(max_len_a), "--max-len-b", str(description.max_len_b),
        "--min-len", str(description.min_target_length),
        "--no-repeat-ngram-size", str(description.no_repeat_ngram_size),
        "--prefix-size", str(len(framing.target_prefix)),  # the reference begins with the tags, too
        "--max-tokens", "4000", "--skip-invalid-size-inputs-valid-test",
        *shlex.split(args.task_options),
    ]  # fmt: skip
    with open(raw, "w", encoding="utf-8") as file, redirect_stdout(file):
        generate.cli_main()

    with open(raw, encoding="utf-8", newline="\n") as file:
        hypotheses = read_hypotheses(file)
    source, target = description.tokenizers
    # A model translates a line without subwords to some sentence: it stays blank instead.
    lines = [source.encode(line) for line in read_lines(args.source)]
    missing = [number + 1 for number, line in enumerate(lines) if line and number not in hypotheses]
    if missing:
        raise UserError(
            f"{raw} has no translation of line {missing[0]} of {args.source}: generate it again"
        )
    best = (
        search.select_best(hypotheses[number])[0].tokens if line else []
        for number, line in enumerate(lines)
    )
    words = ([token for token in tokens if token not in framing.target_tokens] for tokens in best)
    write_lines(args.output, map(target.decode, words))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
