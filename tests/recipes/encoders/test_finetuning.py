"""Fine-tuning as a user runs it: cells, how they go on, their table, predictions, refusals."""

import csv
from functools import partial
from threading import Barrier

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import finetune
from diet_fairseq.recipes.grid import table
from diet_fairseq_cli import main
from tests.support import commands as fairseq
from tests.support import glue
from tests.support.glue import run
from tests.support.road import cells, text, use, write


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    use(monkeypatch)
    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", glue.forked)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return glue.with_tasks(tmp_path_factory.mktemp("encoder"))


def tune(folder, task, *more, checkpoint="runs/base/checkpoint_last.pt"):
    return run("finetune", task, folder / checkpoint, "--folder", folder, "--gpus", 0, "--epochs",
               1, "--length", 32, "--batch", 8, *more)  # fmt: skip


def result(folder, task, row, cell):
    return cells.load(folder / "tasks" / task / "runs" / row / cell / "result.json")


@pytest.fixture(scope="module")
def tuned(folder):
    """Two seeds of the one task, one of the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diet_fairseq.recipes.common.cells.status_of", glue.forked)
        assert tune(folder, "RTE", "--seeds", 1, 2, "--row", "ours", "--encoder", "bert") == 0
        assert tune(folder, "STS-B", "--seeds", 1, "--row", "ours", "--encoder", "bert") == 0
    return folder


def test_a_cell_starts_from_the_checkpoint_keeps_its_curve_and_the_best_parameters(tuned):
    cell = "lr0.0003_epochs1_seed2"
    found = result(tuned, "RTE", "ours", cell)
    assert (found["task"], found["row"], found["seed"], found["rate"]) == ("RTE", "ours", 2, 3e-4)
    [[updates, values]] = found["curves"]["valid"]
    assert updates == 2
    assert 0 <= values["accuracy"] <= 100
    assert found["model"]["arch"] == "bert_diet_rel"
    assert found["model"]["segment_scheme"] == "per-head"
    kept = tuned / "tasks/RTE/runs/ours" / cell
    assert (kept / "checkpoint_best.pt").exists()
    assert not (kept / "checkpoint_last.pt").exists()
    log = (kept / "train.out").read_text()
    assert "starts from another model" in log
    assert "new here: encoder.sentence_encoder.layers.*.self_attn.segments.weight" in log


def test_a_finished_cell_is_not_run_again(tuned, monkeypatch, capsys):
    monkeypatch.setattr(
        "diet_fairseq.recipes.common.cells.status_of", lambda *_, **__: pytest.fail("ran")
    )
    assert tune(tuned, "RTE", "--seeds", 1, 2, "--row", "ours", "--encoder", "bert") == 0
    said = capsys.readouterr().out
    assert said.count("done before") == 2
    assert "RTE, ours, lr0.0003_epochs1_seed2: done before" in said


@pytest.mark.slow
def test_a_cut_cell_goes_on_and_ends_as_if_it_had_not_been_cut(folder, tuned, monkeypatch):
    in_the_second_epoch = partial(fairseq.kill_on_call, "fairseq.trainer:Trainer.train_step", 4)
    killed = partial(glue.forked, first=in_the_second_epoch)
    flags = ("--seeds", 1, "--row", "cut", "--epochs", 2)
    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", killed)
    assert tune(folder, "RTE", *flags) == 1
    cell = folder / "tasks/RTE/runs/cut/lr0.0003_epochs2_seed1"
    assert (cell / "checkpoint_last.pt").exists()
    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", glue.forked)
    assert tune(folder, "RTE", *flags) == 0
    found = result(folder, "RTE", "cut", cell.name)
    assert [updates for updates, _ in found["curves"]["valid"]] == [2, 4]
    assert "Loaded checkpoint" in (cell / "train.out").read_text()
    assert tune(folder, "RTE", *flags[:2], "--row", "whole", *flags[4:]) == 0
    whole = result(folder, "RTE", "whole", cell.name)["curves"]
    assert [values["loss"] for _, values in whole["valid"]] == [
        values["loss"] for _, values in found["curves"]["valid"]
    ]


def test_a_failed_cell_does_not_stop_the_others(folder, monkeypatch, capsys):
    calls = []

    def failing(command, stdout, stderr, env=None):
        calls.append(command)
        return 3

    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", failing)
    assert tune(folder, "RTE", "--row", "failing", "--seeds", 1, 2, 3) == 1
    assert len(calls) == 3
    assert capsys.readouterr().out.count("FAILED: fairseq_cli.train ended with status 3") == 3


def test_from_scratch_nothing_is_taken(folder, monkeypatch):
    calls = []
    monkeypatch.setattr(cells, "status_of", lambda command, *_, **__: calls.append(command) or 1)
    tune(folder, "RTE", "--scratch", "--seeds", 1)
    [command] = calls
    assert "--finetune-from-model" not in command
    assert "--arch=roberta_diet_rel" in command
    assert (folder / "tasks/RTE/runs/base-scratch/grid.json").exists()


def test_cells_are_spread_over_the_gpus(folder, monkeypatch):
    seen = []
    two_at_once = Barrier(2)  # else one thread might be done before the other begins

    def call(command, stdout, stderr, env):
        two_at_once.wait(60)
        seen.append((env.get("CUDA_VISIBLE_DEVICES"), "--cpu" in command))
        return 1

    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", call)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    run("finetune", "RTE", folder / "runs/base/checkpoint_last.pt", "--folder", folder, "--row",
        "spread", "--length", 32, "--seeds", 1, 2, 3, 4)  # fmt: skip
    assert sorted(seen) == [("0", False)] * 2 + [("1", False)] * 2


@pytest.fixture
def shown(folder, capsys):
    """The commands that `finetune --show` prints."""

    def call(*more):
        run("finetune", *more, "--folder", folder, "--gpus", 0, "--show")
        return capsys.readouterr().out.splitlines()

    return call


def test_the_papers_grids(folder, shown):
    start = folder / "runs/base/checkpoint_last.pt"
    tupe = shown("RTE", start, "--grid", "tupe", "--length", 32)
    assert len(tupe) == 4 * 5
    assert all("--batch-size 32" in line and "--warmup-ratio 0.06" in line for line in tupe)
    assert all("--max-epoch 10 " in line and "--adam-eps 1e-6" in line for line in tupe)
    assert {line.split("--lr ")[1].split()[0] for line in tupe} == {
        "2e-05", "3e-05", "4e-05", "5e-05",
    }  # fmt: skip
    diet = shown("STS-B", start, "--grid", "diet", "--length", 32)
    assert len(diet) == 4 * 5 * 2
    assert all("--warmup-ratio 0.1" in line and "--regression-target" in line for line in diet)
    assert {line.split("--max-epoch ")[1].split()[0] for line in diet} == {"5", "10"}
    assert "--validate-interval-updates 3500" in diet[0]
    grids = finetune.GRIDS
    assert (grids["tupe"].length, grids["diet"].length) == (512, 128)
    assert (grids["tupe"].epochs_of_large, grids["tupe"].rates[0]) == ((5,), 2e-5)


def test_what_is_not_known_here_is_passed_on(folder, shown):
    [line] = shown("RTE", folder / "runs/base/checkpoint_last.pt", "--length", 32, "--seeds", 1,
                   "--encoder", "bert", "--segment-scheme", "input")  # fmt: skip
    assert "--arch=bert_diet_rel" in line
    assert "--segment-scheme input" in line


# Predictions


def test_predictions_are_in_glue_s_form(tuned):
    run("predict", "RTE", "--folder", tuned)
    lines = (tuned / "submission" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == list("01234")
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}
    run("predict", "STS-B", "--folder", tuned, "--output", tuned / "elsewhere")
    lines = (tuned / "elsewhere" / "STS-B.tsv").read_text().splitlines()
    assert all(0 <= float(line.split("\t")[1]) <= 5 for line in lines[1:])


def test_any_file_is_labelled_as_the_dev_set_was(tuned):
    """The accuracy of the labels written is that of training's last look at the dev set."""
    dev = tuned / "rte/RTE/dev.tsv"
    cell = tuned / "tasks/RTE/runs/ours/lr0.0003_epochs1_seed1"
    run("predict", "RTE", "--folder", tuned, "--checkpoint", cell / "checkpoint_best.pt", "--tsv",
        dev, "--text", "sentence1", "sentence2", "--output", tuned / "labels")  # fmt: skip
    found = (tuned / "labels").read_text().splitlines()
    right = [line.split("\t")[-1] for line in text.read_lines(dev)][1:]
    accuracy = 100 * sum(map(str.__eq__, found, right)) / len(right)
    [[_, values]] = result(tuned, "RTE", "ours", cell.name)["curves"]["valid"]
    assert values["accuracy"] == pytest.approx(accuracy, abs=1e-3)


