"""One run of fine-tuning, and what it has in common with the others of its row."""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from shutil import copyfileobj
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from tqdm import tqdm

from ...atomic import written
from ...errors import UserError
from ...patches import loading, saving
from ..common import cells, programs, settings, train_log
from ..common.options import by_name
from ..common.stages import MADE_FROM, difference, left
from ..common.turns import turn
from .glue_tasks import TRAIN, VALID, Task
from .presets import FINE_TUNING_ADAM, GRIDS
from .start import POSITIONS, Start
from .xtreme_tasks import Transfer

BEST, LAST, RESULT = "checkpoint_best.pt", "checkpoint_last.pt", "result.json"
#: the options that a row's cells share
GRID = "grid.json"
#: what doesn't change the training among them: the names of task and test sets
TESTS = ("task",)


@dataclass(frozen=True)
class FineTuning:
    """What is fine-tuned on what, and how; None: as in the grid or the checkpoint."""

    task: str
    checkpoint: Path
    encoder: str | None
    scratch: bool
    row: str | None
    grid: str
    rates: list[float] | None
    epochs: list[int] | None
    seeds: list[int] | None
    batch: int | None
    length: int | None
    keep: str
    folder: Path


@dataclass(frozen=True)
class Row:
    """All cells of a task that differ in learning rate, epochs and seed only."""

    task: Task
    data: Path
    start: Start
    wanted: FineTuning
    more: tuple[str, ...]

    @property
    def name(self) -> str:
        scratch = "-scratch" * self.wanted.scratch
        return self.wanted.row or self.start.name + scratch

    @property
    def folder(self) -> Path:
        return self.data / "runs" / self.name

    def flags(self) -> list[str]:
        """The options that all cells of the row share."""
        task, wanted, preset = self.task, self.wanted, GRIDS[self.wanted.grid]
        length = wanted.length or preset.length
        positions = self.start.model["max_positions"]
        if positions is not None and length > positions:
            raise UserError(
                f"--length {length}: {self.start.path} takes {positions} tokens: take --length "
                f"{positions}"
            )
        model = self.start.flags(wanted.encoder)
        kind = ARCH_MODEL_REGISTRY[model[0].removeprefix("--arch=")]
        wants = by_name([*model, *self.more]).get("--segment-scheme", "none")
        if wants != "none" and not getattr(kind, "has_segments", False):
            raise UserError(
                f"--segment-scheme {wants}: {self.start.path} has no segments: add --encoder bert, "
                "which gives them to a roberta_<scheme>, or leave it out"
            )
        flags: list[Any] = [
            *model,
            *[*task.flags(), "--max-length", length],
            *([] if wanted.scratch else ["--finetune-from-model", self.start.path]),
            *["--optimizer", *FINE_TUNING_ADAM, "--clip-norm", 1.0],
            *["--weight-decay", preset.weight_decay],
            *["--lr-scheduler", "linear_ratio", "--warmup-ratio", preset.warmup],
            *["--batch-size", wanted.batch or preset.batch, "--required-batch-size-multiple", 1],
            f"--valid-subset={','.join(task.selected_by)}",
            *([] if task.selected_by == [*task.dev_files] else ["--ignore-unused-valid-subsets"]),
            *[f"--best-checkpoint-metric={task.metrics[0]}", "--maximize-best-checkpoint-metric"],
            "--no-epoch-checkpoints",
        ]
        if preset.grouped:
            flags.append("--group-by-length")
        if preset.validate_every:
            flags += ["--validate-interval-updates", preset.validate_every]
        return [*map(str, flags), *self.more]

    def begin(self) -> None:
        """Refuse a folder whose cells were made in another way."""
        options = by_name(self.flags())
        options.pop("--finetune-from-model", None)  # its contents count
        wanted = {
            "checkpoint": None if self.wanted.scratch else self.start.digest,
            "task": left(self.data / "data-bin", MADE_FROM),
            **options,
        }
        path = self.folder / GRID
        if path.exists():
            other = difference(cells.load(path), wanted)
            if not other:
                return
            if is_begun(self.folder):
                raise UserError(
                    f"{self.folder} was begun with other settings: {other}: take another --row, or "
                    "remove this folder"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        with written(path) as file:
            json.dump(wanted, file, indent=1)

    @cached_property
    def training(self) -> str:
        """What is the same for all rows that train the same model.

        XQuAD, MLQA and TyDiQA are tests of one model that was trained on SQuAD.
        """
        if not (isinstance(self.task, Transfer) and self.task.questions):
            return str(self.folder.resolve())
        return training_of(self.folder)

    @property
    def twins(self) -> list[Path]:
        """Rows of other tasks that train the same model, as far as they have begun."""
        rows = (data / "runs" / self.name for data in sorted(self.data.parent.iterdir()))
        others = (row for row in rows if row != self.folder)
        return [row for row in others if self.training and self.training == training_of(row)]


def is_begun(row: Path) -> bool:
    """Whether a cell of the row has a result or a checkpoint, or is about to write one."""
    return any((cell / RESULT).exists() or settings.is_begun(cell) for cell in row.glob("*/"))


def training_of(row: Path) -> str:
    """A digest of all that decides a row's models, but for a cell's own settings; "" if it has not
    begun."""
    data = row.parents[1] / "data-bin"
    files = [data / name for name in ("dict.txt", f"{TRAIN}.jsonl", f"{VALID}.jsonl")]
    if not all(path.exists() for path in (row / GRID, *files)):
        return ""
    shared = {name: value for name, value in cells.load(row / GRID).items() if name not in TESTS}
    digest = hashlib.sha256(json.dumps(shared, sort_keys=True).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class Tuning(cells.Cell):
    """One of them: a run with one learning rate, number of epochs and seed."""

    row: Row
    rate: float
    epochs: int
    seed: int
    on_gpu: bool = False
    #: GPUs that are free, or as many times "" for the CPU as cells run side by side
    devices: "SimpleQueue[str]" = field(default_factory=SimpleQueue)
    #: training -> cells of this command that have yet to test what it gives
    waiting: Counter[str] = field(default_factory=Counter)

    @property
    def folder(self) -> Path:
        return self.row.folder / f"lr{self.rate:g}_epochs{self.epochs}_seed{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.row.task.name}, {self.row.name}, {self.folder.name}"

    @property
    def result(self) -> Path:
        return self.folder / RESULT

    @property
    def training(self) -> str:
        return f"{self.row.training}/{self.folder.name}"

    @cached_property
    def twin(self) -> Path | None:
        """A finished cell of another task that trained this very model, and has kept it."""
        twins = (row / self.folder.name for row in self.row.twins)
        kept = (one for one in twins if (one / RESULT).exists() and (one / BEST).exists())
        return next(kept, None)

    def steps(self) -> list[tuple[list[str], Path]]:
        trained = [] if self.twin else [self._training()]
        measured = [self._measuring()] if self._tests else []
        return trained + measured

    @property
    def _tests(self) -> list[str]:
        """What the best checkpoint alone is tested on."""
        task = self.row.task
        return [split for split in task.dev_files if split not in task.selected_by]

    def _training(self) -> tuple[list[str], Path]:
        folder = self.folder
        flags = [
            *["--user-dir", programs.PLUGIN, *self.row.flags()],
            *["--lr", self.rate, "--max-epoch", self.epochs, "--seed", self.seed],
            *["--save-dir", folder, "--log-format", "simple", "--log-interval", 100],
            *["--log-file", folder / "train.log", "--num-workers", 0],
            *([] if self.on_gpu else ["--cpu"]),
        ]
        [_, *command] = programs.python("fairseq_cli.train", self.row.data / "data-bin", *flags)
        return command, folder / "train.out"

    def _measuring(self) -> tuple[list[str], Path]:
        """The command that measures the best checkpoint by the task's tests."""
        options = by_name(self.row.flags())
        flags = [
            *["--user-dir", programs.PLUGIN],
            *["--path", self.folder / BEST, f"--valid-subset={','.join(self._tests)}"],
            *["--batch-size", options["--batch-size"], "--required-batch-size-multiple", 1],
            *["--log-format", "simple", "--log-interval", 100, "--num-workers", 0],
            *([] if self.on_gpu else ["--cpu"]),
        ]
        data = self.row.data / "data-bin"
        [_, *command] = programs.python("fairseq_cli.validate", data, *flags)
        return command, self.folder / "validate.out"

    def call(self, command: list[str], log: Path) -> str:
        device = self.devices.get()
        environment = programs.environment()
        if device:
            environment["CUDA_VISIBLE_DEVICES"] = visible(device)
        try:
            return cells.run_logged(command, log, env=environment)
        finally:
            self.devices.put(device)

    def outcome(self) -> dict[str, Any]:
        found = {
            "row": self.row.name,
            "task": self.row.task.name,
            "rate": self.rate,
            "epochs": self.epochs,
            "seed": self.seed,
            "keep": self.row.wanted.keep,
            "model": model_of(self.folder / BEST),
            **(self._trained_in(self.twin) if self.twin else self._trained()),
        }
        if self._tests:
            best, _ = on_dev(self.row.task, found)
            points = train_log.points(self.folder / "validate.out")
            found["curves"] |= {split: [(best, points[split][-1])] for split in self._tests}
        self.tidy()
        return found

    def _trained(self) -> dict[str, Any]:
        log = self.folder / "train.log"
        return {"curves": train_log.curves(log), **train_log.totals(log)}

    def _trained_in(self, twin: Path) -> dict[str, Any]:
        """The twin's training; its seconds count there, not here."""
        found = cells.load(twin / RESULT)
        return {
            "curves": {VALID: found["curves"][VALID]},
            **{name: found[name] for name in ("parameters", "updates done")},
            "seconds": 0,
            "trained in": str(twin.relative_to(self.row.data.parent)),
        }

    def summary(self, outcome: dict[str, Any]) -> str:
        task = self.row.task
        metric = task.metrics[0]
        said = [
            f"{task.reported(split)} {metric} {max(one[metric] for _, one in curve):.2f}"
            for split, curve in outcome["curves"].items()
        ]
        return ", ".join(said) + f" (trained in {self.twin})" * bool(self.twin)

    def run(self) -> str:
        # Of cells that train the same model, in this process or another, the first does, and the
        # others wait for it.
        name = hashlib.sha256(self.training.encode()).hexdigest()[:16]
        with turn(self.row.data.parents[1], name, self._say_that_it_waits):
            if self.twin and not self.result.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                with (
                    open(self.twin / BEST, "rb") as file,
                    written(self.folder / BEST, "wb") as copy,
                ):
                    copyfileobj(file, copy)
            try:
                said = super().run()
            finally:
                self.waiting[self.training] -= 1
            if self.result.exists():  # nothing goes on from there
                (self.folder / LAST).unlink(missing_ok=True)
            if self.waiting[self.training] < 1:
                self._let_go()
        return said

    def _say_that_it_waits(self) -> None:
        tqdm.write(f"{self.name}: waits for a cell that trains the same model")

    def _let_go(self) -> None:
        """Remove the checkpoints that were not to be kept, now that all tests have read them."""
        for row in (self.row.folder, *self.row.twins):
            result = row / self.folder.name / RESULT
            if result.exists() and cells.load(result).get("keep") == "none":
                (row / self.folder.name / BEST).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Keep the best checkpoint's parameters only."""
        best = self.folder / BEST
        with open(best, "rb") as file:
            state = loading.read(file, "cpu")
        if state.pop("last_optimizer_state", None) is not None:
            saving.save(state, str(best))


def on_dev(task: Task, found: dict[str, Any]) -> tuple[int, float]:
    """The update after which a cell is best on the first dev set, and its metric there.

    The last of equals, whose checkpoint fairseq keeps.
    """
    metric, [split, *_] = task.metrics[0], task.dev_files
    value, update = max((values[metric], update) for update, values in found["curves"][split])
    return update, value


def visible(device: str) -> str:
    """The name of a GPU for CUDA, if only some of them are visible to this process."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[int(device)] if names else device


def model_of(checkpoint: Path) -> dict[str, Any]:
    """The options that distinguish the papers' rows."""
    model = Start(checkpoint).model
    return {
        "arch": model["arch"],
        **{name: model.get(name) for name in ("position_scheme", *POSITIONS)},
    }
