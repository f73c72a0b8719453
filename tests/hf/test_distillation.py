"""`examples/encoders/distill.py`: a copy with other positions learns the original's features."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
pytest.importorskip("scipy", reason="the example needs scipy")
import transformers

import diet_fairseq.hf as hf
from tests.support import originals
from tests.support.pages import ROOT


def distill(folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Run the example in a folder; the values that it logged, of all runs together."""
    words = [
        "distill.py", "original", "out", "--text", "train.txt", "--position-scheme", "diet_rel",
        "--position-option", "position_clip=4", "--pairs", "pairs.tsv", "--steps", str(steps),
        "--check-every", "20", "--lr", "0.003", "--batch", "8",
    ]  # fmt: skip
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(ROOT / "examples/encoders/distill.py"), run_name="__main__")
    state = json.loads((folder / f"out/checkpoint-{steps}/trainer_state.json").read_text())
    return state["log_history"]


@torch.no_grad()
def write_original(folder: Path) -> None:
    """Write an encoder whose features depend on positions."""
    originals.bert(folder, head="Model")
    model = transformers.BertModel.from_pretrained(folder)
    model.embeddings.position_embeddings.weight.mul_(50)
    model.save_pretrained(folder)


@pytest.mark.slow
def test_a_copy_learns_the_features_and_a_second_run_continues(tmp_path, monkeypatch):
    write_original(tmp_path / "original")
    lines = [english for english, _ in originals.sentence_pairs(400)]
    (tmp_path / "train.txt").write_text("".join(f"{line}\n" for line in lines))
    rows = ["sentence1\tsentence2\tscore", "a dog sleeps\tthe dog sleeps\t4.5",
            "a dog\tthe hill\t1.0", "the quick fox\ta fox\t3.0"]  # fmt: skip
    (tmp_path / "pairs.tsv").write_text("\n".join(rows))
    first = distill(tmp_path, 40, monkeypatch)
    losses = [row["eval_loss"] for row in first if "eval_loss" in row]
    assert losses[-1] < 0.7 * losses[0], losses
    assert all(-1 <= row["eval_spearman"] <= 1 for row in first if "eval_spearman" in row)
    second = distill(tmp_path, 60, monkeypatch)
    assert second[: len(first)] == first
    assert second[-1]["step"] == 60
    assert type(transformers.AutoModel.from_pretrained(tmp_path / "out")) is hf.DietEncoderModel
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "out")) > 10
