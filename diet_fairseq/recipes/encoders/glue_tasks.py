"""GLUE's tasks: their files, columns and metrics (Wang et al. 2019, gluebenchmark.com)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...errors import UserError
from ...tasks.diet_glue import number
from ...text.whitespace import normalise
from ..common.text import read_lines

TRAIN, VALID = "train", "valid"
#: labels may have spaces, a line of fairseq-preprocess may not
SPACE = "\u2581"


class Example(NamedTuple):
    """Texts and the label, or "", with plain single spaces, and where they were read."""

    texts: tuple[str, ...]
    label: str
    line: int


@dataclass(frozen=True)
class Columns:
    """Where one file has its texts and its label: names in its header, or places without one."""

    texts: tuple[str | int, ...]
    label: str | int | None = None
    #: of a file without a header
    width: int | None = None


@dataclass(frozen=True)
class Task:
    """A task to fine-tune on; ``labels`` in the order of their numbers, none for a regression.

    ``dev_files`` and ``test_files`` say which file a split is read from. The first of ``metrics``
    is the one reported. ``ragged`` files have lines with too few columns or an empty text, which
    are left out and counted.
    """

    name: str
    columns: Columns
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    test: Columns | None = None
    dev_files: dict[str, str] = field(default_factory=lambda: {"valid": "dev"})
    test_files: dict[str, str] = field(default_factory=lambda: {"test": "test"})
    ragged: bool = False
    positive: str = "1"
    regression: bool = False

    @property
    def pair(self) -> bool:
        return len(self.columns.texts) == 2

    @property
    def selected_by(self) -> list[str]:
        """What is measured at every validation."""
        return list(self.dev_files)

    @property
    def dictionary(self) -> str:
        """Where it is in the prepared data."""
        return "input0/dict.txt"

    def flags(self) -> list[str]:
        """Options of fairseq-train: how the task is learned and measured."""
        return [
            *["--task", "glue", "--criterion", "glue", f"--metrics={','.join(self.metrics)}"],
            *(["--regression-target"] if self.regression else []),
            f"--positive-label={one_word(self.positive)}",
        ]

    def reported(self, split: str) -> str:
        """The name of the split's results in the papers' tables and GLUE's submissions."""
        return MNLI_NAMES[split] if self.name == "MNLI" else self.name


MNLI_NAMES = {"valid": "MNLI-m", "valid1": "MNLI-mm", "test": "MNLI-m", "test1": "MNLI-mm"}
ENTAILMENT = ("entailment", "not_entailment")
BINARY = ("0", "1")


def one_word(label: str) -> str:
    """A label as fairseq's dictionary has it."""
    return label.replace(" ", SPACE)


def columns(*names: str | int) -> Columns:
    """The texts', then the label's."""
    return Columns(names[:-1], names[-1])


GLUE = {
    task.name: task
    for task in (
        Task(
            "MNLI",
            columns("sentence1", "sentence2", "gold_label"),
            ("contradiction", "neutral", "entailment"),
            dev_files={"valid": "dev_matched", "valid1": "dev_mismatched"},
            test_files={"test": "test_matched", "test1": "test_mismatched"},
        ),
        Task(
            "QQP",
            columns("question1", "question2", "is_duplicate"),
            BINARY,
            ("accuracy", "f1"),
            ragged=True,
        ),
        Task("QNLI", columns("question", "sentence", "label"), ENTAILMENT),
        Task("SST-2", columns("sentence", "label"), BINARY),
        Task(
            "CoLA",
            Columns((3,), 1, width=4),  # source, label, the author's mark, sentence
            BINARY,
            ("matthews", "accuracy"),
            test=Columns(("sentence",)),
        ),
        Task(
            "STS-B",
            columns("sentence1", "sentence2", "score"),
            metrics=("pearson", "spearman"),
            regression=True,
        ),
        Task("MRPC", columns("#1 String", "#2 String", "Quality"), BINARY, ("accuracy", "f1")),
        Task("RTE", columns("sentence1", "sentence2", "label"), ENTAILMENT),
    )
}
REFUSED = {
    "WNLI": "WNLI is left out, as in both papers: its dev set repeats training sentences with the "
    "other label, so that guessing the larger class beats what was learned"
}


def glue_task(name: str) -> Task:
    """One of GLUE's, whatever the case of its name."""
    known = {task.lower(): GLUE[task] for task in GLUE}
    if name.upper() in REFUSED:
        raise UserError(REFUSED[name.upper()])
    if name.lower() not in known:
        raise UserError(f"GLUE has no task {name}: take one or more of {', '.join(GLUE)}")
    return known[name.lower()]


def read(path: Path, task: Task, where: Columns) -> Iterator[Example]:
    """The examples of a file of tab-separated values.

    A quotation mark is a character like others (many of GLUE's are unbalanced), and only a
    newline ends a line.
    """
    rows = ((number, line.split("\t")) for number, line in enumerate(read_lines(path), 1))
    header = None if where.width else [name.strip() for name in next(rows)[1]]
    texts, label = places(path, where, header)
    width = where.width or len(header or ())
    left_out, blank = 0, ""
    for number_, row in rows:
        place = f"{path}, line {number_}"
        if len(row) == 1 < width and not row[0].strip():
            blank = blank or place  # mostly the last
            continue
        # What is to be labelled must stay whole.
        lenient = task.ragged and label is not None
        if blank and label is None:
            place, row = blank, [""]
        if len(row) != width:
            if lenient:
                left_out += 1
                continue
            raise UserError(
                f"{place}: {width} tab-separated columns are expected, {len(row)} are found: "
                "correct the file"
            )
        found = tuple(normalise(row[column]) for column in texts)
        if task.pair and not all(found) and not (task.ragged and label is None):
            if lenient:
                left_out += 1
                continue
            empty = found.index("")
            raise UserError(
                f"{place}: {task.name} takes a pair of texts, but the {('first', 'second')[empty]} "
                "is empty: correct the file"
            )
        # Two labels that differ in their kind of space look the same, and are.
        named = "" if label is None else normalise(row[label])
        if label is not None and not named:
            raise UserError(f"{place}: its label is empty: correct the file, or leave the line out")
        yield Example(found, named, number_)
    if left_out:
        print(f"{path}: {left_out:,} lines with too few columns or an empty text were left out")


def places(path: Path, where: Columns, header: list[str] | None) -> tuple[list[int], int | None]:
    """The numbers of the texts' columns and of the label's."""

    def place(column: str | int) -> int:
        if isinstance(column, int):
            return column
        if column not in (header or ()):
            raise UserError(
                f"{path}, line 1: a column named {column!r} is expected, found are "
                f"{', '.join(map(repr, header or ()))}: give the file that has it"
            )
        return (header or []).index(column)

    return list(map(place, where.texts)), None if where.label is None else place(where.label)


def checked(path: Path, task: Task, examples: Sequence[Example]) -> Sequence[Example]:
    """The examples; refused if there are none, or a label is not one of the task's."""
    if not examples:
        raise UserError(f"{path} holds no example: give a file that does")
    for example in examples:
        place = f"{path}, line {example.line}"
        if task.regression:
            number(example.label, place)
        elif example.label not in task.labels:
            raise UserError(
                f"{place}: the label {example.label!r} is not among training's "
                f"({', '.join(task.labels)}): correct the file"
            )
    return examples
