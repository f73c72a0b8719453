"""``model.json``: what a folder says of the model in it, so that text can be translated with it.

The translation recipe writes it beside its checkpoints, an export beside what it exports. The
folder holds all that the file names, so it can be moved, packed and sent as it is. What comes from
elsewhere is read as data: names of files stay within the folder, and values are what they must be.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .atomic import written
from .errors import UserError, one_line

NAME = "model.json"
FORMAT, VERSION = "diet_fairseq model", 1
ENGINES = ("fairseq", "ctranslate2", "transformers")
SUBWORDS = ("sentencepiece", "subword_nmt", "none")
PREPROCESSING = ("none", "moses")
#: length penalties: ``length ** lenpen``, and ``((5 + length) / 6) ** lenpen``
PENALTIES = ("fairseq", "tensor2tensor")
LARGEST = 1 << 20  # bytes; such a file has some hundred
#: a language is part of the names of dictionaries
LANGUAGE = re.compile(r"[A-Za-z0-9][\w-]{0,31}", re.ASCII)


@dataclass(frozen=True)
class ModelDescription:
    """A model, and what it takes to translate text with it.

    Attributes:
        engine: what runs it, one of `ENGINES`
        source_lang: such as ``en``
        target_lang: such as ``de``
        checkpoint: fairseq's file, or None where the folder is the model
        data: folder with fairseq's ``dict.LANG.txt``, or None where the engine has its own
        subwords: kind, one of `SUBWORDS`; "none": the words themselves are in the vocabulary
        subword_model: SentencePiece's model or subword-nmt's codes
        preprocessing: what parts a line into words before its subwords, one of `PREPROCESSING`
        beam: hypotheses to keep
        lenpen: exponent of the length penalty
        penalty: its formula, one of `PENALTIES`
        max_source_length: subwords in a sentence, or None if only the model limits them
        max_target_length: subwords in a translation, or None if the model doesn't limit them
        folder: where ``model.json`` is
        lower: whether the text is lower-cased first; as the next, of encoders alone, which
            ``model.json`` doesn't describe
        language: of the text of an encoder, which has no ``source_lang``
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

    @property
    def languages(self) -> tuple[str, str]:
        """Of the text that is read, and of that which is written."""
        return self.source_lang or self.language, self.target_lang or self.language

    def write(self) -> None:
        """Write ``model.json`` into the folder, in which all that it names must be."""

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


def read(folder: Path) -> ModelDescription:
    """What the folder's ``model.json`` says; keys that are not known here are passed over.

    :raises UserError: of one line, for whatever is wrong with it
    """
    path = folder / NAME
    content = _Content(path, _loaded(path))
    if content.values.get("format") != FORMAT:
        raise content.fault("format", f'must be "{FORMAT}"')
    if content.values.get("version") != VERSION:
        raise content.fault("version", f"must be {VERSION}; a newer one needs a newer diet_fairseq")
    engine = content.choice("engine", ENGINES)
    subwords = content.part("subwords")
    kind = subwords.choice("kind", SUBWORDS, "none")
    needed = engine == "fairseq"
    return ModelDescription(
        engine=engine,
        source_lang=content.language("source_lang"),
        target_lang=content.language("target_lang"),
        folder=folder,
        checkpoint=content.path("checkpoint", needed),
        data=content.path("data", needed),
        subwords=kind,
        subword_model=subwords.path("model", kind != "none"),
        preprocessing=content.choice("preprocessing", PREPROCESSING, "none"),
        beam=int(content.number("beam", 1, 5, whole=True)),
        lenpen=content.number("lenpen", -100, 1.0),
        penalty=content.choice("penalty", PENALTIES, "fairseq"),
        max_source_length=content.length("max_source_length"),
        max_target_length=content.length("max_target_length"),
    )


def _loaded(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
    if len(text) > LARGEST:
        raise UserError(f"{path} is refused: it has more than {LARGEST:,} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = one_line(str(error))
        raise UserError(f"{path} is no JSON ({reason}): make or fetch the folder again") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is no JSON object: make or fetch the folder again")
    return content


class _Content:
    """Values of the file, each of which is asked for with its rule."""

    def __init__(self, file: Path, values: dict[str, Any], place: str = "") -> None:
        self.file, self.values, self.place = file, values, place

    def fault(self, key: str, rule: str) -> UserError:
        value = json.dumps(self.values[key]) if key in self.values else "missing"
        shown = value if len(value) < 80 else f"{value[:76]} ..."
        return UserError(f"{self.file}: {self.place}{key} {rule}, but is {shown}")

    def part(self, key: str) -> "_Content":
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.fault(key, "must be an object")
        return _Content(self.file, value, f"{self.place}{key}.")

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value not in choices:
            raise self.fault(key, f"must be one of {', '.join(choices)}")
        return value

    def language(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not LANGUAGE.fullmatch(value):
            raise self.fault(key, "must be a language's code such as en")
        return value

    def number(
        self, key: str, least: float, default: float | None = None, whole: bool = False
    ) -> float:
        value = self.values.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int if whole else int | float)
            or not least <= value < 1e9  # nor NaN, which no comparison holds for
        ):
            raise self.fault(key, f"must be a {'whole ' * whole}number from {least:g} on")
        return value

    def length(self, key: str) -> int | None:
        return None if self.values.get(key) is None else int(self.number(key, 1, whole=True))

    def path(self, key: str, needed: bool) -> Path | None:
        """The file or folder that is named; links are followed, as whoever made the folder set
        them."""
        value = self.values.get(key)
        if value is None and not needed:
            return None
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.fault(key, "must name a file of the folder")
        inside = PurePosixPath(value)
        if inside.is_absolute() or ".." in inside.parts:
            raise self.fault(key, "must name a file within the folder")
        path = self.file.parent / inside
        if not path.exists():
            raise UserError(
                f"{self.file}: {self.place}{key} names {one_line(str(path))}, which is not there: "
                "train first, or make or fetch the folder again"
            )
        return path
