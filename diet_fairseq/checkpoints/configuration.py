"""A checkpoint's configuration comes from a stranger: it is data, and nothing that it names opens.

It stands in a checkpoint as ``cfg``, one dictionary a section, or, in old ones, as ``args``, one
namespace of all options.
"""

import ast
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from fairseq.data.encoders import gpt2_bpe
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES

from ..checks import LARGEST
from ..literals import literal
from .plain import quoted, shown

_LARGEST = 1_000_000  # characters and values, those of shared lists counted each time

#: Sections that describe a model and the preparation of its text. The others are about the run
#: that wrote the checkpoint: fairseq doesn't follow them when it reads one.
_USED = ("model", "task", "criterion", "generation", "scoring", "bpe", "tokenizer")
#: Options that name an entry of a registry of fairseq's.
_REGISTERED = ("bpe", "tokenizer", "scoring")
#: Where a downloaded file comes from by fairseq's own default.
_DEFAULT_URLS = {gpt2_bpe.DEFAULT_ENCODER_JSON, gpt2_bpe.DEFAULT_VOCAB_BPE}
_URL = re.compile(r"://|^\s*(https?|s3):", re.IGNORECASE)
#: A place in the file system: begins with a slash, or has one after a letter before any quotes and
#: parentheses ("</s>" is none, nor is a program, which is refused elsewhere).
_PLACE = re.compile(r"^[~.]{0,2}/|^[^'\"()]*\w[~.]{0,2}/")
#: Syntax that computes nothing and calls nothing, whatever the names in it stand for.
_HARMLESS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.expr_context),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Div, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop),
)


class Refused(ValueError):
    """A configuration asks for what it may not. The caller adds the name of the file."""


def check(args: Any, cfg: Any) -> None:
    """Refuse a configuration that does more than describe the model.

    fairseq evaluates some strings as Python, and Hydra looks up what is named in others. Which
    ones, depends on the model: so all of them are checked.
    """
    for place, value in values(args, cfg):
        for name, most in LARGEST.items():
            if name in place.rpartition(".")[2] and _is_beyond(most, value):
                raise Refused(
                    f"{shown(place)} of its configuration is {quoted(value)}, but a checkpoint's "
                    f"may be at most {most:,}"
                )
        if isinstance(value, (str, bytes)):
            _check_text(place, value)


def _check_text(place: str, text: str | bytes) -> None:
    where = f"{shown(place)} of its configuration is {quoted(text)}"
    if isinstance(text, bytes):
        raise Refused(f"{where}, but must be text")
    for string in _strings(text):
        # fairseq writes configurations with everything looked up. Hydra, which reads old ones,
        # takes "$\\{" for "${", too.
        if "$" in string and "{" in string:
            raise Refused(f"{where}, which asks to look something up")
    option = place.removesuffix("._name").rpartition(".")[2]
    if option in _REGISTERED:
        known = REGISTRIES[option]["registry"]
        if text not in known:
            raise Refused(
                f"its {option} is {quoted(text)}, which fairseq doesn't have: take one of "
                f"{', '.join(sorted(known))}, or give the --user-dir that has it"
            )
    if not _is_used(place):
        return
    if option != "data" and is_program(text):
        raise Refused(f"{where}, which fairseq could run as a program")
    if _URL.search(text) and text not in _DEFAULT_URLS:
        raise Refused(f"{where}, an address to download from")


def _strings(text: str) -> Iterator[str]:
    """The text, and the strings in the literal that it is, which fairseq may read in turn."""
    yield text
    try:
        value = literal(text)
    except ValueError:
        return
    for _, inside in values(value, None):
        if isinstance(inside, str) and inside != text:
            yield from _strings(inside)


