"""Whether a dictionary and a subword model belong together."""

import re
from collections.abc import Callable
from pathlib import Path

from ..errors import UserError
from ..hf.tokenizer import needed, symbols_in

#: what stands in dictionaries beside subwords: marks such as <mask>, and fairseq's filling
BESIDE = re.compile(r"<[^\s<>]*>|madeupword\d+")
#: the share of symbols that a subword model may not know
STRANGE = 0.01


def check_pair(dictionary: Path, subwords: Path) -> None:
    """Refuse a dictionary with symbols that the subword model never gives.

    Raises:
        UserError: more than a hundredth of the symbols are of another model
    """
    symbols = [symbol for symbol in symbols_in(dictionary)[4:] if not BESIDE.fullmatch(symbol)]
    gives = sentencepieces(subwords) if subwords.suffix == ".model" else merged(subwords)
    strange = [symbol for symbol in symbols if not gives(symbol)]
    if len(strange) > STRANGE * len(symbols):
        raise UserError(
            f"{len(strange):,} of the {len(symbols):,} symbols of {dictionary} are not of "
            f"{subwords} (such as {strange[0]!r}): give the subword model that the data was made "
            "with"
        )


def sentencepieces(path: Path) -> Callable[[str], bool]:
    """Whether a SentencePiece model gives a symbol: a piece, or characters it has no piece for."""
    try:
        model = needed("sentencepiece").SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"{path} is no SentencePiece model, or a damaged one: give another"
        ) from error
    pieces = {model.id_to_piece(number) for number in range(model.get_piece_size())}
    return lambda symbol: symbol in pieces or not any(char in pieces for char in symbol)


def merged(path: Path) -> Callable[[str], bool]:
    """Whether subword-nmt's merges give a symbol: a character, or what a merge has made."""
    known = set()
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            for line in lines:
                if not line.startswith("#version"):
                    first, second = line.rstrip("\r\n ").split(" ")[:2]
                    known.add(first + second)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path} holds no merges of subword-nmt: give another file") from error

    def gives(symbol: str) -> bool:
        part = symbol.removesuffix("@@")
        return len(part) < 2 or (part if symbol != part else f"{part}</w>") in known

    return gives
