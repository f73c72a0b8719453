"""Encoders that start from a model: continued pretraining, other positions, and a table."""

import csv
import json
from pathlib import Path
from typing import ClassVar

import pytest
import transformers

from diet_fairseq.cli import main
from tests.support import originals
from tests.support.texts import write
from tests.workflows.conftest import EncoderExperiment, copy_without
from tests.workflows.test_runs import assert_same

pytestmark = pytest.mark.slow

#: keys that the model decides about
REMOVED = ("models", "vocabulary", "options", "questions")
#: a training that changes no parameter
UNCHANGED = {"updates": 1, "learning_rate": 0, "schemes": ["start"], "tasks": {}}
#: class of a masked language model -> the function that builds a folder of it
CLASSES = {
    "BertForMaskedLM": originals.bert,
    "RobertaForMaskedLM": originals.roberta,
    "ElectraForMaskedLM": originals.electra,
}


class StartExperiment(EncoderExperiment):
    """A tiny model, trained further on sentences of its words."""

    tiny: ClassVar = {k: v for k, v in EncoderExperiment.tiny.items() if k not in REMOVED} | {
        "start": "model",
        "schemes": ["start", "diet_rel"],
        "updates": 60,
        "learning_rate": 0.01,
        "length": 30,
        "save_interval": 20,
        "tuning": {"rates": [0.001], "epochs": [1], "seeds": [1], "batch": 8, "length": 30},
    }

    def write_text(self) -> None:
        super().write_text()
        lines = [english for english, _ in originals.sentence_pairs(400)]
        write(self.folder / "text" / "en.txt", sorted(set(lines)))

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a table in the folder of results."""
        with open(self.folder / "out" / "results" / name, newline="") as file:
            return list(csv.DictReader(file))


def fill_masks(folder: Path) -> list[str]:
    """The sentences with the words that a model of transformers' own class puts in for masks."""
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=1)
    sentences = ["the quick {} fox", "a {} sleeps", "the {} over the hill"]
    return [fill(line.format(tokenizer.mask_token))[0]["sequence"] for line in sentences]


@pytest.fixture(scope="module")
def finished(make_once):
    """An XLM-R, trained further with its own positions and with DIET-REL, and fine-tuned."""

    def make(folder: Path) -> None:
        folder.mkdir()
        originals.xlm_roberta(folder / "model")
        StartExperiment(folder).made()

    return StartExperiment(make_once("encoder-start", make))


def test_the_table_begins_with_the_model_as_it_was(finished):
    rows = finished.rows("adaptation.csv")
    names = [row["model"].rpartition("-")[0] or row["model"] for row in rows]
    assert names == ["as it was", "start-s1", "diet_rel-s1"]
    before, *after = [float(row["valid loss, bits"]) for row in rows]
    assert max(after) < before - 0.5
    assert all(0 <= float(row["RTE RTE_accuracy"]) <= 100 for row in rows)
    assert "Nothing to be done" in finished.made()


def test_a_trained_model_is_of_its_class_again_only_with_its_positions(finished, tmp_path):
    run = finished.path("out/runs/start-s1-*")
    words = ["export", "hf", run / "checkpoint_last.pt", tmp_path / "hf", "--original"]
    main([*map(str, words)])
    fill_masks(tmp_path / "hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["architectures"] == [
        "XLMRobertaForMaskedLM"
    ]


def test_a_moved_start_trains_nothing_and_a_changed_one_trains_anew(finished, tmp_path):
    copy = StartExperiment(copy_without(finished, tmp_path / "copy"))
    (copy.folder / "model").rename(copy.folder / "moved")
    copy.configure(start="moved")
    assert "Nothing to be done" in copy.made()
    config = copy.folder / "moved" / "config.json"
    config.write_text(config.read_text() + " ")
    plan = copy.planned()
    assert "rule import_start" in plan
    assert plan.count("rule pretrain:") == 2


def test_a_killed_training_resumes_bit_for_bit(finished, tmp_path):
    names = ("runs", "hf", "tuning", "results")
    copy = StartExperiment(copy_without(finished, tmp_path / "copy", *names))
    checkpoint = "out/runs/start-*/checkpoint_*_20.pt"
    copy.kill(copy.start_until("pretrain", checkpoint, schemes=["start"]))
    assert not [*copy.folder.glob("out/runs/start-*/trained")]
    copy.made("--until", "pretrain")
    last = "out/runs/start-*/checkpoint_last.pt"
    assert_same(copy.path(last), finished.path(last))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", CLASSES)
def test_a_training_without_changes_keeps_the_loss_and_the_filled_masks(name, tmp_path):
    CLASSES[name](tmp_path / "model")
    experiment = StartExperiment(tmp_path, **UNCHANGED)
    experiment.made()
    before, after = experiment.rows("adaptation.csv")
    assert before["valid loss, bits"] == after["valid loss, bits"] != ""
    run = experiment.path("out/runs/*/checkpoint_last.pt")
    main(["export", "hf", str(run), str(tmp_path / "hf"), "--original"])
    assert fill_masks(tmp_path / "hf") == fill_masks(tmp_path / "model")


def test_a_model_without_a_head_trains_a_new_one(tmp_path):
    originals.bert(tmp_path / "model", "Model")
    experiment = StartExperiment(tmp_path, schemes=["start"])
    assert "warning: model has no trained head for masked words" in experiment.made()
    before, after = experiment.rows("adaptation.csv")
    assert before["valid loss, bits"] == ""
    assert float(after["valid loss, bits"]) > 0
    assert all(0 <= float(row["RTE RTE_accuracy"]) <= 100 for row in (before, after))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subwords": "sentencepiece"}, "config.subwords must not be set beside start, whose "
         "subwords split the text, but is 'sentencepiece': remove it"),
        ({"models": {"a": "bert_shaw"}}, "config.models must not be set beside start, whose class "
         "stays, but is {'a': 'bert_shaw'}: write schemes: [start, diet_rel]"),
        ({"objective": "electra"}, "config.objective must be masked_lm beside start, because "),
        ({"length": 90}, "config.length must be at most 32, the positions of start, but is 90: "),
        ({"start": "text"}, "config.start must have config.json, model.pt or checkpoint_last.pt, "
         "but text has none of them: name a folder of transformers"),
        ({"start": "out/runs/a"}, "config.start must lie outside of folder, out, whose content "),
        ({"schemes": ["start --colour red"]}, "config.schemes.start --colour red: fairseq-train "
         "has no option --colour"),
    ],
)  # fmt: skip
def test_a_key_that_contradicts_the_model_is_refused(tmp_path, changes, message):
    originals.xlm_roberta(tmp_path / "model")
    assert StartExperiment(tmp_path, **changes).refusal().startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0}, "config.learning_rate must be above 0 without start, but is 0"),
        ({"warmup": 1}, "config.warmup must be less than 1, but is 1"),
        ({"schemes": ["rope"]}, "config.schemes must not be set without start, but is ['rope']: "),
    ],
)
def test_a_key_that_needs_a_start_is_refused(tmp_path, changes, message):
    assert EncoderExperiment(tmp_path, **changes).refusal().startswith(message)
