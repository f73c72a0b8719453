"""A checkpoint's configuration comes from a stranger: nothing that it names is opened.

It stands in a checkpoint as ``cfg``, one dictionary a section, or, in those of old, as ``args``,
one namespace of all options.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import Any

from fairseq.data.encoders import gpt2_bpe
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import override_module_args
from fairseq.registry import REGISTRIES

from ...checks import LARGEST
from ..option_rules import PROBABILITIES
from .plain import quoted, shown

_LARGEST = 1_000_000  # characters and values, those of shared lists counted each time
#: a model's dropout probabilities
_PROBABILITIES = frozenset(name for name in PROBABILITIES.split() if "drop" in name)

#: Sections that say what a model is and how its text is cut. The others are about the run that
#: wrote the checkpoint: nothing follows them when it is read.
_USED = ("model", "task", "criterion", "generation", "scoring", "bpe", "tokenizer")
#: Where a downloaded file comes from by fairseq's own default.
_DEFAULT_URLS = {gpt2_bpe.DEFAULT_ENCODER_JSON, gpt2_bpe.DEFAULT_VOCAB_BPE}
_URL = re.compile(r"://|^\s*(https?|s3):", re.IGNORECASE)
#: A place in the file system: begins with a slash, or has one after a letter before any quotes and
#: parentheses ("</s>" is none, nor is a program, which is refused elsewhere).
_PLACE = re.compile(r"^[~.]{0,2}/|^[^'\"()]*\w[~.]{0,2}/")


class Refused(ValueError):
    """A configuration asks for what it may not. The caller adds the name of the file."""


def check(args: Any, cfg: Any) -> None:
    """Refuse a configuration that does more than describe the model."""
    for place, value in values(args, cfg):
        for name, most in LARGEST.items():
            if name in place.rpartition(".")[2] and _is_beyond(most, value):
                raise Refused(
                    f"{shown(place)} of its configuration is {quoted(value)}, but a checkpoint's "
                    f"may be at most {most:,}"
                )
        if not isinstance(value, str):
            continue
        if "${" in value:
            # omegaconf would look up what is named there, the environment included, for the
            # sender to have it. fairseq writes configurations with everything looked up.
            raise Refused(
                f"{shown(place)} of its configuration is {quoted(value)}, which asks to look "
                "something up"
            )
        if place.rpartition(".")[2] in _PROBABILITIES:
            # A model takes them as they come, and would fail over them in its first batch.
            raise Refused(
                f"{shown(place)} of its configuration is {quoted(value)}, but must be a number"
            )
        if _URL.search(value) and value not in _DEFAULT_URLS and _is_used(place):
            raise Refused(
                f"{shown(place)} of its configuration is {quoted(value)}, an address to download "
                "from"
            )


def values(args: Any, cfg: Any) -> Iterator[tuple[str, Any]]:
    """All that a configuration holds, keys included, with the place where each stands.

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
                waiting += [(place, key), (f"{place}.{str(key)[:200]}", inside)]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(place, inside) for inside in value]
        else:
            yield place, value


def without_files(config: Any) -> tuple[Any, list[str]]:
    """The configuration with no file named in what is used of it, and what was left out.

    A model's parameters come from its checkpoint, so the files it was started from are not needed;
    those that cut text must be given anew: to omegaconf, "???" is an option not given yet.
    """
    left_out: list[str] = []

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
        left_out.append(f"{shown(option)} ({quoted(value)})")
        return "???" if option in _options_of(_text_sections()) else None

    kind = "args" if isinstance(config, Namespace) else "cfg"
    return cleaned(config, kind), list(dict.fromkeys(left_out))


def check_names(config: Any) -> None:
    """Refuse what fairseq's registries don't hold in an option that names something of theirs."""
    for option in ("bpe", "tokenizer", "scoring"):
        value = (config if isinstance(config, Mapping) else vars(config)).get(option)
        choice = value.get("_name") if isinstance(value, Mapping) else value
        known = REGISTRIES[option]["registry"]
        if choice is not None and not (isinstance(choice, str) and choice in known):
            raise Refused(
                f"its {option} is {quoted(choice)}, which fairseq doesn't have: take one of "
                f"{', '.join(sorted(known))}, or give the --user-dir that has it"
            )


def converted(convert_namespace_to_omegaconf: Callable) -> Callable:
    """Old options become sections through text that Hydra reads: it must not look anything up.

    fairseq reads the literals among them first, so what was no lookup before may be one now.
    """

    @wraps(convert_namespace_to_omegaconf)
    def wrapper(args: Any) -> Any:
        check_names(args)
        for override in override_module_args(args)[0]:
            option, _, text = override.partition("=")
            # fairseq's own defaults refer to options of other sections, by name.
            if "$" in text and "{" in text and not re.fullmatch(r"'\$\{[\w.]+\}'", text):
                raise Refused(f"its {option} is {quoted(text)}, which asks to look something up")
        return convert_namespace_to_omegaconf(args)

    return wrapper


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
    parts: Iterable[str] = ("bpe", "tokenizer", "scoring")
    return tuple(kind for part in parts for kind in REGISTRIES[part]["dataclass_registry"].values())


@cache
def _options_of(dataclasses: tuple[Any, ...]) -> frozenset[str]:
    return frozenset(field.name for dataclass in dataclasses for field in fields(dataclass))
