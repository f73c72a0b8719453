"""Every row of the kind correctness has a test that fails without it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from diet_fairseq.patches.table import TABLE

#: target -> a test of this folder that fails with DIET_FAIRSEQ_PATCHES=no-correctness
TESTS = {
    "fairseq.checkpoint_utils:torch_persistent_save":
        "test_saving.py::test_training_on_a_full_disk_ends_at_once",
    "fairseq.checkpoint_utils:PathManager":
        "test_saving.py::test_a_failing_write_leaves_the_old_file[copy]",
    "fairseq.checkpoint_utils:save_checkpoint":
        "test_saving.py::test_updates_at_the_end_of_an_epoch_are_saved_like_others[20]",
    "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.state_dict":
        "test_precision.py::test_a_resumed_optimizer_has_the_parameters_before_rounding",
    "fairseq.optim.fp16_optimizer:_FP16OptimizerMixin.load_state_dict":
        "test_precision.py::test_a_resumed_optimizer_has_the_parameters_before_rounding",
    "fairseq.tasks.fairseq_task:FairseqTask.get_batch_iterator":
        "test_batches.py::test_a_resumed_run_has_the_batches_of_epoch_1",
    "fairseq.data.iterators:EpochBatchIterator.state_dict":
        "test_batches.py::test_an_epoch_resumes_at_its_place_on_other_processes[1-2-1]",
    "fairseq.data.iterators:EpochBatchIterator.load_state_dict":
        "test_batches.py::test_an_epoch_resumes_at_its_place_on_other_processes[1-2-1]",
    "fairseq.data.iterators:GroupedIterator.__init__":
        "test_batches.py::test_groups_of_batches_end_with_the_epoch[3-4]",
    "fairseq.data.data_utils:batch_by_size":
        "test_batches.py::test_batches_hold_every_sentence_once[7]",
    "fairseq.data.iterators:EpochBatchIterator.__init__":
        "test_batches.py::test_data_loader_processes_learn_of_every_epoch[1]",
    "fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram":
        "test_generation.py::test_ngrams_are_forbidden_as_in_transformers[2]",
    "fairseq.search:DiverseBeamSearch.step":
        "test_generation.py::test_groups_of_a_beam_do_not_depend_on_the_numbers_of_sentences",
    "fairseq.tasks.translation:TranslationTask._inference_with_bleu":
        "test_generation.py::test_bleu_in_validation_counts_words_of_the_target_language[zho_Hans]",
    "fairseq.tasks.translation_from_pretrained_bart:TranslationFromPretrainedBARTTask.__init__":
        "test_generation.py::test_mbart_s_task_has_its_options",
    "fairseq.file_chunker_utils:Chunker.__enter__":
        "test_preprocessing.py::test_a_carriage_return_within_a_line_is_white_space[1]",
    "fairseq.binarizer:find_offsets":
        "test_preprocessing.py::test_a_carriage_return_within_a_line_is_white_space[3]",
    "fairseq.data.dictionary:find_offsets":
        "test_preprocessing.py::test_a_carriage_return_within_a_line_is_white_space[3]",
    "fairseq.checkpoint_utils:load_checkpoint":
        "test_finished_runs.py::test_a_finished_run_changes_nothing_when_started_again",
    "fairseq.distributed.utils:call_main":
        "test_folder_in_use.py::test_a_second_training_is_refused_and_touches_nothing",
    "fairseq.trainer:Trainer.__init__":
        "test_hydra_training.py::test_two_trainings_don_t_write_into_one_folder",
    "fairseq.models.fairseq_model:BaseFairseqModel.prepare_for_inference_":
        "test_precision.py::test_a_stock_model_trains_and_translates_in_bf16",
}  # fmt: skip


def test_every_row_of_correctness_has_a_test():
    assert {row.target for row in TABLE if "correctness" in row.reasons} == TESTS.keys()


@pytest.mark.slow
def test_the_tests_of_correctness_rows_fail_without_them():
    folder = Path(__file__).parent
    tests = sorted({str(folder / name) for name in TESTS.values()})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "",
               *tests]  # fmt: skip
    environment = os.environ | {"DIET_FAIRSEQ_PATCHES": "no-correctness"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    failed = re.findall(r"^FAILED \S*/(test_\w+\.py::\S+)", done.stdout, re.MULTILINE)
    assert sorted(failed) == sorted(set(TESTS.values())), done.stdout[-3000:]
