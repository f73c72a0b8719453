"""A made-up reading task for a `_tiny` model, in two languages: ``reading.py FOLDER``.

A paragraph has facts, ``name3 likes colour7 .``, and a question is on one of them, ``what likes
name3 ?``: the word that was liked is the answer. So the model must find the question's name in the
paragraph, and from there the word two places on. Half of the training questions ask for the first
step alone, ``where likes name3 ?``: the name itself is the answer. Without these the loss stays
for 400 updates where the choice among the colours is a guess.

The second language has a word of its own for each of the first but names and marks, which
languages share. It is in no training text: what the model says there is zero-shot transfer.

Writes FOLDER/data, trains FOLDER/model, prints the validations; the status is 1 below 95% exact
match.
"""

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NAMES = [f"name{number}" for number in range(6)]
COLOURS = [f"colour{number}" for number in range(12)]
SHARED = {*NAMES, ".", "?"}
WORDS = [*NAMES, *COLOURS, "likes", ".", "what", "where", "?"]

#: A local start has every head look near its own place first, which hides the question from the
#: facts: here the start is blind, with the gain that lets offsets be learned as quickly.
SETTINGS = (
    *("--arch", "bert_diet_rel_tiny", "--position-start", "blind", "--position-gain", 30),
    *("--task", "question_answering", "--criterion", "question_answering"),
    *("--max-positions", 64, "--dropout", 0, "--attention-dropout", 0, "--pooler-dropout", 0),
    *("--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)", "--lr", 1.5e-3),
    *("--lr-scheduler", "linear_ratio", "--warmup-ratio", 0.1, "--clip-norm", 1.0),
    *("--weight-decay", 0.01, "--batch-size", 32, "--num-workers", 0, "--cpu", "--seed", 1),
    *("--valid-subset", "valid,valid1", "--best-checkpoint-metric", "exact_match"),
    *("--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--no-last-checkpoints"),
    *("--log-format", "simple", "--log-interval", 100),
)
UPDATES = 1200


def in_other(words: Sequence[str]) -> list[str]:
    """The same sentence in the second language."""
    return [word if word in SHARED else f"{word}'" for word in words]


def paragraph(draw: random.Random, facts: int) -> tuple[list[str], list[str], int]:
    """Words of a context, those of a question, and the place of the answer in the context."""
    context: list[str] = []
    asked: list[tuple[str, int]] = []
    for name in draw.sample(NAMES, facts):
        asked.append((name, len(context) + 2))
        context += [name, "likes", draw.choice(COLOURS), "."]
    name, place = draw.choice(asked)
    return context, ["what", "likes", name, "?"], place


def line(number: int, context: Sequence[str], question: Sequence[str], place: int) -> str:
    """As task ``question_answering`` reads it."""
    text = " ".join(context)
    begins: list[int] = []
    ends: list[int] = []
    for word in context:
        begins.append(ends[-1] + 1 if ends else 0)
        ends.append(begins[-1] + len(word))
    answers = [[context[place], begins[place]]]
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
            context, question, place = paragraph(draw, facts)
            said = " ".join(context)
            if split == "train":
                if said in tested:
                    continue
                if draw.random() < 0.5:
                    question, place = ["where", *question[1:]], place - 2
            else:
                tested.add(said)
            if split == "valid1":
                context, question = in_other(context), in_other(question)
            lines.append(line(len(lines), context, question, place))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    symbols = dict.fromkeys([*WORDS, *in_other(WORDS)])
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in symbols))
    return folder


def main(folder: Path) -> int:
    data = write(folder / "data", {"train": 20_000, "valid": 200, "valid1": 200}, facts=2)
    program = [sys.executable, "-m", "fairseq_cli.train", data, "--user-dir", "diet_fairseq"]
    flags = [*SETTINGS, "--max-update", UPDATES, "--save-dir", folder / "model"]
    log = folder / "train.log"
    status = subprocess.call([*map(str, program), *map(str, flags), "--log-file", str(log)])
    found = re.findall(r"'(valid1?)' subset.*? exact_match ([\d.]+)", log.read_text())
    for split, name in (("valid", "first"), ("valid1", "second, never trained on")):
        values = [float(value) for one, value in found if one == split]
        print(f"exact match in the language {name}: {values[-1] if values else 'not measured'}")
    reached = [float(value) for one, value in found if one == "valid"]
    return status or int(not reached or reached[-1] < 95)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
