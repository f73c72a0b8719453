"""Translation models on a GPU: fairseq's own and ours, in training and beam search.

    python -m benchmarks.translation_gpu DATA-BIN [--rows stock stock+ diet_rel] [--rounds 5]

Rows are measured one after the other, so that each row has its own peak of memory. Name a row twice
to see the drift. ``stock`` is fairseq's model, Adam, loss and beam search. ``stock+`` is fairseq's
model with our optimizer, loss and beam search, which the schemes use, too. All rows train in
bfloat16.

A training step is a step of fairseq's trainer on a batch of fairseq-train, with its padding. Words
are tokens of the target, as in fairseq's log. ``busy`` is the time of a step's kernels, by
PyTorch's profiler, divided by the time of the step: well below 1 the step waits for the CPU. Beam
search translates the valid set like fairseq-generate, with beam 5, in float32 and in half
precision. The models are not trained, so every sentence has 20 tokens. ``--device cpu --size
_tiny`` tries the command without a GPU, and omits half precision, which is very slow on a CPU.
"""

import argparse
import copy
import gc
import logging
import statistics
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.sequence_generator import SequenceGenerator
from fairseq.trainer import Trainer

from .device import now, profile_kernels
from .harness import append_line, machine
from .translation import STOCK, WITH_OURS, trainer_of

ROWS = [STOCK, WITH_OURS, "diet_rel", "shaw", "t5", "diet_abs", "rope", STOCK]
#: fairseq-generate's default
SEARCH_TOKENS = 12000
#: batches of training that are profiled, of which each has thousands of kernels
PROFILED = 4


def load_batches(task: Any, split: str, max_tokens: int, number: int | None) -> list[Any]:
    """The batches of an epoch as fairseq's commands make them, or only the first of them."""
    iterator = task.get_batch_iterator(
        task.dataset(split), max_tokens=max_tokens, required_batch_size_multiple=8, seed=1,
        disable_iterator_cache=True,
    )  # fmt: skip
    return [*islice(iterator.next_epoch_itr(), number)]


