"""``prepare-xtreme``: XTREME's files to what fairseq-train reads, English to train on first."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from shutil import copyfile
from typing import Any

from ...errors import UserError
from ..common.json_files import read_json
from ..common.options import add_workers
from ..common.stages import Stage, digest_of, run_all, stage
from . import squad
from .documents import Source
from .folder import add_folder
from .glue_tasks import TRAIN, VALID, Columns
from .prepare_task import prepare, text_of
from .question_files import COUNTS, encode, held_out
from .xtreme_files import fetch_missing, find
from .xtreme_tasks import PREPARED, Transfer, XtremeTask, xtreme_task

#: --train-on -> the name of the file that is trained on
TRAINED_ON = {
    "squad": "train-v1.1.json",
    "tydiqa": "tydiqa.goldp.en.train.json",
    "mnli": "train-en.tsv",
}
#: the one that is no set of questions
LABELLED = "mnli"
#: task -> names of its test files; {0} is the language, or the context's and {1} the question's;
#: the first that is there is taken
TESTS = {
    "XNLI": ["test-{0}.tsv", "dev-{0}.tsv"],
    "XQuAD": ["xquad.{0}.json"],
    "MLQA": ["test-context-{0}-question-{1}.json", "dev-context-{0}-question-{1}.json"],
    "TyDiQA": ["tydiqa.goldp.{0}.dev.json", "tydiqa.goldp.{0}.train.json"],
}
#: what XNLI is selected by
DEV = "dev-en.tsv"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", type=Path, help="folder with the published files, however deep"
    )
    parser.add_argument("--tasks", metavar="TASK", nargs="+", help="(all)")
    parser.add_argument(
        "--train-on",
        metavar="SET",
        help=f"{', '.join(TRAINED_ON)}, or a file (squad; mnli for XNLI, as in DIET); with another "
        "set the task is called TASK-SET",
    )
    parser.add_argument(
        "--languages",
        nargs="+",
        metavar="LANGUAGE",
        help="of MLQA also pairs: de-en has German texts, English questions (all but pairs)",
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch what is missing of the published files"
    )
    add_workers(parser)
    add_folder(parser)


def prepare_xtreme(args: Namespace) -> None:
    tasks = [xtreme_task(name) for name in args.tasks or PREPARED]
    sets = [set_for(task, args) for task in tasks]  # a mistake is said before any is prepared
    for task, train_on in zip(tasks, sets, strict=True):
        if task.name not in PREPARED:
            raise UserError(f"{task.name} can be scored, not prepared: take {', '.join(PREPARED)}")
        languages = checked_languages(task, args.languages)
        if args.download:
            names = published(task, train_on, languages or task.languages)
            fetch_missing(names, args.data)
        train = training_file(args.data, train_on)
        tests = test_files(args.data, task, languages)
        seen = (train, None if task.rules else find(args.data, DEV))
        tests = {language: path for language, path in tests.items() if path not in seen}
        trained_on = training_set(train)
        name = task.name if trained_on == usual_set(task) else f"{task.name}-{trained_on}"
        print(f"{name}: trained on {train}, tested on {', '.join(tests)}")
        if task.rules:
            prepare_questions(task, name, train, tests, args)
        else:
            prepare_labels(task, name, train, tests, args)


def usual_set(task: XtremeTask) -> str:
    """What it is trained on in DIET."""
    return "squad" if task.rules else LABELLED


def set_for(task: XtremeTask, args: Namespace) -> str:
    """What it is trained on: what is asked for or, if that is another kind of text, the usual.

    Raises:
        UserError: it is of another kind, and the task was asked for, too
    """
    usual = usual_set(task)
    if not args.train_on:
        return usual
    known = training_set(Path(TRAINED_ON.get(args.train_on, args.train_on)))
    if known not in TRAINED_ON or (known == LABELLED) == (usual == LABELLED):
        return args.train_on
    if args.tasks:
        has, takes = "questions", "labelled pairs"
        if known == LABELLED:
            has, takes = takes, has
        raise UserError(
            f"--train-on {args.train_on} has {has}, and {task.name} takes {takes}: leave it out, "
            "or name other --tasks"
        )
    return usual


def published(task: XtremeTask, train_on: str, languages: Iterable[str]) -> list[str]:
    """Names of a task's files: what is trained on, selected by and tested on."""
    names = [TRAINED_ON.get(train_on, train_on), *([] if task.rules else [DEV])]
    return [*names, *(test_names(task, language)[0] for language in languages)]


def test_names(task: XtremeTask, language: str) -> list[str]:
    context, _, question = language.partition("-")
    return [name.format(context, question or context) for name in TESTS[task.name]]


