"""``diet-fairseq import hf`` of folders of transformers' own classes, which `Family` describes."""

import json
import re
import shutil
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from fairseq.data import Dictionary
from torch import Tensor, nn

from ...checkpoints.configuration import no_larger_than
from ...checkpoints.plain import describe_error, shorten
from ...errors import UserError, as_user_error
from ...export.comparison import refuse_differences
from ...files import MAX_VOCABULARY_BYTES, check_regular, read_json
from ...text.subwords import WORDPIECE_FILES
from ...translate.directions import Directions
from ...translate.model_json import OPTIONS_FILE, ModelDescription, read_model_json
from ...translate.training_options import write_checkpoint
from ..configuration import LARGEST_SIZES, read_values
from .card import CARD_FILE, read_license
from .checkpoint import (
    MODEL,
    build_model,
    complete_options,
    read_tensors,
    write_encoder_text,
)
from .family import Family, read_texts
from .generation import import_generation
from .masked_lm import Bert, DistilBert, Electra, Roberta, XLMRoberta
from .sentence_modules import MODULES, copy_modules, read_modules
from .text_check import (
    EncoderCheck,
    TranslationCheck,
    check_tokenizer_class,
    check_tokenizer_options,
    load_tokenizer,
    lowers_text,
    start_engine,
)
from .translation import M2M100, Bart, Marian, MBart, default_direction, read_start_tokens
from .vocabulary import ADVICE, MASK, PIECES, Vocabulary

#: ``model_type`` -> the description of the class
FAMILIES: dict[str, Any] = {
    "marian": Marian(),
    "m2m_100": M2M100(),
    "mbart": MBart(),
    "bart": Bart(),
    "xlm-roberta": XLMRoberta(),
    "roberta": Roberta(),
    "bert": Bert(),
    "electra": Electra(),
    "distilbert": DistilBert(),
}
#: ``model_type`` -> the reason why fairseq's model can't have its parameters
UNSUPPORTED = {
    "mpnet": "all layers of MPNet share one relative position bias beside its learned positions",
    "modernbert": "most layers of ModernBERT see a window of tokens; its feed-forward layers are "
    "gated",
}
#: the folder with the imported folder's `ORIGINAL_FILES`, which `to_original` reads
ORIGINAL = "original"
ORIGINAL_FILES = (
    "config.json", "generation_config.json", CARD_FILE,
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "target_vocab.json", "vocab.txt", "merges.txt",
    "source.spm", "target.spm", PIECES,
)  # fmt: skip
#: part of the name of a size -> its largest value
LARGEST = {**LARGEST_SIZES, "position_embeddings": 1 << 16, "d_model": 1 << 20}
#: largest difference of outputs, divided by the largest output if that is above 1
TOLERANCE = 1e-5


