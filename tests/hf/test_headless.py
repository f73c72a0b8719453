"""Encoders without a head, and sentence-transformers' folders: the same sentence embeddings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from diet_fairseq.hf.convert.original import FAMILIES
from tests.hf.conftest import export, loaded, take_back
from tests.hf.test_bad_input import refused
from tests.hf.test_export_original import train
from tests.support import originals

#: the class without a head -> the function that builds a folder of it, and its options
CLASSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "BertModel": (originals.bert, {"head": "Model"}),
    "RobertaModel": (originals.roberta, {"head": "Model"}),
    "XLMRobertaModel": (originals.xlm_roberta, {"head": "Model"}),
    "ElectraModel": (originals.electra, {"head": "Model"}),
}
#: sentences, and queries whose nearest sentence is searched
SENTENCES = ["the quick brown fox", "a dog sleeps", "der faule hund läuft", "the hill",
             "ein fuchs springt über den hügel"]  # fmt: skip
QUERIES = ["a quick fox jumps over a hill", "ein hund schläft", "the lazy dog", "den hügel"]
#: transformers' special symbols -> fairseq's
SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>"}


def build(name: str, folder: Path) -> Path:
    """A folder of the class."""
    function, options = CLASSES[name]
    return function(folder, **options)


def tokenize(folder: Path, lines: list[str]) -> Any:
    """The inputs of transformers' model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(lines, return_tensors="pt", padding=True)


@torch.no_grad()
def embed(folder: Path, lines: list[str]) -> torch.Tensor:
    """Sentence embeddings of transformers' model, as sentence-transformers pools: (B, d)."""
    inputs = tokenize(folder, lines)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    return pool(model(**inputs).last_hidden_state, inputs)


@torch.no_grad()
def embed_in_fairseq(folder: Path, out: Path, lines: list[str]) -> torch.Tensor:
    """Sentence embeddings of the import in ``out``, with the tokens of ``folder``: (B, d)."""
    inputs = tokenize(folder, lines)
    known = loaded(out / "model.pt", out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    numbers = {}
    if (out / "encoder.json").exists():  # RoBERTa's
        numbers = json.loads((out / "encoder.json").read_text())
    words = known.task.source_dictionary
    rows = [tokenizer.convert_ids_to_tokens(row) for row in inputs["input_ids"].tolist()]
    symbols = [[SYMBOLS.get(word, str(numbers.get(word, word))) for word in row] for row in rows]
    tokens = torch.tensor([[words.index(symbol) for symbol in row] for row in symbols])
    return pool(known.model(tokens, features_only=True)[0], inputs)


def pool(features: torch.Tensor, inputs: Any) -> torch.Tensor:
    """The mean over real tokens: (B, T, d) -> (B, d)."""
    real = inputs["attention_mask"].unsqueeze(-1)  # (B, T, 1)
    return (features * real).sum(1) / real.sum(1)


def find_nearest(queries: torch.Tensor, sentences: torch.Tensor) -> list[str]:
    """For each query the sentence with the largest cosine similarity.

    The mean is subtracted, because the embeddings of random models differ little.
    """
    mean = sentences.mean(0)
    queries, sentences = queries - mean, sentences - mean
    similarity = torch.nn.functional.cosine_similarity(queries[:, None], sentences[None], dim=-1)
    return [SENTENCES[index] for index in similarity.argmax(1).tolist()]


def compare(folder: Path, actual: torch.Tensor) -> None:
    """Compare embeddings of `QUERIES` and `SENTENCES` with transformers' embeddings."""
    expected = embed(folder, QUERIES + SENTENCES)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    size = len(QUERIES)
    nearest = find_nearest(expected[:size], expected[size:])
    assert len(set(nearest)) > 1
    assert find_nearest(actual[:size], actual[size:]) == nearest


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CLASSES)
def test_an_encoder_without_a_head_has_its_sentence_embeddings(name, tmp_path, capsys, caplog):
    folder = build(name, tmp_path / "folder")
    capsys.readouterr()
    caplog.clear()
    take_back(folder, tmp_path / "out")
    assert [record for record in caplog.records if record.name.startswith("transformers")] == []
    printed, errors = capsys.readouterr()
    first = "generator_lm_head" if name == "ElectraModel" else "cls.predictions"
    head = "lm_head" if "Roberta" in name else first
    [new] = [line for line in printed.splitlines() if "because the folder lacks them" in line]
    assert new.startswith(f"initialised by transformers, because the folder lacks them: {head}.b")
    pooler = "left out: pooler.dense.bias, pooler.dense.weight\n"
    assert (pooler in printed) == ("Roberta" in name)
    assert errors == ""
    compare(folder, embed_in_fairseq(folder, tmp_path / "out", QUERIES + SENTENCES))