def training_file(data: Path, wanted: str) -> Path:
    if wanted not in TRAINED_ON and Path(wanted).is_file():
        return Path(wanted)
    if Path(wanted).is_absolute():
        raise UserError(f"--train-on {wanted} does not exist: name a file, or a set")
    name = TRAINED_ON.get(wanted, wanted)
    found = find(data, name)
    if not found:
        fetch = "fetch it, as --download does" if wanted in TRAINED_ON else "put it there"
        raise UserError(
            f"{data} has no {name} (or {name}.gz) to train on: {fetch}, or name another with "
            "--train-on"
        )
    return found


def training_set(path: Path) -> str:
    """What a training file is called: a word of `TRAINED_ON`, or its own name."""
    file = path.name.removesuffix(".gz")
    names = {file: name for name, file in TRAINED_ON.items()}
    return names.get(file) or re.sub(r"[^\w.]+", "_", file.rpartition(".")[0] or file)


def checked_languages(task: XtremeTask, languages: list[str] | None) -> list[str] | None:
    """Those asked for, if the task has them."""
    for language in languages or ():
        if not task.has(language):
            pairs = ", and pairs of a context's and a question's, as de-en" * task.pairs
            known = ", ".join(task.languages)
            raise UserError(f"--languages {language}: {task.name} has {known}{pairs}")
    return languages


def test_files(data: Path, task: XtremeTask, languages: list[str] | None) -> dict[str, Path]:
    """Language -> its file, of the languages asked for, or of all that are there."""
    found = {}
    for language in languages or task.languages:
        names = test_names(task, language)
        path = next(filter(None, (find(data, name) for name in names)), None)
        if path:
            found[language] = path
        elif languages:
            raise UserError(
                f"{data} has no {names[0]} (or {names[0]}.gz): fetch it, as --download does"
            )
    if not found:
        raise UserError(f"{data} has no test set of {task.name}: give the folder of its files")
    return found


def prepare_labels(
    task: XtremeTask, name: str, train: Path, tests: dict[str, Path], args: Namespace
) -> None:
    """XNLI, as a task of pairs."""
    dev = find(args.data, DEV)
    if not dev:
        raise UserError(f"{args.data} has no {DEV} (or {DEV}.gz): fetch it, as --download does")
    splits = splits_of(tests)
    made = Transfer(
        name,
        Columns((0, 1), 2, width=3),
        ("contradiction", "neutral", "entailment"),
        task.metrics,
        dev_files={"valid": "dev", **splits},
    )
    files = {split: [tests[language]] for split, language in splits.items()}
    prepare(made, {TRAIN: [train], "valid": [dev], **files}, args)


def splits_of(tests: Iterable[str]) -> dict[str, str]:
    """fairseq's name of a split -> the language."""
    return {f"valid{number}": language for number, language in enumerate(tests, 1)}


def prepare_questions(
    task: XtremeTask, name: str, train: Path, tests: dict[str, Path], args: Namespace
) -> None:
    splits = splits_of(tests)
    made = Transfer(
        name, Columns(()), metrics=task.metrics, dev_files={"valid": "dev", **splits},
        questions=True,
    )  # fmt: skip
    files = {split: tests[language] for split, language in splits.items()}
    folder = args.folder / "tasks" / name
    digest = digest_of(train)
    made_from: dict[str, Any] = {
        "task": asdict(made),
        "files": {split: [Source(path).fingerprint()] for split, path in files.items()},
        "trained on": digest,
        "text": text_of(args.folder, folder / "encoded"),
    }
    # XQuAD, MLQA and TyDiQA are tests of one model: what that is trained on is encoded once.
    known = train.name.removesuffix(".gz") in TRAINED_ON.values()
    english = args.folder / "questions" / (training_set(train) + f"-{digest[:8]}" * (not known))
    trained_on = {"sha256": digest, "text": text_of(args.folder, english)}

    def encode_english(partial: Path) -> None:
        sides = dict(zip((TRAIN, VALID), held_out(squad.read(train)), strict=True))
        encode(partial, {split: (some, "squad") for split, some in sides.items()}, args)

    def encode_tests(partial: Path) -> None:
        found = {
            split: (squad.read(path), rules_of(task, splits[split]))
            for split, path in files.items()
        }
        encode(partial, found, args, english)

    def place(partial: Path) -> None:
        for split in made.splits:
            source = english if split in (TRAIN, VALID) else folder / "encoded"
            copyfile(source / f"{split}.jsonl", partial / f"{split}.jsonl")
        copyfile(args.folder / "data-bin" / "dict.txt", partial / "dict.txt")

    stage(english, trained_on, encode_english)
    run_all(folder, [Stage("encoded", made_from, encode_tests), Stage("data-bin", {}, place)])
    for split, counts in read_json(folder / "encoded" / COUNTS).items():
        print(
            f"{name}, {made.file_of(split)}: {counts['questions']:,} questions, "
            f"{counts['unfit']:,} with an answer that no bounds of subwords fit"
        )


def rules_of(task: XtremeTask, language: str) -> str:
    """The name of the rules that answers are compared by.

    Of a pair of MLQA they are the context's, which has the answer.
    """
    return f"mlqa {language.split('-')[0]}" if task.name == "MLQA" else "squad"
