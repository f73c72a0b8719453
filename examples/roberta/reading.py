"""A made-up reading task for a `_tiny` model, in two languages: ``reading.py FOLDER``.

A paragraph has facts, ``name3 colour7 . name5 colour0 colour2 .``, and a question asks for one of
them, ``name5 ?``: the answer is all that is said, ``name5 colour0 colour2``. So the model must find
the question's name in the paragraph, and the end of its sentence. At first it guesses among the
sentences; after 100 to 300 updates it finds the right one.

The second language has a word of its own for each of the first but names and marks, which
languages share. It is in no training text: what the model says there is zero-shot transfer.

Writes FOLDER/data, trains FOLDER/model, prints the validations; the status is 1 below 95% exact
match in the first language.
"""

import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from diet_fairseq.recipes.common.programs import PLUGIN, python, run

NAMES = [f"name{number}" for number in range(8)]
COLOURS = [f"colour{number}" for number in range(8)]
SHARED = {*NAMES, ".", "?"}
WORDS = [*NAMES, *COLOURS, ".", "?"]

SETTINGS = (
    *("--arch", "bert_diet_rel_tiny"),
    *("--task", "question_answering", "--criterion", "question_answering"),
    *("--max-positions", 64, "--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0),
    *("--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)", "--lr", 1e-3),
    *("--lr-scheduler", "linear_ratio", "--warmup-ratio", 0.1, "--clip-norm", 1.0),
    *("--weight-decay", 0.01, "--batch-size", 32, "--num-workers", 0, "--cpu", "--seed", 1),
    *("--valid-subset", "valid,valid1", "--best-checkpoint-metric", "exact_match"),
    *("--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--no-last-checkpoints"),
    *("--log-format", "simple", "--log-interval", 100),
)
UPDATES = 600


def in_other(words: Sequence[str]) -> list[str]:
    """The same sentence in the second language."""
    return [word if word in SHARED else f"{word}'" for word in words]


def paragraph(draw: random.Random, facts: int) -> tuple[list[str], list[str], tuple[int, int]]:
    """Words of a context, those of a question, and of the answer the first and the last place."""
    context: list[str] = []
    asked: list[tuple[str, tuple[int, int]]] = []
    for name in draw.sample(NAMES, facts):
        begin = len(context)
        context += [name, *draw.choices(COLOURS, k=draw.randint(1, 2))]
        asked.append((name, (begin, len(context) - 1)))
        context.append(".")
    name, places = draw.choice(asked)
    return context, [name, "?"], places


def line(
    number: int, context: Sequence[str], question: Sequence[str], places: tuple[int, int]
) -> str:
    """As task ``question_answering`` reads it."""
    text = " ".join(context)
    begins: list[int] = []
    ends: list[int] = []
    for word in context:
        begins.append(ends[-1] + 1 if ends else 0)
        ends.append(begins[-1] + len(word))
    first, last = places
    answers = [[text[begins[first] : ends[last]], begins[first]]]
    asked = {"id": str(number), "question": " ".join(question), "answers": answers}
    found = {"context": text, "tokens": text, "begins": begins, "ends": ends, "questions": [asked]}
    return json.dumps(found)


def write(folder: Path, sizes: dict[str, int], facts: int = 3, seed: int = 1) -> Path:
    """A folder with so many questions in each split; ``valid1`` is in the other language.

    No paragraph that is tested is trained on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    tested: set[str] = set()
    for split in sorted(sizes, reverse=True):  # "train" last
        lines: list[str] = []
        while len(lines) < sizes[split]:
            context, question, places = paragraph(draw, facts)
            said = " ".join(context)
            if split == "train" and said in tested:
                continue
            if split != "train":
                tested.add(said)
            if split == "valid1":
                context, question = in_other(context), in_other(question)
            lines.append(line(len(lines), context, question, places))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    symbols = dict.fromkeys([*WORDS, *in_other(WORDS)])
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in symbols))
    return folder


def main(folder: Path) -> int:
    data = write(folder / "data", {"train": 20_000, "valid": 200, "valid1": 200}, facts=2)
    log = folder / "train.log"
    flags = [*SETTINGS, "--max-update", UPDATES, "--save-dir", folder / "model"]
    run(python("fairseq_cli.train", data, "--user-dir", PLUGIN, *flags), log)
    found = re.findall(r"'(valid1?)' subset.*? exact_match ([\d.]+)", log.read_text())
    reached = {split: float(value) for split, value in found}  # the last of each
    print(f"exact match in the first language: {reached['valid']}")
    print(f"in the second, which was never trained on: {reached['valid1']}")
    return int(reached["valid"] < 95)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
