"""Tokenizers for transformers with fairseq's dictionaries and a subword model.

The library ``tokenizers`` splits text at special tokens, keeps offsets, truncates and pads. It
calls `text.tokenizer`, in Python, to split text into subwords.
"""

import json
import shutil
from collections.abc import Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Token
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast, RobertaTokenizer

from ..errors import UserError, one_line
from ..files import open_text, validate
from ..text.subwords import GPT2_NUMBERS, Gpt2, SentencePiece
from ..text.tokenizer import SPECIAL_SYMBOLS, UNKNOWN, Tokenizer
from ..text.whitespace import normalise_with_indices
from ..translate.directions import PLAIN, Directions, summarize_names
from ..translate.model_json import DirectionsJson

#: keyword of `DietTokenizer` -> name of the file in a saved folder
FILES = {
    "vocab_file": "dict.txt",
    "target_vocab_file": "dict.target.txt",
    "sentencepiece_file": "sentencepiece.model",
    "codes_file": "codes",
    "merges_file": "vocab.bpe",
    "numbers_file": GPT2_NUMBERS,
    "target_sentencepiece_file": "target-sentencepiece.model",
}
#: kind of subwords -> keyword of the subword model's file
SUBWORDS = {"sentencepiece": "sentencepiece_file", "subword_nmt": "codes_file",
            "gpt2": "merges_file"}  # fmt: skip
#: the first entries of fairseq's dictionaries, in this order
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": UNKNOWN}


