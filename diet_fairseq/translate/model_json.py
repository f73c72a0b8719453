"""``model.json``: the description of a translation model in a folder.

The folder of a run or an export contains all files that ``model.json`` names, so the folder can be
moved. The file is untrusted: its names must stay within the folder, and its values are checked.
"""

import json
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, field_validator

from ..errors import UserError, one_line
from ..files import MAX_VOCABULARY_BYTES, atomic_file, check_regular, read_json_object
from ..text.subwords import check_vocabulary
from ..text.tokenizer import Tokenizer
from .directions import EOS, FRAMING_FIELDS, LANGUAGE, SOURCE, TARGET, Directions, Framing

MODEL_JSON = "model.json"
#: the file of an imported model with fairseq-train's options for its shape, except ``--arch``
OPTIONS_FILE = "options.txt"
FORMAT, VERSION = "diet_fairseq model", 1
PENALTIES = ("fairseq", "tensor2tensor")
#: a licence's name on the Hub, such as cc-by-nc-4.0
LICENSE = r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}"
#: share of the training sources that have at most ``training_source_length`` subwords
TRAINING_SHARE = 0.999
ADVICE = "make or fetch the folder again"
#: fields that ``model.json`` contains only if they are not the defaults
OPTIONAL_FIELDS = (
    "sentences_per_line", "training_source_length", "license", "no_repeat_ngram_size", "max_len_a",
    "max_len_b", "min_target_length", "suppress_sequences", "end_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class ModelDescription:
    """A model, its files, and the preprocessing of its text."""

    engine: str  # fairseq, ctranslate2 or transformers
    source_lang: str  # such as en; empty for encoders
    target_lang: str
    folder: Path  # the folder of model.json
    checkpoint: Path | None = None  # fairseq's file; None: the folder is the model
    data: Path | None = None  # folder of fairseq's dict.LANG.txt; None: the engine has its own
    subwords: str = "none"  # a key of `SUBWORD_CLASSES`; none: a vocabulary of words
    subword_model: Path | None = None  # the subword model's file
    preprocessing: str = "none"  # tokenizer before the subwords: none or moses
    beam: int = 5  # number of hypotheses
    lenpen: float = 1.0
    penalty: str = "fairseq"  # length ** lenpen; tensor2tensor: ((5 + length) / 6) ** lenpen
    max_source_length: int | None = None  # limits of subwords; None: only the model's limits
    max_target_length: int | None = None
    lower: bool = False  # whether an encoder's text is lower-cased
    language: str = "en"  # language of an encoder's text
    position_temperature: float | None = None  # divisor of attention logits; None: the model's
    directions: Directions | None = None  # None: a bilingual model or an encoder
    sentences_per_line: float | None = None  # median in the training data
    training_source_length: int | None = None  # subwords of nearly all sources, `TRAINING_SHARE`
    license: str | None = None  # licence of the model from which this model was imported
    target_subword_model: Path | None = None  # None: source and target share a model
    # further options of `engine.Search`
    no_repeat_ngram_size: int = 0
    max_len_a: float = 1.0
    max_len_b: int = 50
    min_target_length: int = 1  # least number of subwords of a translation
    suppress_sequences: tuple[tuple[str, ...], ...] = ()
    end_tokens: tuple[str, ...] = ()
    # the content of the checkpoint, if it was already read
    state: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target."""
        return self.source_lang or self.language, self.target_lang or self.language

    @cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of the source and the target language.

        Raises:
            UserError: the subword model can't be read
        """
        models = self.subword_model, self.target_subword_model or self.subword_model
        source, target = (
            Tokenizer(
                self.subwords,
                model,
                language,
                self.preprocessing == "moses",
                self.lower,
                self.all_directions.all_tags,
            )
            for model, language in zip(models, self.languages, strict=True)
        )
        return source, target

    @property
    def all_directions(self) -> Directions:
        """The directions of a multilingual model, or the only direction of a bilingual model."""
        return self.directions or Directions({}, ((self.source_lang, self.target_lang),))

    @property
    def has_lines_of_one_sentence(self) -> bool:
        """Whether most lines of the training data have one sentence, as far as is known.

        BART, which has GPT-2's subwords, reads paragraphs.
        """
        return self.subwords != "gpt2" and (self.sentences_per_line or 1) == 1

    def check_vocabulary(self, words: Collection[str]) -> None:
        """Refuse a dictionary that does not belong to the subword models.

        Raises:
            UserError: see `text.subwords.check_vocabulary`
        """
        files = f"{self.data or self.folder} and {self.subword_model}"
        tags = self.all_directions.all_tags
        words = [word for word in words if word not in tags]
        check_vocabulary([tokenizer.subwords for tokenizer in self.tokenizers], words, files)

    def check_target_tokens(self, words: Collection[str]) -> None:
        """Refuse forbidden tokens and end tokens that the target's vocabulary lacks.

        Raises:
            UserError: a token is missing
        """
        tokens = {*self.end_tokens, *(token for seq in self.suppress_sequences for token in seq)}
        if tokens and (missing := sorted(tokens.difference(words))):
            raise UserError(
                f"{self.folder / MODEL_JSON}: suppress_sequences and end_tokens must have tokens "
                f"of the vocabulary, but it lacks {one_line(missing[0])!r}; {ADVICE}"
            )

    def write(self) -> None:
        """Write ``model.json`` into the folder, which must contain all files that it names."""

        def relative(path: Path | None) -> str | None:
            return None if path is None else path.relative_to(self.folder).as_posix()

        values = vars(self) | {
            "format": FORMAT,
            "version": VERSION,
            "checkpoint": relative(self.checkpoint),
            "data": relative(self.data),
            "subwords": {"kind": self.subwords, "model": relative(self.subword_model)},
        }
        if self.target_subword_model is not None:
            values["subwords"]["target_model"] = relative(self.target_subword_model)
        content = {name: values[name] for name in _ModelJson.model_fields}
        del content["directions"]
        for name in OPTIONAL_FIELDS:
            if content[name] == _ModelJson.model_fields[name].default:
                del content[name]
        if self.directions:
            content["directions"] = directions_json(self.directions)
        with atomic_file(self.folder / MODEL_JSON) as file:
            file.write(json.dumps(content, indent=1) + "\n")


def dictionary_paths(description: ModelDescription) -> list[Path]:
    """The fairseq dictionaries of source and target, or of an encoder.

    Raises:
        UserError: a dictionary is missing, not a regular file, or too large
    """
    data = description.data or description.folder
    languages = description.source_lang, description.target_lang
    names = [f"dict.{language}.txt" for language in languages]
    if description.directions and not all((data / name).is_file() for name in names):
        # one dictionary for all languages, or one for all sources and one for all targets
        sides = ["dict.SRC.txt", "dict.TGT.txt"]
        names = sides if (data / sides[0]).is_file() else ["dict.txt", "dict.txt"]
    if not description.source_lang:
        name = "input0/dict.txt"  # in the data of fairseq's task sentence_prediction
        names = [name if (data / name).is_file() else "dict.txt"]
    for name in names:
        if not (data / name).is_file():
            raise UserError(
                f"the dictionary {data / name} does not exist: give --data, the folder that "
                "fairseq-preprocess wrote for this model"
            )
        check_regular(data / name, MAX_VOCABULARY_BYTES)
    return [data / name for name in names]


def _check_file_name(value: str) -> str:
    """Check that a name is a path within the folder; links in the folder are followed."""
    if not value or "\0" in value:
        raise ValueError("must name a file of the folder")
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("must name a file within the folder")
    return value


def _check_language(value: str) -> str:
    if not LANGUAGE.fullmatch(value):
        raise ValueError("must be a language's code such as en")
    return value


def _check_token(value: str) -> str:
    if not 1 <= len(value) <= 64 or value.split() != [value]:
        raise ValueError("must be a token of 1 to 64 characters without white space")
    return value


FileName = Annotated[str, AfterValidator(_check_file_name)]
Language = Annotated[str, AfterValidator(_check_language)]
Length = Annotated[int, Field(ge=1, le=1_000_000)]
Token = Annotated[str, AfterValidator(_check_token)]
Tokens = Annotated[tuple[Token, ...], Field(max_length=8, strict=False)]
Sequences = Annotated[
    tuple[Annotated[tuple[Token, ...], Field(min_length=1, max_length=64, strict=False)], ...],
    Field(max_length=10_000, strict=False),
]
License = Annotated[str, Field(pattern=f"^{LICENSE}$")]
Pair = Annotated[tuple[Language, Language], Field(strict=False)]


class _Subwords(BaseModel, strict=True):
    kind: Literal["sentencepiece", "subword_nmt", "gpt2", "none"] = "none"
    model: FileName | None = None
    target_model: FileName | None = None


class DirectionsJson(BaseModel, strict=True):
    """The fields of `Directions` and of its `Framing`."""

    tags: dict[Language, Token] = {}
    pairs: Annotated[tuple[Pair, ...], Field(strict=False)] = ()
    source_prefix: Tokens = ()
    source_end: Annotated[Tokens, Field(min_length=1)] = (EOS,)
    target_start: Token = EOS
    target_prefix: Tokens = ()
    target_end: Token = EOS

    def directions(self) -> Directions:
        framing = Framing(**{name: getattr(self, name) for name in FRAMING_FIELDS})
        return Directions(self.tags, self.pairs, framing)


def directions_json(directions: Directions) -> dict[str, Any]:
    """The directions as JSON, with the keys of `DirectionsJson`."""
    pairs = [list(pair) for pair in directions.pairs]
    return {"tags": dict(directions.tags), "pairs": pairs, **vars(directions.framing)}


class _ModelJson(BaseModel, strict=True):
    """The content of ``model.json``; unknown keys are ignored."""

    format: Literal["diet_fairseq model"]
    version: Literal[1]
    engine: Literal["fairseq", "ctranslate2", "transformers"]
    checkpoint: FileName | None = None
    data: FileName | None = None
    source_lang: Language
    target_lang: Language
    subwords: _Subwords = _Subwords()
    preprocessing: Literal["none", "moses"] = "none"
    beam: Annotated[int, Field(ge=1, le=10_000)] = 5
    lenpen: Annotated[float, Field(ge=-100, le=1000, allow_inf_nan=False)] = 1.0
    penalty: Literal["fairseq", "tensor2tensor"] = "fairseq"
    max_source_length: Length | None = None
    max_target_length: Length | None = None
    directions: DirectionsJson | None = None
    sentences_per_line: Annotated[float, Field(ge=1, le=1_000_000)] | None = None
    training_source_length: Length | None = None
    license: License | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=0, le=1000)] = 0
    max_len_a: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    max_len_b: Annotated[int, Field(ge=0, le=10_000)] = 50
    min_target_length: Length = 1
    suppress_sequences: Sequences = ()
    end_tokens: Tokens = ()

    @field_validator("suppress_sequences")
    @classmethod
    def check_end(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if any(EOS in tokens for tokens in value):
            raise ValueError("must not forbid </s>, which ends translations")
        return value


def read_model_json(folder: Path) -> ModelDescription:
    """The description in the folder's ``model.json``.

    Raises:
        UserError: the file can't be read, a value is not valid, or a file is missing
    """
    path = folder / MODEL_JSON
    content = read_json_object(path, _ModelJson, advice=ADVICE)
    is_fairseq, has_subwords = content.engine == "fairseq", content.subwords.kind != "none"
    files: list[Path | None] = []
    for key, name, is_needed in (
        ("checkpoint", content.checkpoint, is_fairseq),
        ("data", content.data, is_fairseq),
        ("subwords.model", content.subwords.model, has_subwords),
        ("subwords.target_model", content.subwords.target_model, False),
    ):
        if name is None and is_needed:
            raise UserError(f"{path}: {key} must name a file of the folder; {ADVICE}")
        if name and not os.path.exists(folder / name):  # Path.exists raises for long names
            text = one_line(str(folder / name))
            text = text if len(text) < 300 else f"{text[:296]} ..."
            raise UserError(
                f"{path}: {key} names {text}, which does not exist: train first, or {ADVICE}"
            )
        files.append(folder / name if name else None)
    options = content.model_dump(exclude={"format", "version"})
    fields = ("checkpoint", "data", "subword_model", "target_subword_model")
    options |= zip(fields, files, strict=True)
    options["subwords"] = content.subwords.kind
    if content.directions:
        options["directions"] = content.directions.directions()
        _check_tags(options["directions"], path)
        names = f"{path}: source_lang", f"{path}: target_lang"
        options["directions"].check(content.source_lang, content.target_lang, names)
    return ModelDescription(**options, folder=folder)


def _check_tags(directions: Directions, path: Path) -> None:
    """Refuse directions in which a language needs a tag and has none."""
    framing = directions.framing
    marked = framing.source_tokens | framing.target_tokens
    for pair in directions.pairs:
        for language, place in zip(pair, (SOURCE, TARGET), strict=True):
            if place in marked and language not in directions.tags:
                raise UserError(f"{path}: directions.tags must have a tag for {language}; {ADVICE}")
