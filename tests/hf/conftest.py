"""Checkpoints and the folders that transformers loads, made once."""

from pathlib import Path

import pytest

from diet_fairseq.cli import main
from diet_fairseq.translate.loading import load_transformer
from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions
from tests.support import hugging

#: name -> architecture, task, options: a translation model; a masked language model with segments
#: and a next-sentence head; of version 0.2's tasks, a model that tells two classes apart and one
#: that answers questions; fairseq's own RoBERTa, fine-tuned
CHECKPOINTS = {
    "translation": ("transformer_diet_rel", "translation", {"share_all_embeddings": True}),
    "encoder": ("bert_tupe_r", "masked_lm", {"nsp": True}),
    "classifier": ("roberta_diet_abs", "glue", {}),
    "answerer": ("bert_diet_rel", "question_answering", {}),
    "stock": ("roberta", "glue", {}),
}


def export(*words):
    """``diet-fairseq export hf`` with these words."""
    main(["export", "hf", *map(str, words)])


def take_back(*words):
    """``diet-fairseq import hf`` with these words."""
    main(["import", "hf", *map(str, words)])


def loaded(path, data=None):
    """The model of a checkpoint, with its task."""
    return load_transformer(path, ModelOptions(data, NO_SUBWORDS))


def _fixtures(name):
    @pytest.fixture(scope="session", name=name)
    def path(tmp_path_factory) -> Path:
        pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
        arch, task, options = CHECKPOINTS[name]
        return hugging.checkpoint(tmp_path_factory.mktemp(name), arch, task, **options)

    @pytest.fixture(scope="session", name=f"{name}_folder")
    def folder(request) -> Path:
        """The exported folder of the checkpoint."""
        path = request.getfixturevalue(name)
        export(path, path.parent / "hf")
        return path.parent / "hf"

    @pytest.fixture(scope="session", name=f"{name}_back")
    def back(request, tmp_path_factory) -> Path:
        """The folder, imported as a checkpoint again."""
        out = tmp_path_factory.mktemp(f"{name}_back") / "back"
        take_back(request.getfixturevalue(f"{name}_folder"), out)
        return out

    return {name: path, f"{name}_folder": folder, f"{name}_back": back}


for _name in CHECKPOINTS:
    globals().update(_fixtures(_name))
