"""The learning rate rises and falls linearly over as many updates as a run turns out to have."""

import pytest
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import (
    PolynomialDecayLRSchedule,
    PolynomialDecayLRScheduleConfig,
)

from diet_fairseq.errors import UserError
from tests.support.optimizers import NoOptimizer, schedule


def rates(schedule, updates):
    return pytest.approx([schedule.step_update(update) for update in updates])


def test_the_rate_rises_and_falls_linearly():
    by_update = [0, 0.5, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0, 0]
    assert by_update == rates(schedule(max_update=8), range(10))


def test_the_rate_can_end_above_zero():
    by_update = [0, 0.5, 1, 0.75, 0.5, 0.25, 0.25]
    assert by_update == rates(
        schedule(max_update=5, warmup_ratio=0.4, end_learning_rate=0.25), range(7)
    )


@pytest.mark.parametrize("total", [10, 2036, 2296])
@pytest.mark.parametrize("ratio", [0, 0.06, 0.29])
def test_the_schedule_is_fairseqs_polynomial_decay(total, ratio):
    warmup = int(100 * ratio + 0.5) * total // 100
    config = PolynomialDecayLRScheduleConfig(
        lr=[0.5], warmup_updates=warmup, total_num_update=total, end_learning_rate=0.01
    )
    fairseqs = PolynomialDecayLRSchedule(config, NoOptimizer())
    ours = schedule(lr=[0.5], max_update=total, warmup_ratio=ratio, end_learning_rate=0.01)
    assert [fairseqs.step_update(u) for u in range(1, total + 5)] == rates(
        ours, range(1, total + 5)
    )


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({"max_epoch": 3}, 30),
        ({"max_epoch": 3, "max_update": 20}, 20),
        ({"max_epoch": 3, "max_update": 40}, 30),
        ({"max_epoch": 3, "update_freq": [4]}, 9),
        ({"max_epoch": 4, "update_freq": [1, 4]}, 10 + 3 + 3 + 3),
        ({"max_epoch": 3, "skip_remainder_batch": True}, 27),
        ({"max_epoch": 4, "update_freq": [1, 4], "skip_remainder_batch": True}, 9 + 2 + 2 + 2),
        ({"max_update": 20}, 20),
    ],
)
def test_an_epoch_of_ten_batches_gives_the_number_of_updates(options, total):
    linear = schedule(**options)
    linear.learn_epoch_size(10)
    assert linear.total == total


def test_the_rate_stays_until_the_epoch_size_is_known():
    linear = schedule(max_epoch=2)
    assert [linear.step_update(0), linear.step_update(5)] == [1, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_update": 0},
         "--lr-scheduler linear_ratio must know when training ends, but neither --max-update nor "
         "--max-epoch is given: give one"),
        ({"warmup_ratio": 1.0},
         "--warmup-ratio must be from 0 to below 1, but is 1.0: 0.06 is RoBERTa's"),
        ({"warmup_ratio": -0.1},
         "--warmup-ratio must be from 0 to below 1, but is -0.1: 0.06 is RoBERTa's"),
    ],
)  # fmt: skip
def test_impossible_schedules_are_refused(options, text):
    with pytest.raises(UserError) as error:
        schedule(**({"max_update": 8} | options))
    assert str(error.value) == text