def test_nothing_is_labelled_by_subwords_that_the_checkpoint_does_not_have(tuned, tmp_path):
    dictionary, rows = tuned / "data-bin/dict.txt", tuned / "rte/RTE/test.tsv"
    before = dictionary.read_text()
    write(dictionary, before.splitlines()[::-1])
    try:
        with pytest.raises(UserError, match=rf" subwords, which is not .* \({dictionary}, "):
            run("predict", "RTE", "--folder", tuned, "--tsv", rows, "--output", tmp_path / "labels")
    finally:
        dictionary.write_text(before)
    assert not list(tmp_path.iterdir())


def test_predicting_needs_a_finished_cell_and_as_many_columns(tuned):
    with pytest.raises(UserError) as error:
        run("predict", "RTE", "--folder", tuned, "--row", "nobody")
    assert str(error.value) == (
        f"{tuned}/tasks/RTE/runs/nobody has no checkpoint of a finished cell: run `finetune` "
        "first, or name a --checkpoint"
    )
    with pytest.raises(UserError) as error:
        run("predict", "RTE", "--folder", tuned, "--tsv", tuned / "rte/RTE/dev.tsv", "--text",
            "sentence1")  # fmt: skip
    assert str(error.value) == "--text has 1 columns, but RTE has 2: name as many"


