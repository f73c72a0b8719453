"""GLUE's files and those of one's own: columns, odd text, what is refused, what becomes of them."""

import gzip
import json

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import glue_tasks, prepare_task
from tests.support import glue
from tests.support.glue import LAYOUTS, made, run, tabs
from tests.support.road import ODD, sentences, subwords, text, use, write


@pytest.mark.parametrize("name", glue_tasks.GLUE)
def test_every_task_s_files_are_read_by_their_columns(tmp_path, name):
    made(tmp_path, name)
    task = glue_tasks.GLUE[name]
    sides = ("one text", "another text")[: 1 + task.pair]
    for split, file in {"train": "train", **task.dev_files, **task.test_files}.items():
        where = task.columns
        if split.startswith("test"):
            where = task.test or glue_tasks.Columns(where.texts)
        [example] = glue_tasks.read(tmp_path / name / f"{file}.tsv", task, where)
        assert example.texts == sides
        line = LAYOUTS[name][file][1]
        label = line.split()[1] if name == "CoLA" else tabs(line).split("\t")[-1]
        label = tabs(line).split("\t")[0] if name == "MRPC" else label
        assert example.label == ("" if split.startswith("test") else label)
        if not split.startswith("test"):
            glue_tasks.checked(tmp_path, task, [example])


def test_all_tasks_of_both_papers_are_there():
    assert set(glue_tasks.GLUE) == set(LAYOUTS)
    assert glue_tasks.glue_task("sst-2") is glue_tasks.GLUE["SST-2"]


def test_wnli_is_refused_with_the_reason(tmp_path):
    with pytest.raises(UserError) as error:
        glue_tasks.glue_task("WNLI")
    assert str(error.value) == (
        "WNLI is left out, as in both papers: its dev set repeats training sentences with the "
        "other label, so that guessing the larger class beats what was learned"
    )
    with pytest.raises(UserError, match="GLUE has no task SNLI: take one or more of MNLI, QQP"):
        glue_tasks.glue_task("SNLI")


def examples(path, name):
    task = glue_tasks.GLUE[name]
    return list(glue_tasks.checked(path, task, list(glue_tasks.read(path, task, task.columns))))


def test_marks_quotes_and_carriage_returns_are_taken_in_stride(tmp_path):
    path = tmp_path / "train.tsv"
    lines = ["\ufeffindex\tsentence1\tsentence2\tlabel\r", '0\t"one" "\t"two\tentailment\r',
             f"1\ta {ODD.replace(chr(9), '')} b\tc\tnot_entailment\r", "\r"]  # fmt: skip
    path.write_bytes("\n".join(lines).encode())
    one, other = examples(path, "RTE")
    assert one == (('"one" "', '"two'), "entailment", 2)
    assert other.texts[0].startswith("a ")
    assert len(other.texts[0].splitlines()) == 1


def refused(path, name):
    with pytest.raises(UserError) as error:
        examples(path, name)
    return str(error.value)


def test_a_line_with_too_few_columns_is_refused_with_its_number(tmp_path):
    lines = ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment", "1\ta\tentailment"]
    path = write(tmp_path / "train.tsv", lines)
    assert refused(path, "RTE") == (
        f"{path}, line 3: 4 tab-separated columns are expected, 3 are found: correct the file"
    )


def test_another_task_s_file_is_refused_with_what_it_holds(tmp_path):
    path = write(tmp_path / "train.tsv", ["sentence\tlabel", "a\t1"])
    assert refused(path, "RTE") == (
        f"{path}, line 1: a column named 'sentence1' is expected, found are 'sentence', 'label': "
        "give the file that has it"
    )


def test_a_pair_with_one_text_is_refused(tmp_path):
    lines = ["index\tsentence1\tsentence2\tlabel", "0\ta\t \tentailment"]
    path = write(tmp_path / "train.tsv", lines)
    assert refused(path, "RTE") == (
        f"{path}, line 2: RTE takes a pair of texts, but the second is empty: correct the file"
    )


def test_an_unknown_label_is_refused(tmp_path):
    path = write(tmp_path / "dev.tsv", ["sentence\tlabel", "a\t1", "b\t2"])
    assert refused(path, "SST-2") == (
        f"{path}, line 3: the label '2' is not among training's (0, 1): correct the file"
    )


