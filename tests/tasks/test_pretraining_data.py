"""Tasks of pretraining: batches, masks, epochs, from what fairseq-preprocess wrote."""

import random
import re
from functools import partial

import numpy as np
import pytest
import torch
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

import diet_fairseq  # noqa: F401  # registers
from diet_fairseq.tasks.diet_masked_lm_nsp import MaskedLMNspTask
from tests.support.commands import kill_on_call, log_lines, run

PAD, EOS = 1, 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sixty and eight documents of SentencePiece-like words."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(1)
    for split, size in (("train", 60), ("valid", 8)):
        lines = []
        for _ in range(size):
            for _ in range(draw.randint(2, 8)):
                words = (f"▁w{draw.randrange(9)}" for _ in range(draw.randint(2, 7)))
                lines.append(" ".join(w + " ing" * draw.randrange(2) for w in words))
            lines.append("")
        (folder / split).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    prefixes = [a for split in ("train", "valid") for a in (f"--{split}pref", folder / split)]
    done = run("preprocess", "--only-source", *prefixes, "--destdir", folder / "data")
    assert done.status == 0, done.text
    return folder / "data"


def task_of(data, kind=MaskedLMNspTask, **options):
    config = MaskedLMConfig(data=str(data), tokens_per_sample=32, **{"seed": 1, **options})
    return kind.setup_task(config)


def batch_of(task, split="train", size=8):
    dataset = task.dataset(split)
    dataset.set_epoch(1)
    return dataset.collater([dataset[index] for index in dataset.ordered_indices()[:size]])


def test_a_batch_has_segments_and_labels_of_its_samples(data):
    task = task_of(data)
    task.load_dataset("train", epoch=1)
    batch, words = batch_of(task), task.source_dictionary
    net_input = batch["net_input"]
    tokens, segments = net_input["src_tokens"], net_input["segments"]
    assert segments.shape == tokens.shape == batch["target"].shape
    assert segments.dtype == batch["next_sentence"].dtype == torch.int64
    assert batch["next_sentence"].shape == (8,) == batch["id"].shape
    assert batch["nsentences"] == 8
    assert batch["ntokens"] == int(net_input["src_lengths"].sum())
    assert not segments[tokens == words.pad()].any()
    for number, index in enumerate(batch["id"].tolist()):
        length = int(net_input["src_lengths"][number])
        assert torch.equal(segments[number, :length], task._pairs.segments(index))
        assert batch["next_sentence"][number] == task._pairs.follows[index]
        masked = batch["target"][number, :length] != words.pad()
        original = torch.where(masked, batch["target"][number, :length], tokens[number, :length])
        assert torch.equal(original, task._pairs[index])


def test_pairs_differ_by_epoch_and_repeat_by_seed(data):
    task, again = task_of(data), task_of(data)
    spans = []
    for epoch in (1, 2):
        task.load_dataset("train", epoch=epoch)
        spans.append(task._pairs.spans)
    again.load_dataset("train", epoch=2)
    assert not np.array_equal(*spans)
    assert np.array_equal(again._pairs.spans, spans[1])
    assert task.has_sharded_data("train")


def test_the_pairs_of_earlier_epochs_are_not_kept(data):
    task = task_of(data)
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        task.get_batch_iterator(task.dataset("train"), max_sentences=8, epoch=epoch)
    assert list(task.dataset_to_epoch_iter) == [task.dataset("train")]


def test_a_missing_split_is_named(data):
    with pytest.raises(FileNotFoundError, match="Dataset not found: test"):
        task_of(data).load_dataset("test")


# Masks, of fairseq's task masked_lm and of ours


def targets_of_two_epochs(data, kind, workers):
    task = task_of(data, kind, sample_break_mode="none")
    task.load_dataset("valid", epoch=1)
    iterator = task.get_batch_iterator(
        task.dataset("valid"), max_sentences=4, num_workers=workers, seed=1
    )
    return [[batch["target"] for batch in iterator.next_epoch_itr(shuffle=False)] for _ in range(2)]


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [MaskedLMTask, MaskedLMNspTask])
def test_every_epoch_masks_other_tokens(data, kind, workers):
    assert not any(map(torch.equal, *targets_of_two_epochs(data, kind, workers)))


# fairseq's commands

TINY = [
    *("--arch", "bert_diet_rel_tiny", "--encoder-layers", "1", "--encoder-embed-dim", "8"),
    *("--encoder-ffn-embed-dim", "8", "--encoder-attention-heads", "2", "--seed", "1"),
    *("--nsp", "--task", "masked_lm_nsp", "--criterion", "masked_lm_nsp"),
    *("--tokens-per-sample", "32", "--batch-size", "8", "--optimizer", "adam", "--lr", "0.01"),
    *("--cpu", "--log-format", "json", "--log-interval", "1", "--max-epoch", "2"),
    *("--save-interval-updates", "4", "--keep-interval-updates", "1"),
]


def logged(done):
    """The last epoch's train and validation values."""
    last = {key: value for line in log_lines(done)[-4:] for key, value in line.items()}
    return {key: last[key] for key in last if re.search("loss|accuracy|num_updates|gnorm", key)}


@pytest.mark.slow
def test_training_on_one_document_is_refused(tmp_path):
    (tmp_path / "text").write_text("a b\nc d\n")
    prefixes = ("--trainpref", tmp_path / "text", "--validpref", tmp_path / "text")
    run("preprocess", "--only-source", *prefixes, "--destdir", tmp_path / "data")
    done = run("train", tmp_path / "data", *TINY, "--save-dir", tmp_path)
    assert done.status == 1
    assert done.last.startswith(
        "error: --task masked_lm_nsp needs documents separated by blank lines, two or more, but "
        f"{tmp_path / 'data' / 'valid'} holds 1: put"
    )


@pytest.mark.slow
def test_a_run_killed_in_the_second_epoch_ends_as_if_uninterrupted(data, tmp_path):
    options = (data, *TINY, "--num-workers", 1, "--save-dir")
    uninterrupted = run("train", *options, tmp_path / "uninterrupted")
    values = logged(uninterrupted)
    updates = int(values["train_num_updates"])
    assert {"train_mlm_loss", "train_nsp_loss", "train_nsp_accuracy"} <= values.keys()
    assert uninterrupted.text.count("of them in the original order") >= 3  # valid, train, train
    kill = partial(kill_on_call, "fairseq.trainer:Trainer.train_step", updates - 1)
    assert run("train", *options, tmp_path / "killed", first=kill).status == -9
    assert logged(run("train", *options, tmp_path / "killed")) == values
