"""Checks of a checkpoint's untrusted configuration: fairseq must not run or open any of it.

New checkpoints have a configuration ``cfg``, a dictionary of sections. Old checkpoints have
``args``, a namespace of all options.
"""

import ast
import re
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from fairseq.data.encoders import gpt2_bpe
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf
from torch.nn import Parameter
from torch.nn.modules import module as modules

from ..errors import MAX_UNTRUSTED_VALUES
from .plain import Refused, quote, shorten

_MOST_CHARACTERS = 1_000_000  # characters plus values; a shared list counts at each place

#: sections that describe a model and its text preprocessing; other sections describe the run that
#: wrote the checkpoint, and fairseq does not use them when it reads a checkpoint
_USED = ("model", "task", "criterion", "generation", "scoring", "bpe", "tokenizer")
_RUN_OPTIONS = {
    option.name
    for section in fields(FairseqConfig)
    if is_dataclass(section.type) and section.name not in _USED
    for option in fields(section.type)
}
#: options that name an entry of one of fairseq's registries
_REGISTERED = ("bpe", "tokenizer", "scoring")
#: fairseq's own defaults for files to download
_DEFAULT_URLS = {gpt2_bpe.DEFAULT_ENCODER_JSON, gpt2_bpe.DEFAULT_VOCAB_BPE}
_URL = re.compile(r"://|^\s*(https?|s3):", re.IGNORECASE)
#: a file's path begins with a slash, or has a slash after a letter and before any quotes and
#: parentheses ("</s>" is not a path, and programs are refused elsewhere)
_PATH = re.compile(r"^[~.]{0,2}/|^[^'\"()]*\w[~.]{0,2}/")
_NAME = re.compile(r"[\w-][\w.-]*")
#: options that name files, even without a folder
_FILE_OPTION = re.compile(r"_(path|file|dir|checkpoint|from|codes|vocab|json|dict|model)$")
#: fairseq's convolutions, such as "[(512, 3)] * 20 + [(768, 3)] * 4"
_CONVOLUTIONS = re.compile(r"(\[[\d(), ]*\]( ?\* ?\d{1,2})?( ?\+ ?)?)+")
#: names, and lists of them such as "en-de,de-en", which may be long
_WORDS = re.compile(r"\w*(?:[.-]\w*){0,20}+(?:,\w*(?:[.-]\w*){0,20}+)*+", re.ASCII)
_BACKSLASH = re.compile(r"\\(['\"\s]|$)")
#: syntax of literals, and syntax that calls no function, whatever its names mean
_LITERAL = (
    *(ast.Expression, ast.Constant, ast.expr_context, ast.UAdd, ast.USub, ast.UnaryOp),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict),
)
_HARMLESS = (
    *(*_LITERAL, ast.Name, ast.Attribute),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Div, ast.unaryop, ast.BoolOp, ast.boolop),
)
_LONGEST_EXPRESSION = 50_000  # characters
_DEEPEST_STRINGS = 4  # levels of strings in strings


def check(args: Any, cfg: Any) -> None:
    """Refuse a configuration that does more than describe the model.

    fairseq evaluates some strings as Python, and Hydra looks up names in others. All strings are
    checked, because the evaluated strings depend on the model.

    Raises:
        Refused: a string could run, open or download something, or a number is too large
    """
    for place, value in values(args, cfg):
        for name, most in MAX_UNTRUSTED_VALUES.items():
            if name in place.rpartition(".")[2] and _exceeds(most, value):
                raise Refused(
                    f"{shorten(place)} of its configuration is {quote(value)}, but a checkpoint's "
                    f"may be at most {most:,}"
                )
        if isinstance(value, str):
            _check_text(place, value)