@pytest.mark.slow
def test_a_bert_with_the_tokenizer_of_xlm_r_has_its_sentence_embeddings(tmp_path):
    folder, out = originals.multilingual_minilm(tmp_path / "folder"), tmp_path / "out"
    take_back(folder, out)
    compare(folder, embed_in_fairseq(folder, out, QUERIES + SENTENCES))
    pieces = "sentencepiece.bpe.model"
    assert (out / "sentencepiece.model").read_bytes() == (folder / pieces).read_bytes()
    export(out / "model.pt", tmp_path / "hf", "--original", "--data", out, "--subwords", "none")
    compare(folder, embed(tmp_path / "hf", QUERIES + SENTENCES))
    configs = [json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "hf")]
    assert configs[0]["pad_token_id"] == configs[1]["pad_token_id"] == 0
    assert configs[0]["tokenizer_class"] == configs[1]["tokenizer_class"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_a_trained_encoder_is_of_its_class_again(name, tmp_path, capsys):
    folder = build(name, tmp_path / "folder")
    out = tmp_path / "out"
    take_back(folder, out)
    train(out)
    export(out / "model.pt", tmp_path / "hf", "--original", "--data", out, "--subwords", "none")
    assert "left out: the head for masked words, because the imp" in capsys.readouterr().out
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == [name]
    names = load_file(tmp_path / "hf" / "model.safetensors").keys()
    before = load_file(folder / "model.safetensors").keys()
    assert names == {key for key in before if "Roberta" not in name or "pooler" not in key}
    compare(tmp_path / "hf", embed_in_fairseq(folder, out, QUERIES + SENTENCES))
    card = ModelCard.load(tmp_path / "hf" / "README.md")
    assert card.data.pipeline_tag == "feature-extraction"
    assert f"from transformers import {name}, AutoTokenizer" in card.text


def test_a_folder_of_sentence_transformers_comes_back(tmp_path, capsys):
    folder = originals.sentence_transformer(tmp_path / "folder")
    take_back(folder, tmp_path / "out")
    assert "\nleft out: Pooling, Normalize of sentence-transformers, " in capsys.readouterr().out
    out = tmp_path / "out"
    compare(folder, embed_in_fairseq(folder, out, QUERIES + SENTENCES))
    export(out / "model.pt", tmp_path / "hf", "--original", "--data", out, "--subwords", "none")
    compare(folder, embed(tmp_path / "hf", QUERIES + SENTENCES))
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json",
                 "config_sentence_transformers.json", "vocab.txt"):  # fmt: skip
        assert (tmp_path / "hf" / name).read_bytes() == (folder / name).read_bytes()


def test_modules_with_weights_or_code_are_not_copied(tmp_path, capsys):
    folder = originals.sentence_transformer(tmp_path / "folder", ["Dense"])
    take_back(folder, tmp_path / "out")
    assert "\nleft out: Pooling, Dense of sentence-transformers, " in capsys.readouterr().out
    assert not (tmp_path / "out" / "original" / "modules.json").exists()
    assert not (tmp_path / "out" / "original" / "1_Pooling").exists()
    path = folder / "modules.json"
    path.write_text(path.read_text().replace("sentence_transformers.models.Dense", "os.Pooling"))
    take_back(folder, tmp_path / "other")
    assert "\nleft out: Pooling, os.Pooling of " in capsys.readouterr().out
    assert not (tmp_path / "other" / "original" / "modules.json").exists()
    path.write_text(path.read_text().replace("1_Pooling", "../1_Pooling"))
    text = refused(take_back, folder, tmp_path / "another")
    assert f"{path}: 1.path must match pattern " in text