def is_program(text: str) -> bool:
    """Whether Python's ``eval`` of the text could do anything but give a small value.

    A literal of a bounded size is none, nor is text that is no Python, nor one of names that no
    operation but plus, minus and slash joins ("gelu", "data-bin/iwslt").
    """
    text = text.strip()
    try:
        literal(text)
    except ValueError:
        pass
    else:
        return any(is_program(string) for string in _strings(text) if string.strip() != text)
    # Hydra, which reads old configurations, takes backslashes before quotes away.
    if re.search(r"\\['\"]", text):
        return True
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):  # nested too deeply for the parser
        return True
    strings = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return (
        not all(isinstance(node, _HARMLESS) for node in nodes)
        or any(map(is_program, strings))
        or bool(strings and any(isinstance(node, ast.BinOp) for node in nodes))  # joined text
    )


def values(args: Any, cfg: Any) -> Iterator[tuple[str, Any]]:
    """Every value of a configuration, keys included, with the place where it stands.

    It always ends: more than fairseq's configurations ever hold is `Refused`.
    """
    waiting: list[tuple[str, Any]] = [("args", args), ("cfg", cfg)]
    size = 0
    while waiting:
        place, value = waiting.pop()
        size += 1 + (len(value) if isinstance(value, str) else 0)
        if size > _LARGEST:
            raise Refused(f"its configuration comes to more than {_LARGEST:,} characters")
        if isinstance(value, (Mapping, Namespace)):
            items = value.items() if isinstance(value, Mapping) else vars(value).items()
            for key, inside in items:
                waiting += [(f"{place}.keys()", key), (f"{place}.{str(key)[:200]}", inside)]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(place, inside) for inside in value]
        else:
            yield place, value


def without_files(config: Any) -> tuple[Any, str]:
    """The configuration without names of files in the sections that are used, and those names.

    A model's parameters come from its checkpoint, so the files it was started from are not needed;
    those that cut text must be given anew: to omegaconf, "???" is an option not given yet.
    """
    removed: list[str] = []

    def cleaned(value: Any, place: str) -> Any:
        if isinstance(value, Namespace):
            return Namespace(**cleaned(vars(value), place))
        if isinstance(value, dict):
            return {key: cleaned(inside, f"{place}.{key}") for key, inside in value.items()}
        if isinstance(value, (list, tuple, set)):
            return type(value)(cleaned(inside, place) for inside in value)
        option = place.rpartition(".")[2]
        # The folder with the dictionaries: fairseq reads `dict.*.txt` of it where none is given.
        if not isinstance(value, str) or option == "data" or not _is_used(place):
            return value
        if not _PLACE.search(value) or value in _DEFAULT_URLS:
            return value
        removed.append(f"{shown(option)} ({quoted(value)})")
        return "???" if option in _options_of(_text_sections()) else None

    kind = "args" if isinstance(config, Namespace) else "cfg"
    return cleaned(config, kind), ", ".join(dict.fromkeys(removed))


def _is_beyond(limit: int, value: Any) -> bool:
    """Whether ``value`` is a larger number, or text that may become one: types come later."""
    try:
        return isinstance(value, (int, float, str)) and not float(value) <= limit
    except ValueError:
        return False
    except OverflowError:
        return True


def _is_used(place: str) -> bool:
    """Whether an option is followed when a checkpoint is read. Its place is "cfg.model.dropout"."""
    kind, *sections = place.split(".")
    if kind == "cfg" and sections and sections.pop(0) not in _USED:
        return False
    # A namespace is a copy of all options, those of the run among them.
    return not (sections and sections[0] in _options_of(_run_sections()))


def _run_sections() -> tuple[Any, ...]:
    return tuple(
        field.type
        for field in fields(FairseqConfig)
        if is_dataclass(field.type) and field.name not in _USED
    )


def _text_sections() -> tuple[Any, ...]:
    return tuple(
        kind for part in _REGISTERED for kind in REGISTRIES[part]["dataclass_registry"].values()
    )


@cache
def _options_of(dataclasses: tuple[Any, ...]) -> frozenset[str]:
    return frozenset(field.name for dataclass in dataclasses for field in fields(dataclass))
