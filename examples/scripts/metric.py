"""Score translations with another program: the last number of its last line, as JSON.

python metric.py scores.json --files SOURCE TRANSLATIONS REFERENCE -- comet-score -s {source} ...
"""

import json
import re
import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import read_lines, write_lines

#: names of files in a command, in the order of ``--files``
NAMES = ("{source}", "{hypotheses}", "{reference}")


def fill_in(command: list[str], files: list[Path], folder: Path) -> list[str]:
    """The command with paths of plain text; gzipped files are unpacked into the folder."""
    for name, file in zip(NAMES, files, strict=True):
        if file.suffix == ".gz":
            unpacked = folder / f"{name[1:-1]}.{file.stem}"
            write_lines(unpacked, read_lines(file))
            file = unpacked
        command = [word.replace(name, str(file)) for word in command]
    return command


def read_score(output: str, command: list[str]) -> float:
    """The last number of the last line that is not blank.

    Raises:
        UserError: there is none
    """
    last = ([line for line in output.splitlines() if line.strip()] or [""])[-1]
    numbers = re.findall(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", last)
    if not numbers:
        raise UserError(
            f"the last line of a metric's output must have a number, but is {last!r}: "
            f"{shlex.join(command)}"
        )
    return float(numbers[-1])


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--files", nargs=3, type=Path, required=True, metavar=NAMES)
    parser.add_argument("command", nargs="+", help="its words, with names of files in braces")
    args = parser.parse_args()

    with TemporaryDirectory() as folder:
        command = fill_in(args.command, args.files, Path(folder))
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        except OSError as error:
            raise UserError(f"the program {command[0]} can't be run: {error.strerror}") from error
    print(done.stdout, end="", flush=True)  # for the log
    if done.returncode:
        raise UserError(f"status {done.returncode} of {shlex.join(command)}")
    score = read_score(done.stdout, command)
    args.output.write_text(json.dumps({"score": score, "command": command}), encoding="utf-8")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
