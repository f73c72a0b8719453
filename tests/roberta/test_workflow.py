"""What the workflow plans, and configs that it refuses."""

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
    task = {"train": "train.tsv", "dev": {"own": "dev.tsv"}, "text": ["sentence1"]}
    (experiment.folder / "own.yaml").write_text(yaml.safe_dump(task | {"label": "index"}))
    tasks = {"mine": {"data": "RTE", "task": "own.yaml"}}
    experiment.configure(questions={}, tuning=tuning, tasks=tasks, pretraining_seeds=[1, 2])
    output = experiment.planned("-p")
    counts = dict(line.split() for line in output.split("\n") if len(line.split()) == 2)
    assert counts["finetune"] == "8"
    assert counts["pretrain"] == counts["export"] == "2"
    assert counts["table"] == "1"
    assert " train --task own.yaml --data RTE --model" in output


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("masked_lm", "--task masked_lm --sample-break-mode complete --criterion masked_lm "),
        ("nsp", "--nsp --task masked_lm_nsp --criterion masked_lm_nsp "),
        ("electra", "--criterion electra --leave-unmasked-prob 0.15 "),
    ],
)
def test_an_objective_has_its_task_and_criterion(experiment, objective, options):
    models = {"a": f"{'bert' if objective == 'nsp' else 'roberta'}_shaw --lr 1"}
    experiment.configure(objective=objective, models=models, options="--lr 0.5")
    output = experiment.planned("-p")
    assert options in output
    words = output.split()  # an option of a model wins over the config's
    assert [words[at + 1] for at, word in enumerate(words) if word == "--lr"][-1] == "1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"objective": "nsp", "models": {"a": "roberta_shaw"}},
            "config.objective: fairseq-train has no option --nsp with --arch roberta_shaw_tiny",
        ),
        ({"tasks": {"X": {"data": "RTE"}}}, "config.tasks.X: the task must be one of MNLI, QQP"),
        ({"tasks": {"X": {"data": "RTE", "task": "x.yaml"}}}, "config.tasks.X: file not found: x"),
        ({"models": {"rel": "bert_diet_rel", "e": EARLY}}, "config.models.e.updates must be a mul"),
        ({"models": {"e": EARLY}}, "config.models.e.checkpoint_of must be a label, but is 'rel'"),
    ],
)
def test_a_wrong_config_is_refused_by_name(experiment, change, message):
    experiment.configure(**change)
    assert experiment.refusal().startswith(message)
