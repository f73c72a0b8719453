"""Samples of two texts, masks and losses of pretraining, from what fairseq-preprocess wrote."""

import json
import math
import random
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.data import Dictionary, ListDataset, MaskTokensDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.logging import metrics
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

import diet_fairseq  # noqa: F401  # registers
from diet_fairseq.criterions.diet_masked_lm_nsp import MaskedLmNspLoss
from diet_fairseq.data.sentence_pairs import SentencePairs, cut, runs
from diet_fairseq.errors import UserError
from diet_fairseq.patches.explaining import mistake_behind
from diet_fairseq.tasks.diet_masked_lm_nsp import MaskedLMNspTask
from tests.support.commands import kill_on_call, run

BOS, PAD, EOS = 0, 1, 2

# Pairs of texts. Token 1000 d + n is the n-th of document d: a sample says where it is from.


def documents(number=40, lines=12, most=6, seed=1):
    """Lines of 1 to ``most`` tokens and ``</s>``, which stands alone between documents."""
    draw = random.Random(seed)
    found = []
    for document in range(1, number + 1):
        token = 1000 * document
        for _ in range(draw.randint(1, lines)):
            length = draw.randint(1, most)
            found.append([*range(token, token + length), EOS])
            token += length
        found.append([EOS])
    return found


def pairs(lines, tokens_per_sample=32, seed="1", **options):
    dataset = ListDataset([torch.tensor(line) for line in lines], np.array(list(map(len, lines))))
    options = {"bos": BOS, "eos": EOS, "tokens_per_sample": tokens_per_sample, **options}
    return SentencePairs(dataset, seed=seed, **options)


def sides(dataset, index):
    """A and B of a sample, whose form is checked."""
    sample, segments = dataset[index].tolist(), dataset.segments(index).tolist()
    assert sample[0] == BOS
    assert sample[-1] == EOS
    assert sample.count(EOS) == 2
    middle = sample.index(EOS)
    assert segments == [0] * (middle + 1) + [1] * (len(sample) - middle - 1)
    assert len(sample) == dataset.size(index) == dataset.num_tokens(index)
    return sample[1:middle], sample[middle + 1 : -1]


@pytest.mark.parametrize("tokens_per_sample", [5, 6, 16, 32, 128])
def test_a_sample_is_two_runs_of_text_of_the_right_documents(tokens_per_sample):
    dataset = pairs(documents(), tokens_per_sample)
    assert len(dataset) > 40
    for index in range(len(dataset)):
        one, other = sides(dataset, index)
        assert len(dataset[index]) <= tokens_per_sample
        for side in (one, other):
            assert side
            assert side == list(range(side[0], side[0] + len(side)))
        if dataset.follows[index]:
            assert one[-1] < other[0]
            assert one[0] // 1000 == other[0] // 1000
        else:
            assert one[0] // 1000 != other[0] // 1000


def test_a_text_that_is_not_cut_follows_at_once():
    dataset = pairs(documents(lines=5, most=3), tokens_per_sample=128)
    followers = np.flatnonzero(dataset.follows)
    assert len(followers) > 5
    for index in followers:
        one, other = sides(dataset, index)
        assert other[0] == one[-1] + 1


def test_all_of_the_text_is_there_where_nothing_is_cut():
    lines = documents(lines=5, most=3)
    dataset = pairs(lines, tokens_per_sample=128)
    found = {token for index in range(len(dataset)) for token in dataset[index].tolist()}
    assert found == {token for line in lines for token in line} | {BOS}


def test_samples_are_filled():
    dataset = pairs(documents(lines=200, most=6), tokens_per_sample=64, short=0.0)
    assert np.median(dataset.sizes) >= 60


def test_half_of_the_second_texts_follow():
    dataset = pairs(documents(number=20, lines=2000), tokens_per_sample=32)
    assert len(dataset) > 2000
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.04)


