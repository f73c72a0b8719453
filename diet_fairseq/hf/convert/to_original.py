"""``diet-fairseq export hf --original``: export to the class of transformers that was imported.

`original` keeps the imported folder's configuration and text files in the folder `ORIGINAL`. The
export inverts the import's names of parameters, `Family.names`, and values, `Family.restore`. A
RoBERTa or BART that was trained in fairseq gets a new configuration instead.
"""

import json
import re
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ...checkpoints.configuration import no_larger_than
from ...errors import UserError, one_line
from ...export.comparison import refuse_differences
from ...files import atomic_folder
from ...text.subwords import Gpt2
from ...transformer.stack import Stack
from ...translate.training_options import stock_scheme
from ..tokenizer import gpt2_tokenizer
from .card import CARD_FILE, original_card
from .configuration import encoder_config, transformer_config
from .family import Family
from .masked_lm import Roberta
from .original import (
    FAMILIES,
    ORIGINAL,
    TOLERANCE,
    copy_files,
    load_reference,
    model_class,
    read_config,
    read_model_type,
    refuse_config,
    source_folders,
)
from .translation import Bart
from .vocabulary import Vocabulary

WITHOUT = "leave out --original, which exports the model with the classes of diet_fairseq"


def export_original(loaded: Any, out: Path) -> None:
    """Write the folder of a `LoadedModel` that transformers loads without diet_fairseq."""
    folders = source_folders(loaded)
    originals = [folder / ORIGINAL for folder in folders if (folder / ORIGINAL).is_dir()]
    with TemporaryDirectory() as stock:
        if not originals and not write_stock(loaded, Path(stock)):
            raise UserError(
                f"--original needs the folder {ORIGINAL} of `diet-fairseq import hf`, but "
                f"{folders[0] / ORIGINAL} is not there: {WITHOUT}, or, if the vocabulary was "
                "neither trimmed nor extended, copy the folder from the imported model"
            )
        folder = originals[0] if originals else Path(stock)
        kind = read_model_type(folder, FAMILIES, "--original writes", WITHOUT)
        export_class(loaded, FAMILIES[kind], folder, out)


