"""What fairseq's log says is read as fairseq writes numbers."""

import math

import pytest
from fairseq.logging.progress_bar import format_stat

from diet_fairseq.recipes.common import train_log

VALID = "epoch 001 | valid on 'valid' subset | loss 3.5 | num_updates {}\n"
END = "epoch 001 | loss 3 | num_updates {} | train_wall {} | wall {}\n"


def part(path, parameters, updates, wall):
    updates, wall = format_stat(updates), format_stat(wall)
    with open(path, "a") as file:
        file.write(f"| num. shared model params: {parameters:,} (num. trained: 1)\n")
        file.write(VALID.format(updates) + END.format(updates, wall, wall))


@pytest.mark.parametrize(("updates", "wall"), [(400, 7.0), (1_000_000, 1_036_800.0)])
def test_a_million_updates_are_read_as_a_million(updates, wall, tmp_path):
    log = tmp_path / "train.log"
    part(log, 2_322_432, updates, wall)
    assert train_log.totals(log) == {
        "parameters": 2_322_432,
        "updates done": updates,
        "seconds": int(wall),
    }
    assert train_log.curves(log) == {"valid": [(updates, {"loss": 3.5, "num_updates": updates})]}


def test_a_run_that_began_anew_with_another_model_has_that_model_s_parameters(tmp_path):
    log = tmp_path / "train.log"
    part(log, 10, 100, 1.0)
    part(log, 20, 200, 2.0)
    assert train_log.totals(log)["parameters"] == 20


def test_of_seconds_and_of_validations_after_one_update_the_last_count(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(
        "| num. shared model params: 10 (num. trained: 1)\n"
        "| num_updates 100 | wall 60\n"
        "| valid on 'valid' subset | loss 5 | num_updates 100\n"
        "| valid on 'valid' subset | loss 4 | num_updates 100\n"
        "| num_updates 200 | wall 120\n"
    )
    assert train_log.totals(log)["seconds"] == 120
    assert [(n, one["loss"]) for n, one in train_log.curves(log)["valid"]] == [(100, 4.0)]


def test_a_loss_that_is_no_number_is_read_as_it_is(tmp_path):
    log = tmp_path / "train.log"
    losses = (math.nan, math.inf, -math.inf, 3.0)
    text = (VALID.replace("3.5", format_stat(loss)).format(n) for n, loss in enumerate(losses, 1))
    log.write_text("".join(text))
    found = [one["loss"] for _, one in train_log.curves(log)["valid"]]
    assert found == pytest.approx(losses, nan_ok=True)
