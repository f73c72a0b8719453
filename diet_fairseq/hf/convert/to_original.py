"""``diet-fairseq export hf --original``: export to the class of transformers that was imported.

`original` keeps the imported folder's configuration and text files in the folder `ORIGINAL`. The
export inverts the import's names of parameters, `Family.names`, and values, `Family.restore`.
"""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ...checkpoints.configuration import no_larger_than
from ...errors import UserError, one_line
from ...files import atomic_folder
from ...transformer.stack import Stack
from .card import CARD_FILE, original_card
from .configuration import stock_positions
from .family import Family
from .original import (
    FAMILIES,
    ORIGINAL,
    check_same,
    copy_files,
    load_reference,
    model_class,
    read_config,
    read_model_type,
    refuse_config,
)
from .stock import write_original
from .vocabulary import Vocabulary

WITHOUT = "leave out --original, which exports the model with the classes of diet_fairseq"


def export_original(loaded: Any, out: Path) -> None:
    """Write a folder that transformers loads without diet_fairseq.

    Args:
        loaded: the `LoadedModel`

    Raises:
        UserError: the model was not imported, or has changes that the class can't represent
    """
    with TemporaryDirectory() as stock:
        folder = find_original(loaded, Path(stock))
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
    check_same(
        family, loaded.model, reference, vocabularies,
        f"{family.model_class} does not reproduce {loaded.path} (outputs differ by "
        f"{{difference:.2g}}): the checkpoint has an option that {family.model_class} lacks; "
        f"{WITHOUT}",
    )  # fmt: skip
    heads = [name for name in missing_names if re.fullmatch(family.heads, name)]
    unsaved = {*heads, *reference.all_tied_weights_keys}
    weights = {
        name: tensor.contiguous()
        for name, tensor in reference.state_dict().items()
        if name not in unsaved
    }
    reference.config.architectures = [family.headless_class if heads else family.model_class]
    with atomic_folder(out) as new:
        if reference.can_generate():
            reference.generation_config.save_pretrained(new)
        copy_files(folder, new)  # may replace the generation_config.json
        reference.config.save_pretrained(new)
        (new / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
        card = original_card(out.name, reference, folder)
        (new / CARD_FILE).write_text(card, encoding="utf-8")
    print(
        f"{out}: {reference.config.architectures[0]}, {reference.num_parameters():,} parameters, "
        "which transformers loads without diet_fairseq"
    )


def find_original(loaded: Any, stock: Path) -> Path:
    """The folder `ORIGINAL` beside the checkpoint or in the folder of its dictionaries.

    Args:
        stock: an empty folder, for the files of a model that was not imported
    """
    description = loaded.description
    folders = [loaded.path.parent, description.folder, description.data or description.folder]
    for folder in folders:
        if (folder / ORIGINAL).is_dir():
            return Path(folder / ORIGINAL)
    if write_original(loaded, stock):
        return stock
    raise UserError(
        f"--original needs the folder {ORIGINAL} of `diet-fairseq import hf`, but "
        f"{folders[0] / ORIGINAL} is not there: copy it from the imported model, or {WITHOUT}"
    )


def check_positions(loaded: Any, family: Family) -> None:
    """Refuse a model whose position scheme is not the scheme of the class."""
    stacks = loaded.stacks.values()
    for name, stack in loaded.stacks.items():
        if isinstance(stack, Stack):
            scheme = stack.stack_config.positions.position_scheme
        else:
            scheme = stock_positions(*stacks).position_scheme
        if scheme != family.positions:
            raise UserError(
                f"{loaded.path} has the position scheme {scheme} in its {name}, but "
                f"{family.model_class} has {family.positions} positions: {WITHOUT}"
            )


def check_vocabularies(loaded: Any, vocabularies: list[Vocabulary], family: Family) -> None:
    """Refuse dictionaries that differ from the imported vocabularies."""
    task = loaded.task
    dictionaries = [task.source_dictionary, task.target_dictionary or task.source_dictionary]
    ours = (vocabularies[0], vocabularies[-1])
    for dictionary, vocabulary in zip(dictionaries, ours, strict=True):
        symbols = [*dictionary.symbols, None], [*vocabulary.symbols, None]
        for number, (symbol, other) in enumerate(zip(*symbols, strict=False)):
            if symbol != other:
                names = [
                    "no symbol" if name is None else repr(one_line(name))
                    for name in (symbol, other)
                ]
                raise UserError(
                    f"the dictionary of {loaded.path} has {names[0]} at index {number}, but the "
                    f"imported {family.model_class} has {names[1]}: {WITHOUT}"
                )


def original_tensors(
    loaded: Any, family: Family, vocabularies: list[Vocabulary], config: Any, folder: Path
) -> dict[str, Tensor]:
    """The parameters with their names and values in transformers.

    Raises:
        UserError: the class lacks a parameter, or has another shape for it
    """
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