def test_lines_that_fill_a_sample_alone_have_followers_too():
    dataset = pairs(documents(number=20, lines=200, most=60), tokens_per_sample=16)
    assert dataset.follows.mean() == pytest.approx(0.5, abs=0.06)


def test_a_tenth_of_the_documents_is_read_in_shorter_samples():
    lines = documents(number=2000, lines=60)
    full, short = (pairs(lines, 64, short=share) for share in (0.0, 1.0))
    some = pairs(lines, 64)
    means = [float(dataset.sizes.mean()) for dataset in (full, some, short)]
    assert means[0] > means[1] > means[2]
    assert len(some) - len(full) == pytest.approx(0.1 * (len(short) - len(full)), rel=0.35)


def test_the_pairs_are_those_of_the_seed():
    lines = documents()
    one, same, other = (pairs(lines, seed=seed) for seed in ("1", "1", "2"))
    assert torch.equal(torch.from_numpy(one.spans), torch.from_numpy(same.spans))
    assert not np.array_equal(one.spans, other.spans)


def test_what_is_too_long_is_cut_at_both_ends():
    draw = random.Random(1)
    begins = [cut((10, 20), 4, draw)[0] - 10 for _ in range(4000)]
    assert set(begins) == set(range(7))
    assert np.mean(begins) == pytest.approx(3, abs=0.1)  # 6 coins


def test_the_longer_text_is_cut_first():
    dataset = pairs([[*range(1000, 1050), EOS], [*range(1050, 1053), EOS], [EOS], [2000, EOS]], 33)
    for index in range(len(dataset)):
        one, other = sides(dataset, index)
        if one[0] < 1050 and other[0] in (1050, 2000):
            assert (len(one), len(other)) in ((27, 3), (29, 1))


def test_documents_are_what_empty_lines_part():
    lengths = np.array([0, 3, 1, 0, 0, 2, 0, 4])
    assert runs(lengths > 0).tolist() == [[1, 3], [5, 6], [7, 8]]


@pytest.mark.parametrize(("lines", "number"), [([[5, EOS], [6, EOS]], 1), ([[EOS]], 0)])
def test_one_document_can_not_be_paired(lines, number):
    with pytest.raises(UserError) as error:
        pairs(lines, name="data-bin/train")
    assert str(error.value) == (
        "--task masked_lm_nsp needs documents parted by blank lines, two or more, but "
        f"data-bin/train holds {number}: put a blank line after each document and run "
        "fairseq-preprocess again, or take --task masked_lm"
    )


def test_a_sample_needs_room_for_two_texts():
    with pytest.raises(UserError) as error:
        pairs(documents(), tokens_per_sample=4)
    assert str(error.value) == (
        "--tokens-per-sample 4 has no room for <s> A </s> B </s>: take 5 or more"
    )


# The task


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
        found = torch.where(masked, batch["target"][number, :length], tokens[number, :length])
        assert torch.equal(found, task._pairs[index])


def test_every_epoch_pairs_anew_and_again_the_same(data):
    task, again = task_of(data), task_of(data)
    spans = []
    for epoch in (1, 2):
        task.load_dataset("train", epoch=epoch)
        spans.append(task._pairs.spans)
    again.load_dataset("train", epoch=2)
    assert not np.array_equal(*spans)
    assert np.array_equal(again._pairs.spans, spans[1])
    assert task.has_sharded_data("train")


def test_a_split_that_is_not_there_is_named(data):
    with pytest.raises(FileNotFoundError) as error:
        task_of(data).load_dataset("test")
    assert mistake_behind(error.value) == (
        f"there is no data of the split test in {data / 'test'}: give the folder that "
        "fairseq-preprocess wrote, or another split"
    )


@pytest.mark.parametrize(
    ("option", "value"), [("sample_break_mode", "complete"), ("shorten_method", "truncate")]
)
def test_options_that_pairs_have_no_use_for_are_refused(data, option, value):
    with pytest.raises(UserError) as error:
        task_of(data, **{option: value})
    assert str(error.value) == (
        f"--task masked_lm_nsp takes no --{option.replace('_', '-')} ({value}): it makes samples "
        "of two texts; leave it out"
    )


