"""Every row of the kind data has a test that fails without it."""

import importlib

import pytest

from diet_fairseq.patches.table import TABLE

#: target -> a test that fails with DIET_FAIRSEQ_PATCHES=no-data
TESTS = {
    "fairseq.checkpoint_utils:torch_persistent_save": (
        "patches.test_saving", "test_training_on_a_full_disk_ends_at_once"),
    "fairseq.checkpoint_utils:PathManager": (
        "patches.test_saving", "test_a_failing_write_leaves_the_old_file"),
    "fairseq.checkpoint_utils:save_checkpoint": (
        "patches.test_saving", "test_updates_at_the_end_of_an_epoch_are_saved_like_others"),
    "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.state_dict": (
        "patches.test_precision", "test_a_resumed_optimizer_has_the_parameters_before_rounding"),
    "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.load_state_dict": (
        "patches.test_precision", "test_a_resumed_optimizer_has_the_parameters_before_rounding"),
    "fairseq.tasks.fairseq_task:FairseqTask.get_batch_iterator": (
        "patches.test_batches", "test_a_resumed_run_has_the_batches_of_epoch_1"),
    "fairseq.data.iterators:EpochBatchIterator.state_dict": (
        "patches.test_batches", "test_an_epoch_is_gone_on_with_at_its_place_on_other_processes"),
    "fairseq.data.iterators:EpochBatchIterator.load_state_dict": (
        "patches.test_batches", "test_an_epoch_is_gone_on_with_at_its_place_on_other_processes"),
    "fairseq.data.iterators:GroupedIterator.__init__": (
        "patches.test_batches", "test_groups_of_batches_end_with_the_epoch_wherever_they_begin"),
    "fairseq.data.data_utils:batch_by_size": (
        "patches.test_batches", "test_batches_hold_every_sentence_once"),
    "fairseq.data.iterators:EpochBatchIterator.__init__": (
        "patches.test_batches", "test_workers_hear_of_every_epoch"),
    "fairseq.distributed.utils:call_main": (
        "patches.test_finished_runs", "test_a_finished_run_changes_nothing_when_started_again"),
    "fairseq.models.fairseq_model:BaseFairseqModel.prepare_for_inference_": (
        "patches.test_precision", "test_a_stock_model_trains_and_translates_in_bf16"),
}  # fmt: skip


def test_every_row_of_data_has_a_test():
    rows = {row.target for row in TABLE if "data" in {reason.kind for reason in row.reasons}}
    assert rows == TESTS.keys()


@pytest.mark.parametrize("target", TESTS)
def test_the_test_exists(target):
    module, name = TESTS[target]
    assert callable(getattr(importlib.import_module(f"tests.{module}"), name))
