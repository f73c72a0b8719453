"""``prepare-glue`` and ``prepare-task``: tab-separated values to what fairseq-train reads."""

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from statistics import mean
from typing import Any

from tqdm import tqdm

from ...atomic import written
from ...data.metrics import METRICS, chosen, percent
from ...errors import UserError
from ...text.whitespace import normalise
from ..common import programs
from ..common.options import add_workers, folder_name
from ..common.stages import MADE_FROM, Stage, digest_of, left, run_all
from ..common.subwords import KINDS
from ..common.text import write_lines
from .documents import Source
from .folder import add_folder
from .glue_tasks import (
    GLUE,
    TRAIN,
    Columns,
    Example,
    Task,
    checked,
    glue_task,
    one_word,
    read,
)
from .xtreme_tasks import PREPARED, Transfer


def add_glue_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "glue", metavar="GLUE", type=Path, help="folder with a folder for each of GLUE's tasks"
    )
    parser.add_argument(
        "--tasks", metavar="TASK", nargs="+", help=f"of {', '.join(GLUE)} (all with a train.tsv)"
    )
    add_workers(parser)
    add_folder(parser)


def add_task_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", type=task_name, help="name of the task")
    for split in ("train", "dev", "test"):
        parser.add_argument(
            f"--{split}",
            metavar="TSV",
            type=Path,
            required=split != "test",
            help="tab-separated values with a header, gzipped where the name ends in .gz",
        )
    parser.add_argument(
        "--text", metavar="COLUMN", nargs="+", required=True, help="one column, or two of a pair"
    )
    parser.add_argument("--label", metavar="COLUMN", required=True)
    parser.add_argument("--regression", action="store_true", help="labels are numbers")
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="METRIC",
        help=f"the first is reported: {', '.join(METRICS)}",
    )
    parser.add_argument(
        "--positive-label", default="1", help="class that F1 is computed for (%(default)s)"
    )
    add_workers(parser)
    add_folder(parser)


def task_name(text: str) -> str:
    """A name that `finetune` finds: it takes several, with commas between them, or all."""
    if text == "all" or "," in text:
        raise ArgumentTypeError(f"must name one task, not all, without commas, but is {text!r}")
    return folder_name(text)


def prepare_glue(args: Namespace) -> None:
    names = args.tasks
    if not names:
        names = [name for name in GLUE if find(args.glue / name, TRAIN)]
        if not names:
            raise UserError(f"{args.glue} has no task's folder with a train.tsv: name another")
        print(f"with a train.tsv: {', '.join(names)}")
    for task in map(glue_task, names):
        folder = args.glue / task.name
        splits = {TRAIN: TRAIN, **task.dev_files, **task.test_files}
        files = {split: find(folder, file) for split, file in splits.items()}
        for split in (TRAIN, *task.dev_files):
            if not files[split]:
                raise UserError(
                    f"{folder} has no {splits[split]}.tsv (or .tsv.gz): fetch all of {task.name}"
                )
        prepare(task, {split: paths for split, paths in files.items() if paths}, args)


def find(folder: Path, name: str) -> list[Path]:
    """The files of a split: NAME.tsv, gzipped or not, and parts of it called NAME_*.tsv."""
    found = [*folder.glob(f"{name}.tsv*"), *folder.glob(f"{name}_*.tsv*")]
    return sorted(path for path in found if path.name.endswith((".tsv", ".tsv.gz")))


def prepare_task(args: Namespace) -> None:
    if len(args.text) > 2:
        raise UserError(f"--text has {len(args.text)} columns: a task has one text, or a pair")
    if args.name in GLUE:
        raise UserError(f"{args.name} is a task of GLUE: use `prepare-glue`, or another NAME")
    columns = Columns(tuple(args.text), args.label)
    labels: tuple[str, ...] = ()
    if not args.regression:
        some = Task(args.name, columns)
        labels = tuple(sorted({example.label for example in read(args.train, some, columns)}))
        if len(labels) == 1:
            raise UserError(
                f"{args.train} has one label only, {labels[0]!r}: there is nothing to classify"
            )
    named = normalise(args.positive_label)  # as labels are read
    positive = labels.index(named) if named in labels else None
    task = Task(
        args.name,
        columns,
        labels,
        chosen(",".join(args.metrics or ()), args.regression, positive),
        test=Columns(columns.texts),
        positive=named,
        regression=args.regression,
    )
    files = {TRAIN: [args.train], "valid": [args.dev], "test": [args.test] if args.test else []}
    prepare(task, {split: paths for split, paths in files.items() if paths}, args)


def prepare(task: Task, files: dict[str, list[Path]], args: Namespace) -> None:
    folder = args.folder / "tasks" / task.name
    made_from: dict[str, Any] = {
        "task": asdict(task),
        "files": {
            split: [Source(path).fingerprint() for path in paths] for split, paths in files.items()
        },
        "text": text_of(args.folder, folder / "encoded"),
    }
    stages = [
        Stage("encoded", made_from, lambda partial: encode(partial, task, files, args)),
        Stage("data-bin", {}, lambda partial: binarise(partial, folder, args)),
    ]
    run_all(folder, stages)
    counts = left(folder / "encoded", "counts.json")
    print(f"{task.name}: " + ", ".join(f"{number:,} to {name}" for name, number in counts.items()))


