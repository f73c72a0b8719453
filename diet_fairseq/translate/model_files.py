"""The search for a model's files: checkpoint, dictionaries and subword model.

An option names a file. Without the option, ``model.json`` beside the checkpoint names it. Without
``model.json``, the file must be in one of the usual folders above the checkpoint. Files that the
checkpoint itself names are never opened (SECURITY.md). A model with ``model.json`` needs neither
PyTorch nor fairseq here.
"""

from argparse import Namespace
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from .. import files
from ..errors import UserError, check_positive
from ..text.lines import read_lines
from ..text.subwords import SUBWORD, SUBWORD_FILES, WORDPIECE_FILES, detect_subword_kind
from .directions import LANGUAGE, read_task, summarize_names
from .model_json import (
    MODEL_JSON,
    Language,
    License,
    ModelDescription,
    dictionary_paths,
    read_model_json,
)

#: values of --tokenizer
TOKENIZERS = ("none", "moses")
#: value of --subwords for a vocabulary of whole words
NO_SUBWORDS = Path("none")
#: name of the usual data folder, and the number of folders above a checkpoint that are searched
DATA, LEVELS = "data-bin", 3
#: field of `ModelOptions` -> flag, for the two languages
LANGUAGE_FLAGS = {"source_lang": "--source-lang", "target_lang": "--target-lang"}
#: file with the `TextOptions` of an encoder, in the folder of its data
TEXT_OPTIONS_JSON = "made-from.json"


class TextOptions(BaseModel, strict=True):
    """Preprocessing of an encoder's text."""

    lower: bool
    language: Language
    license: License | None = None


@dataclass(frozen=True)
class ModelOptions:
    """The user's options for a model's files, languages and attention; None: not set."""

    data: Path | None = None
    subwords: Path | None = None
    tokenizer: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    position_temperature: float | None = None

    @classmethod
    def from_args(cls, args: Namespace) -> "ModelOptions":
        """The options of a command that `add_model_files` and `add_position_temperature` added."""
        return cls(**{name: getattr(args, name, None) for name in cls.__dataclass_fields__})


def resolve_model(
    model: Path,
    options: ModelOptions = ModelOptions(),  # frozen
    translates: bool = True,
) -> ModelDescription:
    """The description of the model in a folder with ``model.json``, or in a checkpoint.

    A ``model.json`` beside a checkpoint describes the checkpoint, even if it names another file.

    Args:
        translates: whether the model must have languages; encoders have none

    Raises:
        UserError: a file is missing or not valid
    """
    for field, flag in LANGUAGE_FLAGS.items():
        language = getattr(options, field)
        if language is not None and not LANGUAGE.fullmatch(language):
            raise UserError(f"{flag} must be a language's code such as en, but is {language}")
    if options.tokenizer not in (None, *TOKENIZERS):
        names = " or ".join(TOKENIZERS)
        raise UserError(f"--tokenizer must be {names}, but is {options.tokenizer!r}")
    folder = model if model.is_dir() else model.parent
    if not model.exists():
        raise UserError(f"the model {model} does not exist: check the path")
    if (folder / MODEL_JSON).exists():
        description = read_model_json(folder)
        if model != folder:
            if description.engine != "fairseq":
                raise UserError(
                    f"{model} is a file of an exported model: name its folder, {folder}"
                )
            description = replace(description, checkpoint=model)
        return _apply_options(description, options)
    if model == folder:
        raise UserError(
            f"{model} has no {MODEL_JSON}: name a folder that has one, an exported model, or one "
            "checkpoint with --data and --subwords"
        )
    description = _apply_options(_describe_checkpoint(model, options, translates), options)
    if description.subwords == "none" and options.subwords is None:
        _refuse_subwords(dictionary_paths(description)[0])
    return description


def check_ensemble(first: ModelDescription, second: ModelDescription) -> None:
    """Refuse models that can't form an ensemble.

    Raises:
        UserError: a model is not a fairseq checkpoint, or the text options or vocabularies differ
    """
    for description in (first, second):
        if description.engine != "fairseq":
            raise UserError(
                "an ensemble must consist of fairseq checkpoints, but has a model for "
                f"{description.engine}, {description.folder}: translate with that model alone"
            )
    for name in ("source_lang", "target_lang", "directions", "preprocessing", "subwords", "lower"):
        values = getattr(first, name), getattr(second, name)
        if values[0] != values[1]:
            raise UserError(
                f"an ensemble's models must prepare text alike, but {first.folder} has {name} "
                f"{values[0]} and {second.folder} {values[1]}: use models of the same data"
            )
    named = [
        [*dictionary_paths(model), model.subword_model, model.target_subword_model]
        for model in (first, second)
    ]
    for paths in zip(*named, strict=True):
        contents = [path and files.read_bytes(path, files.MAX_VOCABULARY_BYTES) for path in paths]
        if contents[0] != contents[1]:
            raise UserError(
                f"an ensemble's models must have one vocabulary, but {paths[0]} and {paths[1]} "
                "differ: use models of the same data"
            )