def import_original(kind: str, folder: Path, out: Path, data: Path) -> list[str]:
    """Write a folder with a checkpoint to ``out``, which will be renamed to ``data``.

    Args:
        kind: a key of `FAMILIES`

    Returns:
        lines to print after renaming
    """
    family = FAMILIES[kind]
    check_tokenizer_options(folder / "tokenizer_config.json")
    texts = read_texts(folder)
    check_tokenizer_class(family, FAMILIES, texts, folder)
    tensors = read_tensors(folder, reads_bin=True)
    is_headless = family.is_headless(tensors)
    config = read_config(family, folder)
    reference, missing_names, unused_names = load_reference(family, folder, config, tensors)
    vocabularies = family.vocabularies(folder, config)
    for vocabulary in vocabularies:
        check_special(vocabulary, config, folder)
    if config.is_encoder_decoder:
        family.check_start(texts, config.decoder_start_token_id, vocabularies[-1], folder)
    tensors = {
        name: tensor
        for name, tensor in reference.state_dict().items()
        if not (is_headless and re.fullmatch(family.all_heads, name))
        and not (name in missing_names and re.fullmatch(family.heads, name))
    }
    options = family.fairseq_options(config, tensors)
    args = Namespace(**options)
    translates, directions, names = bool(config.is_encoder_decoder), None, ["dict.txt"]
    if translates:
        directions = family.directions(texts, vocabularies)
        start_tokens = read_start_tokens(folder)
        defaults = family.default_languages(texts, directions, start_tokens, vocabularies[-1])
        args.source_lang, args.target_lang = default_direction(texts, directions, defaults)
        if directions is None:
            names = [f"dict.{args.source_lang}.txt", f"dict.{args.target_lang}.txt"]
    dictionaries = []
    for name, vocabulary in zip(names, [vocabularies[0], vocabularies[-1]], strict=False):
        vocabulary.write(out / name, without_mask=not translates)
        dictionary = Dictionary.load(str(out / name))
        if not translates:
            dictionary.add_symbol(MASK)
        dictionaries.append(dictionary)
    args = complete_options(args, data, "translation" if translates else "masked_lm")
    model = build_model(args, dictionaries[0], dictionaries[-1]).eval()
    state = family.convert(tensors, vocabularies, config)
    load_parameters(model, state, folder)
    refuse_differences(
        family.output_pairs(model, reference, vocabularies),
        TOLERANCE,
        f"fairseq's model does not reproduce {family.model_class}",
        "the folder uses an option that fairseq's model lacks; nothing was written",
    )
    write_checkpoint(out / MODEL, args, model.state_dict())
    lines = []
    (out / ORIGINAL).mkdir()
    copy_files(folder, out / ORIGINAL)
    tokenizer, problem = load_tokenizer(folder, out / ORIGINAL, config)
    if translates:
        generation = import_generation(
            folder, config, vocabularies[-1], directions, args.source_lang
        )
        write_model_json(family, folder, out, args, directions, generation.options)
        lines += [str(generation)] if generation.unsupported else []
    else:
        text = family.write_text(folder, out)
        is_bert = text["subwords"] == "wordpiece"
        if is_bert and tokenizer is not None:  # the file has all options, such as strip_accents
            text["subword_model"] = out / WORDPIECE_FILES[0]
            tokenizer.backend_tokenizer.save(str(text["subword_model"]))
        lower = is_bert and lowers_text(tokenizer, texts)
        write_encoder_text(folder, out, lower)
    if is_headless:  # for `to_original`
        name_class(out / ORIGINAL / "config.json", family.base_class)
    with as_user_error(
        lambda error: f"{folder}'s tokenizer can't read text ({describe_error(error)}): {ADVICE}"
    ):
        if tokenizer is None:
            lines.append(problem)
        elif translates:
            description = read_model_json(out)
            engine = start_engine(description, model, args, dictionaries)
            lines += TranslationCheck(
                folder, tokenizer, family, description, engine, vocabularies, reference
            ).run()
        else:
            lines += EncoderCheck(folder, tokenizer, family, out, text, lower, *vocabularies).run(
                model, reference
            )
    arch = options.pop("arch")
    (out / OPTIONS_FILE).write_text(flags(options) + "\n", encoding="utf-8")
    if is_headless:
        lines.append(
            "no head for masked words, because the folder has none: to pretrain a new one, remove "
            f"--no-lm-head from {data / OPTIONS_FILE}"
        )
    if new := [name for name in missing_names if name in tensors]:
        lines.append(
            f"initialised by transformers, because the folder lacks them: {', '.join(new)}"
        )
    if unused_names:
        lines.append(f"left out: {', '.join(unused_names)}")
    if modules := [module.name for module in read_modules(folder)[1:]]:
        # `copy_modules` decides
        beginning = "kept for `export hf`" if (out / ORIGINAL / MODULES).exists() else "left out"
        lines.append(
            f"{beginning}: {', '.join(modules)} of sentence-transformers, which make sentence "
            "embeddings of the encoder's output"
        )
    return [
        *lines,
        f"wrote {data / MODEL}: use it with --user-dir diet_fairseq and the data {data}",
        f"to train on: --arch {arch} --finetune-from-model {data / MODEL} "
        f"$(cat {data / OPTIONS_FILE})",
    ]


def read_model_type(folder: Path, known: Iterable[str], reader: str, advice: str) -> str:
    """The ``model_type`` of a folder, which must be ``known`` to the ``reader``."""
    path = folder / "config.json"
    values = read_json(path, advice=advice)
    kind = str(values.get("model_type") if isinstance(values, dict) else None)
    if kind in UNSUPPORTED:
        raise UserError(
            f"{path} is of the model type {kind}, which can't be converted: {UNSUPPORTED[kind]}; "
            f"{advice}"
        )
    if kind not in known:
        raise UserError(
            f"{path} is of the model type {shorten(kind)}, but {reader} {', '.join(known)}: "
            f"{advice}"
        )
    return kind


def source_folders(loaded: Any) -> list[Path]:
    """The folders that may have files of `import hf`: of the checkpoint, and of its data."""
    description = loaded.description
    return [loaded.path.parent, description.folder, description.data or description.folder]


