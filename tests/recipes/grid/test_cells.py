"""Cells of a grid don't disturb one another, and a result is that of its row."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import cells, turns
from diet_fairseq.recipes.common.options import by_name
from diet_fairseq.recipes.grid import job, run, spec, table

SCORING = """
kind = "script"
folder = "{folder}"
script = "{folder}/one.py"
options = "--x 5"

[rows]
plain = ""
own = "--x 1"
bad = "--x nan"
last = "--x 2"
"""


@pytest.fixture
def scored(tmp_path):
    """Runs a grid of a script that gives its last ``--x`` back; "nan" is no JSON."""
    (tmp_path / "one.py").write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "text = '{' if given['--x'] == 'nan' else json.dumps({'right': int(given['--x'])})\n"
        "(Path(given['--out']) / 'scores.json').write_text(text)\n"
    )

    def main(text, *words):
        path = tmp_path / "grid.toml"
        path.write_text(text.format(folder=tmp_path))
        parser = ArgumentParser()
        run.add_arguments(parser)
        return run.run(parser.parse_args([words[0], str(path), *words[1:]]))

    return main


def test_a_row_s_own_option_wins_and_a_cell_that_breaks_leaves_the_others_their_turn(
    scored, capsys
):
    assert scored(SCORING, "run") == 1
    said = capsys.readouterr().out
    assert re.search(r"grid-bad-s1: FAILED: \S+/scores\.json is damaged \(Expecting prop", said)
    assert scored(SCORING, "table") == 0
    said = capsys.readouterr().out
    for line in ("| row | right | seeds |", "| plain | 5.00 | 1 |", "| own | 1.00 | 1 |"):
        assert line in said
    assert "| last | 2.00 | 1 |" in said


def test_a_fault_of_ours_in_one_cell_leaves_the_others_their_turn(scored, capsys, monkeypatch):
    original = job.OUTCOMES["script"]

    def outcome(run):
        return {"right": 1 / 0} if "bad" in run.name else original(run)

    monkeypatch.setitem(job.OUTCOMES, "script", outcome)
    assert scored(SCORING, "run") == 1
    said = capsys.readouterr().out
    assert "grid-bad-s1: FAILED: ZeroDivisionError: division by zero" in said
    assert "grid-last-s1: right 2" in said


def test_a_result_of_other_options_is_neither_kept_nor_shown(scored, tmp_path, capsys):
    grid = SCORING.replace('bad = "--x nan"\n', "")
    assert scored(grid, "run") == 0
    changed = grid.replace('own = "--x 1"', 'own = "--x 3"')
    why = (
        f'{tmp_path}/results/grid-own-s1.json was made with other options: --x ("1", now "3"): '
        f"remove it and {tmp_path}/runs/grid-own-s1 to run the cell again, or give the row or the "
        "grid another name"
    )
    capsys.readouterr()
    assert scored(changed, "run") == 1
    assert f"grid-own-s1: FAILED: {why}\n" in capsys.readouterr().out
    with pytest.raises(UserError) as error:
        scored(changed, "table")
    assert str(error.value) == why
    (tmp_path / "results" / "grid-own-s1.json").unlink()
    shutil.rmtree(tmp_path / "runs" / "grid-own-s1")
    assert scored(changed, "run") == 0
    assert scored(changed.replace('options = "', 'options = "--log-interval 9 '), "table") == 0


def test_a_damaged_result_is_named(scored, tmp_path):
    grid = SCORING.replace('bad = "--x nan"\n', "")
    scored(grid, "run")
    (tmp_path / "results" / "grid-own-s1.json").write_text("{")
    with pytest.raises(UserError, match=r"grid-own-s1\.json is damaged \(.*\): remove it, and"):
        scored(grid, "table")
    assert scored(grid, "run") == 1


def test_measures_that_nothing_has_are_refused(scored):
    grid = SCORING.replace('bad = "--x nan"\n', "").replace(
        "[rows]", 'measures = ["wrong"]\n[rows]'
    )
    assert scored(grid, "run") == 1
    with pytest.raises(UserError, match="there is no wrong in what came out, which has right: cor"):
        scored(grid, "table")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("table", "--output", "out.md"),
            "--output out.md goes with plot: leave it out, or take pl",
        ),
        (
            ("plot", "--baseline", "own"),
            "--baseline own goes with table: leave it out, or take table",
        ),
        (("run", "--metric", "loss"), "--metric loss goes with plot: leave it out, or take plot"),
        (("run", "--at", "5"), "--at 5 goes with table: leave it out, or take table"),
        (("plot", "--output", "x.xyz"), r"--output x.xyz must end in one of .*\.png.*: give it"),
        (("plot", "--output", "no/x.png"), r"--output no/x.png: there is no folder no: make it"),
        (("plot", "--output", "png"), r"--output png must end in one of .*\.png.*: give it"),
    ],
)
def test_an_option_that_would_mean_nothing_is_refused_before_anything_is_done(
    words, said, scored, tmp_path
):
    with pytest.raises(UserError, match=said):
        scored(SCORING, *words)
    assert not (tmp_path / "runs").exists()


def test_two_commands_do_not_run_a_cell_at_the_same_time(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(SCORING.format(folder=tmp_path / "data"))
    [cell, *_] = spec.read(grid).cells()
    one = job.Job(spec.read(grid), cell)
    began = []

    def begin():
        began.append(1)
        return one.run()

    with turns.turn(tmp_path / "data", cell.run, lambda: None), ThreadPoolExecutor(1) as pool:
        other = pool.submit(begin)
        while not began:
            time.sleep(0.01)
        with pytest.raises(TimeoutError):
            other.result(timeout=0.3)
        turns.interrupted.set()
        with pytest.raises(UserError, match="interrupted while it waited for its turn"):
            other.result(timeout=30)
    turns.interrupted.clear()


@pytest.mark.parametrize("kind", ["pretraining", "translation"])
def test_a_row_s_own_option_wins_in_training_too(kind, tmp_path):
    grid = spec.Grid("g", kind, tmp_path, {"a": "t5 --lr 2"}, options="--lr 1", pair="en-de")
    [cell] = grid.cells()
    command, _ = job.Job(grid, cell).steps()[0]
    assert by_name(command)["--lr"] == "2"


def test_a_log_keeps_what_an_earlier_attempt_said(tmp_path):
    for word in "one", "two":
        assert not cells.run_logged(["-c", f"print({word!r})"], tmp_path / "log")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["{folder}/one.py", "--x", "1"], "{folder}/one.py"),
        (["-m", "json.tool", "{folder}/one.py"], "json.tool"),
        (["-m", "diet_fairseq", "grid", "run", "{folder}/no.toml"], "diet_fairseq grid run"),
    ],
)
def test_what_failed_is_named_by_its_script_module_or_command(command, named, tmp_path):
    (tmp_path / "one.py").write_text("raise SystemExit(1)\n")
    said = cells.run_logged([word.format(folder=tmp_path) for word in command], tmp_path / "log")
    named = named.format(folder=tmp_path)
    assert said == f"FAILED: {named} ended with status 1, see {tmp_path / 'log'}"


def test_threads_that_wait_give_up_when_the_command_is_interrupted(tmp_path):
    class Interrupted:
        name = "one"

        def run(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.run_all([Interrupted()], 1)
    assert turns.interrupted.is_set()
    turns.interrupted.clear()


def test_a_cell_is_reported_while_a_slower_one_that_began_before_is_at_work(capsys):
    reported = threading.Event()

    class One:
        def __init__(self, name, run):
            self.name, self.run = name, run

    def slow():
        assert reported.wait(20)
        return "done at last"

    def third():  # has its turn when the second is reported
        reported.set()
        return "done"

    some = [One("slow", slow), One("quick", lambda: "FAILED: at once"), One("third", third)]
    assert cells.run_all(some, 2) == 1
    said = re.findall(r"s, (\d) of 3\] (\w+): ", capsys.readouterr().out)
    assert said[0] == ("1", "quick")
    assert [number for number, _ in said] == ["1", "2", "3"]


def test_a_grid_that_is_terminated_ends_the_programs_that_it_runs(tmp_path):
    (tmp_path / "grid.toml").write_text(SCORING.format(folder=tmp_path))
    (tmp_path / "one.py").write_text(
        "import os, sys, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "diet_fairseq", "grid", "run", tmp_path / "grid.toml"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--jobs", "2"], **streams) as grid:
        logs = [tmp_path / "runs" / f"grid-{row}-s1" / "script.out" for row in ("plain", "own")]
        until(lambda: all(log.exists() and log.read_text() for log in logs))
        grid.terminate()
        results, said = grid.communicate(timeout=60)
    assert grid.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1] == "interrupted: run the same command to continue"
    assert "FAILED" not in results
    for log in logs:
        [process] = log.read_text().split()
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)
    assert not (tmp_path / "runs" / "grid-bad-s1" / "script.out").exists()


def test_a_program_that_begins_too_late_is_ended(tmp_path):
    turns.interrupted.set()
    try:
        failed = cells.run_logged(["-c", "import time; time.sleep(600)"], tmp_path / "log")
    finally:
        turns.interrupted.clear()
    assert f"ended with status {-signal.SIGTERM}, see {tmp_path / 'log'}" in failed


def until(ready, limit=60):
    end = time.monotonic() + limit
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_curve_has_the_updates_that_all_seeds_have(tmp_path):
    table.plot(
        {"a": {1: {"curve": [(100, 5.0), (200, 4.0)]}, 2: {"curve": [(100, 5.0)]}}},
        tmp_path / "curves.png",
    )
    assert (tmp_path / "curves.png").stat().st_size
