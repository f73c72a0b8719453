"""The table of a grid, from results that are there."""

import math

import pytest

from diet_fairseq.recipes.grid import outcome, table


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
