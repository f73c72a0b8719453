"""Subwords of SentencePiece, subword-nmt, fastBPE, GPT-2 and BERT, and vocabulary checks.

A subword model can be restricted to some of its tokens, the tokens of a text. The restricted model
splits this text into the same tokens as before, and never produces a token that was removed.
"""

import io
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import redirect_stderr
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, as_user_error, one_line
from ..files import MAX_VOCABULARY_BYTES, check_regular, open_regular, open_text, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: entries of a vocabulary that are not subwords: marks such as <mask>, and fairseq's padding
SPECIAL_SYMBOL = re.compile(r"<[^\s<>]*>|madeupword\d+")
#: entries with a mark of SentencePiece, subword-nmt or BERT
SUBWORD = re.compile(r"▁.*|.*@@|##\w+", re.DOTALL)
#: largest share of a vocabulary's subwords that its subword model may lack
MAX_UNKNOWN_SHARE = 0.05
#: a line of fastBPE's codes: a merge and its count in the training text
FASTBPE_MERGE = re.compile(r"(\S+ \S+) \d+")
#: file beside GPT-2's merges: piece -> number
GPT2_NUMBERS = "encoder.json"
#: BERT's special tokens -> fairseq's symbols
BERT_SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>",
                "[MASK]": "<mask>"}  # fmt: skip
#: names of the files that `WordPiece` reads
WORDPIECE_FILES = ("tokenizer.json", "vocab.txt")
#: limit of subword-nmt's cache of words
CACHED_WORDS = 100_000


