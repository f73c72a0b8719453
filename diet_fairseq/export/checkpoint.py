"""The model of a checkpoint with its task: the input of every export."""

import shutil
from argparse import Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf, open_dict

from ..checkpoints import report_faults
from ..errors import UserError
from ..input_files import VOCABULARY, check_regular
from ..model_json import ModelDescription
from ..text.subwords import FILES, check_vocabulary
from ..text.tokenizer import tokenizers
from ..transformer.config import UNLIMITED
from ..translate import model_files

#: names of 0.2's tasks, which transformers has now
GLUE, QUESTION_ANSWERING = "glue", "question_answering"


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

    def write_description(self, engine: str, folder: Path) -> None:
        """Write ``model.json`` and the subword model into the folder of an export."""
        about, subword_model = self.about, None
        if about.subword_model:
            subword_model = folder / FILES[about.subwords]
            shutil.copyfile(about.subword_model, subword_model)
        source, target = (
            None if stack.max_positions() >= UNLIMITED else stack.max_positions() - 1  # no </s>
            for stack in (self.model.encoder, self.model.decoder)
        )
        limits = [limit for limit in (about.max_source_length, source) if limit is not None]
        replace(
            about,
            engine=engine,
            folder=folder,
            checkpoint=None,
            data=None,
            subword_model=subword_model,
            max_source_length=min(limits, default=None),
            max_target_length=target,
        ).write()


def read(args: Namespace) -> TrainedModel:
    """The model that the arguments of an export name."""
    pieces = model_files.Pieces.of(args)
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
        labels = replace_task(state, about.data or about.folder)
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
    labels = getattr(task, "label_dictionary", labels)
    return TrainedModel(
        replace(about, state=None), model.float().eval(), cfg.model, task, updates,
        label_names(labels) if labels else (),
    )  # fmt: skip


def replace_task(state: dict[str, Any], data: Path) -> Dictionary | None:
    """Replace version 0.2's tasks ``glue`` and ``question_answering`` by masked language modelling.

    Args:
        state: the return value of fairseq's ``load_checkpoint_to_cpu``, changed in place
        data: folder of the dictionaries

    Returns:
        the dictionary of such a classification's labels
    """
    cfg: Any = state.get("cfg")
    task = cfg["task"]["_name"] if cfg and cfg["task"] else None
    if task not in (GLUE, QUESTION_ANSWERING):
        return None
    folder = data / "input0" if task == GLUE else data
    with open_dict(cfg):
        cfg["task"] = OmegaConf.create({"_name": "masked_lm", "data": str(folder)})
        cfg["model"].load_checkpoint_heads = True
    labels = data / "label" / "dict.txt"
    if not labels.exists():
        return None
    check_regular(labels, VOCABULARY)
    return Dictionary.load(str(labels))


def label_names(dictionary: Any) -> tuple[str, ...]:
    """The labels in the order of their classes, without fairseq's extra symbols."""
    names = dictionary.symbols[dictionary.nspecial :]
    return tuple(name for name in names if name != "<mask>" and not name.startswith("madeupword"))