# Masks, of fairseq's task masked_lm and of ours


@pytest.mark.parametrize("kind", [MaskedLMTask, MaskedLMNspTask])
def test_whole_words_are_masked(data, kind):
    task = task_of(data, kind, mask_whole_words=True, mask_prob=0.4, leave_unmasked_prob=0.0)
    task.load_dataset("train", epoch=1)
    words = task.source_dictionary
    ending = words.index("ing")
    seen = 0
    for index in range(len(task.dataset("train"))):
        target = task.dataset("train")[index]["target"]
        tokens = task.dataset("train")[index]["net_input.src_tokens"]
        original = torch.where(target == words.pad(), tokens, target)
        for position in torch.nonzero(original == ending).flatten().tolist():
            masked = target != words.pad()
            assert masked[position] == masked[position - 1]
            seen += int(masked[position])
    assert seen > 20


def test_parts_of_words_are_masked_without_that_option(data):
    task = task_of(data, mask_prob=0.4)
    task.load_dataset("train", epoch=1)
    ending, pad = task.source_dictionary.index("ing"), task.source_dictionary.pad()
    targets = [task.dataset("train")[index]["target"] for index in range(50)]
    assert any(
        target[position - 1] == pad
        for target in targets
        for position in torch.nonzero(target == ending).flatten().tolist()
    )


def test_whole_words_need_subwords_that_tell(data, tmp_path):
    for path in data.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    words = (data / "dict.txt").read_text(encoding="utf-8").replace("▁", "_")
    (tmp_path / "dict.txt").write_text(words, encoding="utf-8")
    with pytest.raises(UserError) as error:
        task_of(tmp_path, MaskedLMTask, mask_whole_words=True).load_dataset("train")
    assert str(error.value) == (
        "--mask-whole-words needs SentencePiece's subwords: no symbol of dict.txt begins with ▁, "
        "which begins a word; prepare the text with --bpe sentencepiece, or leave "
        "--mask-whole-words out"
    )


def test_of_the_masked_a_tenth_is_random_and_a_tenth_stays(data):
    task = task_of(data, mask_prob=0.15)
    words = Dictionary()
    for number in range(1000):
        words.add_symbol(f"w{number}")
    mask = words.add_symbol("<mask>")
    text = torch.randint(4, 1000, (40_000,))
    options = {"pad_idx": PAD, "mask_idx": mask, "mask_prob": task.cfg.mask_prob}
    options |= {"random_token_prob": task.cfg.random_token_prob}
    options |= {"leave_unmasked_prob": task.cfg.leave_unmasked_prob}
    dataset = ListDataset([text], [len(text)])
    tokens, target = (each[0] for each in MaskTokensDataset.apply_mask(dataset, words, **options))
    chosen = target != PAD
    assert chosen.float().mean() == pytest.approx(0.15, abs=0.001)
    assert (tokens[chosen] == mask).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (tokens[chosen] == text[chosen]).float().mean() == pytest.approx(0.1, abs=0.02)
    assert torch.equal(tokens[~chosen], text[~chosen])


def targets_of_two_epochs(data, kind, workers):
    task = task_of(data, kind, sample_break_mode="none")
    task.load_dataset("valid", epoch=1)
    iterator = task.get_batch_iterator(
        task.dataset("valid"), max_sentences=4, num_workers=workers, seed=1
    )
    return [[batch["target"] for batch in iterator.next_epoch_itr(shuffle=False)] for _ in range(2)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [MaskedLMTask, MaskedLMNspTask])
def test_every_epoch_masks_other_tokens(data, kind, workers):
    assert not any(map(torch.equal, *targets_of_two_epochs(data, kind, workers)))


def test_every_epoch_masks_the_same_tokens_in_stock_fairseq(data, monkeypatch):
    stock = EpochBatchIterator.__init__.__wrapped__
    monkeypatch.setattr(EpochBatchIterator, "__init__", stock)
    assert all(map(torch.equal, *targets_of_two_epochs(data, MaskedLMTask, 1)))


