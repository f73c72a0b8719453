"""Words as Moses splits and joins them (sacremoses), and subwords of such words (subword-nmt).

sacremoses is an extra of this project, so it is imported where it is used.
"""

from functools import cache
from pathlib import Path
from typing import Any

from ...errors import UserError


@cache
def moses(kind: str, language: str) -> Any:
    """``MosesTokenizer`` or ``MosesDetokenizer``."""
    try:
        import sacremoses
    except ImportError as error:
        raise UserError(
            "--bpe subword-nmt needs sacremoses: pip install sacremoses, or leave --bpe out"
        ) from error
    return getattr(sacremoses, kind)(lang=language)


@cache
def merges(codes: Path) -> Any:
    from subword_nmt.apply_bpe import BPE

    with open(codes, encoding="utf-8", newline="\n") as file:
        return BPE(file)


def tokenise(lines: list[str], language: str) -> list[str]:
    tokenizer = moses("MosesTokenizer", language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def segment(lines: list[str], language: str, codes: Path) -> list[str]:
    """Subwords: one that is not the end of its word ends in ``@@``."""
    bpe = merges(codes)
    return [bpe.process_line(line) for line in tokenise(lines, language)]


def join(line: str, language: str) -> str:
    """Plain text from subwords."""
    words = f"{line} ".replace("@@ ", "").split()
    return moses("MosesDetokenizer", language).detokenize(words)
