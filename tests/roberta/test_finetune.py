"""finetune.py: files, tasks, a training from end to end, and predictions."""

import csv
import json
import os
import socket
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
import yaml
from filelock import FileLock, Timeout

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines

#: unbalanced quotation marks, a text that pandas would read as missing, odd spaces
ROWS = [
    ('a "quick fox', "a dog sleeps", "no"),
    ("NA", "the\u2028hill", "yes"),
    ("der hund", "ein fuchs läuft", "yes"),
    ("über den hügel", "der braune fuchs", "no"),
]
TASK = {
    "train": "train.tsv",
    "dev": {"own": "dev.tsv", "second": "dev.tsv"},
    "test": {"own": "test.tsv"},
    "tests": {"own": "all_yes.tsv"},
    "text": ["one", "other"],
    "label": "label",
    "labels": ["no", "yes"],
    "metrics": ["accuracy", "f1"],
    "positive": "yes",
}


@pytest.fixture
def task(tmp_path):
    """A user's task, with its files."""
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(TASK))
    text = "one\tother\tlabel\n" + "".join("\t".join(row) + "\n" for row in ROWS * 4)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("\ufeff" + text, encoding="utf-8")
    (tmp_path / "all_yes.tsv").write_text(text.replace("\tno\n", "\tyes\n"), encoding="utf-8")
    (tmp_path / "test.tsv").write_text("one\tother\nder hund\tein fuchs\n", encoding="utf-8")
    return tmp_path


def run(monkeypatch, module, *words):
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
    module.main()


def test_tables_are_read_as_they_are(script, task, tmp_path):
    finetune = script("finetune")
    rows = finetune.read_rows(task / "train.tsv", ["one", "other", "label"])
    assert [tuple(row) for row in rows[:4]] == ROWS
    (tmp_path / "cola.tsv").write_text("gj04\t1\t\tA sentence.\ngj04\t0\n")
    header = ["source", "label", "mark", "sentence"]
    rows = finetune.read_rows(tmp_path / "cola.tsv", ["sentence", "label"], header)
    assert rows == [["A sentence.", "1"], ["", "0"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["pearson"]}, 'metrics must be of accuracy, f1, matthews, but is ."pearson"'),
        ({"positive": "maybe"}, 'positive must be one of the labels, but is "maybe"'),
        ({"colour": "red"}, "colour Extra inputs are not permitted, .*; tasks.yaml explains"),
        ({"dev": {}}, "dev must have at least 1 item"),
    ],
)
def test_a_wrong_task_is_refused(script, tmp_path, changes, message):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(TASK | changes))
    with pytest.raises(UserError, match=message):
        script("finetune").read_task(str(path))
    with pytest.raises(UserError, match="--task GLUE must be one of MNLI, QQP"):
        script("finetune").read_task("GLUE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\tother\nx\ty\n", "train.tsv must have a column 'label', but has 'one', 'other'"),
        ("one\tother\tlabel\nx\ty\tmaybe\n", "example 1: the label must be one of no, yes, but"),
        ("one\tother\tlabel\n", "train.tsv holds no example"),
        ("one\tother\tlabel\nx\ty\tno\tno\n", "example 1 must have 3 values .* but has 4"),
        (b"one\tother\tlabel\nx\ty\tno\n\xff", r"train.tsv, line 3: byte 1 \(0xff\) is not UTF-8"),
    ],
)
def test_a_wrong_file_is_refused(script, task, text, message):
    finetune = script("finetune")
    (task / "train.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    definition = finetune.read_task(str(task / "own.yaml"))
    with pytest.raises(UserError, match=message):
        finetune.read_samples(task / "train.tsv", definition, None, 32)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["CoLA", "STS-B", "MRPC", "QNLI", "RTE", "SST-2"])
