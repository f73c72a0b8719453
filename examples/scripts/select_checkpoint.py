"""Copy the checkpoint of a run whose translations of a validation set have the highest score.

    python select_checkpoint.py FOLDER best.pt --valid en de SOURCE REFERENCE -- comet-score ...

A program scores the translations, as in metric.py; of several directions the mean counts. The
checkpoints are those that the training has kept, and their average. Translation is greedy.
"""

import re
import shutil
from argparse import ArgumentParser
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import torch
from metric import run_metric

from diet_fairseq import Translator
from diet_fairseq.config import import_user_dir
from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.lines import read_lines, write_lines


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run by their updates, and the average of the last ones."""
    updates = {
        int(match[1]): path
        for path in folder.glob("checkpoint_*.pt")
        if (match := re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", path.name))
    }
    return [updates[number] for number in sorted(updates)] + [folder / "average.pt"]


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "folder", type=Path, help="folder of the run, with model.json and average.pt"
    )
    parser.add_argument("output", type=Path)
    parser.add_argument(
        "--valid", nargs=4, action="append", required=True,
        metavar=("SOURCE", "TARGET", "TEXT", "REFERENCE"),
        help="languages and validation set of a direction",
    )  # fmt: skip
    parser.add_argument(
        "--user-dir", type=Path, required=True, help="--user-dir of fairseq's commands"
    )
    parser.add_argument("command", nargs="+", help="command, with names of files in braces")
    args = parser.parse_args()

    import_user_dir(args.user_dir)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores: dict[Path, float] = {}
    with TemporaryDirectory() as folder:
        translations = Path(folder, "translations.txt")
        for checkpoint in find_checkpoints(args.folder):
            translator = Translator(checkpoint, device=device)
            of_directions = []
            for source, target, text, reference in args.valid:
                lines, languages = [*read_lines(Path(text))], {}
                if len(args.valid) > 1:
                    languages = {"source_lang": source, "target_lang": target}
                translated = translator.translate(lines, beam=1, split_sentences=False, **languages)
                write_lines(translations, translated)
                files = [Path(text), translations, Path(reference)]
                of_directions.append(run_metric(args.command, files)["score"])
            scores[checkpoint] = mean(of_directions)
            print(f"{checkpoint.name}: {scores[checkpoint]:.4f}", flush=True)
    best = max(scores, key=scores.__getitem__)
    with open(best, "rb") as old, atomic_file(args.output, "wb") as new:
        shutil.copyfileobj(old, new)
    print(f"{args.output} is {best.name}")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
