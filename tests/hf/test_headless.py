"""Encoders without a head, and sentence-transformers' folders: the same sentence embeddings."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from diet_fairseq.errors import UserError
from diet_fairseq.hf.convert.original import FAMILIES
from diet_fairseq.models import warm_start
from diet_fairseq.models.diet_bert import DietBertModel
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
    "DistilBertModel": (originals.distilbert, {"head": "Model"}),
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
    assert "because the folder lacks them" not in printed
    assert (
        "\nno head for masked words, because the folder has none: to pretrain a new one, remove "
        f"--no-lm-head from {tmp_path / 'out' / 'options.txt'}\n"
    ) in printed
    assert "--no-lm-head" in (tmp_path / "out" / "options.txt").read_text().split()
    assert "43 sentences, 0 masked words" in printed
    state = torch.load(tmp_path / "out" / "model.pt", weights_only=False)["model"]
    assert not any("lm_head" in name for name in state)
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
    export(out / "model.pt", tmp_path / "hf", "--original")
    compare(folder, embed(tmp_path / "hf", QUERIES + SENTENCES))
    export(out / "model.pt", tmp_path / "ours", "--data", out)
    compare(folder, embed(tmp_path / "ours", QUERIES + SENTENCES))
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
    capsys.readouterr()
    export(out / "model.pt", tmp_path / "hf", "--original")
    assert "left out" not in capsys.readouterr().out
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
    assert (
        "\nkept for `export hf`: Pooling, Normalize of sentence-transformers, "
        in capsys.readouterr().out
    )
    out = tmp_path / "out"
    compare(folder, embed_in_fairseq(folder, out, QUERIES + SENTENCES))
    export(out / "model.pt", tmp_path / "hf", "--original")
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
    export(out / "model.pt", tmp_path / "hf", "--original")
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


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["BertModel", "XLMRobertaModel"])
def test_our_class_has_no_head_either(name, tmp_path, capsys):
    """A random head would fill masks with random words, and nobody would be told."""
    folder, out = build(name, tmp_path / "folder"), tmp_path / "out"
    take_back(folder, out)
    train(out)
    capsys.readouterr()
    export(out / "model.pt", tmp_path / "hf")
    printed = capsys.readouterr().out
    assert printed.startswith(f"{tmp_path / 'hf'}: DietEncoderModel, ")
    assert not any("lm_head" in key for key in load_file(tmp_path / "hf" / "model.safetensors"))
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["DietEncoderModel"]
    compare_models(tmp_path / "hf", out, QUERIES + SENTENCES)
    loading = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )[1]
    assert "lm_head.dense.weight" in loading["missing_keys"]  # which transformers prints
    take_back(tmp_path / "hf", tmp_path / "back")
    assert "lm_head" not in capsys.readouterr().out
    with pytest.raises(UserError, match=r"^this model has no head for masked words \(--no-lm-head"):
        loaded(tmp_path / "back" / "model.pt").model(torch.tensor([[0, 5, 2]]))


def compare_models(folder: Path, out: Path, lines: list[str]) -> None:
    """Compare the features of our class in ``folder`` with the import in ``out``."""
    tokens, real = (tokenize(folder, lines)[name] for name in ("input_ids", "attention_mask"))
    known, model = loaded(out / "model.pt").model, transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        expected = known(tokens, features_only=True)[0][real.bool()]
        actual = model.eval()(tokens, attention_mask=real).last_hidden_state[real.bool()]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_new_head_is_pretrained_without_the_option(tmp_path, capsys, caplog):
    folder, out = originals.bert(tmp_path / "folder", head="Model"), tmp_path / "out"
    take_back(folder, out)
    state = {"model": loaded(out / "model.pt").model.state_dict()}
    checkpoint = torch.load(out / "model.pt", weights_only=False)
    options = checkpoint["cfg"]["model"]
    options.no_lm_head = False
    task = loaded(out / "model.pt").task
    model = DietBertModel.build_model(options, task)
    with caplog.at_level("INFO"), warm_start.checkpoint_loading(model):
        model.load_state_dict(dict(state["model"]))
    assert "not in the checkpoint: encoder.lm_head.weight, " in caplog.text
    assert model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.weight
    assert torch.equal(
        model.encoder.lm_head.weight, state["model"]["encoder.sentence_encoder.embed_tokens.weight"]
    )
    torch.save(checkpoint | {"model": model.state_dict()}, out / "model.pt")
    capsys.readouterr()
    export(out / "model.pt", tmp_path / "new")
    assert "left out: the head for masked words, which no tr" in capsys.readouterr().out
    train(out)
    export(out / "model.pt", tmp_path / "trained")
    config = json.loads((tmp_path / "trained" / "config.json").read_text())
    assert config["architectures"] == ["DietForMaskedLM"]
    export(out / "model.pt", tmp_path / "original", "--original")
    assert "left out: the head for masked words, because the imp" in capsys.readouterr().out
    with warm_start.checkpoint_loading(model := DietBertModel.build_model(without(options), task)):
        model.load_state_dict(loaded(out / "model.pt").model.state_dict())
    assert model.encoder.lm_head is None


def without(options: argparse.Namespace) -> argparse.Namespace:
    """The options of a model without a head."""
    return argparse.Namespace(**vars(options) | {"no_lm_head": True})


def test_a_distilbert_fills_masks_as_the_original(tmp_path, capsys):
    folder, out = originals.distilbert(tmp_path / "folder"), tmp_path / "out"
    take_back(folder, out)
    assert (
        "compared with transformers as text: 43 sentences, 3 masked words"
        in capsys.readouterr().out
    )
    train(out)
    export(out / "model.pt", tmp_path / "hf")
    export(out / "model.pt", tmp_path / "original", "--original")
    config = json.loads((tmp_path / "original" / "config.json").read_text())
    assert config["architectures"] == ["DistilBertForMaskedLM"]
    assert fill_mask(tmp_path / "hf", "a [MASK] sleeps") == fill_mask(
        tmp_path / "original", "a [MASK] sleeps"
    )
    assert "token_type_ids" not in tokenize(tmp_path / "hf", ["a dog"])


def fill_mask(folder: Path, text: str) -> list[tuple[str, float]]:
    """The likeliest words with their probabilities, rounded."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    fill = transformers.pipeline("fill-mask", model, tokenizer=tokenizer)
    return [(word["sequence"], pytest.approx(word["score"], abs=1e-5)) for word in fill(text)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("MPNet", "all layers of MPNet share one "),
     ("ModernBert", "most layers of ModernBERT see a window of tokens; ")],
)  # fmt: skip
def test_an_encoder_that_fairseq_can_t_have_is_refused_by_name(name, reason, tmp_path):
    getattr(transformers, f"{name}Config")().save_pretrained(tmp_path / "folder")
    text = refused(take_back, tmp_path / "folder", tmp_path / "out")
    assert f"is of the model type {name.lower()}, which can't be converted: {reason}" in text