def test_glue_s_files_have_the_rows_that_datasets_reads(script, shared_data, tmp_path, name):
    finetune = script("finetune")
    from datasets import Features, Value, load_dataset

    task = finetune.read_task(name)
    path = finetune.find_file(shared_data / "glue" / name, "dev.tsv")
    header = task.columns or next(read_lines(path)).split("\t")
    strings = Features(dict.fromkeys(header, Value("string")))
    table = load_dataset(
        "csv", data_files=str(path), split="train", cache_dir=tmp_path, delimiter="\t", quoting=3,
        na_filter=False, names=task.columns, features=strings,
    )  # fmt: skip
    columns = [*task.text, task.label]
    rows = finetune.read_rows(path, columns, task.columns)
    assert rows == [[row[column] for column in columns] for row in table]
    labels = [finetune.label_of(row[-1], task, "") for row in rows]
    assert min(labels) == 0
    assert max(labels) == (len(task.labels) or 6) - 1


def test_xnli_is_read_as_xtreme_writes_it(script, shared_data, tmp_path):
    """XTREME's utils_preprocess.py writes train and dev with labels, and test without."""
    finetune = script("finetune")
    task = finetune.read_task("XNLI")
    rows = finetune.read_rows(
        shared_data / "xtreme" / "xnli" / "dev-de.tsv.gz", task.columns, task.columns
    )
    assert Counter(label for _, _, label in rows) == dict.fromkeys(task.labels, 830)
    for width in (2, 3):
        with open(tmp_path / "xnli.tsv", "w") as file:
            csv.writer(file, delimiter="\t").writerows(row[:width] for row in rows)
        assert finetune.read_rows(tmp_path / "xnli.tsv", task.text, task.columns) == [
            row[:2] for row in rows
        ]