# The criterion


class Model:
    """Gives the logits that it is made with, and counts how often it is asked."""

    def __init__(self, logits, **extra):
        self.logits, self.extra, self.calls = logits, extra, 0

    def __call__(self, src_tokens, masked_tokens=None, **_):
        self.calls += 1
        logits = self.logits if masked_tokens is None else self.logits[masked_tokens]
        return logits, self.extra

    def get_targets(self, sample, _):
        return sample["target"]


def sample_of(lengths, masked, seed):
    """A batch of as many pairs as there are lengths, with so many masked tokens each."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.full((len(lengths), max(lengths)), PAD)
    for row, number in enumerate(masked):
        target[row, :number] = torch.randint(4, 11, (number,), generator=generator)
    return {
        "net_input": {"src_tokens": torch.full_like(target, 5)},
        "target": target,
        "next_sentence": torch.randint(2, (len(lengths),), generator=generator),
        "nsentences": len(lengths),
        "ntokens": sum(lengths),
    }


@pytest.fixture
def criterion():
    words = SimpleNamespace(pad=lambda: PAD)
    return MaskedLmNspLoss(MaskedLmConfig(tpu=False), SimpleNamespace(target_dictionary=words))


def loss_of(criterion, sample, seed):
    """(loss, sample size, log), logits, next-sentence logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*sample["target"].shape, 11, generator=generator, requires_grad=True)
    nsp_logits = torch.randn(len(sample["target"]), 2, generator=generator, requires_grad=True)
    model = Model(logits, nsp_logits=nsp_logits)
    found = criterion(model, sample)
    assert model.calls == 1
    return found, logits, nsp_logits


def test_the_loss_of_a_batch_is_the_sum_of_two_means(criterion):
    sample = sample_of([9, 5, 7], [3, 1, 2], seed=1)
    (loss, size, log), logits, nsp_logits = loss_of(criterion, sample, seed=2)
    cross_entropy = torch.nn.functional.cross_entropy
    mlm = cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD)
    nsp = cross_entropy(nsp_logits, sample["next_sentence"])
    assert size == 6
    torch.testing.assert_close(loss / size, mlm + nsp)
    found = torch.autograd.grad(loss / size, [logits, nsp_logits])
    wanted = torch.autograd.grad(mlm + nsp, [logits, nsp_logits])
    torch.testing.assert_close(found, wanted)
    assert float(log["loss"]) == pytest.approx(float(loss.detach()))


def test_over_several_batches_tokens_count_alike_and_pairs_add_up_to_one_mean(criterion):
    samples = [sample_of([9, 5], [3, 1], seed=1), sample_of([8, 8, 8], [2, 5, 1], seed=2)]
    found = [loss_of(criterion, sample, seed) for seed, sample in enumerate(samples)]
    total = sum(loss for (loss, _, _), _, _ in found) / sum(size for (_, size, _), _, _ in found)
    grads = torch.autograd.grad(total, [logits for _, logits, _ in found])
    # every masked token's gradient is (softmax - target) / 12
    for grad, (_, logits, _), sample in zip(grads, found, samples, strict=True):
        chosen = sample["target"] != PAD
        wanted = logits.softmax(-1)[chosen] - torch.eye(11)[sample["target"][chosen]]
        torch.testing.assert_close(grad[chosen], wanted.detach() / 12)
    sums = [
        float(torch.nn.functional.cross_entropy(nsp_logits.detach(), sample["next_sentence"]))
        for (_, _, nsp_logits), sample in zip(found, samples, strict=True)
    ]
    mlm = sum(float(log["mlm_loss"]) for (_, _, log), _, _ in found) / 12
    assert float(total) == pytest.approx(mlm + sums[0] * 4 / 12 + sums[1] * 8 / 12, rel=1e-5)


