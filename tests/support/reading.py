"""A made-up reading task: facts in a paragraph, a question on one of them, in two languages.

The second language has a word of its own for each word of the first. A model that reads both has
learned from text which words stand in the same places, and must answer in the one what it was
fine-tuned for in the other.
"""

import json
import random
from pathlib import Path

NAMES = [f"name{number}" for number in range(12)]
COLOURS = [f"colour{number}" for number in range(12)]
WORDS = [*NAMES, *COLOURS, "likes", ".", "what", "?"]


def in_other(words: list[str]) -> list[str]:
    """The same sentence in the second language."""
    return [f"{word}'" for word in words]


def paragraph(draw: random.Random, facts: int) -> tuple[list[str], list[str], int]:
    """Words of a context, those of a question, and the place of the answer in the context."""
    context: list[str] = []
    asked: list[tuple[str, int]] = []
    for name in draw.sample(NAMES, facts):
        asked.append((name, len(context) + 2))
        context += [name, "likes", draw.choice(COLOURS), "."]
    name, place = draw.choice(asked)
    return context, ["what", "likes", name, "?"], place


def line(number: int, context: list[str], question: list[str], place: int) -> str:
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
    """A folder with so many questions in each split; ``valid1`` is in the other language."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for split, size in sizes.items():
        lines = []
        for number in range(size):
            context, question, place = paragraph(draw, facts)
            if split == "valid1":
                context, question = in_other(context), in_other(question)
            lines.append(line(number, context, question, place))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    symbols = [*WORDS, *in_other(WORDS)]
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in symbols))
    return folder
