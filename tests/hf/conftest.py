"""Folders that transformers loads, made once."""

from pathlib import Path

import pytest

from diet_fairseq.export import checkpoint
from diet_fairseq.inference.model_files import NONE, Pieces, resolve_model
from diet_fairseq_cli import main
from tests.support import hugging


def export(*words):
    """``diet-fairseq export hf`` with these words."""
    main(["export", "hf", *map(str, words)])


def take_back(*words):
    """``diet-fairseq import hf`` with these words."""
    main(["import", "hf", *map(str, words)])


def loaded(path, data=None):
    """The model of a checkpoint, with its task."""
    return checkpoint.load(resolve_model(path, Pieces(data, NONE), translates=False))


@pytest.fixture(scope="session")
def translation(tmp_path_factory) -> Path:
    """The checkpoint of a translation model."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("translation")
    return hugging.checkpoint(folder, "transformer_diet_rel", share_all_embeddings=True)


@pytest.fixture(scope="session")
def translation_folder(translation) -> Path:
    """The same in transformers."""
    export(translation, translation.parent / "hf", "--dataset", "some/thing")
    return translation.parent / "hf"


@pytest.fixture(scope="session")
def stock(tmp_path_factory) -> Path:
    """The checkpoint of fairseq's own RoBERTa, fine-tuned."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    return hugging.checkpoint(tmp_path_factory.mktemp("stock"), "roberta", task="glue")


@pytest.fixture(scope="session")
def stock_folder(stock) -> Path:
    export(stock, stock.parent / "hf")
    return stock.parent / "hf"


@pytest.fixture(scope="session")
def electra(tmp_path_factory) -> Path:
    """The checkpoint of an ELECTRA: a generator, narrower than the discriminator."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("electra")
    return hugging.checkpoint(folder, "electra_diet_rel", task="masked_lm", generator_size=0.5)


@pytest.fixture(scope="session")
def electra_folder(electra) -> Path:
    export(electra, electra.parent / "hf")
    return electra.parent / "hf"


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> Path:
    """The checkpoint of a masked language model with segments and a next-sentence head."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("encoder")
    return hugging.checkpoint(folder, "bert_tupe_r", task="masked_lm", nsp=True)


@pytest.fixture(scope="session")
def encoder_folder(encoder) -> Path:
    export(encoder, encoder.parent / "hf")
    return encoder.parent / "hf"


@pytest.fixture(scope="session")
def classifier(tmp_path_factory) -> Path:
    """The checkpoint of a model that was fine-tuned to tell two classes apart."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("classifier")
    return hugging.checkpoint(folder, "roberta_diet_abs", task="glue")


@pytest.fixture(scope="session")
def classifier_folder(classifier) -> Path:
    export(classifier, classifier.parent / "hf")
    return classifier.parent / "hf"


@pytest.fixture(scope="session")
def answerer(tmp_path_factory) -> Path:
    """The checkpoint of a model that was fine-tuned to answer questions."""
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("answerer")
    return hugging.checkpoint(folder, "bert_diet_rel", task="question_answering")


@pytest.fixture(scope="session")
def answerer_folder(answerer) -> Path:
    export(answerer, answerer.parent / "hf")
    return answerer.parent / "hf"
