"""MODEL on a command line: where the model is, and what is beside it."""

from dataclasses import dataclass, replace
from pathlib import Path

from fairseq.data.data_utils import infer_language_pair

from .. import model_json
from ..errors import UserError
from ..model_json import ModelDescription
from ..patches import loading


@dataclass(frozen=True)
class Pieces:
    """What is given by hand, because no ``model.json`` says it or another is wanted."""

    data: Path | None = None
    subwords: Path | None = None
    tokenizer: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None


def find(model: Path, pieces: Pieces = Pieces()) -> ModelDescription:  # frozen
    """The model in a folder with ``model.json``, or in a checkpoint.

    A checkpoint takes from the ``model.json`` beside it all but itself.

    :raises UserError: if something is missing, which is named
    """
    folder = model if model.is_dir() else model.parent
    if not model.exists():
        raise UserError(f"there is no model {model}: check the path")
    if (folder / model_json.NAME).exists():
        found = model_json.read(folder)
        if not model.is_dir():
            if found.engine != "fairseq":
                raise UserError(
                    f"{model} is a file of an exported model: name its folder, {folder}"
                )
            found = replace(found, checkpoint=model)
        return _completed(found, pieces)
    if model.is_dir():
        raise UserError(
            f"{model} has no {model_json.NAME}: name a run of `diet-fairseq translation`, an "
            "exported model, or one checkpoint with --data and --subwords"
        )
    return _completed(_of_checkpoint(model, pieces), pieces)


def _of_checkpoint(checkpoint: Path, pieces: Pieces) -> ModelDescription:
    if pieces.data is None:
        raise UserError(
            f"{checkpoint} has no {model_json.NAME} beside it: give --data, the folder of "
            "fairseq-preprocess with its dictionaries, and --subwords, if there are any"
        )
    state = loading.read(checkpoint, "cpu")
    options = vars(state["args"]) if state.get("args") else (state["cfg"].get("task") or {})
    # as fairseq does where its commands are not told: by the names of the files of data
    inferred = infer_language_pair(str(pieces.data)) if pieces.data.is_dir() else (None, None)
    languages = {}
    for side, name_of_data in zip(("source_lang", "target_lang"), inferred, strict=True):
        saved = options.get(side) if isinstance(options, dict) else None
        name = getattr(pieces, side) or saved or name_of_data
        if not isinstance(name, str) or not model_json.LANGUAGE.fullmatch(name):
            flag = "--" + side.replace("_", "-")
            raise UserError(f"{checkpoint} does not say its languages: give {flag}")
        languages[side] = name
    return ModelDescription(
        "fairseq",
        languages["source_lang"],
        languages["target_lang"],
        folder=checkpoint.parent,
        checkpoint=checkpoint,
    )


def _completed(found: ModelDescription, pieces: Pieces) -> ModelDescription:
    """With the pieces in the place of what was found."""
    for name in ("source_lang", "target_lang"):
        value = getattr(pieces, name)
        if value is not None and not model_json.LANGUAGE.fullmatch(value):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} must be a language's code such as en, but is {value}")
    source, target = (
        pieces.source_lang or found.source_lang, pieces.target_lang or found.target_lang
    )  # fmt: skip
    found = replace(found, source_lang=source, target_lang=target)
    if pieces.tokenizer:
        found = replace(found, preprocessing=pieces.tokenizer)
    if pieces.data:
        found = replace(found, data=pieces.data)
    if pieces.subwords:
        kind = "subword_nmt" if _is_text(pieces.subwords) else "sentencepiece"
        found = replace(found, subwords=kind, subword_model=pieces.subwords)
    if found.engine == "fairseq" and found.data:
        for language in (source, target):
            if not (found.data / f"dict.{language}.txt").is_file():
                raise UserError(
                    f"there is no dictionary {found.data / f'dict.{language}.txt'}: give by --data "
                    "the folder that fairseq-preprocess wrote for these languages"
                )
    return found


def _is_text(path: Path) -> bool:
    """Codes of subword-nmt are text; a model of SentencePiece is not."""
    try:
        with open(path, "rb") as file:
            return b"\0" not in (start := file.read(4096)) and start.startswith(b"#version")
    except OSError as error:
        raise UserError(f"--subwords {path} can't be read: {error.strerror}") from error
