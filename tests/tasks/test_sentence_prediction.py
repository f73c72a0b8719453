"""fairseq's own task sentence_prediction fine-tunes our encoders for those who stay in fairseq."""

import random
import re

import pytest

from tests.support.commands import run, slow

pytestmark = pytest.mark.slow

SIZES = [
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--max-positions", "32", "--dropout", "0"),
]
TASK = [
    *("--task", "sentence_prediction", "--criterion", "sentence_prediction", "--num-classes", "2"),
    *("--init-token", "0", "--separator-token", "2"),
]
PRETRAINING = [
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", "16"),
    *("--batch-size", "16", "--max-update", "2", "--optimizer", "adam", "--cpu"),
    *("--num-workers", "0", "--log-format", "json"),
]
EPOCHS = 5
TRAINING = [
    *("--batch-size", "16", "--max-epoch", EPOCHS, "--optimizer", "adam", "--lr", "0.02"),
    *("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"),
    *("--no-epoch-checkpoints", "--cpu", "--num-workers", "0", "--log-format", "json"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pairs of sentences; the label tells whether their first words are the same."""
    folder = tmp_path_factory.mktemp("pairs")
    draw = random.Random(1)
    for split, size in (("train", 160), ("valid", 40)):
        columns = {"input0": [], "input1": [], "label": []}
        for number in range(size):
            first = draw.choice("ab")
            second = first if number % 2 else "ab"[first == "a"]
            for name, word in (("input0", first), ("input1", second)):
                words = [word, *draw.choices("cdefgh", k=draw.randint(1, 5))]
                columns[name].append(" ".join(words))
            columns["label"].append(["different", "same"][number % 2])
        for name, lines in columns.items():
            (folder / f"{split}.{name}").write_text("".join(f"{line}\n" for line in lines))
    for name in ("input0", "input1", "label"):
        shared = ["--srcdict", folder / "data/input0/dict.txt"] if name == "input1" else []
        done = run(
            "preprocess", "--only-source", "--trainpref", folder / f"train.{name}",
            "--validpref", folder / f"valid.{name}", "--destdir", folder / "data" / name, *shared,
        )  # fmt: skip
        assert done.status == 0, done.text
    return folder / "data"


@pytest.mark.parametrize("scheme", ["diet_rel", *slow(["linformer"])])  # and compressed keys
def test_fairseq_s_sentence_prediction_trains_our_encoders(data, tmp_path, scheme):
    arch = ["--arch", f"roberta_{scheme}_tiny", *SIZES]
    done = run("train", data / "input0", *arch, *PRETRAINING, "--save-dir", tmp_path / "pretrained")
    assert done.status == 0, done.text
    start = ["--finetune-from-model", tmp_path / "pretrained" / "checkpoint_last.pt"]
    done = run("train", data, *arch, *TASK, *TRAINING, *start, "--save-dir", tmp_path)
    assert done.status == 0, done.text
    assert "pretrained/checkpoint_last.pt" in done.text.partition("Loaded checkpoint")[2]
    accuracies = re.findall(r'"valid_accuracy": "([\d.]+)"', done.text)
    losses = [float(loss) for loss in re.findall(r'"train_loss": "([\d.]+)"', done.text)]
    assert len(accuracies) == EPOCHS
    assert losses[-1] < losses[0]
    best = tmp_path / "checkpoint_best.pt"
    done = run("validate", data, "--path", best, *TASK, "--batch-size", 16, "--cpu")
    assert done.status == 0, done.text
    [accuracy] = re.findall(r"accuracy ([\d.]+)", done.text)
    assert float(accuracy) == max(map(float, accuracies))
