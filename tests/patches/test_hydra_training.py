"""fairseq-hydra-train, which imports the plugin while its program runs, has the checks, too."""

import pytest

from diet_fairseq.patches import saving
from tests.models.test_configurations import train
from tests.patches.test_finished_runs import files, updates
from tests.patches.test_folder_in_use import IN_USE

pytestmark = pytest.mark.slow


def test_two_trainings_don_t_write_into_one_folder(data, tmp_path):
    folder = tmp_path / "shared"
    with saving.lock_folder(str(folder)):
        second = train(data, tmp_path, f"checkpoint.save_dir={folder}")
    assert second.status != 0
    assert IN_USE.format(folder) in second.err
    assert list(folder.iterdir()) == []


def test_a_finished_run_changes_nothing_when_started_again(data, tmp_path):
    first = train(data, tmp_path)
    assert first.status == 0, first.err
    folder = tmp_path / "run" / "checkpoints"
    before = files(folder)
    assert before
    again = train(data, tmp_path)
    assert again.status == 0, again.err
    assert "Stopping training due to num_updates: 2 >= max_update: 2" in again.text
    assert updates(again) == 0
    assert files(folder) == before


def test_fully_sharded_needs_no_fairscale(data, tmp_path):
    done = train(data, tmp_path, "distributed_training.ddp_backend=fully_sharded")
    assert done.status == 0, done.err
    assert (tmp_path / "run" / "checkpoints" / "checkpoint_last.pt").exists()


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["+model.nsp=true"],
            "--nsp needs --criterion masked_lm_nsp, but the criterion is "
            "fused_label_smoothed_cross_entropy: give --criterion masked_lm_nsp, or omit --nsp",
        ),
        (
            [
                "distributed_training.ddp_backend=fully_sharded",
                "distributed_training.cpu_offload=true",
            ],
            "--cpu-offload can't be combined with --ddp-backend fully_sharded: omit it",
        ),
    ],
)
def test_options_that_need_each_other_are_checked(data, tmp_path, overrides, text):
    done = train(data, tmp_path, *overrides)
    assert done.status != 0
    assert text in done.err
    assert not list(tmp_path.rglob("*.pt"))
