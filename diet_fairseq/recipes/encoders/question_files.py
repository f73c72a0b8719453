"""Questions of SQuAD's form in an encoder's subwords, as task ``question_answering`` reads them."""

import json
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...data import answers
from ...data.questions import covering
from ...errors import UserError
from ..common.json_files import read_json
from ..common.subwords import KINDS, Placed
from ..common.text import write_lines
from . import squad, trivial
from .glue_tasks import TRAIN
from .prepare_task import settings_of, write_json

#: in a folder of encoded questions, beside SPLIT.jsonl
COUNTS, GUESSES = "counts.json", "guess.json"
#: one of so many contexts is held out of training, to select by: SQuAD's own dev set has XQuAD's
HELD_OUT = 20
#: white space of any kind, and control characters, as `normalise` has them
ODD = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


def encode(
    partial: Path,
    splits: dict[str, tuple[list[squad.Question], str]],
    args: Namespace,
    english: Path | None = None,
) -> None:
    """Write each split's questions with the rules of its answers, their counts, and what guesses
    score.

    ``english`` is the folder of what is trained on; its counts and guesses stand first.
    """
    counts: dict[str, dict[str, int]] = {}
    guesses: dict[str, dict[str, dict[str, float]]] = {guess: {} for guess in trivial.BASELINES}
    if english:
        counts, guesses = read_json(english / COUNTS), read_json(english / GUESSES)
    for split, (questions, rules) in splits.items():
        if split != TRAIN:
            for guess, metrics in trivial.scores(questions, answers.rules_of(rules)).items():
                guesses[guess][split] = metrics
        lines = list(coded(questions, args, f"{partial.parent.name} {split}", rules))
        write_lines(partial / f"{split}.jsonl", lines)
        counts[split] = {"questions": len(questions), "unfit": unfit(lines)}
    write_json(partial / COUNTS, counts)
    write_json(partial / GUESSES, guesses)


def held_out(
    questions: list[squad.Question],
) -> tuple[list[squad.Question], list[squad.Question]]:
    """Questions to train on, and those of every `HELD_OUT`-th context."""
    contexts = {text: number for number, text in
                enumerate(dict.fromkeys(one.context for one in questions))}  # fmt: skip
    if len(contexts) < 2:
        raise UserError("the training set has one context alone: give more, to hold one out")
    every = min(HELD_OUT, len(contexts))
    sides: tuple[list[squad.Question], list[squad.Question]] = ([], [])
    for one in questions:
        sides[contexts[one.context] % every == every - 1].append(one)
    return sides


def coded(
    questions: list[squad.Question], args: Namespace, what: str, rules: str = "squad"
) -> Iterator[str]:
    """Lines of ``SPLIT.jsonl``, a context each, as task ``question_answering`` reads them."""
    settings = settings_of(args.folder)
    model = KINDS[settings["bpe"]](args.folder / "subwords")
    language, lower = settings["language"], settings["lower"]
    ids = squad.unique_ids(questions)
    asked = model.encode((plain(one.text, lower) for one in questions), language, args.workers)
    by_context: dict[str, list[dict[str, Any]]] = {}
    for name, question, subwords in zip(ids, questions, asked, strict=True):
        by_context.setdefault(question.context, []).append(
            {"id": name, "question": subwords, "answers": question.answers}
        )
    placed = model.places((plain(one, lower) for one in by_context), language, args.workers)
    bar = tqdm(placed, f"subwords of {what}", len(by_context), disable=None)
    for (context, some), one in zip(by_context.items(), bar, strict=True):
        yield json.dumps(line(context, one, some, rules), ensure_ascii=False)


def line(
    context: str, placed: Placed, questions: list[dict[str, Any]], rules: str
) -> dict[str, Any]:
    return {
        "context": context,
        "tokens": placed.subwords,
        "begins": placed.begins,
        "ends": placed.ends,
        "rules": rules,
        "questions": questions,
    }


def plain(text: str, lower: bool) -> str:
    """As the encoder's text was made, but every character stays where it is."""
    text = ODD.sub(" ", text)
    if lower:
        text = "".join(one.lower() if len(one.lower()) == 1 else one for one in text)
    return text


def unfit(lines: Iterable[str]) -> int:
    """Questions whose first answer begins or ends within a subword."""
    count = 0
    for found in map(json.loads, lines):
        for question in found["questions"]:
            if not question["answers"]:
                continue
            text, start = question["answers"][0]
            begins, ends = found["begins"], found["ends"]
            first, last = covering(begins, ends, start, start + len(text))
            count += (begins[first], ends[last]) != (start, start + len(text))
    return count
