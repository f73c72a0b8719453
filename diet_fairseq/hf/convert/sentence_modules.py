"""The modules of sentence-transformers, which turn an encoder's output into sentence embeddings."""

import shutil
from pathlib import Path

from pydantic import BaseModel, Field

from ...files import MAX_JSON_BYTES, check_regular, read_json, validate
from .vocabulary import ADVICE

#: the list of modules; the first is the encoder
MODULES = "modules.json"
SETTINGS = ("sentence_bert_config.json", "config_sentence_transformers.json")
PACKAGE = "sentence_transformers."
#: the names of classes without weights
WEIGHTLESS = ("Transformer", "Pooling", "Normalize")


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
