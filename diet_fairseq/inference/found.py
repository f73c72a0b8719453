"""A model on a command line: where it is, and what belongs to it.

What is given by hand goes first, then what ``model.json`` beside the checkpoint says, then what
lies where the recipes put it. What the checkpoint itself names is never opened (SECURITY.md).
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq.data.data_utils import infer_language_pair

from .. import model_json
from ..errors import UserError
from ..model_json import ModelDescription
from ..patches import loading
from ..text.json_files import read_object
from ..text.lines import read_lines
from ..text.subwords import FILES, first_subword, kind_of

#: for --subwords: the words themselves are in the vocabulary
NONE = Path("none")
#: the recipe's checkpoints are in FOLDER/runs/NAME, their data in FOLDER/data-bin
DATA, LEVELS = "data-bin", 3
#: beside the data of an encoder: how its text was made
MADE_FROM = "made-from.json"
DATA_HELP = "folder of fairseq-preprocess: dictionaries (data-bin, where the recipe puts it)"


@dataclass(frozen=True)
class Pieces:
    """What is given by hand, because nothing says it or another is wanted."""

    data: Path | None = None
    subwords: Path | None = None
    tokenizer: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None

    @classmethod
    def of(cls, args: Namespace) -> "Pieces":
        """Those of `add_arguments`."""
        return cls(**{name: getattr(args, name) for name in cls.__dataclass_fields__})


def add_arguments(parser: ArgumentParser) -> None:
    """What belongs to a model."""
    add = parser.add_argument_group("for a checkpoint without model.json beside it").add_argument
    add("--data", type=Path, metavar="DIR", help=DATA_HELP)
    add("--subwords", type=Path, metavar="FILE",
        help="SentencePiece's model or subword-nmt's codes; none: there are none (in the folder "
             "subwords beside the data)")  # fmt: skip
    add("--tokenizer", choices=model_json.PREPROCESSING,
        help="what parted words before that (none)")  # fmt: skip
    add("--source-lang", metavar="SRC", help="where the checkpoint does not say it")
    add("--target-lang", metavar="TGT", help="where the checkpoint does not say it")


def find(
    model: Path, pieces: Pieces = Pieces(), translates: bool = True
) -> ModelDescription:  # frozen
    """The model in a folder with ``model.json``, or in a checkpoint.

    A checkpoint takes from the ``model.json`` beside it all but itself.

    :param translates: otherwise it may be one without languages, which are empty then
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
            f"{model} has no {model_json.NAME}: name the folder of a run, an "
            "exported model, or one checkpoint with --data and --subwords"
        )
    found = _completed(_of_checkpoint(model, pieces, translates), pieces)
    if found.subwords == "none" and pieces.subwords is None:
        _check_words(dictionaries(found)[0])
    return found


def dictionaries(found: ModelDescription) -> list[Path]:
    """fairseq's: those of source and target, or an encoder's one.

    :raises UserError: one is not there
    """
    data = found.data or found.folder
    names = [f"dict.{language}.txt" for language in (found.source_lang, found.target_lang)]
    if not found.source_lang:
        in_folder = (data / "input0" / "dict.txt").is_file()  # of a task of several inputs
        names = ["input0/dict.txt" if in_folder else "dict.txt"]
    for name in names:
        if not (data / name).is_file():
            raise UserError(
                f"there is no dictionary {data / name}: give by --data the folder that "
                "fairseq-preprocess wrote for this model"
            )
    return [data / name for name in names]


def _of_checkpoint(checkpoint: Path, pieces: Pieces, translates: bool) -> ModelDescription:
    above = [folder / DATA for folder in checkpoint.absolute().parents[:LEVELS]]
    data = pieces.data or next((place for place in above if place.is_dir()), None)
    if data is None:
        raise UserError(
            f"{checkpoint} has no {model_json.NAME} beside it: give --data, the folder of "
            "fairseq-preprocess with its dictionaries, and --subwords, if there are any"
        )
    source, target = _languages(checkpoint, data, pieces, translates)
    found = ModelDescription(
        "fairseq", source, target, folder=checkpoint.parent, checkpoint=checkpoint, data=data
    )
    if not source:
        found = replace(found, **_made_from(data))
    for kind, file in FILES.items():
        model = data.absolute().parent / "subwords" / file
        if model.is_file():
            tokenizer = "moses" if kind == "subword_nmt" else "none"
            return replace(found, subwords=kind, subword_model=model, preprocessing=tokenizer)
    return found


def _made_from(data: Path) -> dict[str, Any]:
    """How the recipe made the text of an encoder, as it left it written in the folder of data."""
    path, again = data / MADE_FROM, "prepare the data again, or give another folder by --data"
    if not path.is_file():
        return {}
    made_from = read_object(path, again)
    match made_from.get("text", made_from):  # a task says what the text of its encoder was
        case {"lower": bool(lower), "language": str(language)} if model_json.LANGUAGE.fullmatch(
            language
        ):
            return {"lower": lower, "language": language}
    raise UserError(
        f"{path} must say whether the text was lower-cased (lower) and its language's code "
        f"(language), but doesn't: {again}"
    )


def _languages(checkpoint: Path, data: Path, pieces: Pieces, needed: bool) -> list[str]:
    state = loading.read(checkpoint, "cpu")
    given = vars(state["args"]) if state.get("args") else (state["cfg"].get("task") or {})
    options: dict[str, Any] = given if isinstance(given, dict) else {}
    # as fairseq does where its commands are not told: by the names of the files of data
    inferred = infer_language_pair(str(data)) if data.is_dir() else (None, None)
    languages = []
    for side, name_of_data in zip(("source_lang", "target_lang"), inferred, strict=True):
        name = getattr(pieces, side) or options.get(side) or name_of_data
        if name is None and not needed:
            name = ""
        elif not isinstance(name, str) or not model_json.LANGUAGE.fullmatch(name):
            flag = "--" + side.replace("_", "-")
            raise UserError(f"{checkpoint} does not say its languages: give {flag}")
        languages.append(name)
    return languages


def _completed(found: ModelDescription, pieces: Pieces) -> ModelDescription:
    """With the pieces in the place of what was found."""
    for name in ("source_lang", "target_lang"):
        value = getattr(pieces, name)
        if value is not None and not model_json.LANGUAGE.fullmatch(value):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} must be a language's code such as en, but is {value}")
    found = replace(
        found,
        source_lang=pieces.source_lang or found.source_lang,
        target_lang=pieces.target_lang or found.target_lang,
        data=pieces.data or found.data,
    )
    if pieces.subwords == NONE:
        found = replace(found, subwords="none", subword_model=None, preprocessing="none")
    elif pieces.subwords:
        kind = kind_of(pieces.subwords)
        found = replace(found, subwords=kind, subword_model=pieces.subwords, preprocessing="none")
    if pieces.tokenizer:
        found = replace(found, preprocessing=pieces.tokenizer)
    if found.engine == "fairseq":
        dictionaries(found)
    return found


def _check_words(dictionary: Path) -> None:
    """Refuse a vocabulary of subwords, none of which text would become by itself."""
    subword = first_subword([line.rpartition(" ")[0] for line in read_lines(dictionary)])
    if subword is not None:
        raise UserError(
            f"{dictionary} is of subwords (such as {subword}), but their model is not beside it: "
            "give --subwords, or --subwords none to take words as they are"
        )
