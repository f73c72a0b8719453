"""The workflow's plan, and configs that it refuses."""

import pytest
import yaml

from tests.workflows.conftest import EncoderExperiment

pytestmark = pytest.mark.slow

EARLY = {"checkpoint_of": "rel", "updates": 25}


@pytest.fixture
def experiment(tmp_path):
    """An encoder that is fine-tuned on RTE alone."""
    return EncoderExperiment(tmp_path, questions={})


def test_the_grid_is_what_the_config_lists(experiment):
    tuning = experiment.config["tuning"] | {"rates": [1e-4, 2e-4], "seeds": [1, 2]}
    experiment.configure(questions={}, tuning=tuning)
    lines = experiment.made("-n").split("\n")
    counts = dict(line.split() for line in lines if len(line.split()) == 2)
    assert counts["finetune"] == "4"
    assert counts["pretrain"] == counts["export"] == counts["table"] == "1"


def test_a_task_of_one_s_own_is_a_file(experiment):
    task = {"train": "train.tsv", "dev": {"own": "dev.tsv"}, "text": ["sentence1"]}
    (experiment.folder / "own.yaml").write_text(yaml.safe_dump(task | {"label": "index"}))
    experiment.configure(questions={}, tasks={"mine": {"data": "RTE", "task": "own.yaml"}})
    assert " train --task own.yaml --data RTE --model" in experiment.made("-np")


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("masked_lm", "--task masked_lm --sample-break-mode complete --criterion masked_lm "),
        ("nsp", "--nsp --task masked_lm_nsp --criterion masked_lm_nsp "),
        ("electra", "--criterion electra --leave-unmasked-prob 0.15 "),
    ],
)
def test_an_objective_has_its_task_and_criterion(experiment, objective, options):
    experiment.configure(objective=objective)
    assert options in experiment.made("-np")


def test_an_option_of_a_model_wins_over_the_config(experiment):
    experiment.configure(models={"a": "roberta_shaw --lr 1"}, options="--lr 0.5")
    words = experiment.made("-np").split()
    assert [words[at + 1] for at, word in enumerate(words) if word == "--lr"][-1] == "1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "'colour' was unexpected"),
        ({"models": {"a": "bert_rope9"}}, "config.models.a: 'bert_rope9' "),
        ({"tasks": {"X": {"data": "RTE"}}}, "config.tasks.X: the task must be one of MNLI, QQP"),
        ({"tasks": {"X": {"data": "RTE", "task": "x.yaml"}}}, "X: there is no file x.yaml"),
        ({"models": {"rel": "bert_diet_rel", "e": EARLY}}, "models.e.updates must be a multi"),
        ({"models": {"e": EARLY}}, "config.models.e.checkpoint_of must be a label, but is 'rel'"),
    ],
)
def test_a_wrong_config_is_refused_by_name(experiment, change, message):
    experiment.configure(**change)
    status, output = experiment.run("-n")
    assert status == 1
    assert message in output
    assert not (experiment.folder / "out").exists()
