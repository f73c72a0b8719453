"""The loader of trained fairseq models, which `translate`, `serve`, `export` and `look` share."""

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf, open_dict

from ..checkpoints import report_faults
from ..checkpoints.configuration import task_options
from ..errors import UserError, one_line
from ..files import MAX_VOCABULARY_BYTES, check_regular
from ..text.subwords import TARGET, copy_subwords
from ..transformer import PositionalAttention
from ..transformer.config import UNLIMITED
from ..transformer.stack import Stack
from .directions import read_task
from .model_json import ModelDescription, dictionary_paths

#: names of tasks of version 0.2, which later versions leave to transformers
GLUE, QUESTION_ANSWERING = "glue", "question_answering"
#: XLM-R's task, which trains the same models as `masked_lm`
MULTILINGUAL_MASKED_LM = "multilingual_masked_lm"


@dataclass(frozen=True)
class LoadedModel:
    """A trained model in eval mode, on the CPU, in float32, with its task and configuration.

    Attributes:
        description: its files and text options
        model: fairseq's model, stock or ours
        config: fairseq's configuration of the checkpoint
        task: fairseq's task, which has the dictionaries
        updates: number of training updates
        held_out_loss: of an encoder's masked words when the checkpoint was saved, in nats; None if
            the checkpoint does not have it
        labels: names of the classes of a classification, in their order
    """

    description: ModelDescription
    model: Any
    config: Any
    task: Any
    updates: int = 0
    held_out_loss: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return self.description.checkpoint or self.description.folder

    @property
    def is_encoder(self) -> bool:
        return isinstance(self.model, RobertaModel)

    @property
    def stacks(self) -> dict[str, Any]:
        """The encoder and, in translation, the decoder, by name."""
        if self.is_encoder:
            return {"encoder": self.model.encoder.sentence_encoder}
        return {"encoder": self.model.encoder, "decoder": self.model.decoder}

    @property
    def max_positions(self) -> int:
        """The number of tokens that all stacks can read."""
        return min(int(stack.max_positions()) for stack in self.stacks.values())

    @property
    def scheme(self) -> str:
        """The position scheme of each stack, in words."""
        schemes = []
        for name, stack in self.stacks.items():
            if isinstance(stack, Stack):
                schemes.append(f"{name}: {stack.stack_config.positions.scheme_label}")
            else:
                kind = type(stack.embed_positions).__name__
                schemes.append(f"{name}: fairseq's own, {kind}")
        return "; ".join(schemes)

    def write_model_json(self, engine: str, folder: Path) -> None:
        """Write ``model.json`` and the subword model into an exported translation model's folder.

        Args:
            engine: the library that the folder is for, a value of `ModelDescription.engine`
        """
        description = self.description
        copies: dict[str, Any] = {}
        for name, prefix in (("subword_model", ""), ("target_subword_model", TARGET)):
            model = getattr(description, name)
            copies[name] = model and copy_subwords(description.subwords, model, folder, prefix)
        source, target = (
            None if stack.max_positions() >= UNLIMITED else stack.max_positions() - 1  # no </s>
            for stack in self.stacks.values()
        )
        source_limits, target_limits = (
            [limit for limit in limits if limit is not None]
            for limits in (
                (description.max_source_length, source),
                (description.max_target_length, target),
            )
        )
        replace(
            description,
            engine=engine,
            folder=folder,
            checkpoint=None,
            data=None,
            **copies,
            max_source_length=min(source_limits, default=None),
            max_target_length=min(target_limits, default=None),
        ).write()


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, read as data and upgraded to this version of fairseq."""
    # fairseq's use of Hydra for old checkpoints causes warnings
    with report_faults(path), warnings.catch_warnings(action="ignore", category=UserWarning):
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    return state


def load_model(description: ModelDescription) -> LoadedModel:
    """The model of a checkpoint, which is read as data, with the options of its description.

    Raises:
        UserError: the checkpoint can't be read, has parameters that are not finite, or its
            dictionaries and subword model don't belong together
    """
    if description.engine != "fairseq":
        raise UserError(
            f"{description.folder} is an exported model: name the checkpoint that it was exported "
            "from"
        )
    path = description.checkpoint
    assert path is not None
    with report_faults(path), warnings.catch_warnings(action="ignore", category=UserWarning):
        state = description.state or read_checkpoint(path)
        _override_options(state, description)
        history = state.get("optimizer_history") or [{}]
        label_dictionary = _replace_old_task(state, description.data or description.folder)
        [model], config, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], task=_build_multilingual_task(state, description), state=state
        )
    _check_temperature(description, model)
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise UserError(
                f"{path} holds numbers that are not finite ({name}): its training has diverged; "
                "give an earlier checkpoint"
            )
    for dictionary in (task.source_dictionary, task.target_dictionary):
        # the target's pieces in a multilingual model may come from another SentencePiece model,
        # and are joined in the same way
        is_other = description.directions and dictionary != task.source_dictionary
        if dictionary is not None and not is_other:
            description.check_vocabulary(dictionary.symbols[dictionary.nspecial :])
    if description.directions:
        names = " and ".join(dict.fromkeys(map(str, dictionary_paths(description))))
        words = task.source_dictionary.indices, task.target_dictionary.indices
        description.directions.check_vocabularies(*words, names)
    label_dictionary = getattr(task, "label_dictionary", label_dictionary)
    return LoadedModel(
        replace(description, state=None),
        model.float().eval(),
        config,
        task,
        updates=int(history[-1].get("num_updates") or 0),
        held_out_loss=_read_held_out_loss(state, config),
        labels=label_names(label_dictionary) if label_dictionary else (),
    )


def load_transformer(description: ModelDescription) -> LoadedModel:
    """The encoder or translation model of a checkpoint, for `export`, `look` and `extrapolate`.

    Raises:
        UserError: see `load_model`; or the model is not a Transformer, or its task adds tokens to
            the text
    """
    loaded = load_model(description)
    if not isinstance(loaded.model, TransformerModelBase | RobertaModel):
        raise UserError(
            f"{loaded.path} holds a {type(loaded.model).__name__}, but must have been trained with "
            "--arch transformer_..., roberta_..., bert_... or electra_..., or with fairseq's "
            "transformer or roberta: give another checkpoint"
        )
    if not loaded.is_encoder and type(loaded.task) is not TranslationTask:
        raise UserError(
            f"{loaded.path} was trained with --task {one_line(str(loaded.config.task._name))}, but "
            "a translation model must be one of --task translation here: give another checkpoint"
        )
    return loaded


def _read_held_out_loss(state: dict[str, Any], config: Any) -> float | None:
    """The held-out loss of masked words in nats, which fairseq saves in bits.

    Other criterions than ``masked_lm`` add further losses, such as the next sentence's.
    """
    loss = (state.get("extra_state") or {}).get("val_loss")
    criterion = getattr(config.criterion, "_name", None)
    metric = getattr(config.checkpoint, "best_checkpoint_metric", None)
    if (criterion, metric) != ("masked_lm", "loss") or not isinstance(loss, float):
        return None
    return loss * math.log(2)


def _override_options(state: dict[str, Any], description: ModelDescription) -> None:
    overrides: dict[str, Any] = {"data": str(description.data)}
    if description.source_lang:
        overrides["source_lang"] = description.source_lang
        overrides["target_lang"] = description.target_lang
    if description.position_temperature is not None:
        overrides["position_temperature"] = description.position_temperature
    if state.get("args") is not None:
        vars(state["args"]).update(overrides)
    overwrite_args_by_name(state["cfg"], overrides)


def _check_temperature(description: ModelDescription, model: Any) -> None:
    """Refuse a temperature for a model without our attention."""
    is_ours = any(isinstance(part, PositionalAttention) for part in model.modules())
    if description.position_temperature is not None and not is_ours:
        raise UserError(
            f"--position-temperature {description.position_temperature} is for models with a "
            f"position scheme, and {description.checkpoint} is fairseq's own: leave it out"
        )


def _build_multilingual_task(
    state: dict[str, Any], description: ModelDescription
) -> TranslationTask | None:
    """fairseq's task ``translation`` with a multilingual model's dictionaries, or None.

    The dictionaries contain the tags of languages, which the engines add to sentences (`Framing`).
    """
    options = task_options(state)
    marked = read_task(options)
    if marked is None and description.directions is None:
        return None
    if description.directions is None:
        raise UserError(
            f"{description.checkpoint} is a multilingual model, but the model.json beside it has "
            "no directions: add them, or remove it and give --data and --subwords"
        )
    if options["_name"] == "multilingual_translation":
        keep_shared_model(state, description)
    dictionaries = load_dictionaries(description, state)
    config = TranslationConfig(
        data=str(description.data),
        source_lang=description.source_lang,
        target_lang=description.target_lang,
        **{
            name: int(options[name])
            for name in ("max_source_positions", "max_target_positions")
            if options.get(name) is not None
        },
    )
    return TranslationTask(config, *dictionaries)


def load_dictionaries(description: ModelDescription, state: dict[str, Any]) -> list[Dictionary]:
    """The dictionaries of source and target, with the tokens that the checkpoint's task adds.

    Raises:
        UserError: a dictionary is missing, or the source's has not as many tokens as the checkpoint
    """
    marked = read_task(task_options(state))
    dictionaries: list[Dictionary] = []
    for path, side in zip(dictionary_paths(description), ("encoder", "decoder"), strict=True):
        dictionary = Dictionary.load(str(path))
        rows = state["model"].get(f"{side}.embed_tokens.weight", ())
        if len(dictionary) != len(rows):  # a dictionary with all tags is of --lang-dict
            for token in marked[1] if marked else ():
                dictionary.add_symbol(token)
        if not dictionaries and len(rows) not in (0, len(dictionary)):
            number = len(description.all_directions.tags)
            tags = f", with the tags of {number} languages," if number else ""
            raise UserError(
                f"{path}{tags} has {len(dictionary):,} tokens, but {description.checkpoint} has "
                f"{len(rows):,}: give --data, the folder of the dictionary that the model was "
                "trained with"
            )
        dictionaries.append(dictionary)
    return dictionaries


def keep_shared_model(state: dict[str, Any], description: ModelDescription) -> None:
    """Replace a checkpoint's models of several directions, which must share parameters, by one."""
    model: Any = state["cfg"]["model"]
    if not (getattr(model, "share_encoders", False) and getattr(model, "share_decoders", False)):
        raise UserError(
            f"{description.checkpoint} has an encoder or a decoder for each language, but must "
            "have been trained with --share-encoders --share-decoders: use fairseq-generate"
        )
    prefix = f"models.{description.source_lang}-{description.target_lang}."
    state["model"] = {
        name.removeprefix(prefix): value
        for name, value in state["model"].items()
        if name.startswith(prefix)
    }
    model.arch = model._name = "transformer"
    state["args"] = None  # fairseq would read this instead


def _replace_old_task(state: dict[str, Any], data: Path) -> Dictionary | None:
    """Replace the task of a checkpoint of version 0.2 or XLM-R by masked language modelling.

    The result is the dictionary of the labels, if the task is a classification.
    """
    cfg: Any = state.get("cfg")
    task = task_options(state).get("_name") if cfg else None
    if task not in (GLUE, QUESTION_ANSWERING, MULTILINGUAL_MASKED_LM):
        return None
    folder = data / "input0" if task == GLUE else data
    with open_dict(cfg):
        cfg["task"] = OmegaConf.create({"_name": "masked_lm", "data": str(folder)})
        cfg["model"].load_checkpoint_heads = True
    state["args"] = None  # fairseq would read this instead
    labels = data / "label" / "dict.txt"
    if not labels.exists():
        return None
    check_regular(labels, MAX_VOCABULARY_BYTES)
    return Dictionary.load(str(labels))


def label_names(dictionary: Any) -> tuple[str, ...]:
    """The labels in the order of their classes, without fairseq's extra symbols."""
    names = dictionary.symbols[dictionary.nspecial :]
    return tuple(name for name in names if name != "<mask>" and not name.startswith("madeupword"))
