"""Fine-tuning on classes or numbers: GLUE, XNLI, or a task of one's own.

    finetune.py train --task RTE --data GLUE/RTE --model roberta_hf --out runs/rte
    finetune.py predict runs/rte/model --data GLUE/RTE --out submission
    finetune.py predict runs/rte/model --tsv pairs.tsv --out labels.txt

The data are the published tab-separated files; tasks.yaml says what they hold.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from datasets import Dataset
from pydantic import BaseModel, Field, ValidationInfo, field_validator
from scores import CLASSIFICATION, REGRESSION, label_scores
from training import (
    MODEL,
    add_training_arguments,
    check_length,
    count_positions,
    finish,
    in_locked_folder,
    load,
    run,
    run_command,
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

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import read_json_object, validate
from diet_fairseq.text.lines import read_lines, write_lines

TASKS = Path(__file__).with_name("tasks.yaml")
#: in a model's folder: the task it was trained on
TASK = "task.json"


class Task(BaseModel, extra="forbid"):
    """The files of a task and their columns; tasks.yaml explains the fields."""

    name: str
    train: str
    dev: dict[str, str] = Field(min_length=1)
    text: list[str] = Field(min_length=1, max_length=2)
    label: str
    test: dict[str, str] = {}
    tests: dict[str, str] = {}
    labels: list[str] = []
    metrics: list[str] = Field([], validate_default=True)  # the first one selects
    columns: list[str] | None = None
    positive: str | None = None
    ragged: bool = False
    range: tuple[float, float] = (-np.inf, np.inf)
    submission: Literal["glue", "xtreme"] = "glue"

    @field_validator("metrics")
    @classmethod
    def check_metrics(cls, names: list[str], info: ValidationInfo) -> list[str]:
        """Default: accuracy, or both correlations of a regression."""
        metrics = CLASSIFICATION if info.data.get("labels") else REGRESSION
        if not set(names) <= set(metrics):
            raise ValueError(f"must be of {', '.join(metrics)}")
        return names or list(REGRESSION if metrics is REGRESSION else ("accuracy",))

    @field_validator("positive")
    @classmethod
    def check_positive(cls, label: str | None, info: ValidationInfo) -> str | None:
        if label is not None and label not in info.data.get("labels", ()):
            raise ValueError("must be one of the labels")
        return label


def read_task(name: str) -> Task:
    """A task of tasks.yaml, or of a file of one's own.

    Raises:
        UserError: no such task, an unknown or a missing key, a metric or label that does not fit
    """
    is_file = Path(name).suffix == ".yaml"
    content = yaml.safe_load((Path(name) if is_file else TASKS).read_text(encoding="utf-8"))
    if not is_file and name not in content:
        raise UserError(
            f"--task {name} must be one of {', '.join(content)}, or a file that ends in .yaml"
        )
    task = {**(content if is_file else content[name]), "name": Path(name).stem}
    return validate(task, Task, f"--task {name}: ", "tasks.yaml explains the keys")


def find_file(data: Path, name: str) -> Path:
    """The file of this name in a folder, gzipped or not."""
    for path in (data / name, data / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(f"{data} has no {name}, gzipped or not: put it there")


def read_rows(
    path: Path, names: Sequence[str], header: Sequence[str] | None = None
) -> list[list[str]]:
    """Columns of tab-separated values, row by row: quotation marks are characters like others.

    Args:
        names: the columns to read; a line that is too short has "" in them
        header: names of all columns, where the first line has none

    Raises:
        UserError: a missing column, no row, or a row with too many values
    """
    # `datasets.load_dataset("csv")` drops the surplus values of a first row, splits lines at a lone
    # carriage return, and names neither file nor line where text is not UTF-8 or truncated.
    lines = read_lines(path)
    header = header or next(lines).split("\t")
    for name in names:
        if name not in header:
            raise UserError(
                f"{path} must have a column {name!r}, but has {', '.join(map(repr, header))}: give "
                "the file that has it"
            )
    rows = []
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if len(cells) > len(header):
            raise UserError(
                f"{path}, example {number} must have {len(header)} values with tabs between them, "
                f"but has {len(cells)}: correct the file"
            )
        cells += [""] * (len(header) - len(cells))
        rows.append([cells[header.index(name)] for name in names])
    if not rows:
        raise UserError(f"{path} holds no example: give a file that does")
    return rows


def read_samples(path: Path, task: Task, tokenizer: Any, length: int) -> Dataset:
    """The samples of a labelled file, with ``labels``: classes or numbers.

    Raises:
        UserError: a missing column, an empty file, an unknown label; file and row are named
    """
    rows = read_rows(path, [*task.text, task.label], task.columns)
    examples = [
        (number, row)
        for number, row in enumerate(rows, 1)
        if not task.ragged or all(map(str.strip, row))
    ]
    labels = [label_of(row.pop(), task, f"{path}, example {number}") for number, row in examples]
    rows = [row for _, row in examples]
    return Dataset.from_dict({**tokenize(rows, tokenizer, length), "labels": labels})


def label_of(text: str, task: Task, place: str) -> int | float:
    """A class or a finite number."""
    text = text.strip()
    if task.labels:
        if text in task.labels:
            return task.labels.index(text)
        rule = f"one of {', '.join(task.labels)}"
    else:
        with suppress(ValueError):
            if np.isfinite(float(text)):
                return float(text)
        rule = "a number"
    raise UserError(f"{place}: the label must be {rule}, but is {text!r}: correct the file")


def tokenize(rows: Sequence[Sequence[str]], tokenizer: Any, length: int) -> dict[str, Any]:
    """Samples ``<s> A </s>`` or ``<s> A </s> B </s>``; of a pair the longer text is cut first."""
    texts = map(list, zip(*rows, strict=True))
    return dict(tokenizer(*texts, truncation=True, max_length=length))


def compute_scores(task: Task, output: Any) -> dict[str, float]:
    """The task's metrics, of logits (N, C) and labels (N,)."""
    logits, labels = output
    predictions = logits.argmax(-1) if task.labels else logits.reshape(-1)
    positive = task.labels.index(task.positive) if task.positive is not None else 1
    return label_scores(task.metrics, labels, predictions, positive)