def test_a_link_in_a_folder_of_a_module_is_refused(tmp_path):
    folder = originals.sentence_transformer(tmp_path / "folder")
    (tmp_path / "secret").write_text("secret")
    (folder / "1_Pooling" / "config.json").unlink()
    (folder / "1_Pooling" / "config.json").symlink_to(tmp_path / "secret")
    assert "config.json is a link to " in refused(take_back, folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_head_without_one_of_its_parameters_is_refused(tmp_path):
    folder = originals.bert(tmp_path / "folder")
    tensors = load_file(folder / "model.safetensors")
    del tensors["cls.predictions.transform.dense.bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text = refused(take_back, folder, tmp_path / "out")
    assert "weights lack cls.predictions.transform.dense.bias: give a complete folder" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "head", "names", "base_class"),
    [
        (originals.bert, "ForSequenceClassification", "classifier.bias, classifier.weight",
         "BertModel"),
        (originals.electra, "ForPreTraining", "discriminator_predictions.dense.bias, ",
         "ElectraModel"),
    ],
)  # fmt: skip
def test_an_encoder_with_another_head_is_imported_without_it(
    function, head, names, base_class, tmp_path, capsys
):
    folder = function(tmp_path / "folder", head=head)
    take_back(folder, tmp_path / "out")
    out = tmp_path / "out"
    assert f"\nleft out: {names}" in capsys.readouterr().out
    compare(folder, embed_in_fairseq(folder, out, QUERIES + SENTENCES))
    export(out / "model.pt", tmp_path / "hf", "--original", "--data", out, "--subwords", "none")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == [base_class]


def test_another_pooler_is_refused(tmp_path, monkeypatch):
    """The pooler changes no logits, so that its outputs are compared, too."""

    class OtherPooler(type(FAMILIES["bert"])):
        def convert(self, tensors, vocabularies, config):
            state = super().convert(tensors, vocabularies, config)
            return state | {"pooler.bias": state["pooler.bias"].roll(1)}

    monkeypatch.setitem(FAMILIES, "bert", OtherPooler())
    folder = originals.bert(tmp_path / "folder", head="Model")
    text = refused(take_back, folder, tmp_path / "out")
    assert "fairseq's model does not reproduce BertForPreTraining (outputs differ by " in text


@pytest.mark.slow
def test_the_new_head_is_the_same_in_every_import(tmp_path):
    folder = originals.roberta(tmp_path / "folder", head="Model")
    states = []
    for name in ("first", "second"):
        take_back(folder, tmp_path / name)
        states.append(loaded(tmp_path / name / "model.pt", tmp_path / name).model.state_dict())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    assert states[0]["encoder.lm_head.dense.weight"].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BertModel", "XLMRobertaModel"])
def test_our_classes_have_a_head_after_it_was_trained(name, tmp_path, capsys):
    folder = build(name, tmp_path / "folder")
    out = tmp_path / "out"
    take_back(folder, out)
    words = "--data", out, "--subwords", "none"
    export(out / "model.pt", tmp_path / "hf", *words)
    assert "left out: the head for masked words, which no tr" in capsys.readouterr().out
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["DietEncoderModel"]
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    known = loaded(out / "model.pt", out).model
    tokens = torch.randint(4, 40, (3, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = known(tokens, features_only=True)[0]
        torch.testing.assert_close(model(tokens).last_hidden_state, expected, rtol=1e-5, atol=1e-5)
    take_back(tmp_path / "hf", tmp_path / "back")
    assert "because the folder lacks them: encoder.lm_head.bias, " in capsys.readouterr().out
    train(out)
    export(out / "model.pt", tmp_path / "trained", *words)
    assert "left out" not in capsys.readouterr().out
    config = json.loads((tmp_path / "trained" / "config.json").read_text())
    assert config["architectures"] == ["DietForMaskedLM"]