@pytest.mark.parametrize("label", ["", " ", "\xa0"])
def test_an_empty_label_is_refused_with_its_line(folder, tmp_path, label):
    path = write(tmp_path / "some.tsv", ["a\tlabel", "x\tgood", "y\tbad", f"z\t{label}"])
    with pytest.raises(UserError) as error:
        run("prepare-task", "own", "--train", path, "--dev", path, "--text", "a", "--label",
            "label", "--folder", folder, "--workers", 1)  # fmt: skip
    assert str(error.value) == (
        f"{path}, line 4: its label is empty: correct the file, or leave the line out"
    )


def test_a_score_that_is_no_number_is_refused(tmp_path):
    header, line = LAYOUTS["STS-B"]["dev"]
    path = write(tmp_path / "dev.tsv", [tabs(header), tabs(line.replace("5.0", "high"))])
    assert refused(path, "STS-B") == (
        f"{path}, line 2: a label to regress on must be a number, but is 'high'"
    )


def test_a_file_without_examples_is_refused(tmp_path):
    path = write(tmp_path / "dev.tsv", ["sentence\tlabel"])
    assert refused(path, "SST-2") == f"{path} holds no example: give a file that does"


def test_qqp_s_broken_lines_are_left_out_and_counted(tmp_path, capsys):
    header, line = LAYOUTS["QQP"]["train"]
    lines = [header, line, "1 2 3 A", line.replace("B", ""), line]
    path = write(tmp_path / "train.tsv", [tabs(one) for one in lines])
    assert len(examples(path, "QQP")) == 2
    assert capsys.readouterr().out == (
        f"{path}: 2 lines with too few columns or an empty text were left out\n"
    )


def test_nothing_is_left_out_of_what_is_to_be_labelled(tmp_path):
    task, lines = glue_tasks.GLUE["QQP"], ["id\tquestion1\tquestion2", "0\ta\tb", "1\ta\t"]
    where = glue_tasks.Columns(task.columns.texts)
    path = write(tmp_path / "test.tsv", lines)
    assert [example.texts for example in glue_tasks.read(path, task, where)] == [
        ("a", "b"),
        ("a", ""),
    ]
    write(path, [*lines, "2\ta"])
    with pytest.raises(UserError, match="line 4: 3 tab-separated columns are expected"):
        list(glue_tasks.read(path, task, where))
    write(path, [*lines, "", ""])  # the end
    assert len(list(glue_tasks.read(path, task, where))) == 2
    write(path, [*lines[:2], "", " ", lines[2]])
    with pytest.raises(UserError, match="line 3: 3 tab-separated columns are expected, 1 are"):
        list(glue_tasks.read(path, task, where))
    path = write(tmp_path / "mine.tsv", ["text", "a", "", "b"])
    own = glue_tasks.Task("own", glue_tasks.Columns(("text",)), ("0", "1"))
    assert len(list(glue_tasks.read(path, own, own.columns))) == 3


# The real ones

