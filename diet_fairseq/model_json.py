"""``model.json``: the description of the model in a folder, with which it translates text.

It stands beside checkpoints and in exported folders. The folder holds all files that it names, so
it can be moved, packed and sent as it is. The file is data: the names in it stay within the folder,
and its values are checked.
"""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from . import input_files
from .atomic import written
from .errors import UserError, one_line

NAME = "model.json"
FORMAT, VERSION = "diet_fairseq model", 1
AGAIN = "make or fetch the folder again"
#: a language is part of the names of dictionaries
LANGUAGE = re.compile(r"[A-Za-z0-9][\w-]{0,31}", re.ASCII)


@dataclass(frozen=True)
class ModelDescription:
    """A model, and the files and options with which it translates text.

    Attributes:
        engine: fairseq, ctranslate2 or transformers
        source_lang: such as ``en``
        target_lang: such as ``de``
        checkpoint: fairseq's file, or None where the folder is the model
        data: folder with fairseq's ``dict.LANG.txt``, or None where the engine has its own
        subwords: sentencepiece, subword_nmt, or none: the vocabulary has the words themselves
        subword_model: SentencePiece's model or subword-nmt's codes
        preprocessing: tokenizer that splits a line into words first: none or moses
        beam: hypotheses to keep
        lenpen: exponent of the length penalty
        penalty: fairseq, ``length ** lenpen``, or tensor2tensor, ``((5 + length) / 6) ** lenpen``
        max_source_length: subwords in a sentence, or None if only the model limits them
        max_target_length: subwords in a translation, or None if the model doesn't limit them
        folder: where ``model.json`` is
        lower: whether the text is lower-cased first; only for encoders, which ``model.json``
            does not describe
        language: language of an encoder's text, which has no ``source_lang``
        position_temperature: what the logits of attention are divided by; None: the checkpoint says
        state: the checkpoint as fairseq has loaded it, if it was read already
    """

    engine: str
    source_lang: str
    target_lang: str
    folder: Path
    checkpoint: Path | None = None
    data: Path | None = None
    subwords: str = "none"
    subword_model: Path | None = None
    preprocessing: str = "none"
    beam: int = 5
    lenpen: float = 1.0
    penalty: str = "fairseq"
    max_source_length: int | None = None
    max_target_length: int | None = None
    lower: bool = False
    language: str = "en"
    position_temperature: float | None = None
    state: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of the source and of the target."""
        return self.source_lang or self.language, self.target_lang or self.language

    def write(self) -> None:
        """Write ``model.json`` into the folder, which must hold all files that it names."""

        def within(path: Path | None) -> str | None:
            return None if path is None else path.relative_to(self.folder).as_posix()

        content = {
            "format": FORMAT,
            "version": VERSION,
            "engine": self.engine,
            "checkpoint": within(self.checkpoint),
            "data": within(self.data),
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "subwords": {"kind": self.subwords, "model": within(self.subword_model)},
            "preprocessing": self.preprocessing,
            "beam": self.beam,
            "lenpen": self.lenpen,
            "penalty": self.penalty,
            "max_source_length": self.max_source_length,
            "max_target_length": self.max_target_length,
        }
        with written(self.folder / NAME) as file:
            file.write(json.dumps(content, indent=1) + "\n")


def _file_name(value: str) -> str:
    """A name that stays within the folder; links in the folder are followed."""
    path = PurePosixPath(value)
    if not value or "\0" in value:
        raise ValueError("must name a file of the folder")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("must name a file within the folder")
    return value


def _language(value: str) -> str:
    if not LANGUAGE.fullmatch(value):
        raise ValueError("must be a language's code such as en")
    return value


FileName = Annotated[str, AfterValidator(_file_name)]
Language = Annotated[str, AfterValidator(_language)]
Length = Annotated[int, Field(ge=1, le=1_000_000)]


class _Subwords(BaseModel):
    model_config = ConfigDict(strict=True)

    kind: Literal["sentencepiece", "subword_nmt", "none"] = "none"
    model: FileName | None = None


class _ModelJson(BaseModel):
    """The file's content; keys that are not known here are passed over."""

    model_config = ConfigDict(strict=True)

    format: Literal["diet_fairseq model"]
    version: Literal[1]
    engine: Literal["fairseq", "ctranslate2", "transformers"]
    source_lang: Language
    target_lang: Language
    checkpoint: FileName | None = None
    data: FileName | None = None
    subwords: _Subwords = _Subwords()
    preprocessing: Literal["none", "moses"] = "none"
    beam: Annotated[int, Field(ge=1, le=10_000)] = 5
    lenpen: Annotated[float, Field(ge=-100, le=1000, allow_inf_nan=False)] = 1.0
    penalty: Literal["fairseq", "tensor2tensor"] = "fairseq"
    max_source_length: Length | None = None
    max_target_length: Length | None = None


def read(folder: Path) -> ModelDescription:
    """The description in the folder's ``model.json``.

    Raises:
        UserError: the file can't be read, a value is not as it must be, or a file is missing
    """
    path = folder / NAME
    content = input_files.read_object(path, _ModelJson, advice=AGAIN)
    kind = content.subwords.kind
    needs_files = content.engine == "fairseq"

    def place(key: str, name: str | None, is_needed: bool) -> Path | None:
        if name is None:
            if is_needed:
                raise UserError(f"{path}: {key} must name a file of the folder; {AGAIN}")
            return None
        named = folder / name
        if not os.path.exists(named):  # also of names that are too long for any file
            shown = one_line(str(named))
            raise UserError(
                f"{path}: {key} names {shown if len(shown) < 300 else f'{shown[:296]} ...'}, which "
                f"is not there: train first, or {AGAIN}"
            )
        return named

    return ModelDescription(
        engine=content.engine,
        source_lang=content.source_lang,
        target_lang=content.target_lang,
        folder=folder,
        checkpoint=place("checkpoint", content.checkpoint, needs_files),
        data=place("data", content.data, needs_files),
        subwords=kind,
        subword_model=place("subwords.model", content.subwords.model, kind != "none"),
        preprocessing=content.preprocessing,
        beam=content.beam,
        lenpen=content.lenpen,
        penalty=content.penalty,
        max_source_length=content.max_source_length,
        max_target_length=content.max_target_length,
    )
