"""The files of a model that is named on a command line: checkpoint, dictionaries, subwords.

Options come first, then ``model.json`` beside the checkpoint, then the usual places above it. Files
that the checkpoint itself names are never opened (SECURITY.md).
"""

from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data.data_utils import infer_language_pair
from fairseq.dataclass.utils import overwrite_args_by_name
from pydantic import BaseModel

from .. import input_files, model_json
from ..checkpoints import report_faults
from ..checks import positive
from ..errors import UserError
from ..model_json import Language, ModelDescription
from ..text.lines import read_lines
from ..text.subwords import FILES, SUBWORD, kind_of
from ..transformer import PositionalAttention

#: value of --subwords where the vocabulary has the words themselves
NONE = Path("none")
#: checkpoints are usually in FOLDER/runs/NAME, their data in FOLDER/data-bin
DATA, LEVELS = "data-bin", 3
#: fields of the two languages, and their flags
SIDES = {"source_lang": "--source-lang", "target_lang": "--target-lang"}
#: file in the folder of an encoder's data, with its `TextOptions`
MADE_FROM = "made-from.json"


class TextOptions(BaseModel, strict=True):
    """Preprocessing of an encoder's text."""

    lower: bool
    language: Language


@dataclass(frozen=True)
class Pieces:
    """The files and options of a model on the command line."""

    data: Path | None = None
    subwords: Path | None = None
    tokenizer: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    position_temperature: float | None = None

    @classmethod
    def of(cls, args: Namespace) -> "Pieces":
        """The values of the options of `add_model_files`, as far as the command has them."""
        return cls(**{name: getattr(args, name, None) for name in cls.__dataclass_fields__})


def resolve_model(
    model: Path,
    pieces: Pieces = Pieces(),  # frozen
    translates: bool = True,
) -> ModelDescription:
    """The description of the model in a folder with ``model.json``, or in a checkpoint.

    The ``model.json`` beside a checkpoint describes it, whichever checkpoint it names.

    Args:
        translates: whether the model must have languages; an encoder's are empty

    Raises:
        UserError: a file is missing or not valid
    """
    for side, flag in SIDES.items():
        language = getattr(pieces, side)
        if language is not None and not model_json.LANGUAGE.fullmatch(language):
            raise UserError(f"{flag} must be a language's code such as en, but is {language}")
    folder = model if model.is_dir() else model.parent
    if not model.exists():
        raise UserError(f"there is no model {model}: check the path")
    if (folder / model_json.NAME).exists():
        description = model_json.read(folder)
        if model != folder:
            if description.engine != "fairseq":
                raise UserError(
                    f"{model} is a file of an exported model: name its folder, {folder}"
                )
            description = replace(description, checkpoint=model)
        return _complete(description, pieces)
    if model == folder:
        raise UserError(
            f"{model} has no {model_json.NAME}: name a folder that has one, an "
            "exported model, or one checkpoint with --data and --subwords"
        )
    description = _complete(_describe_checkpoint(model, pieces, translates), pieces)
    if description.subwords == "none" and pieces.subwords is None:
        _check_words(dictionaries(description)[0])
    return description


def dictionaries(about: ModelDescription) -> list[Path]:
    """The fairseq dictionaries of source and target, or of an encoder.

    Raises:
        UserError: one is missing, not a regular file, or too large
    """
    data = about.data or about.folder
    names = [f"dict.{language}.txt" for language in (about.source_lang, about.target_lang)]
    if not about.source_lang:
        in_folder = (data / "input0" / "dict.txt").is_file()  # of a task of several inputs
        names = ["input0/dict.txt" if in_folder else "dict.txt"]
    for name in names:
        if not (data / name).is_file():
            raise UserError(
                f"there is no dictionary {data / name}: give by --data the folder that "
                "fairseq-preprocess wrote for this model"
            )
        input_files.check_regular(data / name, input_files.VOCABULARY)
    return [data / name for name in names]


def load_state(about: ModelDescription) -> dict[str, Any]:
    """The checkpoint as fairseq loads it, with the options of its description.

    It is read once per command, here or where the description was made.
    """
    overrides: dict[str, Any] = {"data": str(about.data)}
    if about.source_lang:
        overrides |= {"source_lang": about.source_lang, "target_lang": about.target_lang}
    if about.position_temperature is not None:
        overrides["position_temperature"] = about.position_temperature
    state = about.state or checkpoint_utils.load_checkpoint_to_cpu(str(about.checkpoint))
    if state.get("args") is not None:
        vars(state["args"]).update(overrides)
    overwrite_args_by_name(state["cfg"], overrides)
    return state