SIZES = {
    "CoLA": (8551, 1043, 0),
    "SST-2": (67349, 872, 0),
    "MRPC": (3668, 408, 1725),
    "RTE": (2490, 277, 3000),
    "STS-B": (5749, 1500, 1379),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_real_files_are_read_whole(shared_data, name):
    task, folder = glue_tasks.GLUE[name], shared_data / "glue" / name
    for split, size in zip(("train", "dev", "test"), SIZES[name], strict=True):
        paths = prepare_task.find(folder, split)
        found = list(prepare_task.examples_of({"dev": "valid"}.get(split, split), paths, task))
        assert len(found) == size
        assert all(all(example.texts) for example in found)
    if name == "RTE":
        dev = examples(folder / "dev.tsv", "RTE")
        assert sum(example.label == "entailment" for example in dev) == 146


def test_the_real_qnli_dev_set_is_read(shared_data):
    found = examples(shared_data / "glue" / "QNLI" / "dev.tsv.gz", "QNLI")
    assert len(found) == 5463
    assert sum(example.label == "entailment" for example in found) == 2702


# Prepared


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return glue.encoder_folder(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def quick(monkeypatch):
    use(monkeypatch)


def binary(folder, part, split):
    """The lines of a split, as text."""
    dictionary = Dictionary.load(str(folder / part / "dict.txt"))
    lines = data_utils.load_indexed_dataset(str(folder / part / split), dictionary)
    return [" ".join(dictionary[token] for token in line[:-1]) for line in lines]


@pytest.mark.usefixtures("quick")
def test_a_task_is_prepared_with_the_encoder_s_subwords_case_and_dictionary(folder, tmp_path):
    made(tmp_path, "MNLI", "Ban BEN", "Bin", number=3)
    run("prepare-glue", tmp_path, "--folder", folder, "--workers", 1)
    done = folder / "tasks" / "MNLI"
    model = subwords.SentencePiece(folder / "subwords")
    [expected] = model.encode(["ban ben"], "en", 1)
    for split in ("train", "valid", "valid1"):
        assert binary(done / "data-bin", "input0", split) == [expected] * 3
    assert list(text.read_lines(done / "encoded" / "input0" / "test1")) == [expected] * 3
    found = [binary(done / "data-bin", "label", split)[0] for split in ("train", "valid", "valid1")]
    assert found == ["neutral", "contradiction", "entailment"]
    same = (folder / "data-bin" / "dict.txt").read_text()
    assert (done / "data-bin" / "input1" / "dict.txt").read_text() == same
    guess = json.loads((done / "encoded" / "guess.json").read_text())
    assert guess == {"valid": {"accuracy": 0.0}, "valid1": {"accuracy": 0.0}}
    assert prepare_task.load_task(done) == glue_tasks.GLUE["MNLI"]


@pytest.mark.usefixtures("quick")
def test_a_task_of_one_s_own_is_named_by_its_columns(folder, tmp_path, capsys):
    lines = [f"{one}\tvery {label}\tx" for one, label in zip(sentences(8), 4 * "ab", strict=True)]
    gzipped = "\n".join(["what\tkind\tmore", *lines, ""]).encode()
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(gzipped))
    dev = write(tmp_path / "dev.tsv", ["kind\twhat", "very b\tban", "very b\tben", "very a\tbin"])
    run("prepare-task", "mine", "--train", tmp_path / "train.tsv.gz", "--dev", dev, "--text",
        "what", "--label", "kind", "--metrics", "f1", "accuracy", "--positive-label", "very b",
        "--folder", folder, "--workers", 1)  # fmt: skip
    task = prepare_task.load_task(folder / "tasks" / "mine")
    assert task.labels == ("very a", "very b")
    assert (task.metrics, task.positive, task.pair) == (("f1", "accuracy"), "very b", False)
    assert binary(folder / "tasks/mine/data-bin", "label", "valid") == [
        "very▁b",
        "very▁b",
        "very▁a",
    ]
    assert "mine: 8 to train, 3 to valid" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_labels_that_differ_in_their_kind_of_space_are_one(folder, tmp_path):
    """fairseq-preprocess takes every kind of space for the end of a word."""
    lines = ["a\tlabel", "ban\tvery\xa0good", "ben\tvery\u3000bad", "bin\tvery good"]
    path = write(tmp_path / "some.tsv", lines)
    run("prepare-task", "spaces", "--train", path, "--dev", path, "--text", "a", "--label", "label",
        "--positive-label", "very\xa0good", "--folder", folder, "--workers", 1)  # fmt: skip
    task = prepare_task.load_task(folder / "tasks" / "spaces")
    assert (task.labels, task.positive) == (("very bad", "very good"), "very good")
    assert "--positive-label=very▁good" in task.flags()
    for split in ("train", "valid"):
        found = binary(folder / "tasks/spaces/data-bin", "label", split)
        assert found == ["very▁good", "very▁bad", "very▁good"]


@pytest.mark.usefixtures("quick")
def test_numbers_are_kept_as_they_stand(folder, tmp_path):
    made(tmp_path, "STS-B", number=2)
    run("prepare-glue", tmp_path, "--tasks", "sts-b", "--folder", folder, "--workers", 1)
    labels = folder / "tasks/STS-B/data-bin/label"
    assert (labels / "train.label").read_text() == "3.800\n3.800\n"
    assert not (labels / "dict.txt").exists()
    guess = json.loads((folder / "tasks/STS-B/encoded/guess.json").read_text())
    assert guess == {"valid": {"pearson": 0.0, "spearman": 0.0}}


def test_a_guess_is_training_s_commonest_label():
    task = glue_tasks.GLUE["MRPC"]
    dev = [glue_tasks.Example(("a", "b"), label, 1) for label in "1110"]
    found = prepare_task.guess(task, ["1", "1", "0"], dev)
    assert found == {"accuracy": 75.0, "f1": pytest.approx(100 * 6 / 7, abs=1e-3)}


@pytest.mark.usefixtures("quick")
def test_another_file_does_not_mix_with_what_is_there(folder, tmp_path):
    made(tmp_path, "RTE")
    run("prepare-glue", tmp_path, "--folder", folder, "--workers", 1)
    made(tmp_path, "RTE", number=3)
    with pytest.raises(UserError, match="RTE/encoded was made with other settings: files"):
        run("prepare-glue", tmp_path, "--folder", folder, "--workers", 1)


@pytest.mark.usefixtures("quick")
def test_a_task_is_not_done_before_with_subwords_that_the_text_no_longer_has(folder, tmp_path):
    """One that an earlier version prepared doesn't say which it has, and stays as it is."""
    made(tmp_path, "QNLI")
    words = ("prepare-glue", tmp_path, "--folder", folder, "--workers", 1)
    run(*words)
    dictionary = folder / "data-bin/dict.txt"
    before = dictionary.read_text()
    write(dictionary, before.splitlines()[::-1])
    try:
        with pytest.raises(
            UserError, match=r"QNLI/encoded was made with other settings: text, dictionary \("
        ):
            run(*words)
        for stage in ("encoded", "data-bin"):
            path = folder / "tasks/QNLI" / stage / "made-from.json"
            made_from = json.loads(path.read_text())
            del made_from["text"]["dictionary"]
            path.write_text(json.dumps(made_from))
        run(*words)
    finally:
        dictionary.write_text(before)


def test_files_that_are_missing_are_named(folder, tmp_path):
    with pytest.raises(UserError) as error:
        run("prepare-glue", tmp_path, "--folder", folder, "--workers", 1)
    assert str(error.value) == (f"{tmp_path} has no task's folder with a train.tsv: name another")
    made(tmp_path, "QNLI")
    (tmp_path / "QNLI/dev.tsv").unlink()
    with pytest.raises(UserError) as error:
        run("prepare-glue", tmp_path, "--tasks", "QNLI", "--folder", folder)
    assert str(error.value) == (f"{tmp_path}/QNLI has no dev.tsv (or .tsv.gz): fetch all of QNLI")


REFUSED = {
    ("--text", "a", "b", "c"): "--text has 3 columns: a task has one text, or a pair",
    ("--text", "b"): "FILE, line 1: a column named 'b' is expected, found are 'a', 'label': give "
    "the file that has it",
    ("--text", "a"): "FILE has one label only, '1': there is nothing to classify",
}


@pytest.mark.parametrize("options", REFUSED)
def test_a_task_of_one_s_own_that_can_not_work_is_refused(folder, tmp_path, options):
    path = write(tmp_path / "some.tsv", ["a\tlabel", "x\t1"])
    with pytest.raises(UserError) as error:
        run("prepare-task", "own", "--train", path, "--dev", path, *options, "--label", "label",
            "--folder", folder, "--workers", 1)  # fmt: skip
    assert str(error.value) == REFUSED[options].replace("FILE", str(path))


def test_the_text_must_be_prepared_first(tmp_path):
    made(tmp_path / "glue", "RTE")
    with pytest.raises(UserError, match="holds no finished data: run `prepare` first"):
        run("prepare-glue", tmp_path / "glue", "--folder", tmp_path / "none")


def test_the_order_of_labels_is_their_number():
    for task in glue_tasks.GLUE.values():
        assert task.regression == (not task.labels)
        assert "f1" not in task.metrics or task.labels[1] == task.positive
    assert np.all([task.metrics[0] != "f1" for task in glue_tasks.GLUE.values()])
