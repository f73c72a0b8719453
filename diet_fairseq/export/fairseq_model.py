"""A checkpoint's model, with its task and dictionaries: safely read."""

from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

from ..errors import UserError


def load(checkpoint: Path, data: Path | None = None) -> tuple[Any, Any, Any]:
    """The model in eval mode, its configuration and its task.

    Args:
        data: the folder with its dictionaries; None: the one that it was trained on
    """
    overrides = {} if data is None else {"data": str(data)}
    try:
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides=overrides
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or error} is not there, which {checkpoint} was trained on: name the "
            "folder that fairseq-preprocess wrote by --data"
        ) from error
    return models[0].eval(), cfg, task
