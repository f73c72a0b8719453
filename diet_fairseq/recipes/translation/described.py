"""A run's folder as a model to translate with: ``model.json``, dictionaries and subwords.

They are copied to the checkpoints, so that the folder can be moved or sent as it is.
"""

import os
import shutil
from pathlib import Path

from ...atomic import written
from ...model_json import ModelDescription
from ..common import programs
from .corpora.corpus import Search
from .prepare import LONGEST

#: kind of subwords -> as model.json names it, the model's file, and what parts words before that
KINDS = {
    "sentencepiece": ("sentencepiece", "sentencepiece.model", "none"),
    "subword-nmt": ("subword_nmt", "codes", "moses"),
}


def describe(
    run: Path, folder: Path, source: str, target: str, search: Search, checkpoint: Path
) -> None:
    """Put ``model.json`` and what it names into the run's folder.

    :param folder: of the prepared data
    :param checkpoint: in the run's folder; it may be written later
    """
    # Of a run's processes, the first one answers for all.
    if int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))):
        return
    bpe = programs.prepared(folder, bpe=str)["bpe"]
    kind, subwords, preprocessing = KINDS[bpe]
    data = programs.data_of(folder)
    for file in (folder / "subwords" / subwords, *sorted(data.glob("dict.*.txt"))):
        with open(file, "rb") as original, written(run / file.name, "wb") as copy:
            shutil.copyfileobj(original, copy)
    ModelDescription(
        engine="fairseq",
        source_lang=source,
        target_lang=target,
        folder=run,
        checkpoint=checkpoint,
        data=run,
        subwords=kind,
        subword_model=run / subwords,
        preprocessing=preprocessing,
        beam=search.beam,
        lenpen=search.alpha,
        penalty=search.penalty,
        max_source_length=LONGEST,
    ).write()
