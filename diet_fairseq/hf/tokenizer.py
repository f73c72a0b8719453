"""Tokenizer of fairseq's dictionaries and a subword model."""

import shutil
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from transformers import AddedToken, PreTrainedTokenizer

from ..errors import UserError
from ..input_files import open_text
from ..text.tokenizer import Tokenizer

FILES = {
    "vocab_file": "dict.txt",
    "target_vocab_file": "dict.target.txt",
    "sentencepiece_file": "sentencepiece.model",
    "codes_file": "codes",
}
#: the first entries of fairseq's dictionaries, in this order
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MARKS = ("bos_token", "pad_token", "eos_token", "unk_token")


def symbols_in(path: str | Path) -> list[str]:
    """The symbols of a fairseq dictionary, in the order of their ids."""
    symbols = list(SPECIAL)
    advice = "give the dict.txt that fairseq-preprocess wrote"
    with open_text(path, advice=advice) as file:
        try:
            lines = file.readlines()
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8: {advice}") from error
    for number, line in enumerate(lines, 1):
        symbol, _, count = line.rstrip().removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not (symbol and count.isdecimal()):
            raise UserError(
                f"{path}, line {number}, is no line of a fairseq dictionary: a symbol, a space and "
                f"a number; {advice}"
            )
        symbols.append(symbol)
    return symbols


def save_files(files: Mapping[str, str | None], folder: str, prefix: str | None) -> tuple[str, ...]:
    """Copy a tokenizer's files to a folder, under the names of `FILES`."""
    copies = []
    for name, path in files.items():
        if path is not None:
            copy = Path(folder, (f"{prefix}-" if prefix else "") + FILES[name])
            if Path(path).resolve() != copy.resolve():
                shutil.copyfile(path, copy)
            copies.append(str(copy))
    return tuple(copies)


class DietTokenizer(PreTrainedTokenizer):
    """The tokens of fairseq's data, by SentencePiece or subword-nmt.

    A translation model reads ``A </s>``, an encoder ``<s> A </s>`` or ``<s> A </s> B </s>``. Ids of
    ``text_target`` and of decoded text are the target dictionary's, those of other text the
    source's.

    Args:
        vocab_file: fairseq's source dictionary
        target_vocab_file: fairseq's target dictionary (default: the source's)
        sentencepiece_file: a SentencePiece model, for raw text; or
        codes_file: subword-nmt's merges, for words between spaces
        begins: whether sentences begin with ``<s>``
        segments: whether the model reads ``token_type_ids``
        moses: whether sacremoses splits words before subword-nmt, and joins them afterwards
        do_lower_case: whether the model was trained on lower-cased text alone
        source_lang, target_lang: languages for sacremoses
    """

    vocab_files_names = FILES
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        vocab_file: str,
        target_vocab_file: str | None = None,
        sentencepiece_file: str | None = None,
        codes_file: str | None = None,
        begins: bool = False,
        segments: bool = False,
        moses: bool = False,
        do_lower_case: bool = False,
        source_lang: str | None = None,
        target_lang: str | None = None,
        mask_token: Any = None,
        **kwargs: Any,
    ) -> None:
        self.files = {
            "vocab_file": vocab_file,
            "target_vocab_file": target_vocab_file,
            "sentencepiece_file": sentencepiece_file,
            "codes_file": codes_file,
        }
        self.moses, self.source_lang, self.target_lang = moses, source_lang, target_lang
        self.do_lower_case = do_lower_case
        self.symbols = self.target_symbols = symbols_in(vocab_file)
        if target_vocab_file is not None:
            self.target_symbols = symbols_in(target_vocab_file)
        self.numbers, self.target_numbers = (
            {symbol: number for number, symbol in enumerate(symbols)}
            for symbols in (self.symbols, self.target_symbols)
        )
        self.reads_target = False
        kind, model = "sentencepiece", sentencepiece_file
        if sentencepiece_file is None:
            kind, model = "subword_nmt", codes_file
        if model is None:
            raise UserError("a tokenizer needs sentencepiece.model or codes: give one of them")
        self.source_text, self.target_text = (
            Tokenizer(kind, Path(model), language or "en", moses, do_lower_case)
            for language in (source_lang, target_lang)
        )
        if isinstance(mask_token, str):
            mask_token = AddedToken(mask_token, lstrip=True, special=True)
        kwargs.pop("special_tokens_pattern", None)
        kwargs |= dict(zip(MARKS, SPECIAL, strict=True))
        if segments:
            self.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        super().__init__(
            special_tokens_pattern="bos_eos" if begins else "eos",
            begins=begins,
            segments=segments,
            moses=moses,
            do_lower_case=do_lower_case,
            source_lang=source_lang,
            target_lang=target_lang,
            mask_token=mask_token,
            **kwargs,
        )

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def get_vocab(self) -> dict[str, int]:
        return {**self.numbers, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return (self.target_text if self.reads_target else self.source_text).encode(text)

    def _convert_token_to_id(self, token: str) -> int:
        numbers = self.target_numbers if self.reads_target else self.numbers
        return numbers.get(token, SPECIAL.index("<unk>"))

    def _convert_id_to_token(self, index: int) -> str:
        symbols = self.target_symbols
        return symbols[index] if index < len(symbols) else SPECIAL[3]

    def _switch_to_input_mode(self) -> None:
        self.reads_target = False

    def _switch_to_target_mode(self) -> None:
        self.reads_target = True

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Plain text, with special tokens unchanged."""
        special = set(self.all_special_tokens)
        return " ".join(
            " ".join(run) if is_special else self.target_text.decode(list(run))
            for is_special, run in groupby(tokens, key=special.__contains__)
        )

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Copy the dictionaries and the subword model."""
        return save_files(self.files, save_directory, filename_prefix)
