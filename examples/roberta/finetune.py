"""Fine-tuning on classes or numbers: GLUE, XNLI, or a task of one's own.

    finetune.py train --task RTE --data GLUE/RTE --model roberta_hf --out runs/rte
    finetune.py predict runs/rte/model --data GLUE/RTE --out submission
    finetune.py predict runs/rte/model --tsv pairs.tsv --out labels.txt

The data are the published tab-separated files; tasks.yaml says what they hold.
"""

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import yaml
from datasets import Dataset, Features, Value, load_dataset
from pydantic import BaseModel, Field, ValidationError, model_validator
from scores import CLASSIFICATION, REGRESSION, label_scores
from training import (
    MODEL,
    add_training_arguments,
    check_length,
    finish,
    in_locked_folder,
    load,
    run,
    start_from_pooler,
    training_arguments,
)
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.input_files import read_json
from diet_fairseq.text.lines import read_lines

TASKS = Path(__file__).with_name("tasks.yaml")
#: in a model's folder: the task it was trained on
TASK = "task.json"


class Task(BaseModel, extra="forbid"):
    """What a task's files hold; tasks.yaml explains the fields."""

    name: str
    train: str
    dev: dict[str, str] = Field(min_length=1)
    text: list[str] = Field(min_length=1, max_length=2)
    label: str
    test: dict[str, str] = {}
    tests: dict[str, str] = {}
    labels: list[str] = []
    metrics: list[str] = []  # the first one selects
    columns: list[str] | None = None
    positive: str | None = None
    ragged: bool = False
    range: tuple[float, float] = (-np.inf, np.inf)
    submission: Literal["glue", "xtreme"] = "glue"

    @model_validator(mode="after")
    def complete(self) -> Self:
        """Fill in default metrics; refuse metrics and classes that don't fit."""
        allowed = CLASSIFICATION if self.labels else REGRESSION
        self.metrics = self.metrics or list(allowed[:1] if self.labels else allowed)
        for name in self.metrics:
            if name not in allowed:
                raise ValueError(f"metrics must be of {', '.join(allowed)}, but one is {name}")
        if self.positive is not None and self.positive not in self.labels:
            labels = ", ".join(self.labels)
            raise ValueError(f"positive must be one of {labels}, but is {self.positive}")
        return self


def read_task(given: str) -> Task:
    """A task of tasks.yaml, or of a file of one's own.

    Raises:
        UserError: no such task, an unknown or a missing key, a metric or label that does not fit
    """
    known = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    name = Path(given).stem
    if Path(given).suffix == ".yaml":
        known = {name: yaml.safe_load(Path(given).read_text(encoding="utf-8"))}
    elif given not in known:
        raise UserError(
            f"--task {given} must be one of {', '.join(known)}, or a file that ends in .yaml"
        )
    try:
        return Task(name=name, **known[name])
    except ValidationError as error:
        fault = error.errors()[0]
        reason = " ".join([*map(str, fault["loc"]), fault["msg"]])
        raise UserError(f"--task {given} is not as tasks.yaml explains: {reason}") from error


