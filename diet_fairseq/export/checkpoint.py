"""A model out of a checkpoint, with its dictionaries: what every target begins with."""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError
from ..inference import found
from ..inference.found import Pieces
from ..model_json import ModelDescription
from ..text.subwords import check_vocabulary
from ..text.tokenizer import tokenizers
from . import folder
from .fine_tuned import label_names, labels_in, replace_task


@dataclass(frozen=True)
class Trained:
    """A model in eval mode, on the CPU, in float32, and what it was trained with.

    Attributes:
        about: where it is, and what belongs to it
        model: fairseq's, stock or ours
        config: the checkpoint's configuration of the model
        task: with the dictionaries
        labels: of a classification, in the order of its classes
        updates: how often its parameters were updated
    """

    about: ModelDescription
    model: Any
    config: Any
    task: Any
    updates: int = 0
    labels: tuple[str, ...] = ()

    @property
    def is_encoder(self) -> bool:
        return isinstance(self.model, RobertaModel)


def add_arguments(parser: ArgumentParser) -> None:
    """What names the checkpoint, what belongs to it, and the folder to write."""
    add_places(parser)
    found.add_arguments(parser)


def add_places(parser: ArgumentParser) -> None:
    """What names the checkpoint and the folder to write."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=Path, help="of fairseq-train, or its run's folder"
    )
    folder.add_arguments(parser)


def read(args: Namespace) -> Trained:
    """What `add_arguments` named."""
    return trained(found.find(args.checkpoint, Pieces.of(args), translates=False))


def trained(about: ModelDescription) -> Trained:
    """Read a checkpoint that `inference.found` found, by the plugin's safe loading.

    Raises:
        UserError: it can't be read, is of no kind that is exported, or its dictionaries and its
            subword model don't belong together
    """
    if about.engine != "fairseq":
        raise UserError(f"{about.folder} is an exported model: name the checkpoint it was made of")
    overrides = {"data": str(about.data)}
    if about.source_lang:
        overrides |= {"source_lang": about.source_lang, "target_lang": about.target_lang}
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(about.checkpoint), overrides)
        history = state.get("optimizer_history") or [{}]
        fine_tuned = replace_task(state, about.data or about.folder)
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(about.checkpoint)], state=state
        )
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {error.filename or error}, which {about.checkpoint} was trained "
            "with: give by --data the folder that fairseq-preprocess wrote for it"
        ) from error
    if not isinstance(model, (TransformerModelBase, RobertaModel)):
        raise UserError(
            f"{about.checkpoint} holds a {type(model).__name__}: this reads models of --arch "
            "transformer_..., roberta_..., bert_... and electra_..., and fairseq's transformer and "
            "roberta"
        )
    if isinstance(model, TransformerModelBase) and type(task) is not TranslationTask:
        raise UserError(  # others put tokens of their own into the text
            f"{about.checkpoint} was trained with --task {cfg.task._name}: of translation models, "
            "this reads those of --task translation"
        )
    source, _ = tokenizers(about)
    for words in (task.source_dictionary, task.target_dictionary):
        if words is not None:
            names = f"{about.data} and {about.subword_model}"
            check_vocabulary(source.subwords, words.symbols[words.nspecial :], names)
    updates = int(history[-1].get("num_updates") or 0)
    labels = labels_in(about.data or about.folder) if fine_tuned else []
    if hasattr(task, "label_dictionary"):
        labels = label_names(task.label_dictionary)
    return Trained(about, model.float().eval(), cfg.model, task, updates, tuple(labels))