def test_a_file_without_lines_is_not_labelled(tuned, tmp_path):
    (tmp_path / "empty.tsv").write_text("index\tsentence1\tsentence2\n")
    with pytest.raises(UserError) as error:
        run("predict", "RTE", "--folder", tuned, "--tsv", tmp_path / "empty.tsv")
    assert str(error.value) == (
        f"{tmp_path}/empty.tsv has a header and no lines: there is nothing to label"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["empty.tsv"]


def test_columns_of_no_file_are_refused(folder):
    with pytest.raises(UserError) as error:
        run("predict", "RTE", "--folder", folder, "--text", "sentence1", "sentence2")
    assert str(error.value) == (
        "--text sentence1 sentence2 names columns of --tsv, which is not given: add --tsv FILE, or "
        "leave --text out to label the task's test sets"
    )


# The table


def test_the_table_is_made_of_finished_cells(tuned, capsys, shared_data):
    tables = shared_data.parent / "paper_tables.json"
    run("report", "--folder", tuned, "--rows", "ours", "--papers", tables, "--csv",
        tuned / "glue.csv", "--plot", tuned / "glue.png")  # fmt: skip
    said = capsys.readouterr().out
    assert said.startswith("GLUE dev, median over seeds of the maximum over checkpoints")
    assert "| source | row | STS-B | RTE | mean of these 2 | DIET's avg. | TUPE's avg. |" in said
    assert "| ours | the commonest label | 0.0 | 55.6 | 27.8 |" in said
    ours, paper = said.index("| ours | ours |"), said.index("| DIET, table 2 | diet_rel, segments")
    assert ours < paper < said.index("| DIET, table 2 | bert, segments input | 89.0 |")
    assert said[:paper].count("\n") == said[:ours].count("\n") + 1  # right after it
    with open(tuned / "glue.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    [row] = (r for r in rows if r["row"] == "ours" and r["task"] == "RTE" and
             r["statistic"] == "tupe")  # fmt: skip
    assert (row["seeds"], row["rate"], row["epochs"]) == ("2", "0.0003", "1")
    assert (tuned / "glue.png").read_bytes().startswith(b"\x89PNG")


def test_a_grid_of_fine_tunings_is_these_cells(tuned, tmp_path, capsys):
    """Over two seeds, with their mean and spread; nothing is trained again."""
    path = tmp_path / "grid.toml"
    path.write_text(
        f'kind = "fine-tuning"\nfolder = "{tuned}"\ntasks = "RTE"\nseeds = [1, 2]\n'
        'options = "--epochs 1 --length 32 --batch 8 --encoder bert"\n'
        f'rows = {{ours = "{tuned}/runs/base/checkpoint_last.pt"}}\n'
    )
    assert main(["grid", "run", str(path)]) == 0
    assert capsys.readouterr().out.count("done before") == 2
    main(["grid", "table", str(path)])
    values = [
        result(tuned, "RTE", "ours", f"lr0.0003_epochs1_seed{seed}")["curves"]["valid"][0][1]
        for seed in (1, 2)
    ]
    shown = table.spread([one["accuracy"] for one in values], 2)
    said = capsys.readouterr().out
    assert "| row | RTE | parameters | minutes | seeds |" in said
    assert f"| ours | {shown} |" in said
    path.write_text(path.read_text().replace("--epochs 1", "--epochs none"))
    with pytest.raises(UserError, match="row 'ours': argument --epochs: invalid int value: 'none'"):
        main(["grid", "table", str(path)])


# Refusals


def refused(folder, *arguments, **more):
    with pytest.raises(UserError) as error:
        tune(folder, *arguments, **more)
    return str(error.value)


def test_a_row_is_not_gone_on_with_in_another_way(tuned):
    assert refused(tuned, "RTE", "--row", "ours", "--encoder", "bert", "--batch", 4) == (
        f'{tuned}/tasks/RTE/runs/ours was begun with other settings: --batch-size ("8", now "4"): '
        "take another --row, or remove this folder"
    )
    other = glue.pretrained(tuned, "other", "roberta_diet_rel")
    assert refused(tuned, "RTE", "--row", "ours", "--encoder", "bert", checkpoint=other).startswith(
        f"{tuned}/tasks/RTE/runs/ours was begun with other settings: checkpoint ("
    )


def test_a_row_of_which_nothing_was_trained_can_be_begun_anew(folder, monkeypatch):
    """Else a mistyped option would lock it."""
    monkeypatch.setattr(cells, "status_of", lambda *_, **__: 1)
    words = ("RTE", "--row", "mistyped", "--seeds", 1)
    assert tune(folder, *words, "--no-such-option") == 1
    assert tune(folder, *words) == 1
    row = folder / "tasks/RTE/runs/mistyped"
    assert "--no-such-option" not in cells.load(row / "grid.json")
    for name in ("checkpoint_last.pt", "result.json"):
        (row / "lr0.0003_epochs1_seed1" / name).touch()
        assert " was begun with other settings: --dropout (" in refused(
            folder, *words, "--dropout", 0.3
        )
        (row / "lr0.0003_epochs1_seed1" / name).unlink()


def test_another_dictionary_is_refused(folder, tmp_path):
    start = tmp_path / "runs" / "base" / "checkpoint_last.pt"
    start.parent.mkdir(parents=True)
    start.write_bytes((folder / "runs/base/checkpoint_last.pt").read_bytes())
    (tmp_path / "data-bin").mkdir()
    lines = (folder / "data-bin" / "dict.txt").read_text().splitlines()
    theirs = write(tmp_path / "data-bin" / "dict.txt", [lines[1], lines[0], *lines[2:]])
    task = folder / "tasks/RTE/data-bin/input0/dict.txt"
    assert refused(folder, "RTE", checkpoint=start) == (
        f"{start} was trained with the dictionary {theirs} of {len(lines)} subwords, which is not "
        f"that of the task ({task}, {len(lines)}): prepare the task in the folder that the encoder "
        "was trained in"
    )


def test_a_dictionary_that_is_gone_is_judged_by_its_size(folder, tmp_path):
    start = finetune.Start(folder / "runs/base/checkpoint_last.pt")
    start.path = tmp_path / "model.pt"
    start.check_dictionary(folder / "data-bin/dict.txt")
    with pytest.raises(UserError, match=r"was trained with a dictionary of \d+ subwords, which"):
        start.check_dictionary(write(tmp_path / "short.txt", ["a 1"]))


def test_more_tokens_than_the_encoder_has_positions_for_are_refused(folder):
    start = folder / "runs/base/checkpoint_last.pt"
    assert refused(folder, "RTE", "--length", 64) == (
        f"--length 64: {start} takes 32 tokens: take --length 32"
    )


@pytest.mark.parametrize(
    ("flag", "instead"), [("--lr", "--rates"), ("--max-epoch", "--epochs"), ("--seed", "--seeds")]
)
def test_an_option_that_every_cell_has_its_own_of_is_refused(flag, instead, folder):
    assert refused(folder, "RTE", flag, "3") == (
        f"{flag} 3: every cell of a grid of fine-tunings has its own: give {instead} instead"
    )


def test_what_is_no_checkpoint_or_no_task_is_refused(folder, tmp_path):
    assert refused(folder, "RTE", checkpoint="none.pt") == (
        f"{folder}/none.pt can't be read: No such file or directory"
    )
    for task, command in (
        ("CoLA", "`prepare-glue`"),
        ("XQuAD", "`prepare-xtreme`"),
        ("XQuAD-tydiqa", "`prepare-xtreme --train-on`"),
        ("PAWSX", "`prepare-glue`, `prepare-xtreme` or `prepare-task`"),
        ("own", "`prepare-glue`, `prepare-xtreme` or `prepare-task`"),
    ):
        assert refused(folder, task) == (
            f"{folder}/tasks/{task} holds no prepared task: run {command} first, or name --folder"
        )
    with pytest.raises(UserError, match="holds no finished cell: run `finetune` first"):
        run("report", "--folder", tmp_path)


def test_a_mistake_is_the_last_line_and_the_status(tmp_path):
    path = write(tmp_path / "train.tsv", ["a\tlabel", "x\t1", "y"])
    task = ("--train", path, "--dev", path, "--text", "a", "--label", "label")
    done = fairseq.run("diet_fairseq_cli:main", "encoder", "prepare-task", "own", *task,
                       "--folder", tmp_path, plugin=False)  # fmt: skip
    assert done.status == 1
    assert done.last == (
        f"error: {path}, line 3: 2 tab-separated columns are expected, 1 are found: correct the "
        "file"
    )
    assert "Traceback" not in done.err
