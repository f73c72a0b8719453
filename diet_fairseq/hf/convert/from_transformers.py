"""``diet-fairseq import hf``: import of a transformers folder as a fairseq checkpoint."""

import shutil
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from ...checkpoints.configuration import no_larger_than
from ...checkpoints.plain import describe_error, quote, shorten
from ...errors import UserError, as_user_error
from ...files import MAX_VOCABULARY_BYTES, atomic_folder, check_regular, refuse_existing
from ...text.subwords import WORDPIECE_FILES
from ...translate.model_json import MODEL_JSON, read_model_json
from ...translate.training_options import write_checkpoint
from ...vocabulary import ANY_LANGUAGE, write_trimmed
from ..configuration import (
    LARGEST_SIZES,
    DietEncoderConfig,
    DietTransformerConfig,
    read_values,
)
from ..families import rename_parameter
from ..tokenizer import FILES
from .checkpoint import (
    MODEL,
    build_model,
    complete_options,
    read_tensors,
    write_encoder_text,
)
from .configuration import VERSION, fairseq_args
from .family import read_texts
from .original import FAMILIES, import_original, read_model_type, refuse_config
from .sentence_modules import copy_modules
from .translation import Translation
from .vocabulary import has_word_pieces

#: our configurations by their ``model_type``
OURS = {kind.model_type: kind for kind in (DietEncoderConfig, DietTransformerConfig)}
ADVICE = "give another folder of `diet-fairseq export hf` or save_pretrained"


def run(args: Namespace) -> None:
    refuse_existing(args.out)
    refuse_links(args.folder)
    kind = read_model_type(args.folder, (*OURS, *FAMILIES), "import hf reads", ADVICE)
    config = None if kind in FAMILIES else read_configuration(args.folder)
    translates = config.is_encoder_decoder if config else isinstance(FAMILIES[kind], Translation)
    check_texts(args.keep_text, translates)
    with atomic_folder(args.out) as out:
        imported = out / "imported" if args.keep_text else out
        imported.mkdir(exist_ok=True)
        if config is None:
            lines = import_original(kind, args.folder, imported, args.out)
        else:
            lines = import_ours(args.folder, imported, config, args.out)
        if args.keep_text:
            if not (imported / MODEL_JSON).is_file():
                raise UserError(
                    f"--keep-text needs the subword model of {args.folder}, but the folder has no "
                    f"{MODEL_JSON}: export the model again"
                )
            sizes = write_trimmed(imported, out, {ANY_LANGUAGE: args.keep_text})
            shutil.rmtree(imported)
            lines.append("trimmed the vocabulary from {} to {}".format(*sizes))
    print(*lines, sep="\n")


def check_texts(texts: Sequence[Path], translates: bool) -> None:
    """Refuse unsuitable files of ``--keep-text`` before the model is converted.

    Args:
        translates: whether the folder's model translates
    """
    if texts and not translates:
        raise UserError(
            f"--keep-text {texts[0]} is for translation models, but the folder's model is an "
            "encoder: leave it out"
        )
    for path in texts:
        check_regular(path)


def refuse_links(folder: Path) -> None:
    """Refuse links that leave the folder, except the links of Hugging Face's cache to its blobs."""
    inside = folder.resolve()
    blobs = inside.parent.parent / "blobs"
    for path in sorted([*folder.glob("*"), *folder.glob("*/config.json")]):
        if not path.is_symlink():
            continue
        try:
            target = path.resolve()
        except RuntimeError as error:  # a link to itself
            raise UserError(f"{path} is a link to itself: {ADVICE}") from error
        if target.parent != blobs and not target.is_relative_to(inside):
            raise UserError(
                f"{path} is a link to {target}, outside the folder: put a copy of the file there"
            )


def read_configuration(folder: Path) -> Any:
    """The configuration of one of our models; no code of the folder is run."""
    path = folder / "config.json"
    values = read_values(path, LARGEST_SIZES, ADVICE)
    with as_user_error(
        lambda error: f"{path} is not valid ({shorten(' '.join(str(error).split()))}): {ADVICE}"
    ):
        return OURS[values["model_type"]](**values)


def import_ours(folder: Path, out: Path, config: Any, data: Path) -> list[str]:
    """Write a folder with a checkpoint to ``out``, which will be renamed to ``data``.

    Returns:
        lines to print after renaming
    """
    tensors = read_tensors(folder)
    args = fairseq_args(config)
    args.nsp = "nsp_head.weight" in tensors
    if not config.is_encoder_decoder:
        args.no_lm_head = not any(name.startswith("lm_head.") for name in tensors)
    texts = read_texts(folder)
    names = ["dict.txt"]  # of an encoder, or of all languages
    if config.is_encoder_decoder:  # fairseq needs names, which need not be languages
        args.source_lang = texts.source_lang or "source"
        args.target_lang = texts.target_lang or "target"
        if texts.directions is None:
            names = [f"dict.{language}.txt" for language in (args.source_lang, args.target_lang)]
        elif (folder / FILES["target_vocab_file"]).is_file():
            names = ["dict.SRC.txt", "dict.TGT.txt"]
    new_tokens = {number: token.content for number, token in texts.added_tokens_decoder.items()}
    source, target = write_dictionaries(folder, out, config, names, new_tokens)
    args = complete_options(args, data, "translation" if config.is_encoder_decoder else "masked_lm")
    size = sum(tensor.nbytes for tensor in tensors.values())
    with refuse_config(folder / "config.json"), no_larger_than(size):
        model = build_model(args, source, target)
    missing_names, unused_names = load(model, config, tensors)
    body = "" if config.is_encoder_decoder else "encoder.sentence_encoder."
    if required := next((name for name in missing_names if name.startswith(body)), None):
        raise UserError(f"{folder}'s weights lack {required}: give a complete folder")
    write_checkpoint(out / MODEL, args, model.state_dict())
    if not config.is_encoder_decoder:
        write_encoder_text(folder, out, texts.do_lower_case or False)
    elif (folder / MODEL_JSON).is_file():
        description = read_model_json(folder)
        models: dict[str, Any] = {
            name: (model := getattr(description, name)) and out / model.name
            for name in ("subword_model", "target_subword_model")
        }
        replace(
            description, engine="fairseq", folder=out, checkpoint=out / MODEL, data=out, **models
        ).write()  # fmt: skip
    if not config.is_encoder_decoder:
        copy_modules(folder, out)
    lines = []
    if missing_names:
        lines.append(
            f"newly initialised, because the folder lacks them: {', '.join(missing_names)}"
        )
    if unused_names:
        lines.append(f"not imported: {', '.join(unused_names)}")
    lines.append(f"wrote {data / MODEL}: use it with --user-dir diet_fairseq and the data {data}")
    return lines