def test_both_losses_and_the_accuracy_are_logged(criterion):
    samples = [sample_of([9, 5], [3, 1], seed=1), sample_of([8, 8, 8], [2, 5, 1], seed=2)]
    found = [loss_of(criterion, sample, seed) for seed, sample in enumerate(samples)]
    with metrics.aggregate() as values:
        MaskedLmNspLoss.reduce_metrics([log for (_, _, log), _, _ in found])
    logged = values.get_smoothed_values()
    total = sum(float(loss) for (loss, _, _), _, _ in found)
    right = nsp = 0.0
    for (_, _, nsp_logits), sample in zip(found, samples, strict=True):
        right += float((nsp_logits.argmax(-1) == sample["next_sentence"]).sum())
        nsp += float(
            torch.nn.functional.cross_entropy(nsp_logits, sample["next_sentence"], reduction="sum")
        )
    assert logged["nsp_accuracy"] == pytest.approx(right / 5, abs=1e-3)
    assert logged["nsp_loss"] == pytest.approx(nsp / 5 / math.log(2), abs=1e-3)
    assert logged["loss"] == pytest.approx(total / 12 / math.log(2), abs=1e-3)
    assert logged["ppl"] == pytest.approx(2 ** float(logged["mlm_loss"]), rel=1e-2)


def test_without_masked_tokens_the_loss_is_nothing(criterion):
    (loss, size, _), _, _ = loss_of(criterion, sample_of([4, 3], [0, 0], seed=1), seed=2)
    assert (float(loss), int(size)) == (0.0, 0)


def test_a_model_without_next_sentences_is_refused(criterion):
    sample = sample_of([4], [1], seed=1)
    with pytest.raises(UserError) as error:
        criterion(Model(torch.randn(1, 4, 11)), sample)
    assert str(error.value) == (
        "--criterion masked_lm_nsp needs a model that predicts the next sentence: take "
        "--arch bert_<scheme> and --nsp, or --task masked_lm and --criterion masked_lm"
    )


def test_a_task_without_next_sentences_is_refused(criterion):
    sample = sample_of([4], [1], seed=1)
    del sample["next_sentence"]
    with pytest.raises(UserError) as error:
        criterion(Model(torch.randn(1, 4, 11)), sample)
    assert str(error.value) == "--criterion masked_lm_nsp needs --task masked_lm_nsp: take both"


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
    assert done.status == 0, done.text
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    last = {key: value for line in lines[-4:] for key, value in line.items()}
    return {key: last[key] for key in last if re.search("loss|accuracy|num_updates|gnorm", key)}


def test_one_document_is_the_last_line_of_training(tmp_path):
    (tmp_path / "text").write_text("a b\nc d\n")
    prefixes = ("--trainpref", tmp_path / "text", "--validpref", tmp_path / "text")
    run("preprocess", "--only-source", *prefixes, "--destdir", tmp_path / "data")
    done = run("train", tmp_path / "data", *TINY, "--save-dir", tmp_path)
    assert done.status == 1
    assert done.last.startswith(
        "error: --task masked_lm_nsp needs documents parted by blank lines, two or more, but "
        f"{tmp_path / 'data' / 'valid'} holds 1: put"
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_killed_in_the_second_epoch_resumes_and_ends_as_if_it_had_not_been(
    data, tmp_path, workers
):
    options = (data, *TINY, "--num-workers", workers)
    whole = run("train", *options, "--save-dir", tmp_path / "whole")
    values = logged(whole)
    updates = int(values["train_num_updates"])
    assert {"train_mlm_loss", "train_nsp_loss", "train_nsp_accuracy"} <= values.keys()
    assert whole.text.count("of them in their order") >= 3  # valid, train, train
    folder = tmp_path / "cut"
    killed = run(
        "train",
        *(*options, "--save-dir", folder),
        first=partial(kill_on_call, "fairseq.trainer:Trainer.train_step", updates - 1),
    )
    assert killed.status == -9
    assert logged(run("train", *options, "--save-dir", folder)) == values