def _check_text(place: str, text: str) -> None:
    where = f"{shorten(place)} of its configuration is {quote(text)}"
    # fairseq resolves interpolations when it writes a configuration. Hydra, which parses old
    # configurations, reads "$\\{" as "${", too
    expressions = list(_expressions(text))
    if any("$" in string and "{" in string for string, _ in expressions):
        raise Refused(f"{where}, which is an interpolation that reads other values")
    option = place.removesuffix("._name").rpartition(".")[2]
    if option in _REGISTERED and text not in (registry := REGISTRIES[option]["registry"]):
        raise Refused(
            f"its {option} is {quote(text)}, which fairseq doesn't have: use one of "
            f"{', '.join(sorted(registry))}, or give the --user-dir that registers it"
        )
    if option in (*REGISTRIES, "task", "arch") and not _NAME.fullmatch(text):
        raise Refused(f"{where}, which is not a name")  # Hydra would look for a file of this name
    if not _is_used(place):
        return
    if option != "data" and any(_can_act(*expression) for expression in expressions):
        raise Refused(f"{where}, which fairseq could run as a program")
    if _URL.search(text) and text not in _DEFAULT_URLS:
        raise Refused(f"{where}, an address to download from")


def is_program(text: str) -> bool:
    """Whether Python's ``eval`` of the text could do more than return a small value.

    Harmless are literals, text that is not Python, names joined only by plus, minus and slash
    ("gelu", "data-bin/iwslt"), and sizes of `_CONVOLUTIONS`. Every string in the text must be
    harmless, too, because fairseq may evaluate it in turn.
    """
    return any(_can_act(string, nodes) for string, nodes in _expressions(text))


def _expressions(text: str) -> Iterator[tuple[str, list[ast.AST] | None]]:
    """The text and all strings in it at any depth, each with its syntax tree's nodes.

    The nodes are an empty list for text that is not Python, and None for text that is too long or
    nested too deeply. Each string is parsed once, so the time is linear in the text.
    """
    depths = {text: 0}
    waiting = [text]
    while waiting:
        string = waiting.pop()
        nodes = _parse(string) if depths[string] < _DEEPEST_STRINGS else None
        yield string, nodes
        constants = [node.value for node in nodes or () if isinstance(node, ast.Constant)]
        inside = {value: depths[string] + 1 for value in constants if isinstance(value, str)}
        # fairseq may call `str.strip`, which removes other white space than eval
        for value, depth in {**inside, string.strip(): depths[string]}.items():
            if value not in depths:
                depths[value] = depth
                waiting.append(value)


def _parse(text: str) -> list[ast.AST] | None:
    """The nodes of the syntax tree that eval would parse; see `_expressions`."""
    text = text.lstrip(" \t")  # as eval does
    if _WORDS.fullmatch(text) or (len(text) < 1000 and _CONVOLUTIONS.fullmatch(text)):
        return []
    if len(text) > _LONGEST_EXPRESSION:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example, of `1if`
            return list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError):
        # Hydra, which parses old configurations, removes backslashes before quotes, and a backslash
        # at the end of a line continues an expression
        return None if _BACKSLASH.search(text) else []
    except (RecursionError, MemoryError):  # nested too deeply for the parser
        return None


def _can_act(text: str, nodes: list[ast.AST] | None) -> bool:
    """Whether an expression could do more than give a small value; see `is_program`."""
    if nodes is None:
        return True
    kinds = {type(node.value) for node in nodes if isinstance(node, ast.Constant)}
    if bytes in kinds:  # eval decodes bytes by the encoding that they declare
        return True
    if all(isinstance(node, _LITERAL) for node in nodes):
        return False
    joins_text = str in kinds and any(isinstance(node, ast.BinOp) for node in nodes)
    return (
        joins_text
        or bool(_BACKSLASH.search(text))
        or not all(isinstance(node, _HARMLESS) for node in nodes)
    )


def values(args: Any, cfg: Any) -> Iterator[tuple[str, Any]]:
    """Every value and key of a configuration with its place, such as "cfg.model.dropout".

    Raises:
        Refused: the configuration is larger than any configuration of fairseq
    """
    waiting: list[tuple[str, Any]] = [("args", args), ("cfg", cfg)]
    size = 0
    while waiting:
        place, value = waiting.pop()
        size += 1 + (len(value) if isinstance(value, str) else 0)
        if size > _MOST_CHARACTERS:
            raise Refused(f"its configuration comes to more than {_MOST_CHARACTERS:,} characters")
        if isinstance(value, (Mapping, Namespace)):
            items = value.items() if isinstance(value, Mapping) else vars(value).items()
            size += 2 * len(items) * len(place)  # places are text in memory, too
            for key, item in items if size <= _MOST_CHARACTERS else ():
                waiting += [(f"{place}.keys()", key), (f"{place}.{str(key)[:200]}", item)]
        elif isinstance(value, (list, tuple)):
            waiting += [(place, item) for item in value]
        else:
            yield place, value


