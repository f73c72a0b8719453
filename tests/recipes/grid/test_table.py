"""The table of a grid, from results that are there."""

import json
import math
from argparse import ArgumentParser

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.grid import outcome, run, table

GRID = """
kind = "script"
folder = "{folder}"
script = "score.py"
measures = ["BLEU"]
seeds = [1, 2]

[rows]
none = ""
shaw = ""
t5 = ""
"""


@pytest.fixture
def shown(tmp_path, capsys):
    """The table of a grid whose rows none and shaw are finished with the first seed."""
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(folder=tmp_path))
    for bleu, row in enumerate(("none", "shaw")):
        result = tmp_path / "results" / f"grid-{row}-s1.json"
        result.parent.mkdir(exist_ok=True)
        result.write_text(json.dumps({"row": row, "seed": 1, "BLEU": bleu}))

    def table_of(*words):
        parser = ArgumentParser()
        run.add_arguments(parser)
        run.run(parser.parse_args(["table", str(path), *words]))
        return capsys.readouterr().out.splitlines()[2:]

    return table_of


def test_rows_are_compared_with_a_baseline_that_is_not_among_those_chosen(shown):
    with_it = shown("--rows", "none", "shaw", "--baseline", "none")
    assert with_it == ["| none | 0.00 |  | 1 |", "| shaw | 1.00 | +1.00 | 1 |"]
    assert shown("--rows", "shaw", "--baseline", "none") == with_it


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        ("nosuch", "^--baseline 'nosuch': the grid has 'none', 'shaw', 't5': take one of these$"),
        ("t5", r"^--baseline 't5' is not finished .* take one of \['none', 'shaw'\]$"),
    ],
    ids=["unknown", "unfinished"],
)
def test_a_baseline_that_can_not_be_is_named_with_the_reason(shown, baseline, said):
    with pytest.raises(UserError, match=said):
        shown("--baseline", baseline)


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_seed_that_diverged_is_seen_in_its_row_and_hides_no_other(lost):
    found = {"none": {1: {"loss": 3.0}, 2: {"loss": 3.5}}}
    found["shaw"] = {1: {"loss": lost}, 2: {"loss": 2.0}}
    *_, none, shaw = table.markdown(found, "none").splitlines()
    assert none == "| none | 3.250 ± 0.354 | 25.8 |  | 1, 2 |"
    assert shaw == f"| shaw | {lost:.3f} ± nan | {lost} | {lost:+.3f} | 1, 2 |"


def test_a_validation_without_a_finite_loss_is_a_point_of_the_curve(tmp_path):
    log = tmp_path / "train.log"
    valid = "| valid on 'valid' subset | loss {} | ppl {} | num_updates {}\n"
    log.write_text(valid.format("nan", "nan", 10) + valid.format("3", "8", 20))
    (_, lost), last = outcome.curve_of(log)
    assert math.isnan(lost)
    assert last == (20, pytest.approx(3 * math.log(2)))
