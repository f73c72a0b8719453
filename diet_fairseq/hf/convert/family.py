"""Description of a transformers class for `import hf`: options, names, vocabulary, text files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from pydantic import BaseModel, StrictInt
from torch import Tensor

from ...checkpoints.plain import shorten
from ...errors import UserError, one_line
from ...files import MAX_VOCABULARY_BYTES, read_json, read_json_object, validate
from ...text.subwords import SentencePiece
from ...translate.model_json import DirectionsJson, Language
from .configuration import FAIRSEQ_ACTIVATIONS

ADVICE = "give another folder"
#: names of activations: transformers' -> fairseq's
ACTIVATION_NAMES = FAIRSEQ_ACTIVATIONS | {"swish": "swish", "gelu_pytorch_tanh": "gelu_accurate"}
#: the first symbols of fairseq's dictionaries
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: the SentencePiece model of M2M-100, NLLB, mBART and XLM-R
PIECES = "sentencepiece.bpe.model"
#: parameters by name
State = dict[str, Tensor]


class NewToken(BaseModel, strict=True):
    """A token that a tokenizer has in addition to its vocabulary."""

    content: str


class Texts(BaseModel, strict=True):
    """The options of ``tokenizer_config.json`` that the import uses, and added tokens by id."""

    source_lang: Language | None = None
    target_lang: Language | None = None
    src_lang: Language | None = None  # of multilingual models
    tgt_lang: Language | None = None
    tokenizer_class: str | None = None
    legacy_behaviour: bool = False
    language_codes: str | None = None
    do_lower_case: bool | None = None
    directions: DirectionsJson | None = None  # of our own tokenizer
    added_tokens_decoder: dict[str, NewToken] = {}


class Vocabulary(NamedTuple):
    """A transformers vocabulary as a dictionary of fairseq.

    Attributes:
        symbols: the symbols in fairseq's order
        ids: the symbols' ids in transformers; -1: transformers' vocabulary lacks the symbol
    """

    symbols: list[str]
    ids: list[int]

    @classmethod
    def from_tokens(cls, tokens: Mapping[str, int], size: int, special: Mapping[str, str]) -> Any:
        """The dictionary of a vocabulary of ``size`` ids: special symbols, then the others by id.

        Ids without a token, and tokens that fairseq can't store, become ``madeupword`` and the id.

        Args:
            tokens: token -> id
            special: symbol of `SPECIAL`, or ``<mask>``, which comes last -> its token

        Raises:
            UserError: an id is not from 0 to ``size`` - 1, or belongs to two tokens; or a special
                token other than ``<s>`` is missing
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


class Family:
    """Base class of the descriptions of classes of transformers.

    Attributes:
        model_class: the name of the class whose outputs are compared
        allowed: option of the configuration -> the values that fairseq's model supports
        options: fairseq's options with one value for all models of the class
        names: patterns of parameter names in transformers -> names in fairseq; the first match
            counts, and None leaves a parameter out
        option_names: fairseq's option -> name in the configuration of the same value
        token_tables: fairseq's parameters with a row for each token -> index of their vocabulary
        position_tables: fairseq's parameters with a row for each position
        first_row: the row of position 0 in transformers' position tables; in fairseq it is row 2
        optional: a pattern of the parameters that a folder may lack
        heads: a pattern of the parameters of heads that are left out if the folder lacks them
        headless_class: the name of the class without these heads
        positions: the position scheme
        untrained: a pattern of fairseq's parameters that the class lacks and no training changes
    """

    model_class: ClassVar[str]
    headless_class: ClassVar[str]
    positions: ClassVar[str] = "learned"
    untrained: ClassVar[str] = r"(?!)"
    allowed: ClassVar[dict[str, tuple[Any, ...]]]
    options: ClassVar[dict[str, Any]]
    names: ClassVar[dict[str, str | None]]
    option_names: ClassVar[dict[str, str]]
    token_tables: ClassVar[dict[str, int]]
    position_tables: ClassVar[tuple[str, ...]] = ()
    first_row: ClassVar[int]
    optional: ClassVar[str] = r"(?!)"
    heads: ClassVar[str] = r"(?!)"

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a configuration that fairseq's model can't have.

        Raises:
            UserError: an option has a value that is not `allowed`
        """
        for name, values in self.allowed.items():
            if name in config and config[name] not in values:
                text = " or ".join(map(str, values))
                raise UserError(
                    f"config.json has {name} {one_line(str(config[name]))}, but fairseq's model "
                    f"has {text}: this folder can't be imported"
                )

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        """fairseq's options, ``arch`` among them, for a folder with these parameters."""
        options = {name: getattr(config, key) for name, key in self.option_names.items()}
        activation = ACTIVATION_NAMES[options["activation_fn"]]
        return options | self.options | {"activation_fn": activation}

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        """The dictionaries of source and target, or an encoder's only dictionary."""
        raise NotImplementedError

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        """The parameters of fairseq's model from the parameters in transformers."""
        state = dict(self.rename_to_fairseq(tensors))
        for name, index in self.token_tables.items():
            state[name] = vocabularies[index].rows(state[name])
        for name in self.position_tables:
            table = state[name][self.first_row :]
            unused = table.new_zeros(2, table.size(1))  # rows 0 and 1, of padding
            state[name] = torch.cat([unused, table])
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        """The inverse of `convert`, except that names stay fairseq's names."""
        state = dict(state)
        for name, index in self.token_tables.items():
            state[name] = vocabularies[index].original_rows(state[name])
        for name in self.position_tables:
            state[name] = state[name][2 - self.first_row :]
        return state

    def difference(
        self, model: Any, reference: Any, vocabularies: list[Vocabulary]
    ) -> tuple[float, float]:
        """Compare fairseq's model with transformers' model on random sentences.

        Returns:
            the largest difference of their outputs, and the largest output
        """
        raise NotImplementedError

    def rename_to_fairseq(self, tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Pairs of fairseq's name and the tensor, or other value."""
        for name, tensor in tensors.items():
            for pattern, new in self.names.items():
                if match := re.fullmatch(pattern, name):
                    if new is not None:
                        yield match.expand(new), tensor
                    break
            else:
                yield name, tensor  # which fairseq's model refuses


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


def read_model_type(folder: Path, known: Iterable[str], reader: str, advice: str) -> str:
    """The ``model_type`` of a folder's configuration.

    Raises:
        UserError: it is not among the ``known`` types, which the ``reader`` supports
    """
    path = folder / "config.json"
    values = read_json(path, advice=advice)
    kind = str(values.get("model_type") if isinstance(values, dict) else None)
    if kind not in known:
        raise UserError(
            f"{path} is of the model type {shorten(kind)}, but {reader} {', '.join(known)}: "
            f"{advice}"
        )
    return kind


def read_texts(folder: Path) -> Texts:
    """The folder's ``tokenizer_config.json``, or the defaults without this file."""
    path = folder / "tokenizer_config.json"
    return read_json_object(path, Texts, advice=ADVICE) if path.exists() else Texts()