def without_files(config: Any) -> tuple[Any, str]:
    """The configuration without file names in the sections that fairseq uses, and these names.

    Files that training started from are not needed, because the checkpoint has the parameters. The
    names of subword and tokenizer files become "???", omegaconf's missing value, because the user
    must give them.
    """
    removed: list[str] = []
    text_options = {
        option.name
        for part in _REGISTERED
        for section in REGISTRIES[part]["dataclass_registry"].values()
        for option in fields(section)
    }

    def clean(value: Any, place: str) -> Any:
        if isinstance(value, Namespace):
            return Namespace(**clean(vars(value), place))
        if isinstance(value, dict):
            return {key: clean(item, f"{place}.{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(clean(item, place) for item in value)
        option = place.rpartition(".")[2]
        # "data" is the folder of the dictionaries: fairseq reads `dict.*.txt` in it by default
        if not isinstance(value, str) or option == "data" or not _is_used(place):
            return value
        if value in ("", "???", *_DEFAULT_URLS):
            return value
        if not (_PATH.search(value) or _FILE_OPTION.search(option)):
            return value
        removed.append(f"{shorten(option)} ({quote(value)})")
        return "???" if option in text_options else None

    cleaned = clean(config, "args" if isinstance(config, Namespace) else "cfg")
    return cleaned, ", ".join(dict.fromkeys(removed))


def _exceeds(limit: int, value: Any) -> bool:
    """Whether ``value`` is a larger number, or text that fairseq may convert to one."""
    try:
        return isinstance(value, (int, float, str)) and not float(value) <= limit
    except ValueError:
        return False
    except OverflowError:
        return True


def _is_used(place: str) -> bool:
    """Whether fairseq follows the option at this place when it reads a checkpoint."""
    kind, *sections = place.split(".")
    if kind == "cfg" and sections and sections.pop(0) not in _USED:
        return False
    # ``args`` has all options, including the run's options, and models evaluate some of them
    option = sections[0] if sections else ""
    return option not in _RUN_OPTIONS or bool(re.match(r"pipeline_.*(balance|devices)$", option))


@contextmanager
def no_larger_than(size: int) -> Iterator[None]:
    """A context in which models must not be larger than a checkpoint of ``size`` bytes allows.

    A checkpoint has at least one byte per number and a hundred per parameter (tensor). The limits
    are four times as high, plus 16 million numbers and 1000 parameters that are not saved.

    Raises:
        Refused: a configuration describes a larger model, for example with 10**8 layers
    """
    numbers, parameters = 4 * size + (1 << 24), 4 * size // 100 + 1000

    def count(_module: Any, name: str, tensor: Any) -> None:
        nonlocal numbers, parameters
        if tensor is None:  # a buffer may be None
            return
        numbers -= tensor.numel()
        parameters -= isinstance(tensor, Parameter)
        if numbers < 0 or parameters < 0:
            raise Refused("its configuration asks for more parameters than the file contains")

    hooks = [
        modules.register_module_parameter_registration_hook(count),
        modules.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def task_options(state: dict[str, Any]) -> dict[str, Any]:
    """The options of a checkpoint's task, which fairseq stores in several forms."""
    task = state["cfg"].get("task")
    if isinstance(task, Namespace):
        return vars(task)
    options: Any = OmegaConf.to_container(task) if OmegaConf.is_config(task) else task
    return dict(options or {})


def adds_mask(state: dict[str, Any]) -> bool:
    """Whether the task of a translation model, or of BART's pretraining, adds <mask> last."""
    task = task_options(state)
    return (
        any(part in str(task.get("_name")) for part in ("denoising", "from_pretrained_bart"))
        or task.get("lang_tok_style") == "mbart"
        or "mono_dae" in str(task.get("extra_data"))
    )
