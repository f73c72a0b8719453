"""XTREME as a user runs it: prepared, fine-tuned, predicted, scored, asked; and refusals."""

import json
import os
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from filecmp import cmp
from itertools import pairwise
from shutil import copytree, rmtree

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import prepare_xtreme, tuning
from diet_fairseq.recipes.encoders.glue_tasks import Columns
from diet_fairseq.recipes.encoders.xtreme_tasks import Transfer, xtreme_task
from tests.support import glue
from tests.support.glue import run
from tests.support.road import cells, sentences, use, write


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    use(monkeypatch)
    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", glue.forked)


def asked(lines, number=0):
    """A file's questions: of each two sentences, what the second word of the first is."""
    paragraphs = []
    for place in range(0, len(lines) - 1, 2):
        context = f"{lines[place]}  {lines[place + 1]}"
        word = context.split()[1]
        answers = [{"text": word, "answer_start": context.index(word)}]
        one = {"id": str(number), "question": f"{context.split()[0]} ?", "answers": answers}
        paragraphs.append({"context": context, "qas": [one]})  # ids repeat, as TyDiQA's do
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pretrained encoder, and the files of XQuAD, MLQA and XNLI."""
    folder = glue.encoder_folder(tmp_path_factory.mktemp("xtreme"))
    glue.pretrained(folder, "base", "bert_diet_rel")
    data, lines = folder / "xtreme", sentences(60)
    data.mkdir()
    (data / "train-v1.1.json").write_text(asked(lines))
    for name in ("xquad.en", "xquad.de", "test-context-zh-question-zh",
                 "test-context-de-question-en"):  # fmt: skip
        (data / f"{name}.json").write_text(asked(lines[:10]))
    other = folder / "tydiqa.goldp.en.train.json"
    other.write_text(asked(lines[30:]))
    labels = ("contradiction", "neutral", "entailment")
    rows = [f"{one}\t{other}\t{labels[n % 3]}" for n, (one, other) in
            enumerate(pairwise(lines))]  # fmt: skip
    for name, size in (("train-en", 16), ("dev-en", 4), ("test-sw", 5)):
        write(data / f"{name}.tsv", rows[:size])
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        for tasks in (("xnli", "xquad"), ("mlqa", "--languages", "zh", "de-en"),
                      ("xquad", "--train-on", other)):  # fmt: skip
            assert run("prepare-xtreme", data, "--folder", folder, "--workers", 1, "--tasks",
                       *tasks) == 0  # fmt: skip
    return folder


def tune(folder, task, *more):
    return run("finetune", task, folder / "runs/base/checkpoint_last.pt", "--folder", folder,
               "--gpus", 0, "--epochs", 2, "--length", 32, "--batch", 8, "--seeds", 1, "--row",
               "ours", *more)  # fmt: skip


@pytest.fixture(scope="module")
def tuned(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diet_fairseq.recipes.common.cells.status_of", glue.forked)
        assert tune(folder, "XQuAD,XNLI,MLQA", "--jobs", 2) == 0
    return folder


def result(folder, task, seed=1):
    return cells.load(
        folder / "tasks" / task / "runs/ours" / f"lr0.0003_epochs2_seed{seed}" / "result.json"
    )


def test_contexts_are_held_out_and_every_language_is_a_split(folder):
    found = {}
    for split in ("train", "valid", "valid1", "valid2"):
        lines = (folder / "tasks/XQuAD/data-bin" / f"{split}.jsonl").read_text().splitlines()
        found[split] = [json.loads(line) for line in lines]
    assert [len(lines) for lines in found.values()] == [29, 1, 5, 5]
    one = found["valid1"][1]
    [question] = one["questions"]
    [[text, start]] = question["answers"]
    assert one["context"][start:].startswith(text)
    assert question["id"] == "0#2"
    made = json.loads((folder / "tasks/XQuAD/data-bin/made-from.json").read_text())
    assert made["task"]["dev_files"] == {"valid": "dev", "valid1": "de", "valid2": "en"}
    [mlqa] = {json.loads(line)["rules"] for line in
              (folder / "tasks/MLQA/data-bin/valid1.jsonl").read_text().splitlines()}  # fmt: skip
    assert mlqa == "mlqa zh"


def test_two_training_sets_of_a_task_stand_side_by_side(folder):
    texts = {
        name: [json.loads(line)["context"] for split in ("train", "valid") for line in
               (folder / "tasks" / name / "data-bin" / f"{split}.jsonl").read_text().splitlines()]
        for name in ("XQuAD", "XQuAD-tydiqa")
    }  # fmt: skip
    assert [len(some) for some in texts.values()] == [30, 15]
    assert set(texts["XQuAD-tydiqa"]) < set(texts["XQuAD"])


def test_one_training_serves_all_tasks_that_have_its_questions(tuned, capsys):
    one, other = result(tuned, "XQuAD"), result(tuned, "MLQA")
    assert other["trained in"] == "XQuAD/runs/ours/lr0.0003_epochs2_seed1"
    assert other["curves"].keys() == {"valid", "valid1", "valid2"}
    assert one["curves"]["valid"] == other["curves"]["valid"]
    logs = tuned.glob("tasks/*/runs/*/*/train.log")
    assert {path.relative_to(tuned).parts[1] for path in logs} == {"XQuAD", "XNLI"}
    for more in ((), ("--seeds", 2)):  # another seed is another training
        tune(tuned, "MLQA", "--show", *more)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "fairseq-validate", "fairseq-train", "fairseq-validate",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name", "same"),
    [
        ("runs/ours/grid.json", "task", True),
        ("runs/ours/grid.json", "--batch-size", False),
        ("runs/ours/grid.json", "checkpoint", False),
        ("data-bin/train.jsonl", "context", False),
        ("data-bin/valid.jsonl", "context", False),
        ("data-bin/valid1.jsonl", "context", True),
    ],
)
def test_other_settings_or_questions_are_another_training(tmp_path, file, name, same):
    for task in ("MLQA", "XQuAD"):
        for part in ("runs/ours/grid.json", "data-bin/dict.txt", "data-bin/train.jsonl",
                     "data-bin/valid.jsonl"):  # fmt: skip
            (tmp_path / task / part).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / task / part).write_text('{"--batch-size": "8"}')
    (tmp_path / "MLQA" / file).write_text(json.dumps({"--batch-size": "8"} | {name: "other"}))
    task = Transfer("XQuAD", Columns(()), questions=True)
    row = tuning.Row(task, tmp_path / "XQuAD", None, Namespace(row="ours", scratch=False), ())
    assert row.twins == [tmp_path / "MLQA/runs/ours"] * same
    there = row.twins[0] / "lr0.1_epochs1_seed1" if same else None
    for part in (tuning.RESULT, tuning.BEST):
        assert tuning.Tuning(row, 0.1, 1, 1).twin is None
        path = tmp_path / "MLQA/runs/ours/lr0.1_epochs1_seed1" / part
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert tuning.Tuning(row, 0.1, 1, 1).twin == there


@pytest.mark.slow
def test_of_two_commands_at_once_one_trains(tuned):
    with ThreadPoolExecutor(2) as pool:
        commands = [pool.submit(tune, tuned, task, "--seeds", 2) for task in ("XQuAD", "MLQA")]
        assert [command.result() for command in commands] == [0, 0]
    [log] = tuned.glob("tasks/*/runs/*/*seed2/train.log")
    [other] = {"XQuAD", "MLQA"} - {log.relative_to(tuned).parts[1]}
    assert result(tuned, other, 2)["trained in"] == str(log.parent.relative_to(tuned / "tasks"))


@pytest.mark.slow
def test_a_checkpoint_that_is_not_kept_is_there_for_all_tests_of_a_command(tuned):
    assert tune(tuned, "XQuAD,mlqa", "--seeds", 3, "--keep", "none") == 0
    assert result(tuned, "MLQA", 3)["trained in"] == "XQuAD/runs/ours/lr0.0003_epochs2_seed3"
    assert not [*tuned.glob("tasks/*/runs/ours/*seed3/*.pt")]


@pytest.mark.slow
def test_a_checkpoint_that_was_to_be_kept_is_not_removed_by_a_command_that_keeps_none(tuned):
    assert tune(tuned, "XQuAD", "--seeds", 4) == 0
    assert tune(tuned, "XQuAD,MLQA", "--seeds", 4, "--keep", "none") == 0
    assert result(tuned, "MLQA", 4)["trained in"] == "XQuAD/runs/ours/lr0.0003_epochs2_seed4"
    [kept] = tuned.glob("tasks/*/runs/ours/*seed4/*.pt")
    assert kept.relative_to(tuned).parts[1] == "XQuAD"


def test_what_is_trained_on_is_encoded_once(folder):
    """MLQA was prepared after XQuAD."""
    there = folder / "questions/squad"
    when = (there / "train.jsonl").stat().st_mtime_ns
    assert when < (folder / "tasks/XQuAD/encoded/valid1.jsonl").stat().st_mtime_ns
    for task in ("XQuAD", "MLQA"):
        assert not (folder / "tasks" / task / "encoded/train.jsonl").exists()
        for split in ("train", "valid"):
            assert cmp(folder / "tasks" / task / "data-bin" / f"{split}.jsonl",
                       there / f"{split}.jsonl", shallow=False)  # fmt: skip
        counts = cells.load(folder / "tasks" / task / "encoded/counts.json")
        assert list(counts) == ["train", "valid", "valid1", "valid2"]


def test_another_copy_of_what_is_trained_on_is_the_same_and_an_own_file_has_its_own_folder(
    folder, tmp_path, capsys
):
    copytree(folder / "xtreme", tmp_path, dirs_exist_ok=True)
    os.utime(tmp_path / "train-v1.1.json", (1, 1))
    run("prepare-xtreme", tmp_path, "--folder", folder, "--tasks", "xquad")
    assert capsys.readouterr().out.count("done before") == 3
    own = tmp_path / "own.json"
    for number, name in enumerate(("xquad", "mlqa"), 1):
        own.write_text(asked(sentences(60)[10 * number :]))
        run("prepare-xtreme", tmp_path, "--folder", folder, "--workers", 1, "--tasks", name,
            "--train-on", own)  # fmt: skip
    assert len([*folder.glob("questions/own-*")]) == 2


def test_all_tasks_are_trained_on_a_set_that_is_of_their_kind():
    def sets(train_on):
        args = Namespace(tasks=None, train_on=train_on)
        return [prepare_xtreme.set_for(xtreme_task(name), args) for name in ("XNLI", "XQuAD")]

    assert sets(None) == sets("mnli") == sets("squad") == ["mnli", "squad"]
    assert sets("tydiqa") == ["mnli", "tydiqa"]
    assert sets("x/train-en.tsv.gz") == ["x/train-en.tsv.gz", "squad"]
    assert sets("own.json") == ["own.json", "own.json"]


def test_questions_of_subwords_that_the_text_no_longer_has_are_refused(folder, tmp_path):
    copytree(folder, tmp_path, dirs_exist_ok=True)
    dictionary = tmp_path / "data-bin/dict.txt"
    write(dictionary, dictionary.read_text().splitlines()[::-1])
    words = ("prepare-xtreme", tmp_path / "xtreme", "--folder", tmp_path, "--tasks", "xquad")
    for made in ("questions/squad", "tasks/XQuAD/encoded"):
        with pytest.raises(
            UserError, match=rf"{made} was made with other settings: text, dictionary \("
        ):
            run(*words)
        rmtree(tmp_path / made)


def test_what_is_trained_on_may_lie_deeper_in_the_data(tmp_path):
    own = tmp_path / "en" / "own.json"
    own.parent.mkdir()
    own.touch()
    assert prepare_xtreme.training_file(tmp_path, "en/own.json") == own


def test_languages_are_measured_once_at_the_checkpoint_that_is_best_in_english(tuned):
    tests_of = {"XQuAD": ["valid1", "valid2"], "MLQA": ["valid1", "valid2"], "XNLI": ["valid1"]}
    for task, tests in tests_of.items():
        curves = result(tuned, task)["curves"]
        assert list(curves) == ["valid", *tests]
        metrics = xtreme_task(task).metrics
        english = {update: values[metrics[0]] for update, values in curves["valid"]}
        assert len(english) == 2
        for split in tests:
            [(update, values)] = curves[split]
            assert english[update] == max(english.values())
            assert set(metrics) <= values.keys()


def test_predictions_are_files_that_the_scorer_reads(tuned, capsys):
    for task in ("XQuAD", "MLQA", "XNLI"):
        assert run("predict", task, "--folder", tuned) == 0
    labels = tuned / "labels"
    files = {"xquad/test-de": "xquad.de", "xquad/test-en": "xquad.en",
             "mlqa/test-zh": "test-context-zh-question-zh",
             "mlqa/test-de-en": "test-context-de-question-en"}  # fmt: skip
    for task in ("xquad", "mlqa", "xnli"):
        (labels / task).mkdir(parents=True)
    for name, file in files.items():
        (labels / f"{name}.json").write_text((tuned / "xtreme" / f"{file}.json").read_text())
    rows = (tuned / "xtreme" / "test-sw.tsv").read_text().splitlines()
    write(labels / "xnli" / "test-sw.tsv", [row.split("\t")[2] for row in rows])
    capsys.readouterr()
    assert run("score-xtreme", labels, tuned / "submission") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["xnli"]["accuracy"].keys() == {"sw", "mean"}
    for task, languages in (("XQuAD", ("de", "en")), ("MLQA", ("zh", "de-en"))):
        curves = result(tuned, task)["curves"]
        for split, language in zip(("valid1", "valid2"), languages, strict=True):
            [(_, values)] = curves[split]
            for metric in ("f1", "exact_match"):
                scores = found[task.lower()][metric]
                assert scores[language] == pytest.approx(values[metric], abs=1e-3)
            assert values["f1"] > 0
    assert found["mlqa"]["f1"]["mean"] == found["mlqa"]["f1"]["zh"]  # a pair counts in no mean


def test_predictions_of_another_training_set_are_kept_apart(tuned):
    [checkpoint] = tuned.glob("tasks/XQuAD/runs/ours/*seed1/checkpoint_best.pt")
    assert run("predict", "XQuAD-tydiqa", "--folder", tuned, "--checkpoint", checkpoint) == 0
    found = {path.name for path in (tuned / "submission-tydiqa" / "xquad").iterdir()}
    assert found == {"test-de.json", "test-en.json"}


@pytest.mark.parametrize("best", [3, 25])
def test_a_question_of_one_s_own_is_answered_from_the_text(tuned, capsys, best):
    [checkpoint] = tuned.glob("tasks/XQuAD/runs/ours/*seed1/checkpoint_best.pt")
    text = "Über  Ada: she has a red ball."
    assert run("answer", checkpoint, "--question", "Who?", "--text", text, "--best", best,
               "--folder", tuned) == 0  # fmt: skip
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines() if "\t" in line]
    assert len(lines) == best
    for answer, probability, place in lines:
        begin, end = (int(place.split()[n]) for n in (1, 3))
        assert text[begin:end] == answer == answer.strip()
        assert 0 < float(probability) < 1


@pytest.mark.parametrize("option", ["--text", "--file"])
def test_a_text_without_a_subword_is_refused(tuned, tmp_path, option):
    [checkpoint] = tuned.glob("tasks/XQuAD/runs/ours/*seed1/checkpoint_best.pt")
    path = write(tmp_path / "text", ["\u200b"])
    given = path if option == "--file" else "\u200b"
    words = ("--question", "Who?", option, given, "--folder", tuned)
    source = f"--file {path}" if option == "--file" else "--text"
    with pytest.raises(UserError) as error:
        run("answer", checkpoint, *words)
    assert str(error.value) == f"{source} has nothing that is made into subwords: give some words"


def test_pairs_of_mlqa_are_taken_where_they_are_asked_for(tmp_path):
    names = ("de-question-de", "de-question-en", "en-question-de")
    for name in names:
        (tmp_path / f"dev-context-{name}.json").touch()
    task = xtreme_task("mlqa")
    assert list(prepare_xtreme.test_files(tmp_path, task, None)) == ["de"]
    found = prepare_xtreme.test_files(tmp_path, task, ["de", "de-en"])
    assert found["de-en"].name == "dev-context-de-question-en.json"
    assert prepare_xtreme.rules_of(task, "de-en") == "mlqa de"  # the answer is in the context


def test_answers_that_need_no_learning_are_measured_beside(folder):
    found = cells.load(folder / "tasks/XQuAD/encoded/guess.json")
    assert found.keys() == {"the first sentence", "the best-matching window"}
    assert all(of.keys() == {"valid", "valid1", "valid2"} for of in found.values())


# Bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "XCOPA"], "XTREME's task XCOPA is not known here: take one or more of XNLI, "
         "PAWSX, XQuAD, MLQA, TyDiQA"),
        (["--tasks", "xquad", "--languages", "fr"], "--languages fr: XQuAD has ar, de, el, en, es, "
         "hi, ru, th, tr, vi, zh"),
        (["--tasks", "mlqa", "--languages", "de-fr"], "--languages de-fr: MLQA has ar, de, en, es, "
         "hi, vi, zh, and pairs of a context's and a question's, as de-en"),
        (["--tasks", "xquad", "--languages", "th"], "{data} has no xquad.th.json (or "
         "xquad.th.json.gz): fetch it, as --download does"),
        (["--tasks", "tydiqa"], "{data} has no test set of TyDiQA: give the folder of its files"),
        (["--train-on", "tydiqa"], "{data} has no tydiqa.goldp.en.train.json (or "
         "tydiqa.goldp.en.train.json.gz) to train on: fetch it, as --download does, or name "
         "another with --train-on"),
        (["--train-on", "tydiqa", "--tasks", "xquad", "xnli"], "--train-on tydiqa has questions, "
         "and XNLI takes labelled pairs: leave it out, or name other --tasks"),
        (["--train-on", "mnli", "--tasks", "xquad"], "--train-on mnli has labelled pairs, and "
         "XQuAD takes questions: leave it out, or name other --tasks"),
        (["--train-on", "/no/such/my.json"], "--train-on /no/such/my.json does not exist: name a "
         "file, or a set"),
        (["--train-on", "my.json"], "{data} has no my.json (or my.json.gz) to train on: put it "
         "there, or name another with --train-on"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused(folder, words, message):
    data = folder / "xtreme"
    with pytest.raises(UserError) as error:
        run("prepare-xtreme", data, *words, "--folder", folder)
    assert str(error.value) == message.format(data=data)


def test_a_checkpoint_that_was_not_fine_tuned_does_not_answer(folder):
    checkpoint = folder / "runs/base/checkpoint_last.pt"
    with pytest.raises(UserError) as error:
        run("answer", checkpoint, "--question", "Who?", "--text", "Ada.", "--folder", folder)
    assert str(error.value) == (
        f"{checkpoint} has not learned to answer questions: give one that `finetune` wrote "
        "for XQuAD, MLQA or TyDiQA"
    )
