"""Fast tokenizer of encoders: SentencePiece's tokens by Hugging Face's ``tokenizers``.

It has the merges of all pieces of the SentencePiece model, and the ids of fairseq's dictionary. A
BPE of the dictionary's pieces alone would split some words differently, as pieces that the
dictionary lacks still take part in merges.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.decoders import Metaspace
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from ..errors import UserError
from ..input_files import VOCABULARY, read_bytes
from ..text.moses import import_library
from ..text.subwords import SentencePiece
from .tokenizer import FILES, MARKS, SPECIAL, save_files, symbols_in

#: SentencePiece's mark of a word's beginning
WORD = "\u2581"
#: a character without a piece, which replaces texts that neither pieces nor the dictionary have
UNKNOWN_CHARACTER = "\uf8ff"
#: white space of any kind and control characters, as in `diet_fairseq.text.whitespace`
SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
#: the first of the private characters that replace longer texts within `normalize`
PRIVATE = 0x100000
#: types of pieces in SentencePiece's model
NORMAL, UNKNOWN_PIECE, CONTROL, UNUSED = 1, 2, 3, 5
#: type of a SentencePiece model that `build_backend` reads
BYTE_PAIR_ENCODING = 2


class DietEncoderTokenizer(PreTrainedTokenizerFast):
    """The tokens of an encoder whose subwords are SentencePiece's byte pair encoding.

    It gives the ids of `DietTokenizer`, as ``<s> A </s>`` or ``<s> A </s> B </s>``, and
    SentencePiece's offsets. Pieces that fairseq's dictionary lacks become ``<unk>``.

    Args:
        vocab_file: fairseq's dictionary
        sentencepiece_file: the SentencePiece model
        segments: whether the model reads ``token_type_ids``
        do_lower_case: whether the model was trained on lower-cased text alone
        source_lang: language of the text, for `diet-fairseq import hf`

    Raises:
        UserError: the SentencePiece model is no byte pair encoding, or has user-defined symbols
    """

    vocab_files_names = {  # noqa: RUF012
        name: FILES[name] for name in ("vocab_file", "sentencepiece_file")
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    slow_tokenizer_class = None

    def __init__(
        self,
        vocab_file: str,
        sentencepiece_file: str,
        segments: bool = False,
        do_lower_case: bool = False,
        source_lang: str | None = None,
        mask_token: Any = None,
        **kwargs: Any,
    ) -> None:
        self.source_lang = source_lang
        self.files = {"vocab_file": vocab_file, "sentencepiece_file": sentencepiece_file}
        self.symbols = symbols_in(vocab_file)
        if isinstance(mask_token, str):
            mask_token = AddedToken(mask_token, lstrip=True, special=True, normalized=False)
        masks = [str(mask_token)] * (mask_token is not None)
        #: the number of ids; larger ones are those of pieces that become <unk>
        self.known = len(self.symbols) + len(masks)
        for name in ("tokenizer_file", "auto_map"):  # auto_map: code in folders of version 0.2
            kwargs.pop(name, None)
        kwargs |= dict(zip(MARKS, SPECIAL, strict=True))
        if segments:
            self.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        self.masks, self.do_lower_case = masks, do_lower_case
        self._tokenizer: Any = self._backend()
        super().__init__(
            segments=segments,
            do_lower_case=do_lower_case,
            source_lang=source_lang,
            mask_token=mask_token,
            **kwargs,
        )

    def _backend(self) -> Tokenizer:
        model = Path(self.files["sentencepiece_file"])
        return build_backend(model, [*self.symbols, *self.masks], self.do_lower_case)

    def __getstate__(self) -> dict[str, Any]:
        # A normaliser in Python can't be pickled, so `__setstate__` builds it again.
        return {**self.__dict__, "_tokenizer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tokenizer = self._backend()
        marks = [mark for mark in self._special_tokens_map.values() if mark is not None]
        self._tokenizer.add_special_tokens(marks)

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def __len__(self) -> int:
        return self.known

    def get_vocab(self) -> dict[str, int]:
        return {
            token: number for token, number in super().get_vocab().items() if number < self.known
        }

    def _add_tokens(self, new_tokens: list[Any], special_tokens: bool = False) -> int:
        unknown = [
            str(token) for token in new_tokens if self._tokenizer.token_to_id(str(token)) is None
        ]
        if unknown:
            raise UserError(
                f"{type(self).__name__} takes no new tokens, but {unknown[0]} is none of its "
                "vocabulary: load the folder with DietTokenizer, which does"
            )
        return super()._add_tokens(new_tokens, special_tokens)

    def _convert_encoding(self, encoding: Any, *args: Any, **kwargs: Any) -> Any:
        tokens, encodings = super()._convert_encoding(encoding, *args, **kwargs)
        unknown = SPECIAL.index("<unk>")
        tokens["input_ids"] = [
            [number if number < self.known else unknown for number in ids]
            for ids in tokens["input_ids"]
        ]
        return tokens, encodings

    def save_vocabulary(  # type: ignore[override]
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Copy the dictionary and the SentencePiece model."""
        return save_files(self.files, save_directory, filename_prefix)

    def _save_pretrained(
        self,
        save_directory: Any,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        # No tokenizer.json, which without this class would give ids beyond the embeddings.
        return file_names + self.save_vocabulary(str(save_directory), filename_prefix)


class SentencePieceNormalizer:
    """A SentencePiece model's normaliser, as a step of ``tokenizers``.

    It keeps offsets: characters that become one (a letter and its accent) have the place of the
    first, and characters that one becomes (an ellipsis, three points) have its place.

    Args:
        model: a SentencePieceProcessor
        runs: texts of unknown characters that the dictionary has
        unknown: a pattern of a longest run of unknown characters
        lower: whether to lower-case text first
    """

    def __init__(
        self, model: Any, runs: frozenset[str], unknown: re.Pattern[str], lower: bool
    ) -> None:
        self.model, self.runs, self.unknown, self.lower = model, runs, unknown, lower

    def normalize(self, text: Any) -> None:
        """Replace the content of a ``NormalizedString``."""
        original = text.normalized
        plain = SPACE.sub(" ", original)
        places: Sequence[int] = range(len(plain))
        if self.lower:
            places = [place for place in places for _ in plain[place].lower()]
            plain = plain.lower()
        result, starts = self.model.normalize(plain, with_offsets=True)
        result = self.unknown.sub(self._known_run, result)
        replacements: dict[int, str] = {}  # place in the original -> new text
        for character, start in zip(result, starts, strict=False):
            place = places[start]
            replacements[place] = replacements.get(place, "") + character
        longer = dict.fromkeys(part for part in replacements.values() if len(part) > 1)
        marks = {part: chr(PRIVATE + number) for number, part in enumerate(longer)}
        characters = iter([marks.get(part, part) for _, part in sorted(replacements.items())])
        count = iter(range(len(original)))
        text.filter(lambda _: next(count) in replacements)
        text.map(lambda _: next(characters))
        for part, mark in marks.items():
            text.replace(mark, part)

    def _known_run(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in self.runs else UNKNOWN_CHARACTER * len(match[0])


def build_backend(model: Path, symbols: list[str], lower: bool) -> Tokenizer:
    """SentencePiece's segmentation, with ids of ``symbols`` and larger ones for other pieces.

    Args:
        model: a SentencePiece model of the type ``bpe``
        symbols: symbols of fairseq's dictionary, and marks such as ``<mask>``
    """
    processor = SentencePiece(model).model  # refuses damaged files
    proto = read_model(model)
    if not is_plain(proto):
        raise UserError(
            f"{model} must be a byte pair encoding without symbols of its own, which "
            "DietEncoderTokenizer reads: load the folder with DietTokenizer"
        )
    ranked = sorted(
        (piece for piece in proto.pieces if piece.type == NORMAL), key=lambda piece: -piece.score
    )
    pieces = [piece.piece for piece in ranked]
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    for piece in pieces:
        numbers.setdefault(piece, len(numbers))
    characters = {piece for piece in pieces if len(piece) == 1} | {WORD}
    unknown = f"[^{re.escape(''.join(sorted(characters)))}]+"
    runs = frozenset(
        symbol for symbol in symbols if characters.isdisjoint(symbol) and symbol not in SPECIAL
    )
    # ignore_merges is faster for words that are pieces, with the same result. fuse_unk makes a run
    # of unknown characters one token, which the dictionary may have.
    tokenizer = Tokenizer(
        BPE(numbers, merges_of(pieces), unk_token=SPECIAL[3], fuse_unk=True, ignore_merges=True)
    )
    tokenizer.normalizer = normalizers.Normalizer.custom(
        SentencePieceNormalizer(processor, runs, re.compile(unknown), lower)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(unknown), "isolated"),
            pre_tokenizers.Split(WORD, "merged_with_next"),
        ]
    )
    tokenizer.decoder = Metaspace()
    bos, _, eos, _ = SPECIAL
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} $B:1 {eos}:1",
        special_tokens=[(bos, 0), (eos, 2)],
    )
    return tokenizer


def read_model(path: Path) -> Any:
    """The protobuf message in a SentencePiece model's file."""
    proto = import_library("sentencepiece.sentencepiece_model_pb2").ModelProto()
    proto.ParseFromString(read_bytes(path, VOCABULARY))
    return proto


def is_plain(proto: Any) -> bool:
    """Whether a model is a byte pair encoding with SentencePiece's usual treatment of spaces."""
    spec = proto.normalizer_spec
    return (
        proto.trainer_spec.model_type == BYTE_PAIR_ENCODING
        and spec.remove_extra_whitespaces
        and spec.add_dummy_prefix
        and spec.escape_whitespaces
        and {piece.type for piece in proto.pieces} <= {NORMAL, UNKNOWN_PIECE, CONTROL, UNUSED}
    )


def merges_of(pieces: Iterable[str]) -> list[tuple[str, str]]:
    """Every pair of pieces whose concatenation is a piece, in the order of the latter."""
    known = set(pieces)
    return [
        (piece[:place], piece[place:])
        for piece in pieces
        for place in range(1, len(piece))
        if piece[:place] in known and piece[place:] in known
    ]
