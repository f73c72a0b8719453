"""The model of a checkpoint with its task: the input of every export."""

from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask

from ..checkpoints import report_faults
from ..errors import UserError
from ..inference import model_files
from ..inference.model_files import Pieces
from ..model_json import ModelDescription
from ..text.subwords import check_vocabulary
from ..text.tokenizer import tokenizers
from .fine_tuned import label_names, labels_in, replace_task


@dataclass(frozen=True)
class TrainedModel:
    """A model in eval mode, on the CPU, in float32, with its task and configuration.

    Attributes:
        about: its files and text options
        model: fairseq's model, stock or ours
        config: the model's options in the checkpoint
        task: fairseq's task, which has the dictionaries
        updates: number of updates in training
        labels: names of a classification's classes, in their order
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


def read(args: Namespace) -> TrainedModel:
    """The model that the arguments of an export name."""
    pieces = Pieces.of(args)
    return load(model_files.resolve_model(args.checkpoint, pieces, translates=False))


def load(about: ModelDescription) -> TrainedModel:
    """The model of a checkpoint, which is read as data.

    Raises:
        UserError: the checkpoint can't be read or exported, has parameters that are not finite, or
            its dictionaries and subword model don't belong together
    """
    if about.engine != "fairseq":
        raise UserError(f"{about.folder} is an exported model: name the checkpoint it was made of")
    with report_faults(about.checkpoint):
        state = model_files.load_state(about)
        history = state.get("optimizer_history") or [{}]
        fine_tuned = replace_task(state, about.data or about.folder)
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(about.checkpoint)], state=state
        )
    if not isinstance(model, (TransformerModelBase, RobertaModel)):
        raise UserError(
            f"{about.checkpoint} holds a {type(model).__name__}: this reads models of --arch "
            "transformer_..., roberta_..., bert_... and electra_..., and fairseq's transformer and "
            "roberta"
        )
    if isinstance(model, TransformerModelBase) and type(task) is not TranslationTask:
        raise UserError(  # other tasks add tokens to the text
            f"{about.checkpoint} was trained with --task {cfg.task._name}: of translation models, "
            "this reads those of --task translation"
        )
    model_files.check_temperature(about, model)
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise UserError(
                f"{about.checkpoint} holds numbers that are not finite ({name}): its training has "
                "diverged; give an earlier checkpoint"
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
    return TrainedModel(
        replace(about, state=None), model.float().eval(), cfg.model, task, updates, tuple(labels)
    )