def find(data: Path, name: str) -> Path:
    """The file of this name in a folder, gzipped or not."""
    for path in (data / name, data / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{data} has no {name}, gzipped or not: put it there")


def read_table(path: Path, cache: Path, columns: Sequence[str] | None = None) -> Dataset:
    """The rows of tab-separated values as they are: quotation marks are characters like others.

    Args:
        cache: folder for the library's files
        columns: their names, where the file has no header
    """
    lines = read_lines(path)
    names = columns or next(lines).split("\t")
    if next(lines, None) is None and not columns:
        raise UserError(f"{path} holds no example below its header: give a file that does")
    try:
        return load_dataset(
            "csv",
            data_files=str(path),
            split="train",
            cache_dir=str(cache),
            delimiter="\t",
            quoting=csv.QUOTE_NONE,
            lineterminator="\n",
            column_names=None if columns is None else list(columns),
            features=Features({name: Value("string") for name in names}),
            na_filter=False,
            encoding="utf-8-sig",
        )
    except Exception as error:  # the library wraps pandas' errors in its own
        reason = " ".join(str(error.__cause__ or error).split())
        raise UserError(
            f"{path} is no table of tab-separated values in UTF-8 ({reason}): correct the file"
        ) from error


def read_examples(path: Path, task: Task, cache: Path, header: bool = False) -> Dataset:
    """The examples of a labelled file, with ``label`` as a class or a number.

    Raises:
        UserError: a missing column, an empty file, an unknown label; file and row are named
    """
    table = read_table(path, cache, None if header else task.columns)
    check_columns(table, [*task.text, task.label], path)
    if task.ragged:
        table = table.filter(lambda row: all((row[name] or "").strip() for name in
                                             (*task.text, task.label)))  # fmt: skip
    if not len(table):
        raise UserError(f"{path} holds no example: give a file that does")
    labels = [
        label_of(label, task, f"{path}, example {number}")
        for number, label in enumerate(table[task.label], 1)
    ]
    return Dataset.from_dict({**{name: table[name] for name in task.text}, "labels": labels})


def check_columns(table: Dataset, names: Iterable[str], path: Path) -> None:
    for name in names:
        if name not in table.column_names:
            raise UserError(
                f"{path} must have a column {name!r}, but has "
                f"{', '.join(map(repr, table.column_names))}: give the file that has it"
            )


def label_of(text: str | None, task: Task, place: str) -> int | float:
    """A class or a finite number."""
    text = (text or "").strip()
    if task.labels:
        if text not in task.labels:
            raise UserError(
                f"{place}: the label must be one of {', '.join(task.labels)}, but is {text!r}: "
                "correct the file"
            )
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UserError(f"{place}: the label must be a number, but is {text!r}: correct the file")
    return value


def tokenize(examples: Dataset, text: Sequence[str], tokenizer: Any, length: int) -> Dataset:
    """Samples ``<s> A </s>`` or ``<s> A </s> B </s>``; of a pair the longer text is cut first."""

    def encode(rows: dict[str, list[str]]) -> Any:
        return tokenizer(*(rows[name] for name in text), truncation=True, max_length=length)

    columns = [name for name in examples.column_names if name != "labels"]
    return examples.map(
        encode, batched=True, remove_columns=columns, keep_in_memory=True,
        new_fingerprint="samples",  # nothing is cached
    )  # fmt: skip


def compute_scores(task: Task, output: Any) -> dict[str, float]:
    """The task's metrics, of logits (N, C) and labels (N,)."""
    logits, labels = output
    predictions = logits.argmax(-1) if task.labels else logits.reshape(-1)
    positive = task.labels.index(task.positive) if task.positive is not None else 1
    return label_scores(task.metrics, labels, predictions, positive)


@in_locked_folder
def train(args: Namespace) -> None:
    task = read_task(args.task)
    paths = {name: find(args.data, file) for name, file in (task.dev | task.tests).items()}
    train_path = find(args.data, task.train)
    options: dict[str, Any] = {"num_labels": 1, "problem_type": "regression"}
    if task.labels:
        options = {
            "id2label": dict(enumerate(task.labels)),
            "label2id": {name: number for number, name in enumerate(task.labels)},
            "problem_type": "single_label_classification",
        }
    arguments = training_arguments(args, f"{next(iter(task.dev))}_{task.metrics[0]}")
    set_seed(args.seed)  # before the head is made
    model, tokenizer = load(AutoModelForSequenceClassification, args.model, **options)
    check_length(args.length, model)
    start_from_pooler(model, args.model)

    def samples(path: Path) -> Dataset:
        examples = read_examples(path, task, args.out / "cache")
        return tokenize(examples, task.text, tokenizer, args.length)

    dev = {name: samples(paths[name]) for name in task.dev}
    scores = partial(compute_scores, task)
    trainer = Trainer(
        model=model, args=arguments, train_dataset=samples(train_path), eval_dataset=dev,
        processing_class=tokenizer, data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=scores,
    )  # fmt: skip
    result = {"task": task.name, **run(trainer, args)}
    result["tests"] = {
        name: scores(trainer.predict(samples(paths[name]))[:2]) for name in task.tests
    }
    (args.out / MODEL / TASK).write_text(task.model_dump_json(exclude_defaults=True))
    finish(args, result)


def predict(args: Namespace) -> None:
    if not (args.model / TASK).exists():
        raise UserError(f"{args.model} has no {TASK}: give RUN/{MODEL} that `train` wrote")
    task = Task(**read_json(args.model / TASK))
    model, tokenizer = load(AutoModelForSequenceClassification, args.model)
    arguments = TrainingArguments(
        output_dir=str(args.out.parent), per_device_eval_batch_size=args.batch,
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer))
    text = args.text or task.text
    if len(text) != len(task.text):
        raise UserError(f"--text has {len(text)} columns, but {task.name} has {len(task.text)}")

    def labels(path: Path, columns: Sequence[str] | None) -> list[str]:
        table = read_table(path, args.out.parent / ".cache", columns)
        check_columns(table, text, path)
        length = model.config.max_source_positions
        samples = tokenize(table.select_columns(list(text)), text, tokenizer, length)
        logits: Any = trainer.predict(samples).predictions
        if task.labels:
            return [task.labels[number] for number in logits.argmax(-1)]
        return [f"{value:.3f}" for value in logits.reshape(-1).clip(*task.range)]

    if args.tsv:
        save(args.out, labels(args.tsv, None))
        return
    if args.data is None:
        raise UserError("--data FOLDER or --tsv FILE is needed: give what is to be labelled")
    for name, file in (task.test or task.tests).items():
        columns = None if task.test else task.columns
        found = labels(find(args.data, file), columns)
        if task.submission == "xtreme":
            save(args.out / task.name.lower() / f"test-{name}.tsv", found)
        else:
            rows = (f"{number}\t{label}" for number, label in enumerate(found))
            save(args.out / f"{name}.tsv", ["index\tprediction", *rows])


def save(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
    print(f"{path}: {len(lines):,} lines")


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("train", help="fine-tune a pretrained encoder")
    command.set_defaults(run=train)
    command.add_argument("--task", required=True, help="of tasks.yaml, or a file like it")
    command.add_argument("--data", type=Path, required=True, help="folder of the task's files")
    add_training_arguments(command)
    command = commands.add_parser("predict", help="label test sets or any table")
    command.set_defaults(run=predict)
    command.add_argument("model", type=Path, metavar="MODEL", help="RUN/model that `train` wrote")
    command.add_argument("--data", type=Path, help="folder of the task's test sets")
    command.add_argument("--tsv", type=Path, metavar="FILE", help="a table with a header")
    command.add_argument("--text", nargs="+", metavar="COLUMN", help="of --tsv (the task's)")
    command.add_argument("--out", type=Path, required=True, help="folder; of --tsv a file")
    command.add_argument("--batch", type=int, default=64, help="(%(default)s)")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
