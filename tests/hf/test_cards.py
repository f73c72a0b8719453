"""The code of an exported folder's card runs."""

import re

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from tests.hf.conftest import export, take_back
from tests.support import originals


def run_card(folder, monkeypatch):
    """Run the code of a folder's card beside the folder, and return its variables."""
    [code] = re.findall("```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(folder.parent)
    variables = {}
    exec(code, variables)
    return variables


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["encoder", "translation", "classifier"])
def test_the_card_of_a_folder_without_a_tokenizer_runs(name, request, tmp_path, monkeypatch):
    path = request.getfixturevalue(name)
    export(path, tmp_path / "hf", "--data", path.parent / "data-bin", "--subwords", "none")
    variables = run_card(tmp_path / "hf", monkeypatch)
    assert variables["model"].num_parameters() > 0
    assert "AutoTokenizer" not in variables
    assert "The folder has no tokenizer." in (tmp_path / "hf" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["translation_folder", "encoder_folder"])
def test_the_card_of_a_folder_with_a_tokenizer_runs(name, request, monkeypatch):
    folder = request.getfixturevalue(name)
    variables = run_card(folder, monkeypatch)
    inputs = variables["tokenizer"]("a dog", return_tensors="pt")
    assert variables["model"].get_input_embeddings()(inputs["input_ids"]).isfinite().all()
    assert "The folder has no tokenizer." not in (folder / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("subwords", ["none", None])
def test_the_card_of_several_languages_runs(subwords, tmp_path, monkeypatch):
    take_back(originals.m2m_100(tmp_path / "folder"), tmp_path / "out")
    words = ["--subwords", subwords] if subwords else []
    export(tmp_path / "out", tmp_path / "hf", *words)
    variables = run_card(tmp_path / "hf", monkeypatch)
    assert ("outputs" in variables) == (subwords is None)


@pytest.mark.slow
def test_the_card_of_an_encoder_without_a_head_runs(tmp_path, monkeypatch):
    take_back(originals.sentence_transformer(tmp_path / "folder"), tmp_path / "out")
    words = "--data", tmp_path / "out", "--subwords", "none"
    for name, options in (("ours", ()), ("original", ("--original",))):
        export(tmp_path / "out" / "model.pt", tmp_path / name, *words, *options)
        variables = run_card(tmp_path / name, monkeypatch)
        with torch.no_grad():
            features = variables["model"](torch.tensor([[2, 4, 5]])).last_hidden_state
        assert features.shape == (1, 3, 16)
