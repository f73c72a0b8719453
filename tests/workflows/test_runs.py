"""Whole workflows on a little real text: results, kills, changed settings, clusters."""

import json
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
from tests.support.pages import write_own_scheme
from tests.workflows.conftest import Experiment, write_corpus

pytestmark = pytest.mark.slow

#: a rule that writes files, a rule that writes a folder, and the rules that read checkpoints
RULES = ("encode", "preprocess", "train", "average")
CHECKPOINT = "out/runs/*/checkpoint_last.pt"
#: of the first seed
LAST = "out/runs/diet_rel-tiny-s1-*/checkpoint_last.pt"


def parameters(path):
    return torch.load(path, map_location="cpu", weights_only=False)["model"]


def assert_same(ours, theirs):
    ours, theirs = parameters(ours), parameters(theirs)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_everything_is_made_once(finished):
    out = finished.folder / "out"
    table = (out / "results" / "table.md").read_text()
    assert re.findall(r"\| (\w+, tiny.*?) \| [\d.]+", table) == [
        "diet_rel, tiny", "diet_rel, tiny, ensemble"
    ]  # fmt: skip
    assert "BLEU: `nrefs:1|case:mixed|eff:no|tok:13a" in table
    assert "| model | BLEU | chrF | lines |" in table
    assert table.count("| 12.0000") == 2  # of the seeds, and of their ensemble
    assert len((out / "results" / "results.csv").read_text().splitlines()) == 4
    assert (out / "results" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Nothing to be done" in finished.made()


def test_runs_and_their_ensemble_translate_plain_text_as_binarised_text(finished):
    lines = list(read_lines(finished.folder / "text" / "test.en"))
    runs = sorted((finished.folder / "out/runs").glob("*"))
    different = set()
    for folder, models in (
        *((run, [run]) for run in runs),
        (finished.path("out/ensembles/*"), runs),
    ):
        translations = Translator([run / "average.pt" for run in models]).translate(lines)
        assert translations == list(read_lines(folder / "evaluation-test/translations.txt"))
        assert translations[4:6] == ["", ""]
        different.add(tuple(translations))
    assert len(different) > 1


def test_a_run_s_folder_is_enough_to_translate(finished, tmp_path):
    run = finished.path("out/runs/diet_rel-tiny-s1-*")
    shutil.copytree(run, tmp_path / "moved")
    lines = list(read_lines(finished.folder / "text" / "test.en"))
    translator = Translator(tmp_path / "moved")
    assert translator.search.penalty == "tensor2tensor"
    expected = list(read_lines(run / "evaluation-test" / "translations.txt"))
    assert translator.translate(lines) == expected


def test_a_scheme_of_one_s_own_is_trained_in_paths_with_spaces_and_umlauts(tmp_path):
    folder = tmp_path / "my work \u00fc"
    folder.mkdir()
    write_corpus(folder / "my text \u00fc")
    write_own_scheme(folder)
    splits = {split: f"my text \u00fc/{split}" for split in ("train", "valid", "test")}
    experiment = Experiment(
        folder, **splits, folder="my data \u00fc/out", updates=20, save_interval=10,
        user_dir="turns", schemes={"mine": "turn --lr 0.01"},
        inputs={"same": "my text \u00fc/test.en"}, subwords="subword_nmt", validation="bleu",
    )  # fmt: skip
    experiment.made()
    assert "| mine, tiny |" in experiment.path("my data */out/results/table.md").read_text()
    translations = experiment.path("my data */out/runs/*/input-same.txt").read_text()
    generated = experiment.path("my data */out/runs/*/evaluation-test/translations.txt")
    assert translations == generated.read_text()
    assert len(translations.splitlines()) == 12


def test_a_kill_in_each_rule_changes_no_result(finished, prepared):
    alone = {"seeds": [1], "ensemble": False}
    prepared.configure(**finished.config | alone)
    for rule in RULES:
        prepared.kill_in(rule)
    prepared.made("--until", "generate")
    run = "out/runs/diet_rel-tiny-s1-*/"
    for name in ("average.pt", "checkpoint_last.pt"):
        assert_same(prepared.path(run + name), finished.path(run + name))
    name = run + "evaluation-test/translations.txt"
    assert prepared.path(name).read_bytes() == finished.path(name).read_bytes()


def test_a_changed_rate_in_mid_run_equals_a_fresh_run(finished, prepared):
    process = prepared.start_until("train", CHECKPOINT, updates=100_000, learning_rate=0.01)
    prepared.kill(process)
    [old] = prepared.folder.glob("out/runs/*")
    prepared.configure()
    prepared.made("--until", "train")
    [new] = {*prepared.folder.glob("out/runs/*")} - {old}
    assert_same(new / "checkpoint_last.pt", finished.path(LAST))


def test_more_updates_continue_a_run_and_end_as_one_training(finished, prepared):
    for updates in (100, prepared.tiny["updates"]):
        prepared.configure(updates=updates, average=1)  # no earlier checkpoint is averaged
        output = prepared.made("--until", "train")
    assert re.search(
        r"150 updates from the last checkpoint of out/runs/diet_rel-tiny-s1-u100-", output
    )
    assert_same(prepared.path("out/runs/*-u150-*/checkpoint_last.pt"), finished.path(LAST))


def test_bleu_of_the_validation_set_chooses_and_stops(prepared):
    rate = {"learning_rate": 1e-9}  # nothing becomes better
    prepared.configure(validation="bleu", patience=1, average=1, **rate)
    output = prepared.made("--until", "train")
    assert re.search(r"BLEU 0(\.\d+)?, held-out loss", output)
    log = prepared.path("out/runs/*/train.log").read_text()
    assert "early stop since valid performance hasn't improved for last 1 runs" in log
    assert '"valid_best_bleu"' in log


COMET = """
import sys
hypotheses, references = ([line.split() for line in open(name)] for name in sys.argv[1:])
scores = [len({*ours} & {*theirs}) / 99 for ours, theirs in zip(hypotheses, references)]
for number, score in enumerate(scores):
    print(f"{sys.argv[1]}\\tSegment {number}\\tscore: {score:.4f}")
print(f"{sys.argv[1]}\\tscore: {sum(scores) / len(scores):.4f}")
"""


def test_a_metric_selects_a_checkpoint_and_compares_sentences(prepared):
    (prepared.folder / "comet.py").write_text(COMET)
    prepared.configure(
        validation="COMET", metrics={"COMET": "python comet.py {hypotheses} {reference}"},
        schemes=["diet_rel", "rope"], baseline="rope", updates=40, save_interval=20,
    )  # fmt: skip
    output = prepared.made()
    for run in prepared.folder.glob("out/runs/*"):
        log = (run / "best-COMET.log").read_text()
        scores = dict(re.findall(r"^(\S+\.pt): (\d+\.\d+)$", log, re.MULTILINE))
        assert len(scores) == 3  # two checkpoints, and their average
        [best] = re.findall(r"best-COMET\.pt is (\S+)$", log, re.MULTILINE)
        assert scores[best] == max(scores.values())
        assert (run / "best-COMET.pt").read_bytes() == (run / best).read_bytes()
        assert f"best-COMET.pt is {best}" in output
    table = (prepared.folder / "out/results/table.md").read_text()
    assert "| COMET against rope (paired bootstrap) |" in table
    [row] = re.findall(r"^\| diet_rel, .*", table, re.MULTILINE)
    assert re.search(r"\| [+-]\d\.\d{4} \(p = [01]\.\d{3}\) \|$", row)


#: the part of the library wandb that fairseq calls
WANDB = """
import json

def note(name, value):
    with open("wandb.jsonl", "a") as file:
        file.write(json.dumps([name, value]) + "\\n")

def init(project, reinit, name):
    note("init", [project, name])

def log(values, step):
    note("log", [*values])

class config:
    update = staticmethod(lambda values: note("config", values["args"]["arch"]))
"""


def events(folder, name):
    """The tags of the scalars that TensorBoard would show of a part of a training."""
    from tensorboardX.proto.event_pb2 import Event

    [path] = (folder / name).glob("events.*")
    content, tags = path.read_bytes(), set()
    while content:  # length (8 bytes), its checksum (4), the event, its checksum (4)
        size = 12 + int.from_bytes(content[:8], "little")
        values = Event.FromString(content[12:size]).summary.value
        tags |= {value.tag for value in values if value.HasField("simple_value")}
        content = content[size + 4 :]
    return tags


def test_tensorboard_and_wandb_show_a_training(prepared):
    (prepared.folder / "wandb.py").write_text(WANDB)
    prepared.environment["PYTHONPATH"] += f":{prepared.folder}"
    options = f"{prepared.config['options']} --tensorboard-logdir board/a --wandb-project court"
    prepared.configure(options=options, updates=50, average=1)
    process = prepared.start("--until", "train")  # not forked: fairseq imports wandb
    output, _ = process.communicate(timeout=3000)
    assert process.returncode == 0, output
    shown = {"loss", "ppl", "wps", "ups", "lr", "gnorm", "wall"}
    assert shown <= events(prepared.folder / "board/a", "train_inner")
    assert {"loss", "ppl", "wps"} <= events(prepared.folder / "board/a", "valid")
    lines = (prepared.folder / "wandb.jsonl").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    assert ["init", ["court", prepared.path("out/runs/*").name]] in calls
    assert ["config", "transformer_diet_rel_tiny"] in calls
    assert ["log", ["train_inner/loss"]] in calls
    assert ["log", ["valid/loss"]] in calls


def test_a_training_without_validation_has_a_table_and_no_best(prepared):
    prepared.configure(
        options=f"{prepared.config['options']} --disable-validation", updates=20, average=1,
    )  # fmt: skip
    output = prepared.made()
    results = prepared.folder / "out" / "results"
    assert "| diet_rel, tiny |" in (results / "table.md").read_text()
    assert not (results / "best").is_symlink()
    assert (results / "curves.png").exists()
    assert output.count(" can't be best: it was never validated; change its options") == 1


def test_ctrl_c_says_how_to_go_on(prepared):
    process = prepared.start_until("train", "out/runs/*/plan.json", updates=100_000)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 1
    assert output.splitlines()[-1] == "stopped; run the same command to continue"


def test_the_reason_of_a_failure_is_the_last_line(prepared):
    prepared.configure(options=f"{prepared.config['options']} --position-clip -3")
    status, output = prepared.run("--until", "train")
    assert status == 1
    assert output.splitlines()[-1] == "error: --position-clip must be at least 1, but is -3"
    prepared.configure(gpus=1)
    message = "config.gpus must be at most 0, this machine's, but is 1: write auto"
    assert message in prepared.run("--until", "train")[1]


def test_an_orphan_and_its_successor_never_train_in_one_folder(prepared):
    process = prepared.start_until("train", CHECKPOINT, updates=100_000)
    os.kill(process.pid, signal.SIGKILL)  # and not the training
    prepared.unlock()
    status, output = prepared.run("--until", "train")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert status == 1, output
    assert "another" in output.splitlines()[-1]
    assert not [*prepared.folder.glob("out/runs/*/trained")]


def test_text_that_changes_under_a_run_is_refused(prepared):
    prepared.kill(prepared.start_until("train", CHECKPOINT, updates=100_000))
    (prepared.folder / "text" / "train.en").write_bytes(
        (prepared.folder / "text" / "train.en").read_bytes().replace(b"A", b"The")
    )
    status, output = prepared.run("--until", "train")
    assert status == 1
    assert "was trained on other text: remove it, or name another folder" in output


SUBMIT = """#!{python}
import subprocess, sys
with open("{folder}/submitted", "a") as file:
    print(" ".join(sys.argv[1:-1]), file=file)
if sys.argv[2] != "0":
    sys.exit("this cluster has no GPU")
job = subprocess.Popen(["bash", sys.argv[-1]], start_new_session=True,
                       stdout=open(sys.argv[-1] + ".out", "w"), stderr=subprocess.STDOUT)
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
    words = [
        "--executor", "cluster-generic", "--cluster-generic-submit-cmd", submit,
        "--cluster-generic-status-cmd", f"{prepared.folder}/status",
        "--latency-wait", 30, "--default-resources", "gpu=0", "--until", "train",
    ]  # fmt: skip
    status, output = prepared.run(*words)
    assert status == 1
    assert "config.gpus must be a number on a cluster, but is auto" in output
    prepared.configure(gpus=0)
    prepared.made(*words)
    assert prepared.path("out/runs/*/trained").exists()
    prepared.configure(gpus=2)
    assert "this cluster has no GPU" in prepared.run(*words, "--forcerun", "train")[1]
    assert (prepared.folder / "submitted").read_text() == "--gpus 0\n--gpus 2\n"


def test_bad_text_is_named_by_file_and_line(experiment):
    (experiment.folder / "text" / "train.en").write_bytes(b"a\n\xff\n")
    status, output = experiment.run("--until", "clean")
    assert status == 1
    assert re.search(r"^error: .*train\.en, line 2: byte 1 \(0xff\) is not", output, re.MULTILINE)
    assert not list(experiment.folder.glob("out/clean/train*"))
