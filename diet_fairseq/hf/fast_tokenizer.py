"""Fast tokenizer of encoders: SentencePiece's pieces in Hugging Face's ``tokenizers``.

SentencePiece itself segments the text, as a step in Python; ``tokenizers`` splits at special
tokens, keeps offsets, truncates and pads.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Metaspace
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ..errors import UserError
from ..text.subwords import SentencePiece
from ..text.tokenizer import FAIRSEQ_MARKS, UNKNOWN
from ..text.whitespace import WHITE_SPACE
from .tokenizer import FILES, MARKS, SPECIAL, save_files, symbols_in

#: a whole text
ALL = Regex("(?m).+")


class DietEncoderTokenizer(PreTrainedTokenizerFast):
    """The tokens of an encoder whose subwords are SentencePiece's.

    It gives the ids of `DietTokenizer`, as ``<s> A </s>`` or ``<s> A </s> B </s>``, and
    SentencePiece's offsets. Pieces that fairseq's dictionary lacks become ``<unk>``.

    Args:
        vocab_file: fairseq's dictionary
        sentencepiece_file: the SentencePiece model
        segments: whether the model reads ``token_type_ids``
        do_lower_case: whether the model was trained on lower-cased text alone
        source_lang: language of the text, for `diet-fairseq import hf`
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
        self.files = {"vocab_file": vocab_file, "sentencepiece_file": sentencepiece_file}
        self.do_lower_case, self.source_lang = do_lower_case, source_lang
        self.marks = [] if mask_token is None else [str(mask_token)]
        self._tokenizer: Any = self._backend()
        if isinstance(mask_token, str):
            mask_token = AddedToken(mask_token, lstrip=True, special=True, normalized=False)
        kwargs.pop("tokenizer_file", None)
        kwargs |= dict(zip(MARKS, SPECIAL, strict=True))
        if segments:
            self.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        super().__init__(
            segments=segments,
            do_lower_case=do_lower_case,
            source_lang=source_lang,
            mask_token=mask_token,
            **kwargs,
        )

    def _backend(self) -> Tokenizer:
        symbols = [*symbols_in(self.files["vocab_file"]), *self.marks]
        numbers = {symbol: number for number, symbol in enumerate(symbols)}
        tokenizer: Any = Tokenizer(WordLevel(numbers, unk_token=UNKNOWN))
        model = Path(self.files["sentencepiece_file"])
        tokenizer.pre_tokenizer = PreTokenizer.custom(Segmentation(model, self.do_lower_case))
        tokenizer.decoder = Metaspace()
        bos, _, eos, _ = SPECIAL
        tokenizer.post_processor = TemplateProcessing(
            single=f"{bos} $A {eos}",
            pair=f"{bos} $A {eos} $B:1 {eos}:1",
            special_tokens=[(bos, 0), (eos, 2)],
        )
        return tokenizer

    def __getstate__(self) -> dict[str, Any]:
        # A step in Python can't be pickled, so `__setstate__` builds it again.
        return {**self.__dict__, "_tokenizer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tokenizer = self._backend()
        marks = [mark for mark in self._special_tokens_map.values() if mark is not None]
        self._tokenizer.add_special_tokens(marks)

    def _add_tokens(self, new_tokens: list[Any], special_tokens: bool = False) -> int:
        names = [str(token) for token in new_tokens]
        unknown = [name for name in names if self._tokenizer.token_to_id(name) is None]
        if unknown:
            raise UserError(
                f"{type(self).__name__} takes no new tokens, but {unknown[0]} is none of its "
                "vocabulary: load the folder with DietTokenizer, which does"
            )
        return super()._add_tokens(new_tokens, special_tokens)

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
        # There is no tokenizer.json, which can't hold a step in Python.
        return file_names + self.save_vocabulary(str(save_directory), filename_prefix)


class Segmentation:
    """White space, case and SentencePiece as a step of ``tokenizers``, which keeps offsets.

    A piece that is longer or shorter than its text (a ligature, a letter and its accent) has the
    place of the text's first character.
    """

    def __init__(self, model: Path, lower: bool) -> None:
        self.model, self.lower = SentencePiece(model).model, lower

    def pre_tokenize(self, text: Any) -> None:
        """Split a ``PreTokenizedString``."""
        text.split(self.pieces)

    def pieces(self, _: int, text: Any) -> list[Any]:
        """A ``NormalizedString`` with the content of a piece for every piece of the text."""
        plain = text.normalized
        places: Sequence[int] = range(len(plain))
        if self.lower:
            places = [place for place in places for _ in plain[place].lower()]
            plain = plain.lower()
        plain = WHITE_SPACE.sub(lambda match: " " * len(match[0]), plain)
        result = self.model.encode(plain, out_type="offset_mapping", return_bytes=False)
        parts = []
        for piece, (begin, end) in zip(result["pieces"], result["offsets"], strict=True):
            if not piece.strip():  # a space of some kind, as in `SentencePiece.encode`
                continue
            if plain.startswith("  ", begin):  # of several spaces the last
                begin = max(begin, end - len(piece))
            piece = UNKNOWN if piece in FAIRSEQ_MARKS else piece
            begin = min(begin, len(places) - 1)
            first, last = places[begin], places[max(begin, end - 1)]
            if len(piece) == last + 1 - first:
                characters = iter(piece)
                part = text.slice((first, last + 1))
                part.map(lambda _, characters=characters: next(characters))
            else:
                part = text.slice((first, first + 1))
                part.replace(ALL, piece)
            parts.append(part)
        return parts
