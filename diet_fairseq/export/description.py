"""What is put beside an exported model, so that it translates text: `model.json` and subwords."""

import shutil
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece

from .. import model_json
from ..errors import UserError
from ..model_json import ModelDescription
from ..stack.placement import UNLIMITED
from .checkpoint import Trained

#: what a copied subword model is called
NAMES = {"sentencepiece": "sentencepiece.model", "subword_nmt": "codes"}
#: the share of a vocabulary that its SentencePiece model may not know: rare characters
STRANGE = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    """The subword model, where no ``model.json`` beside the checkpoint names it."""
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--sentencepiece", type=Path, metavar="FILE", help="the SentencePiece model of the text"
    )
    kinds.add_argument(
        "--bpe-codes", type=Path, metavar="FILE", help="the subword-nmt codes of the text"
    )
    parser.add_argument(
        "--preprocessing",
        choices=model_json.PREPROCESSING,
        help="what was done to the text before its subwords (none)",
    )


def beside(checkpoint: Path) -> ModelDescription | None:
    """What ``model.json`` beside the checkpoint says, if there is one."""
    folder = checkpoint.parent
    return model_json.read(folder) if (folder / model_json.NAME).is_file() else None


def described(args: Namespace, found: ModelDescription | None, trained: Trained) -> Any:
    """The description of a translation model to export, as the flags and ``found`` have it."""
    config = trained.task.cfg
    description = found or ModelDescription(
        "fairseq", config.source_lang, config.target_lang, args.checkpoint.parent
    )
    for kind, given in (("sentencepiece", args.sentencepiece), ("subword_nmt", args.bpe_codes)):
        if given is None:
            continue
        if not given.is_file():
            raise UserError(f"there is no file {given}: give the subword model of the text")
        description = replace(description, subwords=kind, subword_model=given, preprocessing="none")
    if args.preprocessing is not None:
        description = replace(description, preprocessing=args.preprocessing)
    longest = trained.model.encoder.max_positions()
    if description.subwords == "sentencepiece":
        check_pieces(description.subword_model or Path(), trained.model.encoder.dictionary)
    return replace(
        description,
        checkpoint=None,
        data=None,
        max_source_length=None if longest >= UNLIMITED else longest - 1,  # </s> takes a place
    )


def check_pieces(model: Path, words: Any) -> None:
    """Refuse a SentencePiece model that is not the one the dictionary was made with."""
    try:
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"{model} is no SentencePiece model, or is damaged: give another"
        ) from error
    symbols = [s for s in words.symbols[words.nspecial :] if not s.startswith("madeupword")]
    strange = sum(pieces.piece_to_id(symbol) == pieces.unk_id() for symbol in symbols)
    if strange > STRANGE * len(symbols):
        raise UserError(
            f"{model} and the dictionary don't belong together: {strange:,} of {len(symbols):,} "
            "subwords of the dictionary are no pieces of it; give the model it was made with"
        )


def write(description: ModelDescription, engine: str, folder: Path) -> None:
    """``model.json`` and the subword model, into the folder of an export."""
    description = replace(description, engine=engine, folder=folder)
    if description.subword_model is not None:
        copy = folder / NAMES[description.subwords]
        shutil.copyfile(description.subword_model, copy)
        description = replace(description, subword_model=copy)
    description.write()
