"""Whole workflows of encoders on a little text: results, kills, changed settings."""

import csv
import json
import os
from functools import partial

import pytest
from safetensors.torch import load_file

from tests.support import commands
from tests.support.pages import write_own_scheme
from tests.tasks.test_pretraining_runs import losses
from tests.workflows.conftest import EncoderExperiment, copy_without
from tests.workflows.test_runs import parameters

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(make_once):
    """A pretraining that is fine-tuned twice."""
    folder = make_once("encoders", lambda folder: EncoderExperiment(folder).made())
    return EncoderExperiment(folder)


@pytest.fixture
def prepared(finished, tmp_path):
    """An experiment whose text is prepared, and no encoder is pretrained."""
    names = ("runs", "hf", "tuning", "results")
    return EncoderExperiment(copy_without(finished, tmp_path / "copy", *names))


@pytest.fixture
def pretrained(finished, tmp_path):
    """An experiment whose encoder is pretrained, and not fine-tuned."""
    folder = copy_without(finished, tmp_path / "copy", "tuning", "results")
    return EncoderExperiment(folder)


def test_everything_is_made_once(finished):
    with open(finished.folder / "out/results/diet_rel.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == {"RTE", "questions"}
    assert {row["model"].rpartition("-")[0] for row in rows} == {"diet_rel-s1"}
    assert "XQuAD f1 de" in {row["measure"] for row in rows}
    assert len((finished.folder / "out/results/pretraining.csv").read_text().splitlines()) == 2
    assert "Nothing to be done" in finished.made()


def test_a_scheme_of_one_s_own_is_pretrained_and_fine_tuned(prepared):
    write_own_scheme(prepared.folder)
    prepared.configure(user_dir="turns", models={"mine": "roberta_turn"}, updates=10, questions={})
    printed = prepared.made()
    # After a few updates an encoder knows at most how frequent words are.
    assert printed.count("warning: positions have not been learned: after ") == 1
    with open(prepared.path("out/results/mine.csv"), newline="") as file:
        assert {row["task"] for row in csv.DictReader(file)} == {"RTE"}


def test_a_killed_fine_tuning_goes_on_from_its_last_epoch(finished, pretrained):
    checkpoint = "out/tuning/*/RTE/*/checkpoints/checkpoint-*/trainer_state.json"
    pretrained.kill(pretrained.start_until("finetune", checkpoint))
    assert not [*pretrained.folder.glob("out/**/result.json")]
    pretrained.made("--until", "finetune")
    assert '"tokens per second": null' in pretrained.path("out/**/result.json").read_text()
    model = "out/tuning/diet_rel-s1-*/RTE/*/model/model.safetensors"
    ours, theirs = (load_file(experiment.path(model)) for experiment in (pretrained, finished))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_files_to_validate_with_stand_in_the_config(tmp_path):
    experiment = EncoderExperiment(tmp_path)
    name = "out/runs/diet_rel-s1-c7ab1fcf"
    assert name in experiment.planned()  # as in 0.3.0, which knew no such files
    (experiment.folder / "text/valid.txt").write_text("a held-out line\n")
    experiment.configure(valid=["text/valid.txt"])
    assert name not in experiment.planned()
    experiment.made("--until", "clean")
    assert (experiment.folder / "out/clean/valid").read_text() == "a held-out line\n"


def test_an_earlier_checkpoint_of_a_run_is_a_model_of_its_own(pretrained):
    earlier = {"checkpoint_of": "diet_rel", "updates": 20}
    pretrained.configure(models={"diet_rel": "bert_diet_rel", "rel-20": earlier})
    pretrained.made("--until", "export")
    run = pretrained.path("out/runs/*")
    weights = {}
    for suffix, checkpoint in (("", "checkpoint_last.pt"), ("-u20", "checkpoint_*_20.pt")):
        exported = load_file(pretrained.folder / f"out/hf/{run.name}{suffix}/model.safetensors")
        [path] = run.glob(checkpoint)
        [trained] = [v for k, v in parameters(path).items() if k.endswith("embed_tokens.weight")]
        [weights[suffix]] = [v for k, v in exported.items() if k.endswith("embed_tokens.weight")]
        assert weights[suffix].equal(trained)
    assert not weights[""].equal(weights["-u20"])


def test_the_recipe_s_command_trains_on_two_processes_as_on_one(finished, tmp_path):
    """Without dropout: each process draws its own."""
    words = json.loads(finished.path("out/runs/*/plan.json").read_text())["command"][1:]
    words += ["--dropout", 0, "--attention-dropout", 0, "--max-update", 6, "--log-interval", 1]
    words += ["--batch-size", 4, "--log-file", "/dev/null", "--load-checkpoint-on-all-dp-ranks"]
    start = partial(os.chdir, finished.folder)
    alone = commands.run(
        "train", *words, "--update-freq", 2, "--save-dir", tmp_path / "alone", first=start
    )
    both = commands.together(*words, "--save-dir", tmp_path / "both", first=(start, start))
    assert [done.status for done in (alone, *both)] == [0, 0, 0], both[0].err
    expected = losses(alone)
    assert len(expected) == 6
    assert max(map(losses, both), key=len) == pytest.approx(expected, rel=1e-4)
