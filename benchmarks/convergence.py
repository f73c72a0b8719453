"""Translation models trained to the plateau of the held-out loss, side by side on one GPU.

    python -m benchmarks.convergence DATA --runs FOLDER --out FILE [--seeds 1 2 3] [--epochs 20]

DATA is the folder that tools/gpu_prepare.sh makes: ``data-bin``, ``subwords/sentencepiece.model``
and ``test``, the folder of raw test sets. A run trains (``_iwslt_de_en``, bfloat16, our optimizer
and loss), averages the last five epochs and translates. It scores each test set as a whole and by
words of the source. ``stock`` is fairseq's own model. Each run appends a JSON line with its scores
and its curve to ``--out``, and leaves its checkpoints in ``--runs``. A training that ``--minutes``
ends early has fewer epochs in its line.
"""

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from diet_fairseq.look.translations import length_bins
from diet_fairseq.text.lines import read_lines, read_pairs
from diet_fairseq.text.scores import score

from .harness import append_line, machine

PACKAGE = Path(__file__).parents[1] / "diet_fairseq"
SCHEMES = ["stock", "shaw", "diet_rel", "diet_abs", "rope", "t5"]
#: fairseq's recipe for IWSLT 2014 at twice its batch and its rate, and a quarter of its warm-up
RECIPE = """
    --share-all-embeddings --dropout 0.3 --max-tokens 8192
    --optimizer fused_adamw --adam-betas (0.9,0.98) --weight-decay 0.0001
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 1000
    --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1
"""
AVERAGED = 5
#: the ends of bins of words of the source
LENGTHS = [5, 8, 12, 20]


def execute(log: Path, *command: object, output: Path | None = None) -> None:
    """Run a Python module. The log gets its messages and, without ``output``, its output."""
    words = [sys.executable, "-m", *map(str, command)]
    with open(log, "a") as messages, open(output or log, "w" if output else "a") as out:
        subprocess.run(words, stdout=out, stderr=messages, check=True)


def read_log(log: Path, kind: str, names: dict[str, str]) -> list[dict[str, float]]:
    """The lines of a kind, "valid" or "train", in fairseq's JSON log: one for each epoch."""
    lines = re.findall(rf"\{{\"epoch\".*\"{kind}_loss\".*\}}", log.read_text(encoding="utf-8"))
    records = map(json.loads, lines)
    return [{name: float(record[key]) for name, key in names.items()} for record in records]


def read_curve(log: Path) -> list[dict[str, float]]:
    """The held-out loss after each epoch."""
    names = {
        "epoch": "epoch", "updates": "valid_num_updates", "loss": "valid_loss",
        "loss without smoothing": "valid_nll_loss",
    }  # fmt: skip
    return read_log(log, "valid", names)


def score_by_length(source: Path, reference: Path, output: Path) -> dict[str, dict[str, Any]]:
    """The scores of all lines, and of the lines in each bin of source lengths."""
    pairs, translations = [*read_pairs(source, reference)], [*read_lines(output)]
    lengths = [len(line.split()) for line, _ in pairs]
    members = {"all": [*range(len(pairs))]} | length_bins(lengths, LENGTHS)
    return {
        label: score([translations[n] for n in numbers], [pairs[n][1] for n in numbers])
        for label, numbers in members.items()
    }


def run(scheme: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train, average, translate and score one model."""
    folder = args.runs / f"{scheme}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    log, average = folder / "log", folder / "average.pt"
    data, arch = (
        args.data / "data-bin",
        "transformer" if scheme == "stock" else f"transformer_{scheme}",
    )
    execute(
        log, "fairseq_cli.train", data, "--user-dir", PACKAGE, "--arch", f"{arch}_{args.size}",
        *RECIPE.split(), "--seed", seed, "--max-epoch", args.epochs, "--save-dir", folder,
        "--keep-last-epochs", AVERAGED, "--no-save-optimizer-state", "--num-workers", 1,
        "--stop-time-hours", args.minutes / 60, "--log-format", "json", "--log-interval", 100,
        "--bf16" if args.device == "cuda" else "--cpu", *args.options.split(),
    )  # fmt: skip
    curve = read_curve(log)
    seconds = read_log(log, "train", {"seconds": "train_wall"})[-1]["seconds"]
    averaged = min(AVERAGED, len([*folder.glob("checkpoint[0-9]*.pt")]))
    inputs: list[object] = [folder, "--num-epoch-checkpoints", averaged]
    if not averaged:  # the training was cut in its first epoch
        inputs = [folder / "checkpoint_last.pt"]
    execute(log, "diet_fairseq", "average", "--output", average, "--inputs", *inputs)
    scores = {}
    for source in sorted(args.data.glob("test/*.en")):
        output = folder / f"{source.stem}.de"
        execute(
            log, "diet_fairseq", "translate", average, source, "--device", args.device,
            "--data", data, "--subwords", args.data / "subwords/sentencepiece.model",
            "--beam", 5, "--max-tokens", 12000, output=output,
        )  # fmt: skip
        scores[source.stem] = score_by_length(source, source.with_suffix(".de"), output)
    return {
        "scheme": scheme, "seed": seed, "size": args.size, "epochs": curve[-1]["epoch"],
        "updates": curve[-1]["updates"], "seconds of training": seconds, "averaged": averaged,
        "scores": scores, "curve": curve,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of tools/gpu_prepare.sh")
    parser.add_argument("--runs", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines to append to")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument(
        "--size", default="iwslt_de_en", help="size of the architecture (%(default)s)"
    )
    parser.add_argument("--schemes", nargs="+", default=SCHEMES, metavar="SCHEME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--epochs", type=int, default=20, help="epochs (%(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=0, help="time limit of a training (0: no limit)"
    )
    parser.add_argument("--options", default="", help="more options of fairseq-train")
    parser.add_argument(
        "--side-by-side", type=int, default=6, help="runs at the same time (%(default)s)"
    )
    args = parser.parse_args()

    print("| scheme | seed | epochs | held-out loss | test set | BLEU | chrF |\n|" + " --- |" * 7)
    failed = []

    def run_and_report(pair: tuple[str, int]) -> None:
        scheme, seed = pair
        try:
            record = run(scheme, seed, args)
        except Exception as error:  # the other runs go on
            failed.append(pair)
            print(f"{scheme}, seed {seed}: {error}: see {args.runs / f'{scheme}-{seed}' / 'log'}")
            return
        append_line(args.out, record)
        for name, scores in record["scores"].items():
            loss, best = record["curve"][-1]["loss"], scores["all"]
            cells = f"{scheme} | {seed} | {record['epochs']:.0f} | {loss:.3f} | {name}"
            print(f"| {cells} | {best['BLEU']:.2f} | {best['chrF']:.2f} |", flush=True)

    with ThreadPoolExecutor(args.side_by_side) as threads:
        # all schemes of a seed first: they are compared with each other
        list(threads.map(run_and_report, ((s, n) for n, s in product(args.seeds, args.schemes))))
    print(machine())
    if failed:
        sys.exit(f"{len(failed)} runs failed")


if __name__ == "__main__":
    main()