def _describe_checkpoint(
    checkpoint: Path, options: ModelOptions, translates: bool
) -> ModelDescription:
    """The description of a checkpoint without ``model.json``, from files in the usual folders."""
    folders = [parent / DATA for parent in checkpoint.absolute().parents[:LEVELS]]
    data = options.data or next(filter(Path.is_dir, folders), None)
    if options.data is None and (checkpoint.parent / TEXT_OPTIONS_JSON).is_file():
        data = checkpoint.parent  # `import hf` writes an encoder's checkpoint beside its dictionary
    if data is None:
        raise UserError(
            f"{checkpoint} has no {MODEL_JSON} beside it: give --data, the folder of "
            "fairseq-preprocess with its dictionaries, and --subwords, if there are any"
        )
    from fairseq.data.data_utils import infer_language_pair

    from ..checkpoints.configuration import task_options
    from .loading import read_checkpoint

    state = read_checkpoint(checkpoint)
    task = task_options(state)
    marked = read_task(task)
    directions = marked[0] if marked else None
    pair: tuple[str | None, ...] = (None, None)
    if directions is None and data.is_dir():
        pair = infer_language_pair(str(data))
    elif directions is not None and len(directions.pairs) == 1:
        pair = directions.pairs[0]
    languages: list[str] = []
    for (field, flag), inferred in zip(LANGUAGE_FLAGS.items(), pair, strict=True):
        language = getattr(options, field) or str(task.get(field) or inferred or "")
        if (language or translates) and not LANGUAGE.fullmatch(language):
            some = f", one of {summarize_names(directions.targets)}" if directions else ""
            raise UserError(f"{checkpoint} does not name its languages: give {flag}{some}")
        languages.append(language)
    source, target = languages
    text_options = {} if source else _read_text_options(data)
    description = ModelDescription(
        "fairseq", source, target, checkpoint.parent, checkpoint, data,
        directions=directions, state=state, **text_options,
    )  # fmt: skip
    folders, names = [data.absolute().parent / "subwords"], [*SUBWORD_FILES.items()]
    if not source:
        folders.insert(0, data)  # an encoder that `import hf` wrote has its own subword model
        names += [("wordpiece", name) for name in WORDPIECE_FILES]
    for folder, (kind, name) in product(folders, names):
        model = folder / name
        if model.is_file():
            tokenizer = "moses" if kind == "subword_nmt" else "none"
            return replace(description, subwords=kind, subword_model=model, preprocessing=tokenizer)
    return description


def _read_text_options(data: Path) -> dict[str, Any]:
    """The preprocessing of an encoder's text; empty if the folder lacks `TEXT_OPTIONS_JSON`."""
    path = data / TEXT_OPTIONS_JSON
    advice = "prepare the data again, or give another folder by --data"
    if not path.exists():
        return {}
    content = files.read_json(path, advice=advice)
    if isinstance(content, dict):
        content = content.get("text", content)  # the file of a task has the options in `text`
    return dict(files.validate(content, TextOptions, f"{path}: ", advice))


def _apply_options(description: ModelDescription, options: ModelOptions) -> ModelDescription:
    changes: dict[str, Any] = {
        name: value
        for name in (*LANGUAGE_FLAGS, "data", "position_temperature")
        if (value := getattr(options, name)) is not None
    }
    if options.position_temperature is not None:
        check_positive("--position-temperature", options.position_temperature)
        if description.engine != "fairseq":
            raise UserError(
                f"--position-temperature {options.position_temperature} must be given at export, "
                f"but {description.folder} is exported already: export the checkpoint with this "
                "option"
            )
    if options.subwords:
        model = None if options.subwords == NO_SUBWORDS else options.subwords
        kind = detect_subword_kind(model) if model else "none"
        if kind == "wordpiece" and description.source_lang:
            raise UserError(
                f"--subwords {model} has BERT's word pieces, which only encoders read here, but "
                f"{description.folder} translates: give the subword model of its data"
            )
        changes |= {"subwords": kind, "subword_model": model, "preprocessing": "none"}
        changes["target_subword_model"] = None
    if options.tokenizer:
        changes["preprocessing"] = options.tokenizer
    directions = description.all_directions
    description = replace(description, **changes)
    if description.engine != "fairseq" or description.directions:
        names = f"{description.folder}: --source-lang", f"{description.folder}: --target-lang"
        source, target = directions.match(description.source_lang, description.target_lang)
        description = replace(description, source_lang=source, target_lang=target)
        directions.check(description.source_lang, description.target_lang, names)
    if description.engine == "fairseq":
        dictionary_paths(description)
    return description


def _refuse_subwords(dictionary: Path) -> None:
    """Refuse a vocabulary that contains subwords if there is no subword model."""
    words = (line.rpartition(" ")[0] for line in read_lines(dictionary))
    if subword := next(filter(SUBWORD.fullmatch, words), None):
        raise UserError(
            f"{dictionary} contains subwords (such as {subword}), but no subword model was found "
            "beside it: name one with --subwords, or give --subwords none to split nothing"
        )