class SentencePiece:
    """SentencePiece's subwords of raw text.

    Raises:
        UserError: the file is not a SentencePiece model
    """

    def __init__(self, model: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        check_regular(model, MAX_VOCABULARY_BYTES)
        self.path = model
        try:
            self.model = SentencePieceProcessor(model_file=str(model))
        except (RuntimeError, OSError) as error:
            raise UserError(
                f"{model} is not a SentencePiece model, or is damaged: give another file"
            ) from error

    def encode(self, line: str) -> list[str]:
        pieces: list[str] = self.model.encode(line, out_type=str)
        # A character without a piece becomes a piece, even if it is an unusual space.
        return [piece for piece in pieces if piece.strip()]

    def decode(self, tokens: list[str]) -> str:
        # SentencePiece keeps the mark in pieces of another model, such as the target language's
        return str(self.model.decode(tokens)).replace("▁", " ")

    @staticmethod
    def is_word_start(tokens: list[str], index: int) -> bool:
        return tokens[index].startswith("▁")

    def _has_piece(self, symbol: str) -> bool:
        return bool(self.model.piece_to_id(symbol) != self.model.unk_id())

    def can_encode(self, symbol: str) -> bool:
        """Whether encoding can produce the symbol: a piece, or characters without a piece."""
        return self._has_piece(symbol) or not any(map(self._has_piece, symbol))

    def restrict(self, tokens: Collection[str], copy: Path) -> set[str]:
        """Write the model with only these tokens, single characters and special pieces.

        The other pieces get the type UNUSED, as in SentencePiece's ``--vocabulary``: BPE merges
        still use such a piece, but it is split again at the end.

        Returns:
            the tokens that the written model can produce

        Raises:
            UserError: the model's type is neither unigram nor BPE
        """
        from sentencepiece import sentencepiece_model_pb2

        messages: Any = sentencepiece_model_pb2
        proto = messages.ModelProto.FromString(self.model.serialized_model_proto())
        kind = proto.trainer_spec.model_type
        if kind not in (proto.trainer_spec.UNIGRAM, proto.trainer_spec.BPE):
            raise UserError(
                f"{self.path} must be of SentencePiece's type unigram or bpe to be trimmed, but is "
                f"of the type {proto.trainer_spec.ModelType.Name(kind).lower()}: keep its "
                "vocabulary"
            )
        normal = [piece for piece in proto.pieces if piece.type == piece.NORMAL]
        # the scores of unknown characters and of user-defined pieces depend on the extremes
        scores = sorted(normal, key=lambda piece: piece.score)
        extremes = {piece.piece for piece in (*scores[:1], *scores[-1:])}
        for piece in normal:
            if len(piece.piece) > 1 and piece.piece not in tokens and piece.piece not in extremes:
                piece.type = piece.UNUSED
        copy.write_bytes(proto.SerializeToString())
        return {piece.piece for piece in proto.pieces if piece.type != piece.UNUSED} | {*tokens}


class SubwordNmt:
    """subword-nmt's subwords of words between spaces; ``@@`` ends all but a word's last subword.

    fastBPE writes the codes of subword-nmt 0.2 without a header, and adds a column of counts.

    Raises:
        UserError: the file does not hold codes of subword-nmt or fastBPE
    """

    def __init__(self, codes: Path) -> None:
        from subword_nmt.apply_bpe import BPE

        # BPE reports a bad file on stderr, and exits.
        with open_text(codes, newline="\n") as file, redirect_stderr(io.StringIO()):
            try:
                merges = [FASTBPE_MERGE.fullmatch(line.rstrip("\r\n")) for line in file]
                if merges and all(merges):
                    text = "".join(f"{merge[1]}\n" for merge in merges if merge)
                    self.bpe = BPE(io.StringIO(f"#version: 0.2\n{text}"))
                else:
                    self.bpe = BPE(file)
            except (OSError, ValueError, SystemExit) as error:
                raise UserError(
                    f"{codes} does not hold codes of subword-nmt or fastBPE: give another file"
                ) from error

    def encode(self, line: str) -> list[str]:
        if len(self.bpe.cache) > CACHED_WORDS:
            self.bpe.cache.clear()
        return str(self.bpe.process_line(line)).split()

    def decode(self, tokens: list[str]) -> str:
        return f"{' '.join(tokens)} ".replace("@@ ", "").strip()

    @staticmethod
    def is_word_start(tokens: list[str], index: int) -> bool:
        return not tokens[index - 1].endswith("@@")

    @cached_property
    def _merges(self) -> set[str]:
        return {"".join(pair) for pair in self.bpe.bpe_codes}

    def can_encode(self, symbol: str) -> bool:
        """Whether encoding can produce the symbol: a character, or the result of a merge."""
        part = symbol.removesuffix("@@")
        return len(part) < 2 or (part if symbol != part else f"{part}</w>") in self._merges

    def restrict(self, tokens: Collection[str], copy: Path) -> set[str]:
        """Write the codes that make these tokens, and return the tokens that they can produce.

        A merge of two of these codes may also end a word, so its result stays, too.
        """
        # the codes of version 0.1 may also end a word without a merge with its end
        has_separate_ends = self.bpe.version == (0, 1)
        wanted = set()
        for token in tokens:
            part = token.removesuffix("@@")
            if part == token:
                wanted.add(f"{part}</w>")
            if part != token or has_separate_ends:
                wanted.add(part)
        pieces = find_ancestors(self.bpe.bpe_codes, wanted)
        version = ".".join(map(str, self.bpe.version))
        ranks = self.bpe.bpe_codes  # pair -> rank, in the reversed order
        merges = [pair for pair in sorted(ranks, key=ranks.get) if "".join(pair) in pieces]
        lines = [f"#version: {version}", *map(" ".join, merges)]
        copy.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        produced = {*tokens}
        for piece in pieces:
            part = piece.removesuffix("</w>")
            if part != piece or has_separate_ends:
                produced.add(part)
            if part == piece:
                produced.add(f"{part}@@")
        return produced


class Gpt2:
    """GPT-2's byte-level BPE as in fairseq: subwords are the numbers of pieces.

    White space is kept unchanged.

    Args:
        merges: ``vocab.bpe``; the pieces' numbers are in `GPT2_NUMBERS` beside it

    Raises:
        UserError: the files do not have the format of ``--bpe gpt2``
    """

    def __init__(self, merges: Path) -> None:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        numbers = merges.with_name(GPT2_NUMBERS)
        with (
            as_user_error(
                lambda error: (
                    f"{merges} and {numbers.name} beside it are not the files of "
                    f"fairseq's --bpe gpt2 ({one_line(str(error))}): give others"
                )
            ),
            open_text(merges) as file,
        ):
            #: piece -> number, and the merges of two pieces, in their order
            self.numbers: dict[str, int] = dict(read_json(numbers, MAX_VOCABULARY_BYTES))
            lines = file.read().split("\n")[1:-1]  # the first is the version
            self.merges = [(first, second) for first, second in map(str.split, lines)]
            if missing := set(pre_tokenizers.ByteLevel.alphabet()) - self.numbers.keys():
                raise ValueError(f"{len(missing)} of 256 bytes have no number")
            self.bpe = Tokenizer(models.BPE(self.numbers, self.merges))
        self.bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.decoder = decoders.ByteLevel()
        self.pieces = {str(number): piece for piece, number in self.numbers.items()}

    def encode(self, line: str) -> list[str]:
        return [str(number) for number in self.bpe.encode(line).ids]

    def decode(self, tokens: list[str]) -> str:
        return str(self.decoder.decode([self.pieces.get(token, token) for token in tokens]))

    def is_word_start(self, tokens: list[str], index: int) -> bool:
        return self.decode([tokens[index]]).startswith(" ")

    def can_encode(self, symbol: str) -> bool:
        return symbol in self.pieces

    def restrict(self, tokens: Collection[str], copy: Path) -> set[str]:
        """Write the merges that make these tokens, and return the tokens that they can produce.

        `GPT2_NUMBERS` does not change, so that pieces keep their numbers.
        """
        from tokenizers import pre_tokenizers

        wanted = {self.pieces[token] for token in tokens if token in self.pieces}
        pieces = find_ancestors(self.merges, wanted) | {*pre_tokenizers.ByteLevel.alphabet()}
        lines = ["#version: 0.2", *(f"{a} {b}" for a, b in self.merges if f"{a}{b}" in pieces)]
        copy.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        copy.with_name(GPT2_NUMBERS).write_text(json.dumps(self.numbers), encoding="utf-8")
        return {str(self.numbers[piece]) for piece in pieces if piece in self.numbers} | {*tokens}


class WordPiece:
    """BERT's word pieces of raw text, by the library ``tokenizers``; ``##`` continues a word.

    Special tokens in a text become ``<unk>``.

    Args:
        file: ``tokenizer.json``, which has the options of case, accents and Chinese characters; or
            ``vocab.txt``, one piece a line: text is then lower-cased and loses its accents, as in
            BERT's uncased models, if no piece has a capital letter

    Raises:
        UserError: the file can't be read, or does not have word pieces
    """

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer

        check_regular(file, MAX_VOCABULARY_BYTES)
        is_json = file.suffix == ".json"
        with as_user_error(
            lambda error: (
                f"{file} does not have BERT's word pieces ({one_line(str(error))}): give BERT's "
                "vocab.txt or its tokenizer.json"
            )
        ):
            #: the tokenizer, with the ids of the file
            self.backend = Tokenizer.from_file(str(file)) if is_json else read_word_pieces(file)
            if type(self.backend.model).__name__ != "WordPiece":
                raise ValueError(f"it is of the type {type(self.backend.model).__name__}")
        # the file may have the settings of the last batch
        self.backend.no_truncation()
        self.backend.no_padding()
        tokens = self.backend.get_added_tokens_decoder().values()
        self.special = {token.content for token in tokens if token.special} | BERT_SYMBOLS.keys()

    def encode(self, line: str) -> list[str]:
        pieces = self.backend.encode(line, add_special_tokens=False).tokens
        return ["<unk>" if piece in self.special else piece for piece in pieces]

    def decode(self, tokens: list[str]) -> str:
        from tokenizers.decoders import WordPiece

        return str(WordPiece().decode(tokens))

    @staticmethod
    def is_word_start(tokens: list[str], index: int) -> bool:
        return not tokens[index].startswith("##")

    def can_encode(self, symbol: str) -> bool:
        return self.backend.token_to_id(symbol) is not None

    def restrict(self, tokens: Collection[str], copy: Path) -> set[str]:
        raise UserError("the vocabulary of BERT's word pieces can't be restricted")


def read_word_pieces(file: Path) -> "Tokenizer":
    """The tokenizer of a ``vocab.txt``, as BERT's code builds it.

    Raises:
        ValueError: a piece is repeated, or a special token is missing
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import BertProcessing

    with open_text(file, newline="\n") as lines:
        pieces = [line.rstrip("\r\n") for line in lines]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if missing := [token for token in BERT_SYMBOLS if token not in vocabulary]:
        raise ValueError(f"it lacks {missing[0]}")
    if len(vocabulary) < len(pieces):
        raise ValueError("a piece is repeated")
    words = [piece for piece in pieces if not re.fullmatch(r"\[.*\]", piece)]
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=all(word == word.lower() for word in words))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [(token, vocabulary[token]) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = BertProcessing(*ends)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in BERT_SYMBOLS])
    return tokenizer


class Words:
    """Words between spaces, without subwords."""

    def __init__(self, _: Path) -> None:
        pass

    def encode(self, line: str) -> list[str]:
        return line.split()

    def decode(self, tokens: list[str]) -> str:
        return " ".join(tokens)

    @staticmethod
    def is_word_start(tokens: list[str], index: int) -> bool:
        return True

    @staticmethod
    def can_encode(symbol: str) -> bool:
        return True

    @staticmethod
    def restrict(tokens: Collection[str], _: Path) -> set[str]:
        return {*tokens}


def find_ancestors(merges: Iterable[tuple[str, str]], pieces: Iterable[str]) -> set[str]:
    """The pieces, and all pieces from which merges make them.

    With the merges that result in these pieces, a BPE splits a text whose pieces are in ``pieces``
    as with all merges: at every step the first of all possible merges is one of them.
    """
    parts: defaultdict[str, set[str]] = defaultdict(set)
    for first, second in merges:
        parts[first + second] |= {first, second}
    ancestors: set[str] = set()
    queue = [*pieces]
    while queue:
        piece = queue.pop()
        if piece not in ancestors:
            ancestors.add(piece)
            queue += parts.get(piece, ())
    return ancestors


Subwords = SentencePiece | SubwordNmt | Gpt2 | WordPiece | Words
#: subword classes by their name in ``model.json``
SUBWORD_CLASSES: dict[str, Callable[[Path], Subwords]] = {
    "sentencepiece": SentencePiece,
    "subword_nmt": SubwordNmt,
    "gpt2": Gpt2,
    "wordpiece": WordPiece,
    "none": Words,
}
#: name of a subword model's file, by kind; only encoders have BERT's, `WORDPIECE_FILES`
SUBWORD_FILES = {
    "sentencepiece": "sentencepiece.model", "subword_nmt": "codes", "gpt2": "vocab.bpe"
}  # fmt: skip
#: prefix of the file name of the target's subword model, if the target has its own
TARGET = "target-"


def copy_subwords(kind: str, model: Path, folder: Path, prefix: str = "") -> Path:
    """Copy the files of a subword model into a folder, and return the path of the copy."""
    if kind == "wordpiece":
        name = next(name for name in WORDPIECE_FILES if model.suffix == Path(name).suffix)
    else:
        name = SUBWORD_FILES[kind]
    copy = folder / f"{prefix}{name}"
    shutil.copyfile(model, copy)
    if kind == "gpt2":
        shutil.copyfile(model.with_name(GPT2_NUMBERS), folder / GPT2_NUMBERS)
    return copy


def detect_subword_kind(path: Path) -> str:
    """The kind of the subword model in a file, a key of `SUBWORD_CLASSES` except "none".

    Raises:
        UserError: the file can't be read, or is of another kind
    """
    with open_regular(path, MAX_VOCABULARY_BYTES, "name another file with --subwords") as file:
        start = file.read(4096)
    if path.suffix == ".json":
        return "wordpiece"
    if start.startswith(b"\n"):  # protobuf: the first field of SentencePiece's ModelProto
        return "sentencepiece"
    if re.match(rb"#version|\S+ \S+\s", start):
        return "gpt2" if path.with_name(GPT2_NUMBERS).is_file() else "subword_nmt"
    if path.name.endswith("vocab.txt"):
        return "wordpiece"
    raise UserError(
        f"{path} is neither a SentencePiece model nor codes of subword-nmt or fastBPE, and not "
        f"named {' or '.join(WORDPIECE_FILES)}, as BERT's vocabulary is: give the subword model "
        "that the data was made with"
    )


def check_vocabulary(models: Collection[Subwords], vocabulary: Collection[str], names: str) -> None:
    """Refuse subword models that don't belong to the vocabulary.

    Args:
        models: the subword models of source and target
        names: names of vocabulary and subword model, for the error

    Raises:
        UserError: more than `MAX_UNKNOWN_SHARE` of the subwords are in none of the models
    """
    words = [word for word in vocabulary if not SPECIAL_SYMBOL.fullmatch(word)]
    unknown = [word for word in words if not any(model.can_encode(word) for model in models)]
    if len(unknown) > MAX_UNKNOWN_SHARE * len(words):
        raise UserError(
            f"{names} don't belong together: {len(unknown):,} of {len(words):,} subwords of the "
            f"vocabulary (such as {unknown[0]!r}) are not in the subword model; give the two that "
            "were made together"
        )
