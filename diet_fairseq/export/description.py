"""What is put beside an exported model, so that it translates text: `model.json` and subwords."""

import shutil
from dataclasses import replace
from pathlib import Path

from ..model_json import ModelDescription
from ..stack.placement import UNLIMITED
from .checkpoint import TrainedModel

#: what a copied subword model is called
NAMES = {"sentencepiece": "sentencepiece.model", "subword_nmt": "codes"}


def exported(trained: TrainedModel, engine: str, folder: Path) -> ModelDescription:
    """The description of a translation model in the folder of its export."""
    about = trained.about
    source, target = (
        None if stack.max_positions() >= UNLIMITED else stack.max_positions() - 1  # and </s>
        for stack in (trained.model.encoder, trained.model.decoder)
    )
    limits = [about.max_source_length, source]
    return replace(
        about,
        engine=engine,
        folder=folder,
        checkpoint=None,
        data=None,
        subword_model=about.subword_model and folder / NAMES[about.subwords],
        max_source_length=min((limit for limit in limits if limit is not None), default=None),
        max_target_length=target,
    )


def write(trained: TrainedModel, engine: str, folder: Path) -> None:
    """``model.json`` and the subword model."""
    description = exported(trained, engine, folder)
    if trained.about.subword_model and description.subword_model:
        shutil.copyfile(trained.about.subword_model, description.subword_model)
    description.write()
