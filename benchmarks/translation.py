"""Training and generation of every scheme against stock fairseq, in turn in one process.

    python -m benchmarks.translation [--data DATA-BIN] [--size _tiny] [--rounds 7]

Without ``--data`` (a folder of fairseq-preprocess) the sentences are random words with the lengths
of Multi30k's sentences. Generation decodes the same number of steps in every row. The baseline is
fairseq alone, including its beam search. ``stock+`` is fairseq's model with our optimizer and
criterion, as in the rows below it (``--plain``: fairseq's). ``--bf16`` adds each row in bfloat16,
for CPUs that have instructions for it.
"""

import argparse
import random
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks, utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from diet_fairseq.config import translation_schemes

from .harness import Timing, against_first, in_fork, in_turn, machine, memory, save

STOCK = "stock"
WITH_OURS = "stock+"
BF16 = ", bf16"  # how a row in bfloat16 ends
COMPONENTS = {
    "label_smoothed_cross_entropy": "fused_label_smoothed_cross_entropy",
    "adam": "fused_adamw",
}
BATCHES = 2  # batches a measurement
STEPS = 20  # tokens decoded for every sentence


def configuration(
    row: str, size: str, backend: str = "auto", plain: bool = False, where: str = "--cpu"
) -> Any:
    """fairseq's configuration of a training run; stock has the same sizes as the schemes."""
    scheme = row.removesuffix(BF16)
    stock = scheme in (STOCK, WITH_OURS)
    argv = f"""unused --path unused --arch transformer_{"none" if stock else scheme}{size} {where}
        --attention-backend {backend}
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam
        --adam-betas (0.9,0.98) --lr 0.001 --max-tokens 4096 --share-all-embeddings
        --beam 5 --max-len-a 0 --max-len-b {STEPS} --min-len {STEPS}""".split()
    if scheme != STOCK and not plain:
        argv = [COMPONENTS.get(word, word) for word in argv]
    if row.endswith(BF16):
        argv.append("--bf16")
    parser = options.get_training_parser()
    options.add_generation_args(parser)
    args = options.parse_args_and_arch(parser, argv)
    if stock:
        args.arch = "transformer"
        args.no_token_positional_embeddings = False
    return convert_namespace_to_omegaconf(args)


def random_task(cfg: Any, sentences: int = 4000, words: int = 8000) -> TranslationTask:
    """Pairs of random words with the lengths of Multi30k's subwords: 18 on average, 6 to 50."""
    draw = random.Random(1)
    dictionary = Dictionary()
    for index in range(words):
        dictionary.add_symbol(f"w{index}")
    dictionary.finalize(padding_factor=8)

    def side(lengths: list[int]) -> list[torch.Tensor]:
        bodies = ([draw.randrange(4, words) for _ in range(n - 1)] + [2] for n in lengths)
        return [torch.tensor(body) for body in bodies]

    lengths = [min(50, max(6, round(draw.lognormvariate(2.83, 0.33)))) for _ in range(sentences)]
    task = TranslationTask(cfg.task, dictionary, dictionary)
    task.datasets["train"] = LanguagePairDataset(
        side(lengths), lengths, dictionary, side(lengths), lengths, dictionary, shuffle=False
    )
    return task


def load_task(cfg: Any, data: str | None) -> TranslationTask:
    if data is None:
        return random_task(cfg)
    cfg.task.data = data
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    return task


def batches_of(task: TranslationTask, tokens: int) -> list[dict[str, Any]]:
    """A few batches from all parts of the length-sorted data, the same for every row."""
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=tokens, seed=1, disable_iterator_cache=True
    )
    samples = list(iterator.next_epoch_itr(shuffle=True))
    return samples[:: max(1, len(samples) // BATCHES)][:BATCHES]


def trainer_of(
    row: str,
    size: str,
    data: str | None,
    backend: str = "auto",
    plain: bool = False,
    where: str = "--cpu",
) -> Trainer:
    cfg = configuration(row, size, backend, plain, where)
    utils.set_torch_seed(1)
    task = load_task(cfg, data)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.begin_epoch(1)
    return trainer


def measure_training(trainers: dict[str, Trainer], rounds: int) -> list[Timing]:
    samples = batches_of(next(iter(trainers.values())).task, 4096)

    def steps(trainer: Trainer) -> None:
        for sample in samples:
            trainer.train_step([sample])

    return in_turn({name: partial(steps, t) for name, t in trainers.items()}, rounds)


def measure_generation(trainers: dict[str, Trainer], rounds: int) -> list[Timing]:
    samples = batches_of(next(iter(trainers.values())).task, 1024)[:2]
    runs = {}
    for name, trainer in trainers.items():
        model = trainer.get_model().eval()
        kind = SequenceGenerator if name.removesuffix(BF16) == STOCK else None
        generator = trainer.task.build_generator([model], trainer.cfg.generation, kind)

        def translate(model: Any = model, generator: Any = generator) -> None:
            with torch.no_grad():
                for sample in samples:
                    generator.generate([model], sample)

        runs[name] = translate
    return in_turn(runs, rounds)


def peak_memory(row: str, size: str, data: str | None) -> float:
    """Peak resident MiB of this process, which trains a few steps of one row alone."""
    measure_training({"": trainer_of(row, size, data)}, rounds=1)
    return memory("VmHWM")


def table(training: list[Timing], generation: list[Timing], peaks: dict[str, float]) -> str:
    lines = ["| scheme | training | generation | peak memory |", "| --- | --- | --- | --- |"]
    for train, generate in zip(training, generation, strict=True):
        mib = peaks.get(train.name)
        size = "" if mib is None else f"{mib / peaks[STOCK]:.2f} ({mib:.0f} MiB)"
        lines.append(f"| {train.name} | {train.ratio:.2f} | {generate.ratio:.2f} | {size} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of fairseq-preprocess (default: random words)")
    parser.add_argument("--size", default="_tiny", help="suffix of the architectures")
    parser.add_argument(
        "--schemes", nargs="+", default=list(translation_schemes()), choices=translation_schemes()
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--plain", action="store_true", help="fairseq's Adam and criterion")
    parser.add_argument("--bf16", action="store_true", help="each row in bfloat16, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    parser.add_argument("--no-memory", action="store_true", help="skip peak memory")
    args = parser.parse_args()

    names = [STOCK, WITH_OURS, *args.schemes]
    if args.bf16:
        names += [name + BF16 for name in names]
    peaks = {}  # before this process computes anything
    if not args.no_memory:
        peaks = {name: in_fork(peak_memory, name, args.size, args.data) for name in names}
    trainers = {
        name: trainer_of(name, args.size, args.data, args.backend, args.plain) for name in names
    }
    training = measure_training(trainers, args.rounds)
    if args.out:
        save(args.out / f"training{args.size}.json", "training", training)
    generation = measure_generation(trainers, args.rounds)
    if args.out:
        save(args.out / f"generation{args.size}.json", "generation", generation)
    print(table(training, generation, peaks))
    if args.bf16:
        training, generation = (
            against_first({t.name: t.seconds for t in timings if t.name.endswith(BF16)})
            for timings in (training, generation)
        )
        print(f"\nAgainst {STOCK}{BF16}:\n{table(training, generation, {})}")
    print(machine())


if __name__ == "__main__":
    main()
