"""Whole workflows on a little real text: results, kills, changed settings, clusters."""

import os
import re
import shutil
import signal
import sys
import time

import pytest
import torch

from diet_fairseq import Translator
from diet_fairseq.text.lines import read_lines

pytestmark = pytest.mark.slow

#: in the order of their work; curves are drawn beside the averaging
RULES = [
    *("clean", "learn_subwords", "encode", "preprocess", "preprocess_test", "train", "curves"),
    *("average", "generate", "score", "table"),
]


def parameters(path):
    return torch.load(path, map_location="cpu", weights_only=False)["model"]


def assert_same(ours, theirs):
    ours, theirs = parameters(ours), parameters(theirs)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def wait_for(condition, process, limit=900):
    end = time.monotonic() + limit
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.02)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


# Results


def test_everything_is_made_once(finished):
    out = finished.folder / "out"
    table = (out / "results" / "table.md").read_text()
    assert re.findall(r"\| (\w+, tiny.*?) \| [\d.]+", table) == [
        "diet_rel, tiny", "diet_rel, tiny, ensemble"
    ]  # fmt: skip
    assert "BLEU: `nrefs:1|case:mixed|eff:no|tok:13a" in table
    assert len((out / "results" / "results.csv").read_text().splitlines()) == 4
    assert (out / "results" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Nothing to be done" in finished.made()


def test_plain_text_and_binarised_text_give_the_same_lines(finished):
    models = sorted((finished.folder / "out").glob("*/*/input-same.txt"))
    assert len(models) == 3  # two runs, and their ensemble
    different = set()
    for path in models:
        generated = path.parent / "evaluation-test" / "translations.txt"
        assert path.read_text() == generated.read_text()
        assert path.read_text().splitlines()[4] == ""
        different.add(path.read_text())
    assert len(different) > 1


def test_a_run_s_folder_is_enough_to_translate(finished, tmp_path):
    run = finished.path("out/runs/diet_rel-tiny-s1-*")
    shutil.copytree(run, tmp_path / "moved")
    lines = list(read_lines(finished.folder / "text" / "test.en"))
    translator = Translator(tmp_path / "moved")
    assert translator.search.penalty == "tensor2tensor"
    expected = list(read_lines(run / "evaluation-test" / "translations.txt"))
    assert translator.translate(lines) == expected


# Kills


def test_a_kill_in_each_rule_is_made_good(finished, tmp_path):
    shutil.copytree(finished.folder / "text", tmp_path / "text")
    alone = {"seeds": [1], "ensemble": False, "inputs": {}}
    experiment = type(finished)(tmp_path, **finished.config | alone)
    for rule in RULES:
        # a quick rule may have run before its predecessor was killed
        process = experiment.start("--forcerun", rule)
        seen = ""
        for line in process.stdout:
            seen += line
            if line.rstrip().endswith(f"rule {rule}:"):
                time.sleep(1)
                break
        kill(process)
        assert f"rule {rule}:" in seen
        experiment.made("--unlock")
    leftover = tmp_path / "out" / "results" / "curves.png.1-2.tmp"
    leftover.touch()  # a kill may leave such a file anywhere
    (leftover.parent / "table.md").unlink(missing_ok=True)
    experiment.made("-n")
    assert leftover.exists()
    experiment.made()
    run = "out/runs/diet_rel-tiny-s1-*/"
    for name in ("average.pt", "checkpoint_last.pt"):
        assert_same(experiment.path(run + name), finished.path(run + name))
    for name in (run + "evaluation-test/translations.txt", "out/clean/train.de"):
        assert experiment.path(name).read_bytes() == finished.path(name).read_bytes()
    assert not list(tmp_path.glob("out/**/*.tmp"))


def start_training(experiment, **changes):
    """Snakemake, whose training has written a checkpoint and has far to go."""
    experiment.configure(updates=100_000, **changes)
    process = experiment.start("--until", "train")
    wait_for(lambda: [*experiment.folder.glob("out/runs/*/checkpoint_last.pt")], process)
    return process


def test_a_changed_rate_in_mid_run_equals_a_fresh_run(prepared, finished, tmp_path):
    kill(start_training(prepared))
    prepared.made("--unlock")
    old = {path.name for path in prepared.folder.glob("out/runs/*")}
    prepared.configure(learning_rate=0.01)
    prepared.made("--until", "train")
    [new] = [p for p in prepared.folder.glob("out/runs/*") if p.name not in old]
    shutil.copytree(finished.folder / "text", tmp_path / "fresh" / "text")
    fresh = type(prepared)(tmp_path / "fresh", learning_rate=0.01)
    fresh.made("--until", "train")
    assert_same(new / "checkpoint_last.pt", fresh.path("out/runs/*/checkpoint_last.pt"))


def test_an_orphan_and_its_successor_never_train_in_one_folder(prepared):
    process = start_training(prepared)
    os.kill(process.pid, signal.SIGKILL)  # and not the training
    prepared.made("--unlock")
    status, output = prepared.run("--until", "train")
    log = prepared.path("out/runs/*/fairseq-train.log").read_text()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert status == 1, output
    assert "another" in log.splitlines()[-1]
    assert not [*prepared.folder.glob("out/runs/*/trained")]


def test_text_that_changes_under_a_run_is_refused(prepared):
    kill(start_training(prepared))
    prepared.made("--unlock")
    (prepared.folder / "text" / "train.en").write_bytes(
        (prepared.folder / "text" / "train.en").read_bytes().replace(b"A", b"The")
    )
    status, output = prepared.run("--until", "train")
    assert status == 1
    assert "was trained on other text: remove it, or name another folder" in output


# Clusters

SUBMIT = """#!{python}
import subprocess, sys
job = subprocess.Popen(["bash", sys.argv[-1]], start_new_session=True,
                       stdout=open(sys.argv[-1] + ".out", "w"), stderr=subprocess.STDOUT)
with open("{folder}/submitted", "a") as file:
    print(" ".join(sys.argv[1:-1]), file=file)
print(job.pid)
"""
STATUS = """#!{python}
import sys
try:
    state = open(f"/proc/{{sys.argv[1]}}/stat").read().split(")")[1].split()[0]
except FileNotFoundError:
    state = "Z"
print("success" if state == "Z" else "running")
"""


def test_a_cluster_runs_the_workflow_unchanged(prepared):
    """A scheduler that runs jobs as processes; it is told how many GPUs a job needs."""
    for name, text in (("submit", SUBMIT), ("status", STATUS)):
        path = prepared.folder / name
        path.write_text(text.format(python=sys.executable, folder=prepared.folder))
        path.chmod(0o755)
    submit = f"{prepared.folder}/submit --gpus {{resources.gpu}}"
    prepared.made(
        "--executor", "cluster-generic", "--cluster-generic-submit-cmd", submit,
        "--cluster-generic-status-cmd", f"{prepared.folder}/status",
        "--latency-wait", 30, "--default-resources", "gpu=0", "--until", "train",
    )  # fmt: skip
    assert prepared.path("out/runs/*/trained").exists()
    assert (prepared.folder / "submitted").read_text() == "--gpus 0\n"


# Bad text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda path: path.write_text("one line\n"),
            r"lines and text/train\.de has 300: they diff",
        ),
        (lambda path: path.write_bytes(b"a\n\xff\n"), r"train\.en, line 2: byte 1 \(0xff\) is not"),
        (lambda path: path.write_text(""), r"text/train\.en is empty"),
    ],
)
def test_bad_text_is_named_by_file_and_line(experiment, change, message):
    change(experiment.folder / "text" / "train.en")
    status, output = experiment.run("--until", "clean")
    assert status == 1
    assert re.search(rf"^error: .*{message}", output, re.MULTILINE)
    assert not list(experiment.folder.glob("out/clean/train*"))
