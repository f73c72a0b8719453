"""Sentences a second of trained models, against fairseq's own beam search with a stock one.

    python -m benchmarks.generation DATA-BIN stock=CHECKPOINT diet_rel=CHECKPOINT ... [--rounds 5]

The first model is the baseline, with fairseq's search; it comes again with ours, and so do all
others. Where CTranslate2 is installed, it translates with the first model's weights: a yardstick of
what a translator written in C++ reaches on the same machine. The sentences are the test set's,
batched by length as `fairseq-generate` does, beam 5. Every model translates until its own
hypotheses end.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.sequence_generator import SequenceGenerator

import diet_fairseq

from .harness import in_turn, machine, save

BASELINE = "fairseq's search"
Samples = list[dict[str, Any]]


def loaded(checkpoint: str, data: str) -> tuple[Any, Any, Any]:
    """A model ready for inference, its configuration, its task with the test set."""
    overrides = {"data": data}
    [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task([checkpoint], overrides)
    model.eval()
    model.prepare_for_inference_(cfg)
    task.load_dataset("test")
    return model, cfg, task


def batches_of(task: Any, sentences: int, batch: int) -> Samples:
    iterator = task.get_batch_iterator(task.dataset("test"), max_sentences=batch, seed=1)
    samples = list(iterator.next_epoch_itr(shuffle=False))
    return samples[:: max(1, len(samples) * batch // sentences)][: max(1, sentences // batch)]


def translation(model: Any, cfg: Any, task: Any, samples: Samples, kind: Any) -> Callable:
    cfg.generation.beam = 5
    generator = task.build_generator([model], cfg.generation, kind)
    return lambda: [generator.generate([model], sample) for sample in samples]


def ctranslate2_of(checkpoint: str, data: str, task: Any, samples: Samples) -> Callable | None:
    """The same sentences in CTranslate2, or None where it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        print("no row of CTranslate2: it is not installed (pip install ctranslate2)", flush=True)
        return None
    words = task.source_dictionary
    batches = [
        [
            [words[index] for index in source.tolist() if index not in (words.pad(), words.eos())]
            for source in sample["net_input"]["src_tokens"]
        ]
        for sample in samples
    ]
    with tempfile.TemporaryDirectory() as folder:
        with torch.serialization.safe_globals([argparse.Namespace]):
            ctranslate2.converters.FairseqConverter(checkpoint, data).convert(folder, force=True)
        threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
        translator = ctranslate2.Translator(folder, device="cpu", **threads)
    return lambda: [translator.translate_batch(batch, beam_size=5) for batch in batches]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of fairseq-preprocess")
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentences", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="sentences (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()

    utils.import_user_module(argparse.Namespace(user_dir=str(Path(diet_fairseq.__file__).parent)))
    rows: dict[str, Callable] = {}
    number = 0
    for index, given in enumerate(args.models):
        name, _, checkpoint = given.partition("=")
        if not Path(checkpoint).is_file():
            parser.error(f"{given}: must be NAME=CHECKPOINT, and the checkpoint a file")
        model, cfg, task = loaded(checkpoint, args.data)
        samples = batches_of(task, args.sentences, args.batch)
        if index == 0:
            number = sum(sample["nsentences"] for sample in samples)
            rows[f"{name}, {BASELINE}"] = translation(model, cfg, task, samples, SequenceGenerator)
        rows[name] = translation(model, cfg, task, samples, None)
        if index == 0:
            other = ctranslate2_of(checkpoint, args.data, task, samples)
            rows |= {f"{name}, CTranslate2": other} if other else {}
    with torch.no_grad():
        timings = in_turn(rows, args.rounds)
    print("| row | sentences/s | ratio | round by round |\n| --- | --- | --- | --- |")
    for timing in timings:
        rounds = ", ".join(f"{ratio:.2f}" for ratio in timing.ratios)
        print(f"| {timing.name} | {number / timing.median:.0f} | {timing.ratio:.2f} | {rounds} |")
    print({**machine(), "diet_fairseq": diet_fairseq.__version__})
    if args.out:
        save(args.out / "generation-trained.json", "generation", timings, sentences=number)


if __name__ == "__main__":
    main()
