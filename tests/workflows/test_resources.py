"""Memory and time that the steps of a workflow reserve, and what a failed step says."""

import gzip
import re

import pytest
import yaml

from tests.workflows.conftest import EXAMPLES

pytestmark = pytest.mark.slow

PROFILES = EXAMPLES / "profiles"


def resources(plan):
    """Rule -> its resources, in a dry run that prints them."""
    parts = re.findall(r"^(?:local)?rule (\w+):\n((?:    .*\n)+)", plan, re.MULTILINE)
    return {rule: re.search(r"resources: (.*)", text)[1] for rule, text in parts}


def megabytes(plan, rule):
    return int(re.search(r"mem_mb=(\d+)", resources(plan)[rule])[1])


def test_memory_grows_with_the_text(experiment):
    small = megabytes(experiment.planned("--until", "clean"), "clean")
    for lang in ("en", "de"):
        with gzip.open(experiment.folder / f"big.{lang}.gz", "wt") as file:
            file.writelines(f"a sentence with the number {number}\n" for number in range(200_000))
    experiment.configure(train=["text/train", "big"])
    assert 20 <= megabytes(experiment.planned("--until", "clean"), "clean") - small <= 30


def test_a_training_s_memory_grows_with_its_text_processes_and_size(prepared):
    prepared.configure(gpus=1)
    one = megabytes(prepared.planned("--until", "train"), "train")
    prepared.configure(gpus=4, sizes=["base"])
    assert megabytes(prepared.planned("--until", "train"), "train") > 4 * 2 * one
    (prepared.folder / "out/data-bin/train.en-de.en.idx").write_bytes(bytes(12_000_000))
    prepared.configure(gpus=1)
    assert megabytes(prepared.planned("--until", "train"), "train") == one + 200


def test_other_resources_run_no_step_again(finished):
    assert "Nothing to be done" in finished.planned("--set-resources", "train:mem_mb=77000")


@pytest.mark.parametrize("name", ["one_gpu", "slurm"])
def test_profiles_are_read(prepared, name):
    content = yaml.safe_load((PROFILES / name / "config.yaml").read_text())
    if content.get("executor") == "slurm":
        pytest.importorskip("snakemake_executor_plugin_slurm")
    plan = prepared.planned("--profile", PROFILES / name)
    assert {"train", "generate", "table"} <= resources(plan).keys()
    assert "runtime=1440" in resources(plan)["train"]  # and not the profile's default


def test_a_killed_step_names_the_signal_and_not_the_last_line_of_its_log(experiment):
    modules = experiment.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if any(word.endswith('clean.py') for word in sys.orig_argv):\n"
        "    print('Warning: a library has changed', flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    experiment.environment["PYTHONPATH"] = f"{modules}:{experiment.environment['PYTHONPATH']}"
    process = experiment.start("--until", "clean")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert (experiment.folder / "out/logs/clean.log").read_text().startswith("Warning: ")
    assert output.splitlines()[-2:] == [
        "step clean failed, see out/logs/clean.log",
        "error: the step was ended from outside by SIGKILL: see the log of the system or of the "
        "scheduler",
    ]
