"""Translate a binarised test set with fairseq-generate; plain text comes out, line for line."""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask

import diet_fairseq
from diet_fairseq import model_json
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.model_json import PENALTIES
from diet_fairseq.text.lines import read_lines, write_lines
from diet_fairseq.text.tokenizer import tokenizers
from diet_fairseq.text.whitespace import normalise


class Tensor2TensorPenalty(float):
    """An exponent that makes of fairseq's ``length ** alpha`` tensor2tensor's length penalty.

    That is ``((5 + length) / 6) ** alpha`` (Wu et al. 2016, equation 14).
    """

    def __rpow__(self, length: int) -> float:  # type: ignore[override]
        return ((5 + length) / 6) ** float(self)


def use_tensor2tensor_penalty(alpha: float) -> None:
    """fairseq-generate divides scores by ``length ** len_penalty`` only."""
    build = FairseqTask.build_generator

    def build_generator(*args: Any, **options: Any) -> Any:
        generator = build(*args, **options)
        generator.len_penalty = Tensor2TensorPenalty(alpha)
        return generator

    FairseqTask.build_generator = build_generator


def hypotheses(output: Iterable[str]) -> dict[int, str]:
    """Line number -> its best hypothesis, in subwords."""
    matches = (re.match(r"H-(\d+)\t[^\t]*\t(.*)\n?", line) for line in output)
    return {int(match[1]): match[2] for match in matches if match}


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="of fairseq-preprocess, with a test set")
    parser.add_argument("--checkpoints", nargs="+", type=Path, required=True, help="an ensemble")
    parser.add_argument("--source", type=Path, required=True, help="the test set's plain text")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--length-penalty", type=float, required=True)
    parser.add_argument("--penalty", choices=PENALTIES, required=True)
    args = parser.parse_args()

    from fairseq_cli import generate  # takes over the log

    description = model_json.read(args.checkpoints[0].parent)
    if args.penalty == "tensor2tensor":
        use_tensor2tensor_penalty(args.length_penalty)
    raw = args.output.with_name("generate.out")
    sys.argv = [
        "fairseq-generate", str(args.data), "--path", ":".join(map(str, args.checkpoints)),
        "--user-dir", str(Path(diet_fairseq.__file__).parent),
        "--source-lang", description.source_lang, "--target-lang", description.target_lang,
        "--beam", str(args.beam), "--lenpen", str(args.length_penalty),
        "--max-len-a", "1", "--max-len-b", "50",  # Vaswani et al. 2017, 6.1
        "--max-tokens", "4000", "--skip-invalid-size-inputs-valid-test",
    ]  # fmt: skip
    with open(raw, "w", encoding="utf-8") as file, redirect_stdout(file):
        generate.cli_main()

    with open(raw, encoding="utf-8", newline="\n") as file:
        found = hypotheses(file)
    _, target = tokenizers(description)
    # A model translates a blank line to some sentence: it stays blank instead.
    lines = [normalise(line) for line in read_lines(args.source)]
    missing = [number + 1 for number, line in enumerate(lines) if line and number not in found]
    if missing:
        raise UserError(f"{raw} has no translation of line {missing[0]} of {args.source}")
    texts = (target.decode(found[n].split(" ")) if line else "" for n, line in enumerate(lines))
    write_lines(args.output, texts)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
