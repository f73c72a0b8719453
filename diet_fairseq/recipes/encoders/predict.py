"""``predict TASK``: GLUE's submission files, or labels for any tab-separated values."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import ListDataset
from tqdm import tqdm

from ...errors import UserError
from ..common.options import at_least, check_folder
from ..common.subwords import KINDS
from ..common.text import read_lines, write_lines
from .answer import Answerer
from .finetune import task_names
from .folder import add_folder
from .glue_tasks import GLUE, Columns, Task, read
from .prepare_task import load_task, settings_of, task_name, write_json
from .report_table import Found, results
from .start import Start
from .tuning import BEST
from .xtreme_tasks import Transfer

#: STS-B's scale, which GLUE wants predictions to keep to
LOWEST, HIGHEST = 0.0, 5.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", type=task_name, help="fine-tuned on")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--row", help="use the row's best cell on the dev set (the best row)")
    chosen.add_argument("--checkpoint", type=Path, help="use this checkpoint of a cell")
    parser.add_argument(
        "--tsv", metavar="FILE", type=Path, help="examples to label (the task's test sets)"
    )
    parser.add_argument(
        "--text", metavar="COLUMN", nargs="+", help="of --tsv (named as in the task's test set)"
    )
    parser.add_argument(
        "--output", type=Path, help="file for --tsv (FILE.labels), else a folder (submission)"
    )
    parser.add_argument("--batch", type=at_least(1), default=64, help="(%(default)s)")
    parser.add_argument("--gpu", action="store_true", help="predict on a GPU")
    add_folder(parser)


def predict(args: Namespace) -> None:
    if args.text and not args.tsv:
        raise UserError(
            f"--text {' '.join(args.text)} names columns of --tsv, which is not given: add --tsv "
            "FILE, or leave --text out to label the task's test sets"
        )
    if args.tsv and args.output:
        check_folder("--output", args.output)
    [name] = task_names(args.folder, args.task)
    folder = args.folder / "tasks" / name
    task = load_task(folder)
    checkpoint = args.checkpoint or best(task, results(args.folder, None, None), folder, args.row)
    if isinstance(task, Transfer):
        predict_xtreme(task, folder, checkpoint, args)
        return
    start = Start(checkpoint)
    if start.task != "glue":
        raise UserError(f"{checkpoint} has not been fine-tuned yet: give one that `finetune` wrote")
    start.check_dictionary(folder / "data-bin" / "input0" / "dict.txt")
    print(f"predicting with {checkpoint}")
    predictor = Predictor(checkpoint, task, folder / "data-bin", args.gpu, args.batch)
    if args.tsv:
        columns = task.test or Columns(task.columns.texts)
        columns = Columns(tuple(args.text)) if args.text else columns
        if len(columns.texts) != len(task.columns.texts):
            raise UserError(
                f"--text has {len(columns.texts)} columns, but {task.name} has "
                f"{len(task.columns.texts)}: name as many"
            )
        texts = [example.texts for example in read(args.tsv, task, columns)]
        if not texts:
            raise UserError(f"{args.tsv} has a header and no lines: there is nothing to label")
        # The folder's text may have been prepared again since, with other subwords.
        start.check_dictionary(args.folder / "data-bin" / "dict.txt")
        path = args.output or args.tsv.with_name(args.tsv.name + ".labels")
        write_lines(path, predictor(subwords(args.folder, texts)))
        print(f"{path}: {len(texts):,} labels")
        return
    tests = [split for split in task.test_files if (folder / "encoded/input0" / split).exists()]
    if not tests:
        raise UserError(
            f"{folder} was prepared without a test set: prepare it with one, or give --tsv FILE"
        )
    for split in tests:
        sides = (folder / "encoded" / f"input{n}" / split for n in range(len(task.columns.texts)))
        coded = list(zip(*map(read_lines, sides), strict=True))
        path = (args.output or args.folder / "submission") / f"{task.reported(split)}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        found = predictor(coded)
        rows = (f"{number}\t{label}" for number, label in enumerate(found))
        lines = write_lines(path, ["index\tprediction", *rows])
        print(f"{path}: {lines - 1:,} predictions")


def predict_xtreme(task: Transfer, folder: Path, checkpoint: Path, args: Namespace) -> None:
    """A file for each language, as XTREME's own scorer reads them."""
    if args.tsv:
        raise UserError(f"--tsv is not for {task.name}: leave it out")
    print(f"predicting with {checkpoint}")
    data = folder / "data-bin"
    submission = "-".join(filter(None, ("submission", task.trained_on)))
    output = (args.output or args.folder / submission) / task.benchmark.lower()
    output.mkdir(parents=True, exist_ok=True)
    if task.questions:
        answerer = Answerer(checkpoint, data, args.gpu, args.batch)
    else:
        Start(checkpoint).check_dictionary(data / task.dictionary)
        predictor = Predictor(checkpoint, task, data, args.gpu, args.batch)
    for split, language in list(task.dev_files.items())[1:]:
        path = output / f"test-{language}.{'json' if task.questions else 'tsv'}"
        if task.questions:
            questions = answerer.questions(read_lines(data / f"{split}.jsonl"))
            found = answerer(questions)
            pairs = zip(questions, found, strict=True)
            write_json(path, {one.id: some[0].text if some else "" for one, some in pairs})
            number = len(questions)
        else:
            sides = [read_lines(folder / "encoded" / f"input{n}" / split) for n in (0, 1)]
            number = write_lines(path, predictor(list(zip(*sides, strict=True))))
        print(f"{path}: {number:,} predictions")