@pytest.mark.slow
def test_a_user_s_task_trains_and_predicts_offline(script, task, pretrained, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    finetune = script("finetune")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    out = tmp_path / "run"
    run(monkeypatch, finetune, "train", "--task", task / "own.yaml", "--data", task,
        "--model", pretrained, "--out", out, "--epochs", 2, "--batch", 4, "--per-step", 2,
        "--length", 32, "--evaluate-every", 3)  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert [entry["update"] for entry in result["curve"]] == [3, 4, 6, 8]
    measures = {"own_accuracy", "own_f1", "second_accuracy", "second_f1"}
    assert all(measures <= entry.keys() for entry in result["curve"])
    # a test set may have the name of a dev set
    assert all(entry["own_accuracy"] == entry["second_accuracy"] for entry in result["curve"])
    assert result["tests"]["own"].keys() == {"accuracy", "f1"}
    assert sorted(path.name for path in out.iterdir()) == ["model", "result.json"]
    run(monkeypatch, finetune, "predict", out / "model", "--data", task, "--out", tmp_path / "sub")
    lines = (tmp_path / "sub" / "own.tsv").read_text().split()
    assert lines[:3] == ["index", "prediction", "0"]
    assert lines[3] in ("no", "yes")
    run(monkeypatch, finetune, "predict", out / "model", "--tsv", task / "train.tsv",
        "--out", tmp_path / "labels")  # fmt: skip
    assert len((tmp_path / "labels").read_text().split()) == 4 * len(ROWS)
    description = json.loads((out / "model" / "task.json").read_text())
    (out / "model" / "task.json").write_text(json.dumps(description | {"submission": "xtreme"}))
    run(monkeypatch, finetune, "predict", out / "model", "--data", task, "--out", tmp_path / "sub")
    assert (tmp_path / "sub" / "own" / "test-own.tsv").read_text().strip() == lines[3]


@pytest.mark.slow
def test_a_regression_predicts_numbers_of_its_range(
    script, task, pretrained, tmp_path, monkeypatch
):
    finetune = script("finetune")
    regression = {"labels": [], "metrics": ["spearman"], "positive": None, "range": [0.25, 0.3]}
    (task / "own.yaml").write_text(yaml.safe_dump(TASK | regression))
    for path in task.glob("*.tsv"):
        path.write_text(path.read_text().replace("\tno\n", "\t0\n").replace("\tyes\n", "\t1.5\n"))
    out = tmp_path / "run"
    run(monkeypatch, finetune, "train", "--task", task / "own.yaml", "--data", task, "--model",
        pretrained, "--out", out, "--epochs", 1, "--batch", 8, "--length", 32)  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert result["tests"]["own"].keys() == {"spearman"}
    run(monkeypatch, finetune, "predict", out / "model", "--data", task, "--out", tmp_path / "sub")
    [number, value] = (tmp_path / "sub" / "own.tsv").read_text().split()[2:]
    assert number == "0"
    assert 0.25 <= float(value) <= 0.3


def test_a_bad_label_is_named_by_its_line_beside_lines_left_out(script, task):
    finetune = script("finetune")
    with pytest.raises(UserError, match="the label must be a number, but is 'nan'"):
        finetune.label_of("nan", finetune.read_task("STS-B"), "dev.tsv, example 1")
    (task / "train.tsv").write_text("one\tother\tlabel\nx\t\tno\nx\ty\tmaybe\n")
    definition = finetune.read_task(str(task / "own.yaml")).model_copy(update={"ragged": True})
    with pytest.raises(UserError, match="example 2: the label must be one of no, yes"):
        finetune.read_samples(task / "train.tsv", definition, None, 32)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("of_earlier_model", [False, True])
def test_an_unfinished_checkpoint_is_not_resumed(
    script, task, pretrained, tmp_path, monkeypatch, of_earlier_model
):
    finetune = script("finetune")
    out = tmp_path / "run"
    words = ["train", "--task", task / "own.yaml", "--data", task, "--model", pretrained, "--out",
             out, "--epochs", 2, "--batch", 8, "--length", 32]  # fmt: skip

    def stop(*_):
        with pytest.raises(Timeout):  # no other training can have the folder
            FileLock(out / "checkpoints" / "lock").acquire(timeout=0)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            run(patch, finetune, *words)
    complete = sorted(path.name for path in (out / "checkpoints").glob("checkpoint-*"))
    for update in (998, 999):  # a kill left them
        (out / "checkpoints" / f"checkpoint-{update}").mkdir()
    (out / "checkpoints" / "checkpoint-999" / "trainer_state.json").touch()
    if of_earlier_model:
        for path in (out / "checkpoints").glob("*/trainer_state.json"):
            os.utime(path, (0, 0))
    run(monkeypatch, finetune, *words)
    result = json.loads((out / "result.json").read_text())
    assert complete
    assert (result["tokens per second"] is None) != of_earlier_model  # it went on
    assert [entry["update"] for entry in result["curve"]] == [2, 4]


def test_another_training_in_the_folder_is_refused(script, task, pretrained, tmp_path, monkeypatch):
    out = tmp_path / "run"
    (out / "checkpoints").mkdir(parents=True)
    with (
        FileLock(out / "checkpoints" / "lock"),
        pytest.raises(UserError, match=r"--out .*run is in use by another training: wait until"),
    ):
        run(monkeypatch, script("finetune"), "train", "--task", task / "own.yaml", "--data", task,
            "--model", pretrained, "--out", out)  # fmt: skip


def test_a_length_beyond_the_positions_is_refused(script, task, pretrained, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="--length 512 must not exceed the 128 positions"):
        run(monkeypatch, script("finetune"), "train", "--task", task / "own.yaml", "--data", task,
            "--model", pretrained, "--out", tmp_path / "run")  # fmt: skip


def test_a_classifier_begins_with_the_trained_pooler(script):
    for is_trained in (False, True):
        pooler = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(pooler.bias, float(is_trained))
        head = SimpleNamespace(dense=torch.nn.Linear(3, 3))
        model = SimpleNamespace(model=SimpleNamespace(pooler=pooler), classifier=head)
        script("training").start_from_pooler(model)
        assert head.dense.weight.equal(pooler.weight) == is_trained
