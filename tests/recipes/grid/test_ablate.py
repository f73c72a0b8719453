"""DIET's ablations: a grid for each table, whose rows are pretrained and fine-tuned."""

import json
import shlex
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from itertools import pairwise

import pytest
from fairseq import options

from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import report, report_names, tuning
from diet_fairseq.recipes.encoders.glue_tasks import GLUE
from diet_fairseq.recipes.grid import ablate
from diet_fairseq.recipes.grid.job import Job
from tests.support import glue
from tests.support.glue import run
from tests.support.road import use


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    use(monkeypatch)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return glue.encoder_folder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def prepared(tmp_path):
    """As much of a folder with the task RTE as is looked at before anything is trained."""
    made_from = tmp_path / "tasks/RTE/encoded/made-from.json"
    made_from.parent.mkdir(parents=True)
    made_from.write_text(json.dumps({"task": asdict(GLUE["RTE"])}))


def rows_of(name):
    return ablate.read(ablate.FOLDER / f"{name}.toml").rows


def parsed(*words):
    parser = ArgumentParser()
    ablate.add_arguments(parser)
    return parser.parse_known_args(list(map(str, words)))


@pytest.mark.slow
def test_the_rows_are_pretrained_and_fine_tuned_by_one_command(tmp_path, monkeypatch, capsys):
    folder = glue.with_tasks(tmp_path)
    calls = []

    def call(command, stdout, stderr, env=None):
        calls.append(command)
        if "pretrain" not in command:
            return glue.forked(command, stdout, stderr)
        name = dict(pairwise(command))["--run"]
        glue.pretrained(folder, name, "bert_diet_rel")
        log = "num. shared model params: 1\n| valid on 'valid' subset | loss 5 | num_updates 1\n"
        (folder / "runs" / name / "train.log").write_text(f"{log}| num_updates 1 | wall 2\n")
        return 0

    monkeypatch.setattr("diet_fairseq.recipes.common.cells.status_of", call)
    (tmp_path / "sharing.toml").write_text(
        'kind = "pretraining"\nfolder = "roberta"\noptions = "--encoder bert"\n[rows]\n'
        '"diet_rel, shared layer, segments per-head" = "diet_rel --position-sharing layer"\n'
    )
    monkeypatch.setattr(ablate, "FOLDER", tmp_path)
    flags = ("--folder", folder, "--gpus", 0, "--epochs", 1, "--seeds", 1, "--length", 32)
    for number in (2, 0):
        calls.clear()
        assert run("ablate", "sharing", "RTE", *flags, "--updates", 1) == 0
        assert len(calls) == number
        said = capsys.readouterr().out
        assert "| ours | diet_rel, shared layer, segments per-head |" in said


def test_an_ablation_is_not_only_shown(tmp_path):
    """Its pretraining would be shown in place of each of its runs, which would count as failed."""
    with pytest.raises(
        UserError, match=r"^--show: ablate can't only show what it would run: leave"
    ):
        run("ablate", "sharing", "RTE", "--folder", tmp_path, "--gpus", 0, "--show")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("prepared")
def test_nothing_is_pretrained_for_a_task_that_is_not_prepared(tmp_path, monkeypatch):
    monkeypatch.setattr(ablate.cells, "run_all", lambda *_: pytest.fail("encoders were pretrained"))
    with pytest.raises(UserError, match=rf"^{tmp_path}/tasks/nosuch holds no prepared task: run"):
        run("ablate", "sharing", "RTE,nosuch", "--folder", tmp_path, "--gpus", 0)


@pytest.mark.usefixtures("prepared")
def test_nothing_is_pretrained_for_rows_that_were_fine_tuned_from_another_encoder(
    tmp_path, monkeypatch
):
    def pretrained(*_):
        raise AssertionError("encoders were pretrained")

    monkeypatch.setattr(ablate.cells, "run_all", pretrained)
    row = "diet_rel, segments per-head"
    begun = tmp_path / "tasks" / "RTE" / "runs" / row
    begun.mkdir(parents=True)
    words = ("ablate", "sharing", "RTE", "--folder", tmp_path, "--gpus", 0)
    with pytest.raises(AssertionError, match=r"^encoders were pretrained"):
        run(*words)
    cell = begun / "lr0.0003_epochs1_seed1"
    cell.mkdir()
    (cell / tuning.RESULT).touch()
    with pytest.raises(
        UserError,
        match=rf"^{begun} was fine-tuned from another encoder than {tmp_path}/runs/ablation_machine"
        r"-diet_rel-segments-per-head-s1, which is not trained yet: take another --folder, or",
    ):
        run(*words)