class DietTokenizer(PreTrainedTokenizerFast):
    """A tokenizer with fairseq's dictionaries, and subwords of SentencePiece, subword-nmt or GPT-2.

    A translation model reads ``A </s>``; an encoder reads ``<s> A </s>`` or ``<s> A </s> B </s>``.
    Ids of ``text_target`` and of decoded text are ids of the target dictionary; all other ids are
    ids of the source dictionary. Pieces that the dictionary lacks become ``<unk>``. Tokens have
    offsets only with SentencePiece and without Moses.

    The tokenizer of a multilingual model adds the tags of the attributes ``src_lang`` and
    ``tgt_lang``, which can be set. Decoding with ``skip_special_tokens`` also removes the tags.

    Args:
        vocab_file: fairseq's source dictionary
        target_vocab_file: fairseq's target dictionary (default: the source dictionary)
        sentencepiece_file: a SentencePiece model, for raw text
        codes_file: codes of subword-nmt, for words between spaces
        merges_file: ``vocab.bpe`` of fairseq's ``--bpe gpt2``, for raw text
        numbers_file: ``encoder.json`` of ``--bpe gpt2``, which must be beside ``merges_file``
        target_sentencepiece_file: the target's SentencePiece model (default: the source's model)
        begins: whether sentences begin with ``<s>``
        segments: whether the model reads ``token_type_ids``
        moses: whether sacremoses splits words before subword-nmt, and joins them when decoding
        do_lower_case: whether text is lower-cased
        source_lang: source language, for sacremoses and for the tags
        target_lang: target language, for sacremoses and for the tags
        directions: directions of a multilingual model, as in ``model.json``

    Raises:
        UserError: no subword model is given, a file or language is not valid, or the dictionary
            lacks a tag
    """

    vocab_files_names = FILES
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        vocab_file: str,
        target_vocab_file: str | None = None,
        sentencepiece_file: str | None = None,
        codes_file: str | None = None,
        merges_file: str | None = None,
        numbers_file: str | None = None,
        target_sentencepiece_file: str | None = None,
        begins: bool = False,
        segments: bool = False,
        moses: bool = False,
        do_lower_case: bool = False,
        source_lang: str | None = None,
        target_lang: str | None = None,
        directions: dict[str, Any] | None = None,
        mask_token: Any = None,
        **kwargs: Any,
    ) -> None:
        if merges_file:
            numbers_file = locate_numbers(merges_file, numbers_file)
        self.files: dict[str, Any] = {
            "vocab_file": vocab_file,
            "target_vocab_file": target_vocab_file,
            "sentencepiece_file": sentencepiece_file,
            "codes_file": codes_file,
            "merges_file": merges_file,
            "numbers_file": numbers_file,
            "target_sentencepiece_file": target_sentencepiece_file,
        }
        self.begins, self.moses, self.do_lower_case = begins, moses, do_lower_case
        self.source_lang, self.target_lang = source_lang, target_lang
        self.directions = directions
        self._build_backends()
        if isinstance(mask_token, str):
            mask_token = AddedToken(mask_token, lstrip=True, special=True)
        for name in ("tokenizer_file", "special_tokens_pattern"):
            kwargs.pop(name, None)
        if segments:
            self.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        super().__init__(
            begins=begins,
            segments=segments,
            moses=moses,
            do_lower_case=do_lower_case,
            source_lang=source_lang,
            target_lang=target_lang,
            directions=directions,
            mask_token=mask_token,
            **(kwargs | SPECIAL),
        )

    def _build_backends(self) -> None:
        """Build the backends of source and target from the files."""
        models = {kind: self.files[name] for kind, name in SUBWORDS.items() if self.files[name]}
        if not models:
            names = ", ".join(FILES[name] for name in SUBWORDS.values())
            raise UserError(f"a tokenizer needs one of the files {names}: give one of them")
        kind, model = next(iter(models.items()))
        source = self.files["vocab_file"]
        target = self.files["target_vocab_file"] or source
        framing, known = PLAIN, self.all_directions
        if known:
            check_languages(known, self.source_lang, self.target_lang)
            framing = known.frame(str(self.source_lang), str(self.target_lang))
        self.backends: list[Any] = []
        target_model = self.files["target_sentencepiece_file"] or model
        for path, subwords, language, before, after in (
            (source, model, self.source_lang, framing.source_prefix, framing.source_end),
            (target, target_model, self.target_lang, framing.target_prefix, (framing.target_end,)),
        ):
            text = Tokenizer(
                kind, Path(subwords), language or "en", self.moses, self.do_lower_case,
                known.all_tags if known else (),
            )  # fmt: skip
            vocabulary = read_dictionary(path)
            backend: Any = Backend(WordLevel(vocabulary, unk_token=UNKNOWN))
            backend.pre_tokenizer = PreTokenizer.custom(Segmentation(text, vocabulary))
            before = ("<s>",) if self.begins else before
            backend.post_processor = build_frame(before, after, vocabulary)
            self.backends.append(backend)
        self.target_text = text  # the tokenizer of the target, because the target is last
        self._tokenizer = self.backends[0]

    @property
    def is_fast(self) -> bool:
        """Whether tokens have offsets."""
        return self.files["sentencepiece_file"] is not None and not self.moses

    def _encode_plus(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("return_offsets_mapping") and not self.is_fast:
            raise UserError(
                "return_offsets_mapping needs a SentencePiece model without Moses, which this "
                "tokenizer does not have: leave it out"
            )
        return super()._encode_plus(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        # The backends call Python and can't be pickled, so `__setstate__` builds them again.
        added_tokens = [token for _, token in sorted(self.added_tokens_decoder.items())]
        state = {"backends": None, "_tokenizer": None, "target_text": None}
        return {**self.__dict__, **state, "added_tokens": added_tokens}

    def __setstate__(self, state: dict[str, Any]) -> None:
        added_tokens = state.pop("added_tokens")
        self.__dict__.update(state)
        self._build_backends()
        self._add_tokens(added_tokens)

    @property
    def all_directions(self) -> Directions | None:
        """The directions of a multilingual model.

        Raises:
            UserError: ``directions`` is not valid
        """
        if self.directions is None:
            return None
        where = "tokenizer_config.json: directions."
        return validate(self.directions, DirectionsJson, where, "export again").directions()

    @property
    def src_lang(self) -> str | None:
        """The source language, which can be set to any source language of the model."""
        return self.source_lang

    @src_lang.setter
    def src_lang(self, language: str) -> None:
        self._set_languages(language, self.target_lang)

    @property
    def tgt_lang(self) -> str | None:
        """The target language, which can be set to any target language of the model."""
        return self.target_lang

    @tgt_lang.setter
    def tgt_lang(self, language: str) -> None:
        self._set_languages(self.source_lang, language)

    def _set_languages(self, source: str | None, target: str | None) -> None:
        if known := self.all_directions:
            check_languages(known, source, target)
        changed = object.__new__(type(self))  # so that an error leaves this tokenizer unchanged
        changed.__setstate__(self.__getstate__() | {"source_lang": source, "target_lang": target})
        self.__dict__.update(changed.__dict__)

    def get_lang_id(self, language: str) -> int:
        """The id of a language's tag in the target dictionary, such as ``forced_bos_token_id``.

        Raises:
            UserError: the target dictionary has no tag of the language
        """
        known = self.all_directions
        ids: dict[str, int] = {
            name: number
            for name, tag in (known.tags if known else {}).items()
            if (number := self.backends[1].token_to_id(tag)) is not None
        }
        if not ids:
            raise UserError(
                "no language has a tag in the target dictionary: set tgt_lang, which adds the tag "
                "to the source"
            )
        if language not in ids:
            raise UserError(
                f"the language must be one of {summarize_names(ids)}, whose tags the target "
                f"dictionary has, but is {one_line(language)}"
            )
        return ids[language]

    def _add_tokens(self, new_tokens: list[Any], special_tokens: bool = False) -> int:
        name = "add_special_tokens" if special_tokens else "add_tokens"
        return max([getattr(backend, name)(new_tokens) for backend in self.backends])

    def _switch_to_input_mode(self) -> None:
        self._tokenizer = self.backends[0]

    def _switch_to_target_mode(self) -> None:
        self._tokenizer = self.backends[1]

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Tokens of the target dictionary; ids that it does not have become ``<unk>``."""
        self._switch_to_target_mode()
        tokens: Any = super().convert_ids_to_tokens(ids, skip_special_tokens)
        self._switch_to_input_mode()
        if isinstance(ids, int):
            return tokens or UNKNOWN
        special = self.target_text.tags if skip_special_tokens else ()
        return [token or UNKNOWN for token in tokens if token not in special]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Plain text, with special tokens and tags unchanged."""
        special = {*self.all_special_tokens, *self.target_text.tags}
        return " ".join(
            " ".join(run) if is_special else self.target_text.decode(list(run))
            for is_special, run in groupby(tokens, key=special.__contains__)
        )

    def _decode(  # type: ignore[override]
        self, token_ids: Any, skip_special_tokens: bool = False, **_: Any
    ) -> str:
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(ids, skip_special_tokens))

    def save_vocabulary(  # type: ignore[override]
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Copy the dictionaries and the subword model, under the names of `FILES`."""
        copies = []
        for name, path in self.files.items():
            if path is not None:
                copy = Path(save_directory, f"{filename_prefix or ''}{FILES[name]}")
                if Path(path).resolve() != copy.resolve():
                    shutil.copyfile(path, copy)
                copies.append(str(copy))
        return tuple(copies)

    def _save_pretrained(
        self,
        save_directory: Any,
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        # The configuration stores added tokens: tokenizer.json can't describe code in Python.
        config_file, *_ = map(Path, file_names)
        config = json.loads(config_file.read_text(encoding="utf-8"))
        added_tokens = self.added_tokens_decoder.items()
        config["added_tokens_decoder"] = {n: token.__getstate__() for n, token in added_tokens}
        config_file.write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")
        return file_names + self.save_vocabulary(str(save_directory), filename_prefix)


class DietEncoderTokenizer(DietTokenizer):
    """A `DietTokenizer` of encoders, whose sentences begin with ``<s>``."""

    def __init__(self, vocab_file: str, begins: bool = True, **kwargs: Any) -> None:
        super().__init__(vocab_file, begins=begins, **kwargs)


def locate_numbers(merges: str, numbers: str | None) -> str:
    """The path of ``encoder.json`` beside ``vocab.bpe``; another ``numbers`` is refused."""
    path = Path(merges).with_name(GPT2_NUMBERS)
    if numbers is not None and path.absolute() != Path(numbers).absolute():
        raise UserError(
            f"numbers_file must be {one_line(str(path))}, beside merges_file, but is "
            f"{one_line(numbers)}: put both files into one folder"
        )
    return str(path)


def gpt2_tokenizer(vocabulary: dict[str, int], subwords: Gpt2, **options: Any) -> Any:
    """transformers' own tokenizer of RoBERTa, with the ids of fairseq's dictionary.

    Args:
        vocabulary: symbol -> id, for GPT-2's numbers of pieces and for special symbols
        options: further arguments of `RobertaTokenizer`
    """
    numbers = subwords.numbers
    if missing := [piece for piece, number in numbers.items() if str(number) not in vocabulary]:
        raise UserError(
            f"the dictionary lacks {len(missing):,} of {len(numbers):,} pieces of GPT-2's BPE (such"
            f" as {numbers[missing[0]]}), which RoBERTa's tokenizer needs: add them to the "
            "dictionary, or export without a tokenizer, with --subwords none"
        )
    others = {symbol: n for symbol, n in vocabulary.items() if symbol not in subwords.pieces}
    ids = {piece: vocabulary[str(number)] for piece, number in numbers.items()}
    tokenizer_class: Any = RobertaTokenizer
    return tokenizer_class(vocab=others | ids, merges=subwords.merges, **options)


class Segmentation:
    """A pre-tokenizer of ``tokenizers`` that calls a `Tokenizer` and looks up the ids of pieces.

    ``tokenizers`` does not normalize the text, because normalization can change the length of a
    piece, and tokens have offsets in the original text.
    """

    def __init__(self, text: Tokenizer, vocabulary: dict[str, int]) -> None:
        self.text, self.vocabulary = text, vocabulary

    def pre_tokenize(self, text: Any) -> None:
        """Tokenize the parts of a ``PreTokenizedString`` that are not special tokens."""
        text.tokenize(self.tokenize)

    def tokenize(self, text: str) -> list[Token]:
        """The tokens of a text, with offsets in bytes of UTF-8.

        With Moses or without SentencePiece, every token has the offsets of the whole text.
        """
        if isinstance(self.text.subwords, SentencePiece) and not self.text.splits_words:
            pieces = self.locate_pieces(text)
        else:
            pieces = [(piece, 0, len(text)) for piece in self.text.encode(text)]
        bytes_before = [0, *accumulate(len(character.encode()) for character in text)]
        unknown = self.vocabulary[UNKNOWN]
        return [
            Token(self.vocabulary.get(piece, unknown), piece, (bytes_before[a], bytes_before[b]))
            for piece, a, b in pieces
        ]

    def locate_pieces(self, text: str) -> list[tuple[str, int, int]]:
        """SentencePiece's pieces, each with the start and end of its characters in the text."""
        plain = text
        places: Sequence[int] = range(len(plain))
        if self.text.lower:
            places = [place for place in places for _ in plain[place].lower()]
            plain = plain.lower()
        plain, indices = normalise_with_indices(plain)
        places = [places[index] for index in indices]
        model: Any = self.text.subwords
        result = model.model.encode(plain, out_type="offset_mapping", return_bytes=False)
        pieces = []
        for piece, (begin, end) in zip(result["pieces"], result["offsets"], strict=True):
            if not piece.strip():  # a space of some kind, as in `SentencePiece.encode`
                continue
            piece = UNKNOWN if piece in SPECIAL_SYMBOLS | self.text.tags else piece
            begin = min(begin, len(places) - 1)
            pieces.append((piece, places[begin], places[max(begin, end - 1)] + 1))
        return pieces


def check_languages(known: Directions, source: str | None, target: str | None) -> None:
    """Refuse a language that a multilingual model lacks; all pairs of its languages are allowed."""
    languages = {*known.tags, *(language for pair in known.pairs for language in pair)}
    for name, language in (("src_lang", source), ("tgt_lang", target)):
        if language not in languages:
            raise UserError(
                f"{name} must be one of the model's languages, "
                f"{summarize_names(sorted(languages))}, but is {one_line(str(language))}"
            )


def build_frame(before: Sequence[str], after: Sequence[str], vocabulary: dict[str, int]) -> Any:
    """The post-processor that adds tokens before the first text and after each text."""
    if missing := [token for token in (*before, *after) if token not in vocabulary]:
        raise UserError(f"the dictionary lacks the tag {one_line(missing[0])}: export again")
    special = [
        {"id": name, "ids": [vocabulary[token] for token in tokens], "tokens": list(tokens)}
        for name, tokens in (("before", before), ("after", after))
        if tokens
    ]
    single = "before $A after" if before else "$A after"
    return TemplateProcessing(single=single, pair=f"{single} $B:1 after:1", special_tokens=special)


def read_dictionary(path: str) -> dict[str, int]:
    """The symbols of a fairseq dictionary and their ids.

    An entry with ``#fairseq:overwrite`` may repeat a symbol. The symbol then has the last of its
    ids, or the first if it is one of `SPECIAL`. The other id gets the symbol and ``#ID`` as its
    name, so that every id has a name.
    """
    with open_text(path, advice="give the dict.txt that fairseq-preprocess wrote") as file:
        entries = [line.rstrip().removesuffix(" #fairseq:overwrite") for line in file]
    numbers: dict[str, int] = {}
    for symbol in [*SPECIAL.values(), *(entry.rpartition(" ")[0] for entry in entries)]:
        number = len(numbers)
        if symbol in numbers and symbol not in SPECIAL.values():
            numbers[symbol], number = number, numbers[symbol]
        numbers[f"{symbol}#{number}" if symbol in numbers else symbol] = number
    return numbers
