"""The code of an exported folder's card runs."""

import hashlib
import json
import re
import shutil

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
from huggingface_hub import ModelCard

from tests.hf.conftest import export, take_back
from tests.hf.test_bad_input import refused
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


def write_scores(folder, test, **changes):
    """Scores as a workflow writes them beside a checkpoint."""
    evaluation = folder / f"evaluation-{test}"
    evaluation.mkdir(exist_ok=True)
    scores = {"lines": 12, "BLEU": 23.4567, "BLEU signature": "nrefs:1|tok:13a", "chrF": 50,
              "chrF signature": "nrefs:1|nc:6", "beam": 5}  # fmt: skip
    (evaluation / "scores.json").write_text(json.dumps(scores | changes))
    return evaluation


@pytest.fixture
def scored(translation, tmp_path):
    """A checkpoint with the scores of two test sets, one of which are another checkpoint's."""
    shutil.copytree(translation.parent, tmp_path / "run", ignore=shutil.ignore_patterns("hf"))
    path = tmp_path / "run" / translation.name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    evaluation = write_scores(path.parent, "news", sha256=digest)
    metric = {"score": 0.81239, "command": ["comet-score"], "sentences": [0.8] * 12}
    (evaluation / "metric-COMET.json").write_text(json.dumps(metric))
    write_scores(path.parent, "other", sha256="0" * 64)
    write_scores(path.parent, "ensemble")  # whose scores have no digest
    return path


def test_scores_of_the_checkpoint_are_in_the_card(scored, tmp_path):
    words = "--data", scored.parent / "data-bin", "--subwords", "none"
    export(scored, tmp_path / "hf", *words)
    data = ModelCard.load(tmp_path / "hf" / "README.md").data
    assert data.model_name == "hf"
    rows = [
        (result.dataset_name, result.metric_type, result.metric_name, result.metric_value,
         result.metric_config)
        for result in data.eval_results
    ]  # fmt: skip
    assert rows == [
        ("news", "bleu", "BLEU", 23.46, "nrefs:1|tok:13a"),
        ("news", "chrf", "chrF", 50.0, "nrefs:1|nc:6"),
        ("news", "comet", "COMET", 0.8124, None),
    ]
    names = {(result.task_type, result.task_name) for result in data.eval_results}
    assert names == {("translation", "Translation en to de")}


def test_scores_of_other_checkpoints_are_not_in_the_card(scored, tmp_path):
    write_scores(scored.parent, "news", sha256="1" * 64)
    words = "--data", scored.parent / "data-bin", "--subwords", "none"
    export(scored, tmp_path / "hf", *words)
    assert "model-index" not in (tmp_path / "hf" / "README.md").read_text()


@pytest.mark.slow
def test_scores_are_in_the_card_of_an_original_class(tmp_path):
    take_back(originals.marian(tmp_path / "folder"), tmp_path / "out")
    digest = hashlib.sha256((tmp_path / "out" / "model.pt").read_bytes()).hexdigest()
    write_scores(tmp_path / "out", "news", sha256=digest)
    export(tmp_path / "out", tmp_path / "hf", "--original")
    data = ModelCard.load(tmp_path / "hf" / "README.md").data
    assert [(r.dataset_name, r.metric_name, r.metric_value) for r in data.eval_results] == [
        ("news", "BLEU", 23.46), ("news", "chrF", 50.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"BLEU": "23"},
            r"evaluation-news/scores\.json: BLEU must be a valid number, but is \"23\"",
        ),
        (
            {"chrF": float("nan")},
            r"scores\.json: chrF must be a finite number, but is NaN; remove it",
        ),
        (
            {"BLEU signature": "x" * 301},
            r"scores\.json: BLEU signature must have at most 300 charact",
        ),
    ],
)
def test_scores_that_are_not_valid_are_refused(changes, message, scored, tmp_path):
    write_scores(scored.parent, "news", **changes)
    words = "--data", scored.parent / "data-bin", "--subwords", "none"
    assert re.search(message, refused(export, scored, tmp_path / "hf", *words))
    assert not (tmp_path / "hf").exists()
