"""Trained models exported to CTranslate2, beside our own search: speed, BLEU, and what differs.

    python -m benchmarks.exported DATA-BIN diet_rel=CHECKPOINT t5=CHECKPOINT ... [--rounds 3]

Every model translates the same sentences of the test set, batched by length as `fairseq-generate`
does, beam 5: with our search, and exported in float32 and in int8. The best translations of float32
are compared with ours; where one differs, our model scores both.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import sacrebleu
import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

import diet_fairseq
from diet_fairseq.export import checkpoint
from diet_fairseq.export import ctranslate2 as export
from diet_fairseq.inference.model_files import NONE, Pieces, resolve_model

from .generation import Samples, batches_of, loaded, translation
from .harness import in_turn, machine, save

QUANTIZATIONS = ("float32", "int8")
#: subwords in a translation, fairseq's default
LONGEST = 200
#: scores of two hypotheses that are as good as each other, by log-probability a token
TIE = 1e-4


def exported(path: str, data: str, quantization: str) -> Any:
    """The checkpoint in CTranslate2, with as many threads as PyTorch has."""
    with tempfile.TemporaryDirectory() as folder:
        about = resolve_model(Path(path), Pieces(Path(data), NONE))
        export.save(checkpoint.load(about), folder, quantization)
        threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
        return ctranslate2.Translator(folder, device="cpu", **threads)


def by_ctranslate2(translator: Any, task: Any, samples: Samples) -> Callable:
    """A translation of the samples: for each sentence its number and the best hypothesis."""
    words = task.source_dictionary
    batches = [
        (
            sample["id"].tolist(),
            [
                [words[word] for word in source.tolist() if word not in (words.pad(), words.eos())]
                for source in sample["net_input"]["src_tokens"]
            ],
        )
        for sample in samples
    ]

    def translate() -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for numbers, batch in batches:
            results = translator.translate_batch(
                batch, beam_size=5, max_input_length=0, max_decoding_length=LONGEST
            )
            found |= {n: one.hypotheses[0] for n, one in zip(numbers, results, strict=True)}
        return found

    return translate


def ours(run: Callable, task: Any, samples: Samples) -> dict[int, list[str]]:
    """The same, of what our search found."""
    words = task.target_dictionary
    found = {}
    for sample, results in zip(samples, run(), strict=True):
        for number, hypotheses in zip(sample["id"].tolist(), results, strict=True):
            best = hypotheses[0]["tokens"].tolist()
            found[number] = [words[word] for word in best if word != words.eos()]
    return found


def score(model: Any, task: Any, number: int, hypothesis: list[str]) -> float:
    """What our model says of it: log-probability by length, as the search ranks by."""
    words = task.target_dictionary
    source: Tensor = task.dataset("test")[number]["source"]
    target = torch.tensor([words.index(word) for word in hypothesis] + [words.eos()])
    out, _ = model(collate_tokens([source], words.pad()), None, target.roll(1).unsqueeze(0))
    return float(out[0].log_softmax(dim=-1)[range(len(target)), target].mean())


def text(words: list[str]) -> str:
    return "".join(words).replace("▁", " ").strip()


def bleu(found: dict[int, list[str]], task: Any) -> str:
    dataset, words = task.dataset("test"), task.target_dictionary
    references = [
        text([words[word] for word in dataset[number]["target"].tolist() if word != words.eos()])
        for number in found
    ]
    metric = sacrebleu.BLEU()
    return f"{metric.corpus_score([text(one) for one in found.values()], [references]).score:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of fairseq-preprocess, made with SentencePiece")
    parser.add_argument("models", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentences", type=int, default=1024, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="sentences (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()

    utils.import_user_module(argparse.Namespace(user_dir=str(Path(diet_fairseq.__file__).parent)))
    rows: dict[str, Callable] = {}
    scores: dict[str, str] = {}
    number = 0
    for given in args.models:
        name, _, path = given.partition("=")
        if not Path(path).is_file():
            parser.error(f"{given}: must be NAME=CHECKPOINT, and the checkpoint a file")
        model, cfg, task = loaded(path, args.data)
        samples = batches_of(task, args.sentences, args.batch)
        number = sum(sample["nsentences"] for sample in samples)
        rows[name] = translation(model, cfg, task, samples, None)
        with torch.no_grad():
            own = ours(rows[name], task, samples)
            scores[name] = bleu(own, task)
            for quantization in QUANTIZATIONS:
                row = f"{name}, CTranslate2, {quantization}"
                rows[row] = by_ctranslate2(exported(path, args.data, quantization), task, samples)
                found = rows[row]()
                scores[row] = bleu(found, task)
                compare(name, quantization, model, task, own, found)
    with torch.no_grad():
        timings = in_turn(rows, args.rounds)
    print("| row | sentences/s | ratio | BLEU | round by round |\n| --- | --- | --- | --- | --- |")
    for timing in timings:
        rounds = ", ".join(f"{ratio:.2f}" for ratio in timing.ratios)
        speed = f"{number / timing.median:.0f}"
        print(
            f"| {timing.name} | {speed} | {timing.ratio:.2f} | {scores[timing.name]} | {rounds} |"
        )
    print({**machine(), "diet_fairseq": diet_fairseq.__version__})
    if args.out:
        save(args.out / "exported.json", "exported", timings, sentences=number)


def compare(
    name: str, quantization: str, model: Any, task: Any, own: dict[int, list[str]], found: Any
) -> None:
    """Print how many translations are the same, and of the others how the two are ranked by us."""
    unlike = [number for number in own if own[number] != found[number]]
    print(f"{name}, {quantization}: {len(own) - len(unlike)} of {len(own)} translations the same")
    if quantization != "float32":
        return
    for number in unlike:
        one, other = (score(model, task, number, which[number]) for which in (own, found))
        verdict = "a tie" if abs(one - other) < TIE else "no tie"
        if max(len(own[number]), len(found[number])) >= LONGEST:
            # fairseq's search adds what the forced end costs, CTranslate2's cuts
            verdict = "at the limit of length"
        print(f"  sentence {number}: ours {one:.5f}, CTranslate2's {other:.5f}: {verdict}")


if __name__ == "__main__":
    main()
