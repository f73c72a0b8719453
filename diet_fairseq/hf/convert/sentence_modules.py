"""The modules of sentence-transformers, which turn an encoder's output into sentence embeddings."""

import json
import shutil
from pathlib import Path

from pydantic import BaseModel, Field

from ...files import MAX_JSON_BYTES, check_regular, read_json, read_json_object, validate
from .vocabulary import ADVICE

#: the list of modules; the first is the encoder
MODULES = "modules.json"
SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
PACKAGE = "sentence_transformers."
#: the names of classes without weights
WEIGHTLESS = ("Transformer", "Pooling", "Normalize")
#: the number of tokens at which texts are cut in exported models without a length limit; longer
#: texts need an amount of memory that no default should
LONG_TEXT = 2048


class Module(BaseModel):
    """An entry of `MODULES`: a folder, empty for the folder itself, and a class in Python."""

    path: str = Field(pattern=r"^\w*$")
    type: str = Field(pattern=r"^[\w.]+$")

    @property
    def name(self) -> str:
        """The name of the class, without its package if this is sentence-transformers."""
        return self.type.rpartition(".")[2] if self.type.startswith(PACKAGE) else self.type

    @property
    def is_known(self) -> bool:
        """Whether the class is one of sentence-transformers' own and has no weights."""
        return self.name in WEIGHTLESS


def read_modules(folder: Path) -> list[Module]:
    """The modules of a folder; none if it does not come from sentence-transformers."""
    path = folder / MODULES
    if not path.exists():
        return []
    return validate(read_json(path, advice=ADVICE), list[Module], f"{path}: ", ADVICE)


def copy_modules(folder: Path, out: Path) -> None:
    """Copy the files of the modules, if `Module.is_known` is true for all of them.

    Loading with sentence-transformers needs all modules, and imports the classes by their names.
    """
    modules = read_modules(folder)
    if not modules or not all(module.is_known for module in modules):
        return
    settings = [f"{module.path}/config.json" for module in modules if module.path]
    for name in (MODULES, *SETTINGS, *settings):
        if (folder / name).exists():
            check_regular(folder / name, MAX_JSON_BYTES)
            (out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, out / name)


class TextLength(BaseModel):
    """The number of tokens at which texts are cut, under the names of two files."""

    max_seq_length: int | None = None  # in `SETTINGS`
    model_max_length: int | float | None = None  # in the tokenizer's configuration


def write_modules(folder: Path, out: Path, limit: int | None) -> int | None:
    """Copy the modules into the folder of another model, and set the length of texts.

    Args:
        folder: the folder of the original model, or a copy of its text files
        limit: the number of tokens that the other model can read; None: it has no length limit

    Returns:
        the number of tokens at which texts are cut; None without modules
    """
    copy_modules(folder, out)
    if not (out / MODULES).exists():
        return None
    lengths = TextLength()
    for name in ("tokenizer_config.json", SETTINGS[0]):
        if (folder / name).exists():
            values = read_json_object(folder / name, TextLength, advice=ADVICE)
            lengths = lengths.model_copy(update=values.model_dump(exclude_none=True))
    before = lengths.max_seq_length or int(lengths.model_max_length or LONG_TEXT)
    length = max(before, LONG_TEXT) if limit is None else min(before, limit)
    path = out / SETTINGS[0]
    settings = read_json(path, advice=ADVICE) if path.exists() else {}
    settings["max_seq_length"] = length
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return length
