"""Configs: a good one shows what would run, a bad one is refused before anything runs."""

import re
import subprocess
from argparse import Namespace
from itertools import pairwise

import pytest
import yaml
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.config import translation_schemes
from tests.support.commands import slow
from tests.workflows.conftest import (
    EXAMPLES,
    EncoderExperiment,
    Experiment,
    environment,
    write_corpus,
)

SCHEMA = yaml.safe_load((EXAMPLES / "rules" / "translation.schema.yaml").read_text())


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"update": 5}, "config: Additional properties are not allowed ('update' was unexpected)"),
        ({"languages": ["en", "en"]}, "config.languages: ['en', 'en'] has non-unique elements"),
        ({"languages": ["en", "../x"]}, "config.languages.1: '../x' does not match"),
        ({"schemes": ["diet"]}, "config.schemes.0: 'diet' is not one of ['stock', 'none',"),
        ({"schemes": {"a": "diet --lr 1"}}, "config.schemes.a: 'diet --lr 1' does not match '^("),
        ({"updates": 0}, "config.updates: 0 is less than the minimum of 1"),
        ({"updates": 10007, "save_interval": 250}, "config.updates must have a divisor from 63 to"),
        ({"sizes": ["huge"]}, "config.sizes.0: 'huge' is not one of ['tiny', 'base',"),
        ({"train": "text/nosuch"}, "config: train-0: there is no file text/nosuch.en or"),
        ({"inputs": {"a": "nosuch"}}, "config.inputs.a: there is no file nosuch"),
        ({"baseline": "shaw"}, "config.baseline must be one of the schemes, diet_rel, but"),
        ({"train": {"url": "http://x", "sha": "1"}}, "config.train"),
        ({"updates": 3, "average": 5}, "config.average (default 5) is 5, more than updates, 3"),
        ({"options": "--lr '1"}, "config.options must close its quotes, but is \"--lr '1\": add"),
        ({"options": "a\nb"}, "config.options must be one line, but is 'a\\nb': write >- instead"),
        ({"schemes": {"a": "shaw \n"}}, "config.schemes.a must be one line, but is 'shaw \\n'"),
        ({"folder": "mine\n"}, "config.folder must be one line, but is 'mine\\n'"),
        ({"inputs": {"a\n": "b"}}, "a key of config.inputs must be one line, but is 'a\\n'"),
        ({"folder": "~/mine"}, "config.folder: '~/mine' does not match"),
        ({"learning_rate": "1e-3"}, "config.learning_rate: '1e-3' is not of type 'number': write"),
        ({"languages": ["en", False]}, "config.languages.1: False is not of type 'string': put it"),
    ],
)  # fmt: skip
def test_a_bad_config_is_refused_in_one_message(experiment, change, message):
    experiment.configure(**change)
    status, output = experiment.run()
    assert status == 1
    [line] = [line for line in output.splitlines() if re.match("(a key of )?config", line)]
    assert line.startswith(message)
    assert not (experiment.folder / "out").exists()


def test_the_schema_knows_every_scheme_of_the_package():
    names = ["stock", *translation_schemes()]
    assert SCHEMA["$defs"]["scheme"]["enum"] == names
    labelled = SCHEMA["properties"]["schemes"]["oneOf"][1]["additionalProperties"]["pattern"]
    assert labelled == f"^({'|'.join(names)})( .*)?$"


def test_every_key_has_a_default_or_is_required():
    keys = SCHEMA["properties"]
    assert {key for key, rule in keys.items() if "default" not in rule} == set(SCHEMA["required"])


def test_every_key_of_wmt18_has_a_comment():
    lines = ["", *(EXAMPLES / "wmt18" / "config.yaml").read_text().splitlines()]
    keys = [(before, line) for before, line in pairwise(lines) if re.match(r"\w+:", line)]
    bare = [line for before, line in keys if " # " not in line and not before.startswith("# ")]
    assert bare == []


@pytest.mark.parametrize("name", ["", "demo", "papers", "roberta"])
def test_a_killed_step_runs_again_by_the_profile(name):
    path = EXAMPLES / name / "profiles" / "default" / "config.yaml"
    profile = yaml.safe_load(path.read_text())
    assert profile["rerun-incomplete"] is True
    assert profile["rerun-triggers"] == ["input", "params", "mtime"]


def test_the_grid_is_schemes_by_sizes_by_seeds(experiment):
    experiment.configure(
        schemes={"a": "shaw", "b": "shaw --lr 1"}, sizes=["tiny", "base"], seeds=[1, 2]
    )
    output = experiment.made("-np")
    assert "train                  8" in output
    names = {word.split("/")[2] for word in output.split() if word.endswith("/trained")}
    assert {name.rpartition("-")[0] for name in names} == {
        f"{label}-{size}-s{seed}" for label in "ab" for size in ("tiny", "base") for seed in (1, 2)
    }
    assert "--arch transformer_shaw_tiny " in output
    assert "--arch transformer_shaw " in output
    assert re.search(r" --lr 0[.]\d+ .* --lr 1 ", output)  # an option of the scheme wins
    assert not (experiment.folder / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ({"learning_rate": 0.001}, True),
        ({"vocabulary": 301}, True),
        ({"options": "--dropout 0.2"}, True),
        ({"updates": 7}, True),
        ({"gpus": 2}, False),
        ({"threads": 2}, False),
        ({"beam": 3}, False),
    ],
)
def test_a_setting_that_shapes_learning_names_another_folder(experiment, change, is_another):
    before = experiment.made("-n")
    experiment.configure(**change)
    after = experiment.made("-n")
    names = [{w for w in out.split() if "/trained" in w} for out in (before, after)]
    assert (names[0] != names[1]) == is_another


