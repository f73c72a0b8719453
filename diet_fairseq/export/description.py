"""`model.json` and the subword model of an exported translation model."""

import shutil
from dataclasses import replace
from pathlib import Path

from ..stack.placement import UNLIMITED
from .checkpoint import TrainedModel

#: file name of the copied subword model, by kind
NAMES = {"sentencepiece": "sentencepiece.model", "subword_nmt": "codes"}


def write(trained: TrainedModel, engine: str, folder: Path) -> None:
    """Write ``model.json`` and the subword model into the folder of an export."""
    about, subword_model = trained.about, None
    if about.subword_model:
        subword_model = folder / NAMES[about.subwords]
        shutil.copyfile(about.subword_model, subword_model)
    source, target = (
        None if stack.max_positions() >= UNLIMITED else stack.max_positions() - 1  # without </s>
        for stack in (trained.model.encoder, trained.model.decoder)
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
