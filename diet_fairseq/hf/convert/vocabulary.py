"""Vocabularies of transformers' tokenizers as dictionaries and subword files of fairseq."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, StrictInt
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...errors import UserError, one_line
from ...files import MAX_VOCABULARY_BYTES, read_json, read_json_object, read_text, validate
from ...text.subwords import GPT2_NUMBERS, SUBWORD_FILES, SentencePiece

ADVICE = "give another folder"
#: the first symbols of fairseq's dictionaries
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: the last of GPT-2's pieces
END = "<|endoftext|>"
#: the SentencePiece model of M2M-100, NLLB, mBART and XLM-R
PIECES = "sentencepiece.bpe.model"


class Vocabulary(NamedTuple):
    """A transformers vocabulary as a dictionary of fairseq."""

    symbols: list[str]  # in fairseq's order
    ids: list[int]  # in transformers; -1: transformers' vocabulary lacks the symbol

    @classmethod
    def from_tokens(cls, tokens: Mapping[str, int], size: int, special: Mapping[str, str]) -> Any:
        """The dictionary of a vocabulary of ``size`` ids: special symbols, then the others by id.

        Ids without a token, and tokens that fairseq can't store, become ``madeupword`` and the id.

        Args:
            tokens: token -> id
            special: symbol of `SPECIAL`, or ``<mask>``, which comes last -> its token
        """
        names: dict[int, str] = {}
        for token, number in tokens.items():
            if not 0 <= number < size or number in names:
                raise UserError(
                    f"the vocabulary's token {one_line(token)!r} has the id {number}, but ids must "
                    f"differ and be below vocab_size, {size}: {ADVICE}"
                )
            names[number] = token
        if missing := [
            symbol for symbol in SPECIAL[1:] if special.get(symbol, symbol) not in tokens
        ]:
            token = special.get(missing[0], missing[0])
            raise UserError(f"the vocabulary lacks the token {token}: {ADVICE}")
        first = {symbol: tokens.get(special.get(symbol, symbol), -1) for symbol in SPECIAL}
        last = {MASK: tokens[special[MASK]]} if special.get(MASK) in tokens else {}
        taken = {*first.values(), *last.values()}
        others: dict[str, int] = {}
        for number in range(size):
            if number in taken:
                continue
            token = names.get(number, "")
            if token.split() != [token] or token in SPECIAL or token in last:
                token = f"madeupword{number:04}"
            others[token] = number
        ids = first | others | last
        return cls(list(ids), list(ids.values()))

    def write(self, path: Path, without_mask: bool = False) -> None:
        """Write fairseq's file, ``without_mask`` for tasks that add ``<mask>`` themselves."""
        words = self.symbols[len(SPECIAL) :]
        if without_mask:
            words = [symbol for symbol in words if symbol != MASK]
        path.write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")

    def rows(self, tensor: Tensor, missing: float = 0.0) -> Tensor:
        """(V, ..) in transformers' order -> (V', ..) in fairseq's order; ``missing`` without id."""
        ids = torch.tensor(self.ids)
        rows = tensor[ids.clamp(min=0)]
        rows[ids < 0] = missing
        return rows

    def original_rows(self, tensor: Tensor) -> Tensor:
        """(V', ..) in fairseq's order -> (V, ..) in transformers' order."""
        ids = torch.tensor(self.ids)
        rows = tensor.new_zeros(max(self.ids) + 1, *tensor.shape[1:])
        rows[ids[ids >= 0]] = tensor[ids >= 0]
        return rows


def read_tokens(path: Path) -> dict[str, int]:
    """The ids of the tokens in a ``vocab.json``."""
    value = read_json(path, MAX_VOCABULARY_BYTES, ADVICE)
    return validate(value, dict[str, StrictInt], f"{path}: ", ADVICE)


class AddedToken(BaseModel):
    """A token of ``tokenizer.json`` outside the model's vocabulary."""

    id: StrictInt
    content: str


class TokenizerModel(BaseModel):
    """The vocabulary in ``tokenizer.json``: ids of tokens, or Unigram's pieces with scores."""

    vocab: dict[str, StrictInt] | list[tuple[str, float]]


class TokenizerJson(BaseModel):
    """The parts of ``tokenizer.json`` that have ids."""

    model: TokenizerModel
    added_tokens: list[AddedToken] = []


def read_pieces(folder: Path, languages: Sequence[str] = ()) -> dict[str, int]:
    """The ids of tokens in ``tokenizer.json``, or without this file in the SentencePiece model.

    fairseq's four symbols `SPECIAL` replace the model's first three pieces, its special symbols.

    Args:
        languages: tokens that follow the pieces where there is no ``tokenizer.json``
    """
    if not (folder / "tokenizer.json").exists():
        pieces = SentencePiece(folder / PIECES).model
        tokens = [pieces.id_to_piece(number) for number in range(3, pieces.get_piece_size())]
        return {token: n for n, token in enumerate([*SPECIAL, *tokens, *languages, MASK])}
    content = read_json_object(
        folder / "tokenizer.json", TokenizerJson, MAX_VOCABULARY_BYTES, ADVICE
    )
    vocabulary = content.model.vocab
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    return vocabulary | {token.content: token.id for token in content.added_tokens}


class Merges(BaseModel):
    """The merges of a byte-level BPE in ``tokenizer.json``."""

    class Model(BaseModel):
        """The part of the file that contains the merges."""

        merges: list[str | tuple[str, str]]

    model: Model


class BytePairs:
    """Methods of a `Family` whose dictionary contains GPT-2's numbers of pieces."""

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        path, size = folder / "vocab.json", config.vocab_size
        tokens = read_tokens(path) if path.exists() else read_pieces(folder)
        numbers = gpt2_numbers(read_merges(folder))
        symbols = {
            str(numbers.get(token, token)): n
            for token, n in tokens.items()
            if token != MASK or n < size  # BART's tokenizer may have a mask that the model lacks
        }
        return [Vocabulary.from_tokens(symbols, size, {MASK: MASK})]

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the two files of ``--bpe gpt2``."""
        merges = read_merges(folder)
        (out / GPT2_NUMBERS).write_text(json.dumps(gpt2_numbers(merges)), encoding="utf-8")
        model = out / SUBWORD_FILES["gpt2"]
        lines = ["#version: 0.2", *merges]
        model.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return {"subwords": "gpt2", "subword_model": model}


def read_merges(folder: Path) -> list[str]:
    """The merges, each of two pieces with a space between them, in order."""
    path = folder / "merges.txt"
    if path.exists():
        lines = read_text(path, ADVICE).split("\n")
        return [line for line in lines if line and not line.startswith("#version")]
    content = read_json_object(folder / "tokenizer.json", Merges, MAX_VOCABULARY_BYTES, ADVICE)
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in content.model.merges]


def gpt2_numbers(merges: list[str]) -> dict[str, int]:
    """GPT-2's number of each piece: 256 bytes in GPT-2's order, merges, and the end of text."""
    pieces = list(bytes_to_unicode().values())
    for merge in merges:
        parts = merge.split(" ")
        if len(parts) != 2 or not all(parts) or set(parts) & {*SPECIAL, MASK}:
            raise UserError(f"the merge {merge!r} does not have two pieces: {ADVICE}")
        pieces.append("".join(parts))
    return {piece: number for number, piece in enumerate([*pieces, END])}