def time_rounds(run: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of each round."""
    seconds = []
    for _ in range(rounds):
        start = now()
        run()
        seconds.append(now() - start)
    return seconds


def busy_share(run: Callable[[], object], device: str) -> dict[str, Any]:
    """The share of a run's time in which kernels run, and the longest kernels."""
    seconds = statistics.median(time_rounds(run, 3))
    kernels = profile_kernels(run, device)
    total = sum(ms for ms, _ in kernels.values()) / 1000
    return {"busy": total / seconds, "kernels": dict([*kernels.items()][:30])}


def measure_training(trainer: Trainer, max_tokens: int, args: argparse.Namespace) -> dict[str, Any]:
    batches = load_batches(trainer.task, "train", max_tokens, args.batches)

    def steps(number: int | None = None) -> None:
        for batch in batches[:number]:
            trainer.train_step([batch], raise_oom=True)

    steps()  # Triton compiles, and times tiles
    peak = None
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = time_rounds(steps, args.rounds)
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**30
    median = statistics.median(seconds)
    words = sum(batch["ntokens"] for batch in batches)
    return {
        "max tokens": max_tokens,
        "words/s": words / median,
        "padding": 1 - words / sum(batch["target"].numel() for batch in batches),
        "ms of a step": 1000 * median / len(batches),
        "peak GiB": peak,
        "seconds": seconds,
        **busy_share(partial(steps, PROFILED), args.device),
    }


def measure_search(
    trainer: Trainer, row: str, half: bool, args: argparse.Namespace
) -> dict[str, Any]:
    task, cfg = trainer.task, trainer.cfg
    model = copy.deepcopy(trainer.get_model()).eval()
    model = model.half() if half else model.float()
    model.prepare_for_inference_(cfg)
    kind = SequenceGenerator if row == STOCK else None
    generator = task.build_generator([model], cfg.generation, kind)
    batches = load_batches(task, "valid", min(args.search_tokens, SEARCH_TOKENS), None)
    batches = batches[: args.search_batches]
    move = utils.move_to_cuda if args.device == "cuda" else lambda batch: batch

    @torch.no_grad()
    def translate(number: int | None = None) -> None:
        for batch in batches[:number]:
            generator.generate([model], move(batch))

    translate()
    seconds = time_rounds(translate, args.rounds)
    median = statistics.median(seconds)
    return {
        "search in": "float16" if half else "float32",
        "sentences/s": sum(batch["nsentences"] for batch in batches) / median,
        "seconds": seconds,
        **busy_share(partial(translate, 1), args.device),
    }


def measure_row(row: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of a row: training with each size of batches, search in each precision."""
    options = "--cpu" if args.device == "cpu" else "--bf16"
    trainer = trainer_of(row, args.size, args.data, where=options)
    trainer.task.load_dataset("valid")
    trainings = [partial(measure_training, trainer, tokens, args) for tokens in args.max_tokens]
    searches = [
        partial(measure_search, trainer, row, precision == "float16", args)
        for precision in args.precisions
    ]
    records = []
    measurements: list[Callable[[], dict[str, Any]]] = [*trainings, *searches]
    for measurement in measurements:
        try:
            records.append(measurement())
        except Exception as error:  # the other rows are still measured
            records.append({"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})
            print(f"{row}: {records[-1]['error']}", flush=True)
        if args.out:
            append_line(args.out, {"row": row, "size": args.size, **records[-1]})
    return records


def cells_of(record: dict[str, Any], first: dict[str, Any]) -> list[str]:
    """Cells of the table for one record, beside the record of the first row."""
    if "error" in record or "error" in first:
        return ["error"] * (2 if "search in" in first else 4)
    rate = "sentences/s" if "search in" in record else "words/s"
    cells = [f"{record[rate]:,.0f} ({record[rate] / first[rate]:.2f})"]
    if "search in" in record:
        return [*cells, f"{record['busy']:.2f}"]
    peak = "" if record["peak GiB"] is None else f"{record['peak GiB']:.1f}"
    return [*cells, f"{record['ms of a step']:.1f}", f"{record['busy']:.2f}", peak]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of fairseq-preprocess with a train and a valid set")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="", help="suffix of the architectures (default: base)")
    parser.add_argument("--rows", nargs="+", default=ROWS, metavar="ROW")
    parser.add_argument("--max-tokens", nargs="+", type=int, default=[8192, 25000])
    parser.add_argument("--batches", type=int, default=20, help="batches of a round (%(default)s)")
    parser.add_argument("--search-tokens", type=int, default=SEARCH_TOKENS)
    parser.add_argument("--search-batches", type=int, help="(default: all of the valid set)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file of JSON lines to append to")
    args = parser.parse_args()
    args.precisions = ["float32", "float16"] if args.device == "cuda" else ["float32"]
    logging.disable(logging.INFO)  # of fairseq, between the rows of the table

    columns = [
        column
        for tokens in args.max_tokens
        for column in (f"{tokens:,} tokens: words/s (against the first row)", "ms", "busy", "GiB")
    ]
    for precision in args.precisions:
        columns += [f"search in {precision}: sentences/s (against the first row)", "busy"]
    print(f"| row | {' | '.join(columns)} |\n|{' --- |' * (1 + len(columns))}", flush=True)
    first: list[dict[str, Any]] = []
    failed = False
    for row in args.rows:
        records = measure_row(row, args)
        first = first or records
        failed = failed or any("error" in record for record in records)
        cells = [
            cell for record, base in zip(records, first, strict=True)
            for cell in cells_of(record, base)
        ]  # fmt: skip
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
        gc.collect()  # the trainer refers to itself
        torch.cuda.empty_cache()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print({**machine(), "device": name})
    sys.exit(failed)


if __name__ == "__main__":
    main()
