"""Whole workflows of encoders on a little text: results, kills, changed settings."""

import copy
import csv
import os
import shutil
import signal

import pytest
from safetensors.torch import load_file

from tests.support.pages import write_own_scheme
from tests.workflows.conftest import EncoderExperiment
from tests.workflows.test_runs import (
    assert_same,
    parameters,
)

pytestmark = pytest.mark.slow

RULES = [
    *("clean", "learn_subwords", "encode", "preprocess", "pretrain", "pretraining_table"),
    *("export", "finetune", "answer", "table"),
]
TUNINGS = ("RTE", "questions")
LONG_TUNING = EncoderExperiment.tiny["tuning"] | {"epochs": [10_000]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A pretraining that is fine-tuned twice."""
    experiment = EncoderExperiment(tmp_path_factory.mktemp("encoders"))
    experiment.made()
    return experiment


@pytest.fixture
def experiment(tmp_path):
    return EncoderExperiment(tmp_path)


@pytest.fixture
def pretrained(finished, tmp_path):
    """An experiment whose encoder is pretrained, and not fine-tuned."""
    experiment = copy.copy(finished)
    experiment.folder = tmp_path / "copy"
    shutil.copytree(finished.folder, experiment.folder, copy_function=shutil.copy2)
    for name in ("tuning", "results"):
        shutil.rmtree(experiment.folder / "out" / name)
    return experiment


def assert_same_models(ours, theirs, task):
    model = f"out/tuning/diet_rel-s1-*/{task}/*/model/model.safetensors"
    ours, theirs = (load_file(experiment.path(model)) for experiment in (ours, theirs))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_everything_is_made_once(finished):
    with open(finished.folder / "out/results/diet_rel.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == set(TUNINGS)
    assert {row["model"].rpartition("-")[0] for row in rows} == {"diet_rel-s1"}
    assert "XQuAD f1 de" in {row["measure"] for row in rows}
    assert len((finished.folder / "out/results/pretraining.csv").read_text().splitlines()) == 2
    assert "Nothing to be done" in finished.made()


def test_a_scheme_of_one_s_own_is_pretrained_and_fine_tuned(experiment):
    write_own_scheme(experiment.folder)
    experiment.configure(user_dir="turns", models={"mine": "roberta_turn"}, updates=10)
    experiment.made()
    with open(experiment.path("out/results/mine.csv"), newline="") as file:
        assert {row["task"] for row in csv.DictReader(file)} == set(TUNINGS)


def test_a_kill_in_each_rule_changes_no_result(finished, experiment):
    for rule in RULES:
        experiment.kill_in(rule)
    experiment.made()
    last = "out/runs/diet_rel-s1-*/checkpoint_last.pt"
    assert_same(experiment.path(last), finished.path(last))
    for task in TUNINGS:
        assert_same_models(experiment, finished, task)


@pytest.mark.parametrize(("rule", "task"), [("finetune", "RTE"), ("answer", "questions")])
def test_a_killed_fine_tuning_goes_on_from_its_last_epoch(finished, pretrained, rule, task):
    checkpoint = f"out/tuning/*/{task}/*/checkpoints/checkpoint-*/trainer_state.json"
    pretrained.kill(pretrained.start_until(rule, checkpoint))
    assert not [*pretrained.folder.glob("out/**/result.json")]
    pretrained.made("--until", rule)
    assert '"tokens per second": null' in pretrained.path("out/**/result.json").read_text()
    assert_same_models(pretrained, finished, task)


def test_an_orphan_and_its_successor_never_share_a_folder(pretrained):
    pattern = "out/**/RTE/*/checkpoints/checkpoint-*"
    process = pretrained.start_until("finetune", pattern, tuning=LONG_TUNING)
    os.kill(process.pid, signal.SIGKILL)  # and not the training
    pretrained.unlock()
    status, output = pretrained.run("--until", "finetune")
    lines = pretrained.path("out/**/RTE/*/log").read_text().splitlines()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert status == 1, output
    assert "is in use by another training" in lines[-1]


def test_files_to_validate_with_stand_in_the_config(experiment):
    name = "out/runs/diet_rel-s1-c7ab1fcf"
    assert name in experiment.made("-n")  # as in 0.3.0, which knew no such files
    (experiment.folder / "text/valid.txt").write_text("a held-out line\n")
    experiment.configure(valid=["text/valid.txt"])
    assert name not in experiment.made("-n")
    experiment.made("--until", "clean")
    assert (experiment.folder / "out/clean/valid").read_text() == "a held-out line\n"


def test_an_earlier_checkpoint_of_a_run_is_a_model_of_its_own(experiment):
    models = {"rel": "bert_diet_rel", "rel-20": {"checkpoint_of": "rel", "updates": 20}}
    experiment.configure(models=models, keep=-1)
    experiment.made("--until", "export")
    run = experiment.path("out/runs/*")
    weights = {}
    for suffix, checkpoint in (("", "checkpoint_last.pt"), ("-u20", "checkpoint_*_20.pt")):
        exported = load_file(experiment.folder / f"out/hf/{run.name}{suffix}/model.safetensors")
        [path] = run.glob(checkpoint)
        [trained] = [v for k, v in parameters(path).items() if k.endswith("embed_tokens.weight")]
        [weights[suffix]] = [v for k, v in exported.items() if k.endswith("embed_tokens.weight")]
        assert weights[suffix].equal(trained)
    assert not weights[""].equal(weights["-u20"])
