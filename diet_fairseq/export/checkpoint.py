"""A model out of a checkpoint, with its dictionaries: what every target begins with."""

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationTask

from ..errors import UserError


@dataclass(frozen=True)
class Trained:
    """A model in eval mode, on the CPU, in float32, and what it was trained with.

    Attributes:
        path: of the checkpoint
        model: fairseq's, stock or ours
        config: the checkpoint's configuration of the model, a Namespace
        task: with the dictionaries
    """

    path: Path
    model: Any
    config: Any
    task: Any

    @property
    def is_encoder(self) -> bool:
        return isinstance(self.model, RobertaModel)


def add_arguments(parser: ArgumentParser) -> None:
    """What names the checkpoint and the folder to write."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path)
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="the dictionaries' folder, if it isn't where it was in training",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace OUT, if it is an earlier export"
    )


def trained(path: Path, data: Path | None = None) -> Trained:
    """Read a checkpoint by the plugin's safe loading; ``data`` is the dictionaries' folder."""
    overrides = {} if data is None else {"data": str(data)}
    try:
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {error.filename}, which {path} was trained with: give the folder of "
            "its dictionaries by --data"
        ) from error
    if not isinstance(model, (TransformerModelBase, RobertaModel)):
        raise UserError(
            f"{path} holds a {type(model).__name__}: export reads the models of --arch "
            "transformer_..., roberta_... and bert_..., and fairseq's transformer and roberta"
        )
    if isinstance(model, TransformerModelBase) and type(task) is not TranslationTask:
        raise UserError(  # others put tokens of their own into the text
            f"{path} was trained with --task {cfg.task._name}: of translation models, export reads "
            "those of --task translation"
        )
    return Trained(Path(path), model.float().eval(), cfg.model, task)