def settings_of(folder: Path) -> dict[str, Any]:
    """How the encoder's pretraining text was made."""
    needed = {"bpe": str, "vocabulary": int, "language": str, "lower": bool}
    found = left(programs.data_of(folder), MADE_FROM, **needed)
    return {name: found[name] for name in needed}


def text_of(folder: Path, stage: Path) -> dict[str, Any]:
    """What a stage of a task takes over from the encoder's text, the dictionary among it.

    A stage that an earlier version made doesn't say which dictionary it has, and stays valid.
    """
    text = settings_of(folder)
    before = left(stage, MADE_FROM, text=dict)["text"] if stage.exists() else None
    if before is None or "dictionary" in before:
        text["dictionary"] = digest_of(folder / "data-bin" / "dict.txt")[:16]
    return text


def encode(folder: Path, task: Task, files: dict[str, list[Path]], args: Namespace) -> None:
    """Every split's texts in subwords, its labels, and the metrics of a constant guess."""
    settings = settings_of(args.folder)
    model = KINDS[settings["bpe"]](args.folder / "subwords")
    counts, examples = {}, {}
    for split, paths in files.items():
        examples[split] = found = list(examples_of(split, paths, task))
        counts[split] = len(found)
        lines = [example.texts for example in found]
        for number, side in enumerate(zip(*lines, strict=True)):
            texts = [text.lower() for text in side] if settings["lower"] else side
            coded = model.encode(texts, settings["language"], args.workers)
            bar = tqdm(coded, f"subwords of {task.name} {split}", len(texts), disable=None)
            write_lines(subfolder(folder, f"input{number}") / split, bar)
        if not split.startswith("test"):
            labels = (one_word(example.label) for example in found)
            write_lines(subfolder(folder, "label") / split, labels)
    train = [example.label for example in examples.pop(TRAIN)]
    write_lines(folder / "labels", dictionary_of(task, train))
    write_json(folder / "counts.json", counts)
    write_json(
        folder / "guess.json",
        {split: guess(task, train, examples[split]) for split in task.dev_files},
    )


def examples_of(split: str, paths: list[Path], task: Task) -> Iterable[Example]:
    """The checked examples of all files of a split."""
    where = task.columns
    if split.startswith("test"):
        where = task.test or Columns(where.texts)
    for path in paths:
        found = list(read(path, task, where))
        yield from found if where.label is None else checked(path, task, found)


def dictionary_of(task: Task, train: list[str]) -> Iterable[str]:
    """Labels in the order of their numbers, as fairseq's dictionaries are written."""
    counts = Counter(train)
    return (f"{one_word(label)} {counts[label]}" for label in task.labels)


def guess(task: Task, train: list[str], dev: list[Example]) -> dict[str, float]:
    """The dev set's metrics if the commonest training label, or the mean, is always predicted."""
    if task.regression:
        targets = [float(example.label) for example in dev]
        found = [mean(map(float, train))] * len(targets)
    else:
        [(commonest, _)] = Counter(train).most_common(1)
        targets = [float(task.labels.index(example.label)) for example in dev]
        found = [float(task.labels.index(commonest))] * len(targets)
    positive = task.labels.index(task.positive) if task.positive in task.labels else None
    return {name: percent(name, targets, found, positive) for name in task.metrics}


def binarise(partial: Path, folder: Path, args: Namespace) -> None:
    """The files of fairseq's ``sentence_prediction``, with the pretrained encoder's dictionary."""
    task, encoded = load_task(folder), folder / "encoded"
    dictionaries = {
        f"input{number}": args.folder / "data-bin" / "dict.txt"
        for number in range(len(task.columns.texts))
    }
    if task.regression:
        for split in (TRAIN, *task.dev_files):
            labels = subfolder(partial, "label") / f"{split}.label"
            copyfile(encoded / "label" / split, labels)
    else:
        dictionaries["label"] = encoded / "labels"
    for part, dictionary in dictionaries.items():
        options: dict[str, Any] = {
            "--srcdict": dictionary,
            "--trainpref": encoded / part / TRAIN,
            "--validpref": ",".join(str(encoded / part / split) for split in task.dev_files),
            "--destdir": partial / part,
            "--workers": 1 if part == "label" else args.workers,
        }
        programs.preprocess(options, partial / f"{part}.log", "--only-source")


def subfolder(folder: Path, name: str) -> Path:
    (folder / name).mkdir(exist_ok=True)
    return folder / name


def load_task(folder: Path) -> Task:
    """The task of a prepared folder."""
    if not (folder / "encoded" / MADE_FROM).exists():
        raise UserError(
            f"{folder} holds no prepared task: run {preparing(folder.name)} first, or name --folder"
        )
    found = left(folder / "encoded", MADE_FROM, task=dict)["task"]
    for name in ("columns", "test"):
        if found[name] is not None:
            found[name] = Columns(**{**found[name], "texts": tuple(found[name]["texts"])})
    kind = Transfer if "questions" in found else Task
    return kind(**{**found, "labels": tuple(found["labels"]), "metrics": tuple(found["metrics"])})


def preparing(name: str) -> str:
    """The commands that make a task of this name, or any task."""
    benchmark, _, trained_on = name.partition("-")
    if benchmark in PREPARED:
        return "`prepare-xtreme --train-on`" if trained_on else "`prepare-xtreme`"
    if name in GLUE:
        return "`prepare-glue`"
    return "`prepare-glue`, `prepare-xtreme` or `prepare-task`"


def write_json(path: Path, content: Any) -> None:
    with written(path) as file:
        json.dump(content, file, indent=1)
