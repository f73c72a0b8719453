"""Moses' tokenizer and detokenizer (sacremoses): text to words and back."""

from functools import cache
from importlib import import_module
from typing import Any

from ..errors import UserError


def import_library(module: str) -> Any:
    """Import a module of an optional package.

    Raises:
        UserError: the package is not installed
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise UserError(f"this tokenizer needs {package}: pip install {package}") from error


@cache
def sacremoses(kind: str, language: str) -> Any:
    """``MosesTokenizer`` or ``MosesDetokenizer`` for a language such as ``en``."""
    return getattr(import_library("sacremoses"), kind)(lang=language)


def split_words(line: str, language: str) -> str:
    """The words of a line, separated by spaces; Moses escapes characters such as ``&``."""
    return str(sacremoses("MosesTokenizer", language).tokenize(line, return_str=True))


def join_words(words: list[str], language: str) -> str:
    """Plain text from words, the inverse of `split_words`."""
    return str(sacremoses("MosesDetokenizer", language).detokenize(words))