def load(
    model: nn.Module, config: Any, tensors: Mapping[str, Tensor]
) -> tuple[list[str], list[str]]:
    """Load parameters, named as in transformers, into fairseq's model.

    Returns:
        names of fairseq's parameters that ``tensors`` lacks, which keep the model's values, and
        names of ``tensors`` that the model doesn't have
    """
    is_bare_encoder = not any(name.startswith(("model.", "lm_head.")) for name in tensors)
    initial = model.state_dict()
    state, names_read = {}, set()
    for name, tensor in initial.items():
        key = rename_parameter(name, config)
        key = key.removeprefix("model.") if is_bare_encoder else key
        if name.endswith(".gain"):
            is_segment = name.endswith("segments.gain")
            gain = config.segment_gain if is_segment else config.positions.position_gain
            state[name] = tensor if gain is None else torch.tensor(gain, dtype=torch.float64)
        elif key in tensors:
            if tensors[key].shape != tensor.shape:
                raise UserError(
                    f"{key} is {tuple(tensors[key].shape)}, but the configuration asks for "
                    f"{tuple(tensor.shape)}: the folder's files don't belong together"
                )
            state[name] = tensors[key]
            names_read.add(key)
    nn.Module.load_state_dict(model, state, strict=False)
    places = {(initial[name].data_ptr(), initial[name].shape) for name in state}
    missing_names = [
        name
        for name, tensor in initial.items()
        if (tensor.data_ptr(), tensor.shape) not in places and not name.endswith(VERSION)
    ]
    return missing_names, [name for name in tensors if name not in names_read]


def write_dictionaries(
    folder: Path, out: Path, config: Any, names: list[str], new_tokens: dict[str, str]
) -> list[Dictionary]:
    """Write the dictionaries of source and target under these names, and the subword model.

    Args:
        new_tokens: tokens by their ids, for a vocabulary that has grown in transformers
    """
    source, target, *subwords = (folder / name for name in FILES.values())
    if not source.is_file():
        raise UserError(f"{folder} holds no {source.name}, fairseq's dictionary: put it there")
    is_pair = config.is_encoder_decoder and target.is_file()
    files = (source, target if is_pair else source)
    if has_word_pieces(folder):
        subwords.append(folder / WORDPIECE_FILES[0])
    for file in subwords:
        if file.is_file():
            shutil.copyfile(file, out / file.name)
    sizes = (getattr(config, "source_vocab_size", None) or config.vocab_size, config.vocab_size)
    dictionaries = []
    for name, file, size in zip_longest(names, files, sizes):
        check_regular(file, MAX_VOCABULARY_BYTES)
        try:
            dictionary = Dictionary.load(str(file))
        except Exception as error:
            raise UserError(
                f"{file} is not a dictionary ({describe_error(error)}): replace it"
            ) from error
        if not config.is_encoder_decoder and size == len(dictionary) + 1:
            dictionary.add_symbol("<mask>")  # the task adds it, so the file does not change
            symbols = []
        else:
            symbols = add_symbols(dictionary, size, new_tokens, file)
        dictionaries.append(dictionary)
        if name is not None:
            text = file.read_text(encoding="utf-8")
            lines = [f"{symbol} 0\n" for symbol in symbols]
            text += "\n" * (bool(lines) and not text.endswith("\n")) + "".join(lines)
            (out / name).write_text(text, encoding="utf-8")
    return dictionaries


def add_symbols(
    dictionary: Dictionary, size: int, new_tokens: dict[str, str], file: Path
) -> list[str]:
    """Add, and return, the tokens of a vocabulary that has grown in transformers.

    Ids without a token, which pad a vocabulary to a multiple, become ``madeupword`` and the id.
    """
    if size < len(dictionary):
        raise UserError(
            f"{file} has {len(dictionary):,} symbols, but config.json has vocab_size {size:,}: the "
            "folder's files don't belong together"
        )
    symbols = []
    for number in range(len(dictionary), size):
        symbol = new_tokens.get(str(number), f"madeupword{number:04}")
        if symbol in dictionary or symbol.split() != [symbol]:
            raise UserError(
                f"the token {quote(symbol)} of tokenizer_config.json can't be a new symbol of "
                f"{file}: it is already there, or contains white space; rename it"
            )
        dictionary.add_symbol(symbol)
        symbols.append(symbol)
    return symbols
