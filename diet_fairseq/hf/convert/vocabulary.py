"""Vocabularies of transformers' tokenizers as dictionaries and subword files of fairseq."""

import base64
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BaseModel, Field, StrictInt
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode, import_protobuf

from ...errors import UserError, as_user_error, one_line
from ...files import (
    MAX_VOCABULARY_BYTES,
    check_regular,
    read_json,
    read_json_object,
    read_text,
    validate,
)
from ...text.subwords import GPT2_NUMBERS, SUBWORD_FILES, WORDPIECE_FILES, SentencePiece
from ...text.tokenizer import UNKNOWN

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
    unk_id: int | None = None  # of Unigram's unknown characters
    type: str | None = None


class TokenizerJson(BaseModel):
    """The parts of ``tokenizer.json`` that have ids."""

    model: TokenizerModel


class AddedTokens(BaseModel):
    """The added tokens in ``tokenizer_config.json``, by id, or in ``tokenizer.json``."""

    class Content(BaseModel):
        """The part of a token's description that is its text."""

        content: str

    added_tokens_decoder: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Content] | None = None
    added_tokens: list[AddedToken] = []


def read_added_tokens(folder: Path) -> dict[str, int]:
    """The ids of tokens outside the vocabulary's own file, such as new languages.

    They are in ``tokenizer.json``, and in ``tokenizer_config.json`` or else in
    ``added_tokens.json``.
    """
    contents = {}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path, contents[name] = folder / name, AddedTokens()
        if path.exists():
            contents[name] = read_json_object(path, AddedTokens, MAX_VOCABULARY_BYTES, ADVICE)
    tokens = {token.content: token.id for token in contents["tokenizer.json"].added_tokens}
    by_id = contents["tokenizer_config.json"].added_tokens_decoder
    if by_id is not None:
        return tokens | {token.content: int(number) for number, token in by_id.items()}
    path = folder / "added_tokens.json"
    return tokens | read_tokens(path) if path.exists() else tokens


def read_pieces(folder: Path, languages: Sequence[str] = ()) -> dict[str, int]:
    """The ids of tokens in ``tokenizer.json``, or without this file in the SentencePiece model.

    fairseq's four symbols `SPECIAL` replace the model's first three pieces, its special symbols.
    The result also contains the folder's added tokens.

    Args:
        languages: tokens that follow the pieces where there is no ``tokenizer.json``, unless the
            folder's added tokens contain languages
    """
    added = read_added_tokens(folder)
    path = folder / "tokenizer.json"
    if path.exists():
        content = read_json_object(path, TokenizerJson, MAX_VOCABULARY_BYTES, ADVICE)
        vocabulary, unknown = content.model.vocab, content.model.unk_id
        if isinstance(vocabulary, dict):
            return vocabulary | added
        names = [piece for piece, _ in vocabulary]
        tokens = {piece: number for number, piece in enumerate(names)} | added
        # the table may have <unk> twice, and unknown characters have this id
        if unknown is not None and names[unknown : unknown + 1] == [UNKNOWN]:
            tokens[UNKNOWN] = unknown
        return tokens
    pieces = SentencePiece(folder / PIECES).model
    names = [*SPECIAL, *(pieces.id_to_piece(n) for n in range(3, pieces.get_piece_size()))]
    if added.keys().isdisjoint(languages):
        names += [*languages, MASK]
    return {piece: number for number, piece in enumerate(names)} | added


def has_word_pieces(folder: Path) -> bool:
    """Whether a folder has a ``tokenizer.json`` with BERT's word pieces."""
    path = folder / WORDPIECE_FILES[0]
    if not path.exists():
        return False
    content = read_json_object(path, TokenizerJson, MAX_VOCABULARY_BYTES, ADVICE)
    return content.model.type == "WordPiece"


class UnigramJson(BaseModel):
    """The pieces with their scores, and the table of characters, in ``tokenizer.json``."""

    class Model(BaseModel):
        """The unigram model."""

        vocab: list[tuple[str, float]]

    class Normalizer(BaseModel):
        """One normalizer, or a sequence of them."""

        precompiled_charsmap: str | None = None
        normalizers: list["UnigramJson.Normalizer"] = []

    model: Model
    normalizer: Normalizer | None = None

    @property
    def characters(self) -> bytes:
        """SentencePiece's table of characters; empty if the file has none."""
        if self.normalizer is None:
            return b""
        parts = [self.normalizer, *self.normalizer.normalizers]
        table = next((p.precompiled_charsmap for p in parts if p.precompiled_charsmap), "")
        return base64.b64decode(table)