def export_class(loaded: Any, family: Any, folder: Path, out: Path) -> None:
    """Write a folder of the class of ``family``, with the other files from ``folder``."""
    check_positions(loaded, family)
    config = read_config(family, folder)
    vocabularies = family.vocabularies(folder, config)
    check_vocabularies(loaded, vocabularies, family)
    tensors = original_tensors(loaded, family, vocabularies, config, folder)
    reference, missing_names, _ = load_reference(family, folder, config, tensors)
    refuse_differences(
        family.output_pairs(loaded.model, reference, vocabularies),
        TOLERANCE,
        f"{family.model_class} does not reproduce {loaded.path}",
        f"the checkpoint has an option that {family.model_class} lacks; {WITHOUT}",
    )
    heads = [name for name in missing_names if re.fullmatch(family.heads, name)]
    class_name = family.headless_class if heads else family.model_class
    is_headless = loaded.is_encoder and loaded.model.encoder.lm_head is None
    if is_headless or config.architectures == [family.base_class]:
        if not is_headless:
            print("left out: the head for masked words, because the imported model had none")
        class_name, reference = family.base_class, reference.base_model
    unsaved = {*heads, *reference.all_tied_weights_keys}
    weights = {
        name: tensor.contiguous()
        for name, tensor in reference.state_dict().items()
        if name not in unsaved
    }
    reference.config.architectures = [class_name]
    with atomic_folder(out) as new:
        if reference.can_generate():
            reference.generation_config.save_pretrained(new)
        copy_files(folder, new)  # may replace the generation_config.json
        reference.config.save_pretrained(new)
        (new / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
        card = original_card(out.name, reference, folder, loaded)
        (new / CARD_FILE).write_text(card, encoding="utf-8")
    print(
        f"{out}: {reference.config.architectures[0]}, {reference.num_parameters():,} parameters, "
        "which transformers loads without diet_fairseq"
    )


def write_stock(loaded: Any, folder: Path) -> bool:
    """Write the configuration and the tokenizer of a RoBERTa or BART that fairseq trained.

    Returns:
        whether there is a class: RoBERTa and BART need GPT-2's subwords (``vocab.bpe``)
    """
    subwords = loaded.description.tokenizers[0].subwords
    if not isinstance(subwords, Gpt2):
        return False
    config: Any = (encoder_config if loaded.is_encoder else transformer_config)(loaded.model)
    family: Any = Roberta if loaded.is_encoder else Bart
    check_positions(loaded, family)  # only learned positions have the table that is read below
    names = {"vocab_size": "vocab_size", **family.option_names}
    values: dict[str, Any] = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    values |= {key: getattr(config, name) for name, key in names.items() if hasattr(config, name)}
    if loaded.is_encoder:
        positions = loaded.model.encoder.sentence_encoder.embed_positions.weight
        values |= {
            "model_type": "roberta",
            "max_position_embeddings": len(positions),
            "type_vocab_size": 1,
            "tie_word_embeddings": config.tie_word_embeddings,
        }
    else:
        begins = loaded.description.all_directions.framing.target_prefix == ("<s>",)
        values |= {
            "model_type": "bart",
            "scale_embedding": config.scale_embedding,
            "decoder_start_token_id": 2,
            "forced_bos_token_id": 0 if begins else None,
            "tie_word_embeddings": config.share_all_embeddings,
        }
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    length = values["max_position_embeddings"] - 2 * loaded.is_encoder
    indices = loaded.task.source_dictionary.indices
    gpt2_tokenizer(indices, subwords, model_max_length=length).save_pretrained(folder)
    return True


def check_positions(loaded: Any, family: Family) -> None:
    """Refuse a model whose position scheme is not the scheme of the class."""
    stacks = loaded.stacks.values()
    original_scheme = family.options["arch"].partition("_")[2]
    for name, stack in loaded.stacks.items():
        if isinstance(stack, Stack):
            scheme = stack.stack_config.positions.scheme_label
        else:
            scheme = stock_scheme(*stacks)
        if scheme != original_scheme:
            raise UserError(
                f"{loaded.path} has the position scheme {scheme} in its {name}, but "
                f"{family.model_class} has {original_scheme} positions: {WITHOUT}"
            )


def check_vocabularies(loaded: Any, vocabularies: list[Vocabulary], family: Family) -> None:
    """Refuse dictionaries that differ from the imported vocabularies."""
    task = loaded.task
    dictionaries = [task.source_dictionary, task.target_dictionary or task.source_dictionary]
    ours = (vocabularies[0], vocabularies[-1])
    for dictionary, vocabulary in zip(dictionaries, ours, strict=True):
        symbols = zip_longest(dictionary.symbols, vocabulary.symbols)
        for number, (symbol, imported) in enumerate(symbols):
            if symbol != imported:
                names = [
                    "no symbol" if name is None else repr(one_line(name))
                    for name in (symbol, imported)
                ]
                raise UserError(
                    f"the dictionary of {loaded.path} has {names[0]} at index {number}, but the "
                    f"imported {family.model_class} has {names[1]}: {WITHOUT}"
                )


def original_tensors(
    loaded: Any, family: Family, vocabularies: list[Vocabulary], config: Any, folder: Path
) -> dict[str, Tensor]:
    """The parameters with their names and values in transformers."""
    state = {
        name: tensor
        for name, tensor in loaded.model.state_dict().items()
        if not (name.endswith(("version", "_float_tensor")) or re.fullmatch(family.untrained, name))
    }
    size = sum(tensor.nbytes for tensor in state.values())
    with refuse_config(folder / "config.json"), no_larger_than(size), torch.device("meta"):
        model = model_class(family)(config)
    places, ties = model.state_dict(), model.all_tied_weights_keys
    names = dict(family.rename_to_fairseq({name: name for name in places}))
    if unknown := [name for name in state if name not in names]:
        raise UserError(
            f"{loaded.path} has the parameter {unknown[0]}, which {family.model_class} lacks: "
            f"{WITHOUT}"
        )
    tensors = {
        names[name]: tensor
        for name, tensor in family.restore(state, vocabularies, config).items()
        if name in names
    }
    read = {*names.values(), *ties, *ties.values()}
    unread = {name: torch.zeros(place.shape) for name, place in places.items() if name not in read}
    for name, tensor in tensors.items():
        if tensor.shape != places[name].shape:
            raise UserError(
                f"{loaded.path} has {name} of shape {tuple(tensor.shape)}, but the imported "
                f"{family.model_class} has {tuple(places[name].shape)}: {WITHOUT}"
            )
    return tensors | unread
