"""Texts for tests: sentences of a made-up language, and odd characters inside lines."""

import io
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceTrainer
from subword_nmt.learn_bpe import learn_bpe

#: what may stand inside a line and must not end it, nor join or shift lines
ODD = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\xa0\u3000\u200b\u2060\t\x00\x07\x93\ufeff\u2581|@@ </s>"


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def sentences(number: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    words = [a + b + c for a in "bdk" for b in "aeiou" for c in ["n", "r", "st", "lm"]]
    return [" ".join(draw.choices(words, k=draw.randint(3, 9))) + "." for _ in range(number)]


def scrambled(number: int, seed: int = 1) -> list[str]:
    """Words of few letters in any order, in which merges of a BPE overlap."""
    draw = random.Random(seed)
    return ["".join(draw.choices("aendk ", k=30)) for _ in range(number)]


def corpus(folder: Path, train: int = 300, odd: bool = True) -> Path:
    """A German text and its mirror image as English, with odd things among the lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in {"train": train, "valid": 12, "test": 12}.items():
        german = sentences(size, seed=size)
        english = [line[::-1] for line in german]
        if odd:
            german[3] = ODD.join(german[3].split())
            english[4] = ""
            german[5] += "\r"
        write(folder / f"{split}.de", german)
        write(folder / f"{split}.en", english)
    return folder


def train_sentencepiece(lines: Iterable[str], size: int, **options: Any) -> bytes:
    """A SentencePiece model of the lines."""
    model = io.BytesIO()
    defaults: dict[str, Any] = {"model_type": "bpe", "vocab_size": size, "hard_vocab_limit": False}
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **defaults | options
    )
    return model.getvalue()


def learn_subwords(path: Path, kind: str, lines: Iterable[str], size: int) -> Path:
    """A subword model of the lines."""
    if kind == "sentencepiece":
        path.write_bytes(train_sentencepiece(lines, size, character_coverage=1.0))
    else:
        words = Counter(word for line in lines for word in line.split())
        with open(path, "w", encoding="utf-8") as file:
            table = [f"{word} {count}" for word, count in words.items()]
            learn_bpe(table, file, size, is_dict=True, total_symbols=True)
    return path