@pytest.mark.usefixtures("prepared")
def test_some_rows_can_be_chosen(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(ablate.cells, "run_all", lambda jobs, _: trained.extend(jobs) or 1)
    words = ("ablate", "sharing", "RTE", "--folder", tmp_path, "--gpus", 0, "--rows")
    chosen = list(rows_of("sharing"))[1:3]
    assert run(*words, *chosen) == 1  # the rest is left
    assert [job.cell.row for job in trained] == chosen
    with pytest.raises(UserError, match=r"^--rows 'nosuch': the grid has 'diet_rel, segments per-"):
        run(*words, "nosuch")


@pytest.mark.parametrize(
    ("content", "rule"),
    [("{}", " has no rows of diet_table8_glue_segments: name another"), ("[", ", line 1: this is")],
)
def test_the_papers_tables_are_read_before_anything_is_trained(tmp_path, content, rule):
    papers = tmp_path / "papers.json"
    papers.write_text(content)
    words = ("--folder", tmp_path, "--gpus", 0, "--papers", papers)
    with pytest.raises(UserError, match=f"^--papers {papers}{rule}"):
        run("ablate", "sharing", "RTE", *words)
    assert list(tmp_path.iterdir()) == [papers]


@pytest.mark.usefixtures("prepared")
def test_the_table_has_the_rows_that_finished(tmp_path, monkeypatch):
    """A row whose fine-tuning fails leaves the others in the table, and the status says so."""
    calls = []
    monkeypatch.setattr(ablate.cells, "run_all", lambda *_: 0)
    monkeypatch.setattr(ablate.finetune, "run", lambda *_: 1)
    monkeypatch.setattr(ablate.report, "show", calls.append)
    rows = list(rows_of("sharing"))
    (tmp_path / "there").touch()

    def grid_of(wanted, more):
        result = tmp_path / ("there" if wanted.row in rows[1:] else "missing")
        return [Namespace(row=Namespace(name=wanted.row), result=result)]

    monkeypatch.setattr(ablate.finetune, "grid_of", grid_of)
    words = ("ablate", "sharing", "RTE", "--folder", tmp_path, "--gpus", 0)
    assert run(*words) == 1
    assert [what.rows for what in calls] == [rows[1:]]
    (tmp_path / "there").unlink()
    assert run(*words) == 1
    assert len(calls) == 1


def fairseq_arguments(job, capsys):
    """What fairseq-train is given for a cell's pretraining."""
    [(command, _)] = job.steps()
    assert command[:3] == ["-m", "diet_fairseq", "encoder"]
    run(*command[3:], "--show")
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])[1:]
    return options.parse_args_and_arch(options.get_training_parser(), words)


DIET = [name for name in ablate.NAMES if not name.startswith("tupe")]


@pytest.mark.parametrize("name", DIET)
def test_every_row_is_the_model_it_is_called(encoder, capsys, name):
    args, more = parsed(name, "all", "--updates", 1, "--folder", encoder, "--dropout", 0)
    grid = ablate.pretraining(args, [*more, "--length", "32"])
    for cell in grid.cells():
        args = fairseq_arguments(Job(grid, cell), capsys)
        found = report_names.as_in_papers(vars(PositionConfig.of(args)))
        assert report_names.paper_name(found) == cell.row
        assert (args.max_update, args.dropout) == (1, 0)


@pytest.mark.parametrize("name", ["tupe", "tupe-large", "tupe-electra"])
def test_every_row_of_tupe_s_tables_is_the_model_it_is_called(encoder, capsys, name):
    args, more = parsed(name, "all", "--preset", "tupe", "--folder", encoder)
    grid = ablate.pretraining(args, more)
    for cell in grid.cells():
        args = fairseq_arguments(Job(grid, cell), capsys)
        model = {"arch": args.arch, **vars(PositionConfig.of(args))}
        assert cell.row in report_names.names_in_papers(model)
        assert model["segment_scheme"] == "none"
        assert args.encoder_layers == (24 if name == "tupe-large" else 12)


def test_the_rows_of_tupe_s_appendices_can_be_run(encoder, capsys):
    args, more = parsed("tupe-appendix", "all", "--folder", encoder)
    grid = ablate.pretraining(args, more)
    found = [PositionConfig.of(fairseq_arguments(Job(grid, cell), capsys)) for cell in grid.cells()]
    assert len(set(map(str, found))) == len(grid.rows)


def test_another_budget_makes_other_runs():
    names = {
        ablate.pretraining(*parsed("rank", "all", *more)).name
        for more in ((), ("--updates", 9), ("--preset", "diet"), ("--dropout", 0))
    }
    assert names == {
        "ablation_machine",
        "ablation_machine_9",
        "ablation_diet",
        "ablation_machine_dropout_0",
    }


def test_the_grids_have_the_rows_of_diet_s_tables(shared_data):
    tables = json.loads((shared_data.parent / "paper_tables.json").read_text())
    for table, names in (("diet_table8_glue_segments", ("segments",)),
                         ("diet_table9_glue_sharing", ("sharing", "rank")),
                         ("diet_table5_xtreme_ablation", ("xtreme",))):  # fmt: skip
        ours = {row for name in names for row in rows_of(name)}
        assert {report_names.paper_name(row) for row in tables[table]["rows"]} <= ours
    assert len(rows_of("xtreme")) == 15
    assert {int(words.split()[-1]) for words in rows_of("rank").values()} == {64, 128, 256, 512}


def test_the_grids_have_the_rows_of_tupe_s_tables(shared_data):
    tables = json.loads((shared_data.parent / "paper_tables.json").read_text())
    averages = report.averages_of_tupe(tables["tupe_base_glue_avg"]["rows"])
    printed = {name for row in averages for name in row.models}
    printed |= {row["model"] for row in tables["tupe_table3_large"]["rows"]}
    ours = [name for grid in ("tupe", "tupe-large", "tupe-electra") for name in rows_of(grid)]
    assert set(ours) == printed
