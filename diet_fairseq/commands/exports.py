"""``diet-fairseq export`` and ``diet-fairseq import``."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ..errors import silent_interrupts
from .arguments import add_model_files, add_position_temperature

#: CTranslate2's types of parameters
QUANTIZATIONS = (
    *("int8", "int8_float32", "int8_float16", "int8_bfloat16"),
    *("int16", "float16", "bfloat16", "float32"),
)


def deferred_run(module: str) -> Callable[[Namespace], None]:
    """The function ``run`` of a module that is imported when the function is called."""

    def run(args: Namespace) -> None:
        with silent_interrupts():
            command = import_module(module, __package__)
        command.run(args)

    return run


def add_out(parser: ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write")


def add_checkpoint(parser: ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path,
                        help="checkpoint, or its folder")  # fmt: skip
    add_out(parser)


def add_ctranslate2_arguments(parser: ArgumentParser) -> None:
    add_checkpoint(parser)
    add_position_temperature(parser)
    add_model_files(parser)
    parser.add_argument(
        "--quantization", choices=QUANTIZATIONS, default="float32",
        help="type of weight matrices; with int8 and int16 the other parameters, such as biases "
             "and position tables, are float32, and with int8_TYPE they have this type (default: "
             "%(default)s)",
    )  # fmt: skip


def add_hf_arguments(parser: ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument(
        "--original", action="store_true",
        help="use the transformers class that the model was imported from, which does not need "
             "diet_fairseq (default: a class of diet_fairseq)",
    )  # fmt: skip
    add_position_temperature(parser)
    add_model_files(parser)


def add_import_hf_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER",
                        help="folder of `diet-fairseq export hf` or save_pretrained")  # fmt: skip
    add_out(parser)
    parser.add_argument(
        "--keep-text", nargs="+", type=Path, default=(), metavar="FILE",
        help="trim the vocabulary of a translation model to the tokens of these texts, single "
             "characters, tags and special symbols (default: keep all tokens)",
    )  # fmt: skip