def test_the_batch_is_the_same_on_any_number_of_gpus(experiment):
    batches = {}
    for gpus in (0, 4):
        experiment.configure(gpus=gpus, batch=20000, tokens_per_gpu=2500)
        words = experiment.made("-np", "--resources", "gpu=4").split()
        tokens, steps = (
            int(words[words.index(name) + 1]) for name in ("--max-tokens", "--update-freq")
        )
        batches[gpus] = max(1, gpus) * tokens * steps
        assert tokens <= 2500
    assert set(batches.values()) == {20000}


@pytest.mark.parametrize(("gpus", "batch"), [(0, 32), (2, 32), (3, 33)])
def test_a_batch_of_samples_is_never_rounded(tmp_path, gpus, batch):
    experiment = EncoderExperiment(tmp_path, gpus=gpus, batch=batch, samples_per_gpu=5)
    words = experiment.made("-np", "--resources", "gpu=4", "--until", "pretrain").split()
    size, steps = (int(words[words.index(name) + 1]) for name in ("--batch-size", "--update-freq"))
    assert max(1, gpus) * size * steps == batch
    assert size <= 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"length": 64},
            "config: length 90 of RTE must be at most 64, the model's positions",
        ),
        (
            {"questions": {"train": "squad.json"}},
            "config.questions: stride 128 must be below 23",
        ),
        ({"wikitext": ["text/e.txt"]}, "config.wikitext must name files of text or valid, but has"),
        ({"gpus": 3}, "config.batch must be a multiple of gpus, 3, but is 8"),
        (
            {"tuning": {"batch": 8, "per_step": 3, "length": 90}},
            "config.tuning.per_step must divide batch, 8, but is 3: take a divisor",
        ),
        ({"questions": {"stride": 5}}, "config.questions: 'train' is a required property"),
        ({"models": {"pretraining": "bert_t5"}}, "config.models: 'pretraining' does not match"),
    ],
)
def test_a_bad_config_of_an_encoder_is_refused(tmp_path, change, message):
    status, output = EncoderExperiment(tmp_path, **change).run("-n")
    assert status == 1
    assert message in output


def test_one_seed_is_no_ensemble(experiment):
    experiment.configure(ensemble=True, seeds=[1])
    assert "ensembles/" not in experiment.made("-n")


@pytest.mark.few(1)
@pytest.mark.parametrize(("updates", "interval"), [(650, 130), (3, 3), (400, 200), (1000, 250)])
def test_the_last_checkpoint_is_saved_after_the_last_update(experiment, updates, interval):
    experiment.configure(updates=updates, save_interval=250, average=1 if updates != 650 else 4)
    assert f"--save-interval-updates {interval} " in experiment.made("-np")
    assert updates % interval == 0


def test_stock_tiny_has_the_shape_of_our_tiny(experiment):
    experiment.configure(schemes=["stock"], options="")
    command = experiment.made("-np")
    words = command[command.index("--arch transformer ") :].split()
    ours = Namespace()
    ARCH_CONFIG_REGISTRY["transformer_none_tiny"](ours)
    for side in ("encoder", "decoder"):
        for part in ("layers", "embed-dim", "ffn-embed-dim", "attention-heads"):
            value = words[words.index(f"--{side}-{part}") + 1]
            assert int(value) == getattr(ours, f"{side}_{part.replace('-', '_')}")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["demo", "wmt18", "multi30k", "tatoeba"])
def test_the_carried_configs_are_valid(name, tmp_path):
    """All rules that they need are there; a missing local corpus is named."""
    config = yaml.safe_load((EXAMPLES / name / "config.yaml").read_text())
    for place in (config[key] for key in ("train", "valid", "test")):
        if isinstance(place, str) and not place.startswith("examples/"):
            (tmp_path / place).parent.mkdir(exist_ok=True)
            for lang in config["languages"]:
                (tmp_path / f"{place}.{lang}").write_text("a\n")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    experiment = Experiment(tmp_path)
    (tmp_path / "config.yaml").write_text((EXAMPLES / name / "config.yaml").read_text())
    assert "train" in experiment.made("-n", "--resources", "gpu=1")


@pytest.mark.parametrize(
    "snakefile",
    ["Snakefile", *slow(["demo/Snakefile", "roberta/Snakefile", "papers/Snakefile"])],
)
def test_the_linter_wants_nothing_but_containers(tmp_path, snakefile):
    """The environment is the package's own."""
    write_corpus(tmp_path / "text")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    experiment = (EncoderExperiment if "roberta" in snakefile else Experiment)(tmp_path)
    experiment.snakefile = snakefile
    done = subprocess.run(
        experiment.command("--lint"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    advice = {line.strip() for line in done.stderr.splitlines() if line.startswith("    * ")}
    assert advice == {"* Specify a conda environment or container for each rule.:"}, done.stderr
    assert "localrules" not in done.stderr


def edges(graph):
    names = dict(re.findall(r"(id\d+)\[(\w+)\]", graph))
    return {(names[a], names[b]) for a, b in re.findall(r"(id\d+) --> (id\d+)", graph)}


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("README.md", Experiment),
        pytest.param("roberta/README.md", EncoderExperiment, marks=pytest.mark.slow),
    ],
)
def test_the_picture_in_the_docs_is_the_graph_of_the_rules(tmp_path, page, kind):
    write_corpus(tmp_path / "text")
    experiment = kind(tmp_path)
    if kind is Experiment:
        experiment.configure(inputs={"mine": "text/test.en"})
    graph = experiment.made("--rulegraph", "mermaid-js")
    picture = (EXAMPLES / page).read_text().partition("```mermaid")[2].partition("```")[0]
    assert edges(picture) == edges(graph) != set()
