"""Moses' tokenizer and detokenizer (sacremoses, an optional package): text to words and back."""

from functools import cache
from typing import Any


@cache
def _sacremoses(kind: str, language: str) -> Any:
    import sacremoses

    return getattr(sacremoses, kind)(lang=language)


def split_words(line: str, language: str) -> str:
    """The words of a line, separated by spaces; Moses escapes characters such as ``&``."""
    return str(_sacremoses("MosesTokenizer", language).tokenize(line, return_str=True))


def join_words(words: list[str], language: str) -> str:
    """Plain text from words, the inverse of `split_words`."""
    return str(_sacremoses("MosesDetokenizer", language).detokenize(words))