class UnigramPieces:
    """A method of a `Family` whose tokenizers read the pieces as a unigram model."""

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the SentencePiece model with the pieces and scores of ``tokenizer.json``.

        transformers reads this file, if the folder has it, and not the SentencePiece model. It
        reads a SentencePiece model of another type as a unigram model, too.
        """
        path, model = folder / PIECES, out / SUBWORD_FILES["sentencepiece"]
        proto = import_protobuf().ModelProto()
        if path.exists():
            check_regular(path, MAX_VOCABULARY_BYTES)
            with as_user_error(lambda _: f"{path} is not a SentencePiece model: {ADVICE}"):
                proto.ParseFromString(path.read_bytes())
        unchanged = proto.SerializeToString()
        if (folder / "tokenizer.json").exists():
            content = read_json_object(
                folder / "tokenizer.json", UnigramJson, MAX_VOCABULARY_BYTES, ADVICE
            )
            if not path.exists():
                proto.normalizer_spec.precompiled_charsmap = content.characters
            added = {*SPECIAL, MASK, *read_added_tokens(folder)}
            pieces = [(piece, score) for piece, score in content.model.vocab if piece not in added]
            set_pieces(proto, pieces)
        proto.trainer_spec.model_type = proto.trainer_spec.UNIGRAM
        if proto.SerializeToString() == unchanged:
            shutil.copyfile(path, model)
        else:
            model.write_bytes(proto.SerializeToString())
        SentencePiece(model)  # checks the file
        return {"subwords": "sentencepiece", "subword_model": model}


def set_pieces(proto: Any, pieces: Sequence[tuple[str, float]]) -> None:
    """Give a SentencePiece model these pieces after its three special symbols."""
    special = list(proto.pieces[:3]) or [
        proto.SentencePiece(piece=UNKNOWN, type=proto.SentencePiece.UNKNOWN),
        proto.SentencePiece(piece="<s>", type=proto.SentencePiece.CONTROL),
        proto.SentencePiece(piece="</s>", type=proto.SentencePiece.CONTROL),
    ]
    known = {piece.piece: piece for piece in proto.pieces}
    others = []
    for piece, score in pieces:
        others.append(proto.SentencePiece(piece=piece, score=score))
        if piece in known and known[piece].HasField("type"):
            others[-1].type = known[piece].type
    del proto.pieces[:]
    proto.pieces.extend([*special, *others])


class Merges(BaseModel):
    """The merges of a byte-level BPE in ``tokenizer.json``."""

    class Model(BaseModel):
        """The part of the file that contains the merges."""

        merges: list[str | tuple[str, str]]

    model: Model


class ByteLevelBPE:
    """Methods of a `Family` whose dictionary contains GPT-2's numbers of pieces."""

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        path, size = folder / "vocab.json", config.vocab_size
        if path.exists():
            tokens = read_tokens(path) | read_added_tokens(folder)
        else:
            tokens = read_pieces(folder)
        numbers = gpt2_bpe_ids(read_merges(folder))
        symbols = {
            str(numbers.get(token, token)): n
            for token, n in tokens.items()
            if token != MASK or n < size  # BART's tokenizer may have a mask that the model lacks
        }
        return [Vocabulary.from_tokens(symbols, size, {MASK: MASK})]

    def symbols(self, folder: Path) -> dict[str, str]:
        """GPT-2's numbers of the pieces."""
        return {piece: str(n) for piece, n in gpt2_bpe_ids(read_merges(folder)).items()}

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the two files of ``--bpe gpt2``."""
        merges = read_merges(folder)
        (out / GPT2_NUMBERS).write_text(json.dumps(gpt2_bpe_ids(merges)), encoding="utf-8")
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


def gpt2_bpe_ids(merges: list[str]) -> dict[str, int]:
    """GPT-2's number of each piece: 256 bytes in GPT-2's order, merges, and the end of text."""
    pieces = list(bytes_to_unicode().values())
    for merge in merges:
        parts = merge.split(" ")
        if len(parts) != 2 or not all(parts) or set(parts) & {*SPECIAL, MASK}:
            raise UserError(f"the merge {merge!r} does not have two pieces: {ADVICE}")
        pieces.append("".join(parts))
    return {piece: number for number, piece in enumerate([*pieces, END])}