def check_temperature(about: ModelDescription, model: Any) -> None:
    """Refuse a temperature for a model that has none of our attention."""
    ours = any(isinstance(part, PositionalAttention) for part in model.modules())
    if about.position_temperature is not None and not ours:
        raise UserError(
            f"--position-temperature {about.position_temperature} is for models with a position "
            f"scheme, and {about.checkpoint} is fairseq's own: leave it out"
        )


def _describe_checkpoint(checkpoint: Path, pieces: Pieces, translates: bool) -> ModelDescription:
    """The description of a checkpoint without ``model.json``, by the usual places above it."""
    folders = [parent / DATA for parent in checkpoint.absolute().parents[:LEVELS]]
    data = pieces.data or next(filter(Path.is_dir, folders), None)
    if data is None:
        raise UserError(
            f"{checkpoint} has no {model_json.NAME} beside it: give --data, the folder of "
            "fairseq-preprocess with its dictionaries, and --subwords, if there are any"
        )
    with report_faults(checkpoint):
        state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    task = state["cfg"]["task"] or {}
    # like fairseq, infer languages from the names of the data's files where no option names them
    inferred = infer_language_pair(str(data)) if data.is_dir() else (None, None)
    languages: dict[str, str] = {}
    for (side, flag), name_of_data in zip(SIDES.items(), inferred, strict=True):
        language = str(getattr(pieces, side) or task.get(side) or name_of_data or "")
        if (language or translates) and not model_json.LANGUAGE.fullmatch(language):
            raise UserError(f"{checkpoint} does not say its languages: give {flag}")
        languages[side] = language
    source, target = languages.values()
    description = ModelDescription(
        "fairseq", source, target, checkpoint.parent, checkpoint, data, state=state
    )
    if not description.source_lang:
        description = replace(description, **_text_options(data))
    for kind, name in FILES.items():
        model = data.absolute().parent / "subwords" / name
        if model.is_file():
            tokenizer = "moses" if kind == "subword_nmt" else "none"
            return replace(description, subwords=kind, subword_model=model, preprocessing=tokenizer)
    return description


def _text_options(data: Path) -> dict[str, Any]:
    """The preprocessing of an encoder's text; empty without `MADE_FROM` in its data's folder."""
    path, advice = data / MADE_FROM, "prepare the data again, or give another folder by --data"
    if not path.exists():
        return {}
    content = input_files.read_json(path, advice=advice)
    if isinstance(content, dict):
        content = content.get("text", content)  # a task has the options of its encoder as `text`
    return dict(input_files.validated(content, TextOptions, f"{path}: ", advice))


def _complete(description: ModelDescription, pieces: Pieces) -> ModelDescription:
    """The description with the user's files and options."""
    changes: dict[str, Any] = {
        name: value
        for name in (*SIDES, "data", "position_temperature")
        if (value := getattr(pieces, name)) is not None
    }
    if pieces.position_temperature is not None:
        positive("--position-temperature", pieces.position_temperature)
        if description.engine != "fairseq":
            raise UserError(
                f"--position-temperature {pieces.position_temperature} is for checkpoints, and "
                f"{description.folder} is an exported model: export the checkpoint with it"
            )
    if pieces.subwords:
        model = None if pieces.subwords == NONE else pieces.subwords
        changes |= {"subwords": kind_of(model) if model else "none", "subword_model": model}
        changes["preprocessing"] = "none"
    if pieces.tokenizer:
        changes["preprocessing"] = pieces.tokenizer
    description = replace(description, **changes)
    if description.engine == "fairseq":
        dictionaries(description)
    return description


def _check_words(dictionary: Path) -> None:
    """Refuse a vocabulary of subwords where there is no subword model."""
    words = (line.rpartition(" ")[0] for line in read_lines(dictionary))
    if subword := next(filter(SUBWORD.fullmatch, words), None):
        raise UserError(
            f"{dictionary} contains subwords (such as {subword}), but no subword model was found "
            "beside it: name one with --subwords, or give --subwords none to split nothing"
        )
