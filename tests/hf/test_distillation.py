"""`examples/encoders/distill.py`: a copy with other positions learns the original's features."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
pytest.importorskip("scipy", reason="the example needs scipy")
pytest.importorskip("sentence_transformers", reason="the example needs sentence-transformers")
import transformers
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import diet_fairseq.hf as hf
from tests.support import originals
from tests.support.pages import ROOT


def distill(
    folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch, out: str = "out"
) -> list[dict[str, float]]:
    """Run the example in a folder; the values that it logged, of all runs together."""
    words = [
        "distill.py", "original", out, "--text", "train.txt", "--position-scheme", "diet_rel",
        "--position-option", "position_clip=4", "--pairs", "pairs.tsv", "--steps", str(steps),
        "--check-every", "20", "--lr", "0.003", "--batch", "8", "--length", "12",
    ]  # fmt: skip
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(ROOT / "examples/encoders/distill.py"), run_name="__main__")
    state = json.loads((folder / f"{out}/checkpoint-{steps}/trainer_state.json").read_text())
    return state["log_history"]


@torch.no_grad()
def write_original(folder: Path) -> None:
    """Write an encoder whose features depend on positions."""
    originals.sentence_transformer(folder)
    model = transformers.BertModel.from_pretrained(folder)
    model.embeddings.position_embeddings.weight.mul_(50)
    model.save_pretrained(folder)


def write_text(folder: Path) -> None:
    """Write 245 lines to train on, and 64 held-out ones, and pairs with scores."""
    lines = [english for english, _ in originals.sentence_pairs(400)]
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in lines))
    rows = ["sentence1\tsentence2\tscore", "a dog sleeps\tthe dog sleeps\t4.5",
            "a dog\tthe hill\t1.0", "the quick fox\ta fox\t3.0"]  # fmt: skip
    (folder / "pairs.tsv").write_text("\n".join(rows))


@pytest.mark.slow
def test_a_copy_learns_the_features_and_a_second_run_continues(tmp_path, monkeypatch, caplog):
    write_original(tmp_path / "original")
    write_text(tmp_path)
    first = distill(tmp_path, 40, monkeypatch)
    losses = [row["eval_loss"] for row in first if "eval_loss" in row]
    assert losses[-1] < 0.7 * losses[0], losses
    assert all(-1 <= row["eval_spearman"] <= 1 for row in first if "eval_spearman" in row)
    second = distill(tmp_path, 60, monkeypatch)
    assert second[: len(first)] == first
    assert second[-1]["step"] == 60
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert type(model[0].model) is hf.DietEncoderModel
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model.max_seq_length == 2048
    assert len(model.encode("the dog " * 100)) == 16
    [warning] = [message for message in caplog.messages if message.startswith("an input has ")]
    assert "but the inputs of the training had at most 12: " in warning


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_parameters(tmp_path, monkeypatch):
    write_original(tmp_path / "original")
    write_text(tmp_path)
    expected = distill(tmp_path, 50, monkeypatch, "straight")
    step = transformers.Trainer.training_step
    steps = []

    def interrupt(*args: Any) -> torch.Tensor:
        steps.append(args)
        if len(steps) == 38:
            raise KeyboardInterrupt
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(transformers.Trainer, "training_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            distill(tmp_path, 50, monkeypatch)
    (tmp_path / "out" / "checkpoint-40").mkdir()  # as if it was killed while it saved
    actual = distill(tmp_path, 50, monkeypatch)
    assert [row["eval_loss"] for row in actual[-3:] if "eval_loss" in row] == [
        row["eval_loss"] for row in expected[-3:] if "eval_loss" in row
    ]
    assert actual[-1]["step"] == 50
    first, second = (
        load_file(tmp_path / name / "model.safetensors") for name in ("straight", "out")
    )
    torch.testing.assert_close(first, second, rtol=0, atol=0)
