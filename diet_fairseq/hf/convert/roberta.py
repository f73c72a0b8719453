"""RoBERTa: ``RobertaForMaskedLM``."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...errors import UserError
from ...files import MAX_VOCABULARY_BYTES, open_text, read_json_object
from ...text.subwords import GPT2_NUMBERS, SUBWORD_FILES
from .family import ADVICE, MASK, SPECIAL, Vocabulary, read_pieces, read_tokens
from .xlm_roberta import XLMRoberta

END = "<|endoftext|>"


class Merges(BaseModel):
    """The merges of a byte-level BPE in ``tokenizer.json``."""

    class Model(BaseModel):
        """The part of the file that contains the merges."""

        merges: list[str | tuple[str, str]]

    model: Model


class Roberta(XLMRoberta):
    """RoBERTa, whose dictionary contains GPT-2's numbers of pieces instead of pieces."""

    model_class = "RobertaForMaskedLM"

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        return [gpt2_vocabulary(folder, config.vocab_size)]

    def write_text(self, folder: Path, out: Path) -> None:
        write_gpt2(folder, out)


def gpt2_vocabulary(folder: Path, size: int) -> Vocabulary:
    """The vocabulary of a folder with a byte-level BPE: the symbols are GPT-2's numbers of pieces.

    Args:
        folder: the folder of the model
        size: the number of ids
    """
    path = folder / "vocab.json"
    tokens = read_tokens(path) if path.exists() else read_pieces(folder)
    numbers = gpt2_numbers(read_merges(folder))
    symbols = {
        str(numbers.get(token, token)): n
        for token, n in tokens.items()
        if token != MASK or n < size  # BART's tokenizer may have a mask that the model lacks
    }
    return Vocabulary.from_tokens(symbols, size, {MASK: MASK})


def write_gpt2(folder: Path, out: Path) -> Path:
    """Write the two files of ``--bpe gpt2``, and return the path of ``vocab.bpe``."""
    merges = read_merges(folder)
    (out / GPT2_NUMBERS).write_text(json.dumps(gpt2_numbers(merges)), encoding="utf-8")
    model = out / SUBWORD_FILES["gpt2"]
    lines = ["#version: 0.2", *merges]
    model.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return model


def read_merges(folder: Path) -> list[str]:
    """The merges, each of two pieces with a space between them, in order."""
    path = folder / "merges.txt"
    if path.exists():
        with open_text(path, newline="\n") as file:
            lines = file.read().split("\n")
        return [line for line in lines if line and not line.startswith("#version")]
    content = read_json_object(folder / "tokenizer.json", Merges, MAX_VOCABULARY_BYTES, ADVICE)
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in content.model.merges]


def gpt2_numbers(merges: list[str]) -> dict[str, int]:
    """GPT-2's number of each piece: 256 bytes in GPT-2's order, then merges, then the end of text.

    Raises:
        UserError: a merge does not have two pieces
    """
    pieces = list(bytes_to_unicode().values())
    for merge in merges:
        parts = merge.split(" ")
        if len(parts) != 2 or not all(parts) or set(parts) & {*SPECIAL, MASK}:
            raise UserError(f"the merge {merge!r} does not have two pieces: {ADVICE}")
        pieces.append("".join(parts))
    return {piece: number for number, piece in enumerate([*pieces, END])}


FAMILY = Roberta()
