"""Training of an encoder in transformers with a head: options, resumption, and the result."""

import json
import resource
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, cast

# This comes first: the Auto classes know our models, and a broken torchaudio is hidden.
import diet_fairseq.hf  # noqa: F401

# isort: split
import datasets
import torch
from filelock import FileLock, Timeout
from transformers import AutoTokenizer, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from diet_fairseq.config import import_user_dir
from diet_fairseq.errors import UserError
from diet_fairseq.files import atomic_file
from diet_fairseq.hf.swap import FAMILIES

if not sys.stderr.isatty():
    datasets.disable_progress_bars()
    logging.disable_progress_bar()

#: in a run's folder: the best model, what resumption needs, and the result, which is written last
MODEL, CHECKPOINTS, RESULT = "model", "checkpoints", "result.json"


def in_locked_folder(train: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """``train(args)`` that keeps other trainings out of ``args.out``; the lock ends with it."""

    @wraps(train)
    def wrapper(args: Namespace) -> None:
        folder = args.out / CHECKPOINTS
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / "lock", timeout=0):
                train(args)
        except Timeout as error:
            raise UserError(
                f"--out {args.out} is in use by another training: wait until it ends, or give "
                "another folder"
            ) from error

    return wrapper


def add_training_arguments(parser: ArgumentParser) -> None:
    """Options of ``train``; the defaults are TUPE's (Ke et al. 2021, appendix)."""
    add = parser.add_argument
    model_help = "folder that `diet-fairseq export hf` wrote, or of an encoder of transformers"
    add("--model", type=Path, required=True, help=model_help)
    add("--out", type=Path, required=True, help="folder of the run")
    add("--rate", type=float, default=3e-5, help="peak learning rate (%(default)s)")
    add("--epochs", type=int, default=10, help="epochs (%(default)s)")
    add("--seed", type=int, default=1, help="seed of head, order and dropout (%(default)s)")
    add("--batch", type=int, default=32, help="samples in an update (%(default)s)")
    add("--per-step", type=int, help="samples that fit into memory at once (--batch)")
    add("--length", type=int, default=512, help="largest number of tokens (%(default)s)")
    add("--warmup", type=float, default=0.06, help="share of the updates (%(default)s)")
    add("--weight-decay", type=float, default=0.01, help="(%(default)s)")
    add("--evaluate-every", type=int, default=0, help="updates, besides epochs (epochs only)")
    add("--group-by-length", action="store_true", help="batches of samples of similar lengths")
    add("--bf16", action="store_true", help="train in bfloat16")


def run_command(parser: ArgumentParser, commands: Mapping[str, ArgumentParser]) -> None:
    """Parse the arguments, import the package of ``--user-dir``, and run the command."""
    for command in commands.values():
        command.add_argument(
            "--user-dir", type=Path, metavar="DIR", help="package of the model's position scheme"
        )
    args = parser.parse_args()
    if args.user_dir:
        import_user_dir(args.user_dir)
    args.run(args)