def best(task: Task, found: Found, folder: Path, row: str | None) -> Path:
    """The checkpoint that was best on the dev set, of a row or of all."""
    metric, split = task.metrics[0], next(iter(task.dev_files))
    some = [one for name in found for one in found[name][task.name] if row in (None, name)]
    for one in sorted(
        some, key=lambda one: -max(metrics[metric] for _, metrics in one["curves"][split])
    ):
        cell = f"lr{one['rate']:g}_epochs{one['epochs']}_seed{one['seed']}"
        path = folder / "runs" / one["row"] / cell / BEST
        if path.exists():
            return path
    raise UserError(
        f"{folder}/runs{f'/{row}' if row else ''} has no checkpoint of a finished cell: run "
        "`finetune` first, or name a --checkpoint"
    )


def subwords(folder: Path, texts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Subwords made as for the encoder's text."""
    settings = settings_of(folder)
    model = KINDS[settings["bpe"]](folder / "subwords")
    sides = [
        model.encode(
            [text.lower() if settings["lower"] else text for text in side], settings["language"], 1
        )
        for side in zip(*texts, strict=True)
    ]
    return list(zip(*sides, strict=True))


class Predictor:
    """A fine-tuned model, asked for labels."""

    def __init__(self, checkpoint: Path, task: Task, data: Path, gpu: bool, batch: int) -> None:
        models, _, self.fairseq_task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model = models[0].eval()
        self.head = self.fairseq_task.cfg.classification_head_name
        heads = dict(self.model.classification_heads)
        classes = heads[self.head].out_proj.out_features if self.head in heads else 0
        if classes < len(task.labels) or (task.regression and classes != 1):
            raise UserError(
                f"{checkpoint} distinguishes {classes} classes, which does not fit {task.name}: "
                "give one that `finetune` wrote for it"
            )
        self.gpu, self.batch, self.task = gpu, batch, task
        if gpu:
            self.model.cuda()

    @torch.no_grad()
    def __call__(self, coded: list[tuple[str, ...]]) -> list[str]:
        """A label for each text or pair in subwords."""
        dictionary = self.fairseq_task.source_dictionary
        sides = []
        for side in zip(*coded, strict=True):
            lines = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in side]
            sides.append(ListDataset(lines, [len(line) for line in lines]))
        texts = self.fairseq_task.texts(*sides)
        samples = self.fairseq_task.samples(texts)
        found = [""] * len(texts)
        order = sorted(range(len(texts)), key=texts.size)
        for start in tqdm(range(0, len(order), self.batch), disable=None):
            places = order[start : start + self.batch]
            sample = samples.collater([samples[place] for place in places])
            if self.gpu:
                sample = utils.move_to_cuda(sample)
            logits, _ = self.model(**sample["net_input"], classification_head_name=self.head)
            for place, label in zip(places, self._labels(logits), strict=True):
                found[place] = label
        return found

    def _labels(self, logits: Any) -> Iterator[str]:
        """(B, C) -> B labels."""
        if not self.task.regression:
            known = logits[:, : len(self.task.labels)]  # --num-classes may be larger
            yield from (self.task.labels[number] for number in known.argmax(dim=-1).tolist())
            return
        for value in logits.view(-1).tolist():
            inside = min(max(value, LOWEST), HIGHEST) if self.task.name in GLUE else value
            yield f"{inside:.3f}"