@in_locked_folder
def train(args: Namespace) -> None:
    task = read_task(args.task)
    options: dict[str, Any] = {"num_labels": 1, "problem_type": "regression"}
    if task.labels:
        options = {
            "id2label": dict(enumerate(task.labels)),
            "label2id": {label: number for number, label in enumerate(task.labels)},
            "problem_type": "single_label_classification",
        }
    arguments = training_arguments(args, f"{next(iter(task.dev))}_{task.metrics[0]}")
    set_seed(args.seed)  # before the head is made
    model, tokenizer = load(AutoModelForSequenceClassification, args.model, **options)
    check_length(args.length, model, tokenizer)
    start_from_pooler(model)

    def read(files: dict[str, str]) -> dict[str, Dataset]:
        paths = {name: find_file(args.data, file) for name, file in files.items()}
        return {name: read_samples(paths[name], task, tokenizer, args.length) for name in files}

    tests, dev = read(task.tests), read(task.dev)
    scores = partial(compute_scores, task)
    trainer = Trainer(
        model=model, args=arguments, train_dataset=read({"": task.train})[""], eval_dataset=dev,
        processing_class=tokenizer, data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=scores,
    )  # fmt: skip
    result = {"task": task.name, **run(trainer, args)}
    result["tests"] = {name: scores(trainer.predict(test)[:2]) for name, test in tests.items()}
    (args.out / MODEL / TASK).write_text(task.model_dump_json(exclude_defaults=True))
    finish(args, result)


def predict(args: Namespace) -> None:
    task = read_json_object(args.model / TASK, Task, advice=f"give RUN/{MODEL} that `train` wrote")
    text = args.text or task.text
    if len(text) != len(task.text):
        raise UserError(
            f"--text must name {len(task.text)} columns, as {task.name} has, but names {len(text)}"
        )
    model, tokenizer = load(AutoModelForSequenceClassification, args.model)
    arguments = TrainingArguments(
        output_dir=str(args.out.parent), per_device_eval_batch_size=args.batch,
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, DataCollatorWithPadding(tokenizer))

    def labels(path: Path, header: Sequence[str] | None) -> list[str]:
        rows = read_rows(path, text, header)
        samples = tokenize(rows, tokenizer, count_positions(model, tokenizer))
        logits: Any = trainer.predict(Dataset.from_dict(samples)).predictions
        if task.labels:
            return [task.labels[number] for number in logits.argmax(-1)]
        return [f"{value:.3f}" for value in logits.reshape(-1).clip(*task.range)]

    if args.tsv:
        save(args.out, labels(args.tsv, None))
        return
    if args.data is None:
        raise UserError("--data FOLDER or --tsv FILE is needed: name the examples to label")
    for name, file in (task.test or task.tests).items():
        predictions = labels(find_file(args.data, file), None if task.test else task.columns)
        if task.submission == "xtreme":
            save(args.out / task.name.lower() / f"test-{name}.tsv", predictions)
        else:
            rows = (f"{number}\t{label}" for number, label in enumerate(predictions))
            save(args.out / f"{name}.tsv", ["index\tprediction", *rows])


def save(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, lines)
    print(f"{path}: {len(lines):,} lines")


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("train", help="fine-tune a pretrained encoder")
    command.set_defaults(run=train)
    command.add_argument("--task", required=True, help="a name in tasks.yaml, or a file like it")
    command.add_argument("--data", type=Path, required=True, help="folder of the task's files")
    add_training_arguments(command)
    command = commands.add_parser("predict", help="label test sets or any table")
    command.set_defaults(run=predict)
    command.add_argument("model", type=Path, metavar="MODEL", help="RUN/model that `train` wrote")
    command.add_argument("--data", type=Path, help="folder of the task's test sets")
    command.add_argument("--tsv", type=Path, metavar="FILE", help="a table with a header")
    command.add_argument(
        "--text", nargs="+", metavar="COLUMN", help="columns of --tsv (default: the task's)"
    )
    command.add_argument("--out", type=Path, required=True, help="folder; with --tsv a file")
    command.add_argument("--batch", type=int, default=64, help="batch size (%(default)s)")
    run_command(parser, commands.choices)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