def load(kind: Any, folder: Path, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer of a folder: of `diet-fairseq export hf`, of a run, or published."""
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{folder} has no config.json: export the checkpoint with `diet-fairseq export hf`"
        )
    if not (folder / "tokenizer_config.json").is_file():
        raise UserError(
            f"{folder} has no tokenizer: export the checkpoint with its --data and --subwords"
        )
    return kind.from_pretrained(folder, **options), AutoTokenizer.from_pretrained(folder)


def start_from_pooler(model: Any) -> None:
    """Let a classifier begin with BERT's pooler, if next sentences have trained its zero biases."""
    # transformers' own classifiers of BERT contain the pooler
    pooler = getattr(getattr(model, "model", None), "pooler", None)
    if pooler is None or not pooler.bias.any():
        return
    with torch.no_grad():
        for name, parameter in model.classifier.dense.named_parameters():
            parameter.copy_(pooler.get_parameter(name))


def count_positions(model: Any, tokenizer: Any) -> int:
    """The most tokens that the model reads."""
    if hasattr(model.config, "max_source_positions"):
        return model.config.max_source_positions
    family = FAMILIES.get(model.config.model_type)
    unused = family.first_row if family else 0  # RoBERTa's table has two rows that no token has
    return min(model.config.max_position_embeddings - unused, tokenizer.model_max_length)


def check_length(length: int, model: Any, tokenizer: Any) -> None:
    """Refuse samples that are longer than the pretrained model's positions."""
    positions = count_positions(model, tokenizer)
    if length > positions:
        raise UserError(
            f"--length {length} must not exceed the {positions} positions of the model: use "
            f"--length {positions}"
        )


def training_arguments(args: Namespace, metric: str) -> TrainingArguments:
    """Trainer's, for the options above; ``metric`` selects the best checkpoint."""
    step = min(args.per_step or args.batch, args.batch)
    if args.batch % step:
        raise UserError(f"--batch {args.batch} must be a multiple of --per-step {step}")
    return TrainingArguments(
        output_dir=str(args.out / CHECKPOINTS),
        learning_rate=args.rate,
        num_train_epochs=args.epochs,
        seed=args.seed,
        per_device_train_batch_size=step,
        per_device_eval_batch_size=step,
        gradient_accumulation_steps=args.batch // step,
        warmup_steps=args.warmup,
        weight_decay=args.weight_decay,
        adam_epsilon=1e-6,
        train_sampling_strategy="group_by_length" if args.group_by_length else "random",
        bf16=args.bf16,
        use_cpu=not torch.cuda.is_available(),
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=metric,
        greater_is_better=True,
        logging_steps=50,
        report_to="none",
        disable_tqdm=True,
    )


class EvaluateEvery(TrainerCallback):
    """Evaluation every ``updates`` updates, besides the ends of epochs."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.updates and state.global_step % self.updates == 0:
            control.should_evaluate = control.should_save = True


def last_checkpoint(folder: Path) -> str | None:
    """The last complete checkpoint of a training that was killed."""
    updates = {}
    for path in folder.glob("checkpoint-*/trainer_state.json"):  # the file that Trainer writes last
        with suppress(json.JSONDecodeError):
            json.loads(path.read_bytes())
            updates[int(path.parent.name.partition("-")[2])] = str(path.parent)
    return updates[max(updates)] if updates else None


def run(trainer: Trainer, args: Namespace) -> dict[str, Any]:
    """Train, from the last checkpoint where there is one, and save the best model.

    Returns:
        settings, the metrics at every evaluation, seconds, tokens per second, peak memory
    """
    trainer.add_callback(EvaluateEvery(args.evaluate_every))
    checkpoint = last_checkpoint(args.out / CHECKPOINTS)
    exported = (args.model / "config.json").stat().st_mtime
    if checkpoint and Path(checkpoint, "trainer_state.json").stat().st_mtime < exported:
        checkpoint = None  # of an earlier model of this name
    output = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(args.out / MODEL))
    train, model = cast(Any, trainer.train_dataset), cast(Any, trainer.model)
    tokens = sum(map(len, train["input_ids"])) * args.epochs
    seconds = output.metrics["train_runtime"]
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # of this process
    if torch.cuda.is_available():
        peak_memory = torch.cuda.max_memory_allocated()
    return {
        "model": str(args.model),
        **{name: getattr(args, name) for name in ("rate", "epochs", "seed", "batch", "length")},
        "curve": learning_curve(
            trainer.state.log_history, trainer.args.metric_for_best_model or ""
        ),
        "updates": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "tokens per second": None if checkpoint else round(tokens / seconds),
        "memory, MB": round(peak_memory / 1e6),
        "parameters": model.num_parameters(),
    }


def learning_curve(history: list[dict[str, float]], selects: str) -> list[dict[str, float]]:
    """The update and all metrics of every evaluation, the one that selects before the others."""
    curve: dict[float, dict[str, float]] = {}  # several held-out sets have an entry each
    for entry in history:
        names = [name for name in entry if name.startswith("eval_")]
        names.sort(key=lambda name: name != f"eval_{selects}")  # a saved history has sorted names
        if names:
            values = curve.setdefault(entry["step"], {"update": entry["step"]})
            values |= {name.removeprefix("eval_"): entry[name] for name in names}
    return list(curve.values())


def finish(args: Namespace, result: dict[str, Any]) -> None:
    """Write the result, and remove what only resumption needs."""
    with atomic_file(args.out / RESULT) as file:
        json.dump(result, file, indent=1, ensure_ascii=False)
    shutil.rmtree(args.out / CHECKPOINTS)
