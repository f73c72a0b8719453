"""Command-line arguments that several commands share, without heavy imports."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from ..errors import Number, UserError, check_at_least

#: words of an option -> its value
YES_OR_NO = {"yes": True, "no": False}


def at_least(least: Number) -> Callable[[str], Number]:
    """A type for ``add_argument``: a finite number of the type of ``least``, at least ``least``."""
    number_type = type(least)

    def read(text: str) -> Number:
        value = number_type(text)
        try:
            return check_at_least("", value, least)
        except UserError as error:
            raise ArgumentTypeError(str(error).strip()) from None

    read.__name__ = number_type.__name__  # argparse calls other text an "invalid int value"
    return read


def integer_between(least: int, most: int) -> Callable[[str], int]:
    """A type for ``add_argument``: an integer from ``least`` to ``most``."""

    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ArgumentTypeError(f"must be from {least} to {most}, but is {text}")
        return value

    read.__name__ = "int"  # argparse calls other text an "invalid int value"
    return read


def add_model_files(parser: ArgumentParser) -> None:
    """Add the options for a model's files, which `translate.model_files.ModelOptions` holds."""
    add = parser.add_argument_group("for a checkpoint without model.json beside it").add_argument
    add("--data", type=Path, metavar="DIR",
        help="folder that fairseq-preprocess wrote, with the dictionaries (default: data-bin above "
             "MODEL, or the folder of an encoder that import hf wrote)")  # fmt: skip
    add("--subwords", type=Path, metavar="FILE",
        help="SentencePiece model, codes of subword-nmt or fastBPE, GPT-2's vocab.bpe, BERT's "
             "tokenizer.json or vocab.txt (for encoders), or none (default: the file in the folder "
             "subwords beside --data, or the file of an imported encoder)")  # fmt: skip
    add("--tokenizer", choices=("none", "moses"),
        help="tokenizer applied before the subwords (default: moses with the file subwords/codes, "
             "otherwise none)")  # fmt: skip
    add("--source-lang", metavar="SRC", help="source language (default: the checkpoint's)")
    add("--target-lang", metavar="TGT", help="target language (default: the checkpoint's)")


def add_position_temperature(parser: ArgumentParser) -> None:
    """Add ``--position-temperature``, for checkpoints of our models."""
    parser.add_argument(
        "--position-temperature", type=float, metavar="X",
        help="softmax temperature of attention; below 1 sharpens attention on long inputs "
             "(default: the checkpoint's, normally 1)",
    )  # fmt: skip


def add_search_limits(parser: ArgumentParser) -> None:
    """Add options of the search that `translate` and `serve` share."""
    add = parser.add_argument
    add("--no-repeat-ngram-size", type=at_least(0), metavar="N",
        help="forbid to repeat N subwords in a translation; 0 forbids nothing (default: from "
             "model.json, otherwise 0)")  # fmt: skip
    add("--max-len-a", type=at_least(0.0), metavar="A",
        help="a translation has at most A * S + B subwords, where S is the number of subwords of "
             "its source, </s> included (default: from model.json, otherwise 1)")  # fmt: skip
    add("--max-len-b", type=at_least(0), metavar="B",
        help="see --max-len-a (default: from model.json, otherwise 50)")  # fmt: skip


def add_model(parser: ArgumentParser, text: str = "") -> None:
    """Add the arguments for models and their device; ``text`` is appended to the help of MODEL."""
    add = parser.add_argument
    add("models", type=Path, metavar="MODEL", nargs="+",
        help="folder with model.json, exported model, or checkpoint; several checkpoints form an "
             f"ensemble{text}")  # fmt: skip
    add("--threads", type=integer_between(1, 1024),
        help="number of CPU threads (default: PyTorch's or CTranslate2's choice)")  # fmt: skip
    add("--device", default="cpu", help="cpu, cuda or cuda:N (default: %(default)s)")
    add("--max-tokens", type=at_least(1), default=4000,
        help="largest number of source subwords in a batch (default: %(default)s)")  # fmt: skip
    add("--split-sentences", choices=YES_OR_NO,
        help="whether lines are translated sentence by sentence (default: yes, unless source and "
             "target are one language, or lines of the training data have several "
             "sentences)")  # fmt: skip
    add("--any-ctranslate2", action="store_true",
        help="load a CTranslate2 folder that `export ctranslate2` did not write; a forged one can "
             "corrupt memory")  # fmt: skip
    add_position_temperature(parser)
    add_model_files(parser)
