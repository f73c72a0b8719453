"""Score translations with another program: the last number of its last line, as JSON.

    python metric.py scores.json --files SOURCE TRANSLATIONS REFERENCE -- bleurt {hypotheses} ...

The file also has the scores of the sentences, if the program prints one line for each sentence.
"""

import json
import math
import re
import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import read_lines, write_lines

#: names of files in a command, in the order of ``--files``
NAMES = ("{source}", "{hypotheses}", "{reference}")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: relative and absolute difference of a score from the mean of the sentences' scores, which are
#: rounded
TOLERANCE = 1e-3


def fill_in(command: list[str], files: list[Path], folder: Path) -> list[str]:
    """The command with paths of plain text; gzipped files are unpacked into the folder."""
    for name, file in zip(NAMES, files, strict=True):
        if file.suffix == ".gz":
            unpacked = folder / f"{name[1:-1]}.{file.stem}"
            write_lines(unpacked, read_lines(file))
            file = unpacked
        command = [word.replace(name, str(file)) for word in command]
    return command


def read_scores(output: str, sentences: int, command: list[str]) -> dict[str, Any]:
    """The score of a program's output and, if there are any, the scores of sentences.

    The score is the last number of the last line that is not blank. The lines before it are the
    scores of sentences if the score is their mean. Output with exactly one number a sentence has no
    line for all sentences: then the score is the mean.

    Args:
        sentences: number of sentences

    Raises:
        UserError: the last line has no number
    """
    lines = [line for line in output.splitlines() if line.strip()] or [""]
    numbers = [NUMBER.findall(line) for line in lines]
    if not numbers[-1]:
        raise UserError(
            f"the last line of a metric's output must have a number, but is {lines[-1]!r}: "
            f"{shlex.join(command)}"
        )
    values = [float(found[-1]) for found in numbers if found]
    if len(values) == len(lines) == sentences:
        return {"score": mean(values), "sentences": values}
    score, before = values[-1], values[-sentences - 1 : -1]
    is_mean = 0 < sentences == len(before) and math.isclose(
        mean(before), score, rel_tol=TOLERANCE, abs_tol=TOLERANCE
    )
    return {"score": score, "sentences": before} if is_mean else {"score": score}


def run_metric(command: list[str], files: list[Path]) -> dict[str, Any]:
    """The scores that a program gives to files of source, translations and reference.

    Raises:
        UserError: the program can't be run, fails, or prints no score
    """
    with TemporaryDirectory() as folder:
        words = fill_in(command, files, Path(folder))
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, encoding="utf-8")
        except OSError as error:
            raise UserError(f"the program {words[0]} can't be run: {error.strerror}") from error
    print(done.stdout, end="", flush=True)  # for the log
    if done.returncode:
        raise UserError(f"status {done.returncode} of {shlex.join(words)}")
    sentences = sum(1 for _ in read_lines(files[1]))
    return read_scores(done.stdout, sentences, words) | {"command": words}


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--files", nargs=3, type=Path, required=True, metavar=NAMES)
    parser.add_argument("command", nargs="+", help="its words, with names of files in braces")
    args = parser.parse_args()

    scores = run_metric(args.command, args.files)
    args.output.write_text(json.dumps(scores), encoding="utf-8")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
