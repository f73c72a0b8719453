"""Sentences a second of trained models: fairseq's beam search, ours, and CTranslate2.

    python -m benchmarks.generation DATA-BIN stock=CHECKPOINT diet_rel=CHECKPOINT ... [--rounds 5]

The baseline is the first model with fairseq's own search. Every model has a row with our search.
``--ctranslate2 float32 int8`` adds a row for each quantization of its export. The sentences are the
test set in SentencePiece's subwords, in the batches of `fairseq-generate`, with beam 5.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from fairseq import checkpoint_utils, utils
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

import diet_fairseq
from diet_fairseq.translate.loading import load_transformer
from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions, resolve_model

from .harness import in_turn, machine, save

BEAM = 5
#: subwords in a translation, fairseq's default
LONGEST = 200
Samples = list[dict[str, Any]]
#: a translation of all samples: the tokens of the best hypotheses
Run = Callable[[], list[list[str]]]


def load(checkpoint: str, data: str) -> tuple[Any, Any, Any]:
    """A model ready for inference, its configuration, and its task with the test set."""
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


def words_of(ids: Tensor, words: Any) -> list[str]:
    return [words[index] for index in ids.tolist() if index not in (words.pad(), words.eos())]


def by_fairseq(model: Any, cfg: Any, task: Any, samples: Samples, kind: Any = None) -> Run:
    """Translation by a class of fairseq's generator; None: our search."""
    cfg.generation.beam = BEAM
    generator = task.build_generator([model], cfg.generation, kind)

    def translate() -> list[list[str]]:
        results = (best for sample in samples for best in generator.generate([model], sample))
        return [words_of(best[0]["tokens"], task.target_dictionary) for best in results]

    return translate


def by_ctranslate2(
    checkpoint: str, data: str, task: Any, samples: Samples, quantization: str
) -> Run:
    """Translation by the exported checkpoint, with as many threads as PyTorch has."""
    import ctranslate2

    from diet_fairseq.export import ctranslate2 as export

    options = ModelOptions(Path(data), NO_SUBWORDS)
    loaded = load_transformer(resolve_model(Path(checkpoint), options))
    with tempfile.TemporaryDirectory() as folder:
        export.save_model(loaded.model, folder, quantization)
        threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
        translator = ctranslate2.Translator(folder, device="cpu", **threads)
    batches = [
        [words_of(source, task.source_dictionary) for source in sample["net_input"]["src_tokens"]]
        for sample in samples
    ]
    limits = {"max_input_length": 0, "max_decoding_length": LONGEST}

    def translate() -> list[list[str]]:
        results = (
            result
            for batch in batches
            for result in translator.translate_batch(batch, beam_size=BEAM, **limits)
        )
        return [result.hypotheses[0] for result in results]

    return translate


def bleu(translations: list[list[str]], task: Any, samples: Samples) -> float:
    def text(words: list[str]) -> str:
        return "".join(words).replace("▁", " ").strip()

    numbers = [number for sample in samples for number in sample["id"].tolist()]
    targets = [task.dataset("test")[number]["target"] for number in numbers]
    references = [text(words_of(target, task.target_dictionary)) for target in targets]
    return sacrebleu.BLEU().corpus_score(list(map(text, translations)), [references]).score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of fairseq-preprocess")
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--ctranslate2", nargs="+", default=[], metavar="QUANTIZATION")
    parser.add_argument("--sentences", type=int, default=256, help="(default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="sentences (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()

    utils.import_user_module(argparse.Namespace(user_dir=str(Path(diet_fairseq.__file__).parent)))
    runs: dict[str, Run] = {}
    quality: dict[str, str] = {}
    number = 0
    for argument in args.models:
        name, _, checkpoint = argument.partition("=")
        if not Path(checkpoint).is_file():
            parser.error(f"{argument}: must be NAME=CHECKPOINT, and the checkpoint a file")
        model, cfg, task = load(checkpoint, args.data)
        samples = batches_of(task, args.sentences, args.batch)
        rows = {name: by_fairseq(model, cfg, task, samples)}
        if not runs:
            number = sum(sample["nsentences"] for sample in samples)
            stock = by_fairseq(model, cfg, task, samples, SequenceGenerator)
            rows = {f"{name}, fairseq's search": stock, **rows}
        for quantization in args.ctranslate2:
            run = by_ctranslate2(checkpoint, args.data, task, samples, quantization)
            rows[f"{name}, CTranslate2, {quantization}"] = run
        with torch.no_grad():
            translations = {row: run() for row, run in rows.items()}
        for row, lines in translations.items():
            same = sum(map(list.__eq__, lines, translations[name]))
            quality[row] = f"{bleu(lines, task, samples):.2f} | {same:,}"
        runs |= rows
    with torch.no_grad():
        timings = in_turn(runs, args.rounds)
    print("| row | sentences/s | ratio | round by round | BLEU | as by our search |")
    print("|" + " --- |" * 6)
    for timing in timings:
        rounds = ", ".join(f"{ratio:.2f}" for ratio in timing.ratios)
        speed = f"{number / timing.median:.0f} | {timing.ratio:.2f}"
        print(f"| {timing.name} | {speed} | {rounds} | {quality[timing.name]} |")
    print(machine())
    if args.out:
        save(args.out / "generation-trained.json", "generation", timings, sentences=number)


if __name__ == "__main__":
    main()
