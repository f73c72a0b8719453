"""The checkpoint that fine-tuning starts from, and what is taken from its configuration.

A checkpoint is data, and some of its options become words of a command line. They go through the
parser that will read them there, which knows their types and choices, and each is one word,
``--flag=value``: a value by itself could be another option, of those that run programs.
"""

import hashlib
import reprlib
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel

from ...config import OPTIONS, flag
from ...errors import UserError
from ...patches import loading
from ..common.options import Strict
from ..common.text import read_lines

#: of fairseq's encoders, beside the position options
SIZES = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "dropout",
    "attention_dropout",
    "max_positions",
    "embedding_size",
)
#: the encoder that a family's checkpoint can be fine-tuned as, beside its own
BECOMES = {"roberta": "bert", "electra": "bert"}
POSITIONS = tuple(name for name in OPTIONS if name != "position_scheme")
#: what fairseq's dictionaries have beside the lines of their file: four marks, and <mask>
SPECIAL = 5


class Start:
    """A checkpoint of an encoder.

    ``model`` has its architecture, position scheme, `SIZES` and `POSITIONS`, all as fairseq-train
    takes them, ``task`` the name of its task, ``symbols`` how many subwords it knows. Raises
    `UserError` for a file that is not an encoder's, and for options that fairseq-train refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(f"{path} is a device or a pipe, not a file: name a checkpoint")
        try:
            with open(path, "rb") as file:
                state = loading.read(file, "cpu")
        except OSError as error:
            raise UserError(f"{path} can't be read: {error.strerror}") from error
        config = state.get("cfg") or {"model": state["args"], "task": state["args"]}
        ends = "sentence_encoder.embed_tokens.weight"
        shapes: dict[Any, tuple[int, ...]] = {
            name: getattr(table, "shape", ()) for name, table in state["model"].items()
        }
        tables = [shape for name, shape in shapes.items() if str(name).endswith(ends)]
        if not tables or len(tables[0]) != 2:
            raise UserError(
                f"{path} is not an encoder: give one that `pretrain` wrote, or a RoBERTa"
            )
        self.symbols = tables[0][0]
        self._layers = len(shapes)  # each has a parameter at least
        self._size = max(size for shape in shapes.values() for size in shape)
        task = _options(config.get("task"))
        self.task = task.get("_name", task.get("task"))
        self.model = self._checked(_options(config.get("model")))

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that are used, each read by the parser that will read it in fairseq-train."""
        arch = options.get("arch")
        if not (isinstance(arch, str) and _is_encoder(arch)):
            self._refuse("arch", arch)
        parser = Strict(arch)
        ARCH_MODEL_REGISTRY[arch].add_args(parser)
        model: dict[str, Any] = {"arch": arch}
        for name in ("position_scheme", *SIZES, *POSITIONS):
            value = options.get(name)
            if not isinstance(value, bool | int | float | str | None):
                self._refuse(name, value)
            if type(value) is int and value > self._most(name):
                self._refuse(name, value, "more than its parameters have room for")
            model[name] = value
            for word in _flags(model, [name]):
                try:
                    fits = getattr(parser.parse_args([word]), name) == value
                except UserError:
                    fits = False
                if not fits:
                    self._refuse(name, value)
        return model

    def _most(self, name: str) -> int:
        """The largest value that fits the checkpoint's parameters: never 10**8 layers."""
        if name in ("max_positions", "position_max_distance"):
            return 1 << 20  # some models with these options have no such table
        return self._layers if name == "encoder_layers" else self._size

    def _refuse(self, name: str, value: Any, why: str = "") -> NoReturn:
        why = why or f"which {flag(name)} does not take"
        raise UserError(
            f"{self.path} is refused: {name} of its configuration is {reprlib.repr(value)}, {why}; "
            "use a checkpoint from a source that you trust"
        )

    @cached_property
    def digest(self) -> str:
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]

    @property
    def name(self) -> str:
        """The run's."""
        return self.path.resolve().parent.name

    def check_dictionary(self, ours: Path) -> None:
        """Refuse a task whose dictionary is not the encoder's."""
        lines, theirs = subwords_of(ours), self.dictionary()
        if theirs:
            other = subwords_of(theirs)
            if lines == other:
                return
            what = f"the dictionary {theirs} of {len(other):,} subwords"
        elif self.symbols == len(lines) + SPECIAL:
            print(
                f"{self.path}: its dictionary is not beside it, so only the number of its subwords "
                "was compared with the task's",
                file=sys.stderr,
            )
            return
        else:
            what = f"a dictionary of {self.symbols - SPECIAL:,} subwords"
        raise UserError(
            f"{self.path} was trained with {what}, which is not that of the task ({ours}, "
            f"{len(lines):,}): prepare the task in the folder that the encoder was trained in"
        )

    def dictionary(self) -> Path | None:
        """The dictionary beside the checkpoint, if there is one; files that it names are not read.

        That is the data of the folder whose ``runs`` it is in, as ``runs/RUN`` if it was pretrained
        and as ``runs/ROW/CELL`` if it was fine-tuned, or a file in its own folder, where fairseq's
        released models have it.
        """
        folder = self.path.resolve().parent
        runs = (one for one in folder.parents[:2] if one.name == "runs")
        data = [one.with_name("data-bin") for one in runs]
        places = [one / name for one in data for name in ("dict.txt", "input0/dict.txt")]
        return next((place for place in (*places, folder / "dict.txt") if place.is_file()), None)

    def flags(self, encoder: str | None) -> list[str]:
        """The model's, as fairseq-train takes them."""
        arch: str = self.model["arch"]
        family, scheme = arch.split("_")[0], self.model["position_scheme"]
        if encoder and encoder == BECOMES.get(family) and arch.startswith(f"{family}_{scheme}"):
            arch = arch.replace(family, encoder, 1)
        elif encoder not in (None, family):
            raise UserError(
                f"--encoder {encoder}: {self.path} is {arch}, which can't be converted: leave it "
                "out"
            )
        return [f"--arch={arch}", *_flags(self.model, [*SIZES, *POSITIONS])]


def _options(part: Any) -> dict[str, Any]:
    """The options of a model or a task, which fairseq saves in one of two ways."""
    found = vars(part) if isinstance(part, Namespace) else part
    return found if isinstance(found, dict) else {}


def _is_encoder(arch: str) -> bool:
    return issubclass(ARCH_MODEL_REGISTRY.get(arch, object), RobertaModel)


def _flags(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Each option as one word; what is None or False is left to its default."""
    given = ((name, options[name]) for name in names)
    return [
        flag(name) + ("" if value is True else f"={value}")
        for name, value in given
        if value is not None and value is not False
    ]


def subwords_of(dictionary: Path) -> list[str]:
    """The subwords in the order of their numbers; a line has a subword and its count."""
    return [line.rsplit(" ", 1)[0] for line in read_lines(dictionary)]