def copy_files(folder: Path, out: Path) -> None:
    """Copy the `ORIGINAL_FILES` that the folder has, and the files of sentence-transformers."""
    for name in ORIGINAL_FILES:
        if (folder / name).exists():
            check_regular(folder / name, MAX_VOCABULARY_BYTES)
            shutil.copyfile(folder / name, out / name)
    copy_modules(folder, out)


def name_class(path: Path, name: str) -> None:
    """Write the name of the model's class into ``config.json``."""
    values = read_json(path, advice=ADVICE) | {"architectures": [name]}
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")


def read_config(family: Family, folder: Path) -> Any:
    """The folder's configuration, which fairseq's model must support."""
    path = folder / "config.json"
    values = read_values(path, LARGEST, ADVICE)
    if (start := read_start_tokens(folder).decoder_start_token_id) is not None:
        values["decoder_start_token_id"] = start  # generation_config.json may have another
    if name := family.find_unsupported(values):
        raise UserError(
            f"config.json has {name} {shorten(str(values[name]))}, but fairseq's model has "
            f"{' or '.join(map(str, family.allowed[name]))}: this folder can't be imported"
        )
    with refuse_config(path):
        return model_class(family).config_class(**values)


def model_class(family: Family) -> Any:
    """The class of transformers."""
    return getattr(transformers, family.model_class)


def refuse_config(path: Path) -> AbstractContextManager[None]:
    """A context that reports errors of transformers about a configuration as `UserError`."""
    return as_user_error(lambda error: f"{path} is not valid ({describe_error(error)}): {ADVICE}")


def load_reference(
    family: Family, folder: Path, config: Any, tensors: Mapping[str, Tensor]
) -> tuple[Any, list[str], list[str]]:
    """The model in transformers; no code of the folder is run.

    Returns:
        model, the names of optional parameters that ``tensors`` lacks, and the names of ``tensors``
        that the model doesn't read
    """
    transformers.logging.disable_progress_bar()
    size = sum(tensor.nbytes for tensor in tensors.values())
    optional = family.optional
    if family.is_headless(tensors):
        optional = f"{optional}|{family.all_heads}"
    with (
        refuse_config(folder / "config.json"),
        no_larger_than(size),
        hide_load_report(),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(1)  # of parameters that the folder lacks
        reference, loading_info = model_class(family).from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
        )
    missing_names = sorted(loading_info["missing_keys"])
    if required := [name for name in missing_names if not re.fullmatch(optional, name)]:
        raise UserError(f"{folder}'s weights lack {required[0]}: give a complete folder")
    return reference.eval(), missing_names, sorted(loading_info["unexpected_keys"])


@contextmanager
def hide_load_report() -> Iterator[None]:
    """A context in which transformers does not print which parameters are new or unread."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def check_special(vocabulary: Vocabulary, config: Any, folder: Path) -> None:
    """Refuse a vocabulary that does not belong to the configuration."""
    ids = dict(zip(vocabulary.symbols, vocabulary.ids, strict=True))
    for symbol, option in (("<pad>", "pad_token_id"), ("</s>", "eos_token_id")):
        number = getattr(config, option)
        if (config.model_type, symbol) == ("bert", "<pad>") and number == ids["<s>"]:
            continue  # BERT's default, in a model with XLM-R's tokenizer
        if number not in (None, ids[symbol]):
            raise UserError(
                f"{folder} has {option} {number} in config.json, but the id {ids[symbol]} in its "
                f"vocabulary: {ADVICE}"
            )


def load_parameters(model: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """Load all of fairseq's parameters into its model."""
    names = {name for name in model.state_dict() if not name.endswith("version")}
    if differing := sorted(names ^ state.keys()):
        raise UserError(
            f"{folder} can't be imported: only one of fairseq's model and the folder's model has "
            f"the parameter {differing[0]}"
        )
    with as_user_error(
        lambda error: f"{folder}'s files don't belong together ({describe_error(error)}): {ADVICE}"
    ):
        nn.Module.load_state_dict(model, state, strict=False)


def write_model_json(
    family: Any,
    folder: Path,
    out: Path,
    args: Any,
    directions: Directions | None,
    options: dict[str, Any],
) -> None:
    """Write ``model.json`` with the subword models and the ``options`` of the search."""
    languages = {"source_lang": args.source_lang, "target_lang": args.target_lang}
    fields = languages | family.write_text(folder, out) | options
    ModelDescription(
        "fairseq", folder=out, checkpoint=out / MODEL, data=out, directions=directions,
        license=read_license(folder), **fields,
    ).write()  # fmt: skip
    read_model_json(out)  # checks the values


def flags(options: dict[str, Any]) -> str:
    """The options as flags of fairseq-train."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value is not False:
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)
