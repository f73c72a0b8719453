"""Task and criterion ``glue``: what a sample is, what is learned, what is refused."""

import json
import multiprocessing.pool
import re
import socket
from itertools import pairwise

import numpy as np
import pytest
import torch
from fairseq import utils
from fairseq.data import ListDataset

from diet_fairseq.data.texts import Texts
from diet_fairseq.errors import UserError
from diet_fairseq.tasks.diet_glue import GlueConfig, GlueTask
from tests.support.commands import run
from tests.support.tiny import PAD, WORDS, Case, arguments, fresh, stock


def write(folder, split, sides, labels):
    for number, side in enumerate(sides):
        (folder / f"{split}.input{number}").write_text("".join(line + "\n" for line in side))
    if labels:
        (folder / f"{split}.label").write_text("".join(f"{label}\n" for label in labels))


def binarised(folder, labels=("no", "yes"), pair=True, regression=False):
    """Fifty samples whose label says whether "w1" stands in them, as fairseq-preprocess has it."""
    draw = np.random.default_rng(1)
    parts = ("input0", "input1")[: 1 + pair]
    for split, size in (("train", 40), ("valid", 11)):
        sides = [
            [
                " ".join(f"w{n}" for n in draw.integers(0, 6, draw.integers(1, 9)))
                for _ in range(size)
            ]
            for _ in parts
        ]
        found = ["w1" in sides[0][place] for place in range(size)]
        write(folder, split, sides, [f"{draw.normal():.3f}" if regression else labels[one]
                                     for one in found])  # fmt: skip
    dictionary = folder / "dict.txt"
    dictionary.write_text("".join(f"w{number} 9\n" for number in range(6)))
    (folder / "labels").write_text("".join(f"{label} 9\n" for label in labels))
    for part in (*parts, *(() if regression else ("label",))):
        for split in ("train", "valid"):
            (folder / part).mkdir(exist_ok=True)
            (folder / part / split).write_text((folder / f"{split}.{part}").read_text())
        source = folder / "labels" if part == "label" else dictionary
        done = run("preprocess", "--only-source", "--srcdict", source, "--trainpref",
                   folder / part / "train", "--validpref", folder / part / "valid", "--destdir",
                   folder / "data" / part, plugin=False)  # fmt: skip
        assert done.status == 0, done.err
    if regression:
        (folder / "data" / "label").mkdir()
        for split in ("train", "valid"):
            text = (folder / f"{split}.label").read_text()
            (folder / "data" / "label" / f"{split}.label").write_text(text)
    return folder / "data"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return binarised(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return binarised(tmp_path_factory.mktemp("numbers"), pair=False, regression=True)


def apply_bfloat16(sample):
    """What fairseq's trainer does to a batch with ``--bf16``."""
    return utils.apply_to_sample(
        lambda tensor: tensor.bfloat16() if tensor.dtype is torch.float32 else tensor, sample
    )


def task_of(data, **options):
    given = {"regression_target": False, "classification_head_name": "head", "seed": 1}
    cfg = GlueConfig(data=str(data), **given | options)
    return GlueTask.setup_task(cfg)


def test_a_batch_has_segments_and_the_labels_numbers(pairs):
    task = task_of(pairs, no_shuffle=True)
    dataset = task.load_dataset("valid")
    batch = dataset.collater([dataset[0], dataset[1], dataset[2]])
    tokens, segments = batch["net_input"]["src_tokens"], batch["net_input"]["segments"]
    assert tokens.shape == segments.shape
    assert not segments[tokens.eq(task.dictionary.pad())].any()
    assert segments.any(dim=1).all()
    texts = [(pairs.parent / f"valid.{part}").read_text().splitlines() for part in
             ("input0", "input1", "label")]  # fmt: skip
    for row, part in enumerate(zip(*texts, strict=True)):
        if row < 3:
            ends = f"{part[0]} </s> {part[1]} </s>"
            real = tokens[row][tokens[row].ne(task.dictionary.pad())]
            assert " ".join(task.dictionary[token] for token in real) == f"<s> {ends}"
            assert ("no", "yes")[batch["target"][row]] == part[2]


def test_classes_are_counted_and_those_that_do_not_fit_are_refused(pairs):
    assert task_of(pairs).cfg.num_classes == 2
    assert task_of(pairs, num_classes=5).cfg.num_classes == 5
    with pytest.raises(UserError) as error:
        task_of(pairs, num_classes=1)
    assert str(error.value) == (
        f"--num-classes 1, but {pairs}/label/dict.txt has 2 labels (no, yes): leave --num-classes "
        "out"
    )


def test_samples_grouped_by_length_are_all_there_and_stand_beside_such(numbers):
    options = {"regression_target": True}
    plain, grouped = (
        task_of(numbers, group_by_length=group, **options).load_dataset("train")
        for group in (False, True)
    )
    assert sorted(plain.ordered_indices()) == sorted(grouped.ordered_indices())
    sizes = [grouped.size(index) for index in grouped.ordered_indices()]
    assert max(one - other for one, other in pairwise(sizes)) < 8
    assert [size // 8 for size in sizes] == sorted(size // 8 for size in sizes)


SMALL = (
    *("--encoder-layers", 2, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--max-positions", 24, "--dropout", 0),
    *("--attention-dropout", 0, "--optimizer", "fused_adamw", "--lr", 0.01, "--seed", 1),
    *("--lr-scheduler", "fixed", "--num-workers", 0, "--batch-size", 4, "--log-format", "json"),
    *("--log-interval", 1, "--cpu", "--task", "glue", "--criterion", "glue"),
)


#: two updates, with a look at the dev set after each
TWICE = ("--max-update", 2, "--validate-interval-updates", 1)


def train(data, folder, *options, **more):
    return run("train", data, *SMALL, "--save-dir", folder, *options, **more)


def validated(done):
    """What was logged of the dev set."""
    found = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    return [line for line in found if "valid_loss" in line]


@pytest.mark.few(1)
@pytest.mark.parametrize("arch", ["roberta_diet_rel", "bert_diet_abs", "roberta"])
def test_every_kind_of_encoder_learns_a_class(pairs, tmp_path, arch):
    options = ("--metrics", "accuracy,f1,matthews", "--positive-label", "yes")
    done = train(pairs, tmp_path, "--arch", arch, *TWICE, "--no-save", *options)
    assert done.status == 0, done.err
    first, last = validated(done)
    assert {"valid_accuracy", "valid_f1", "valid_matthews"} <= last.keys()
    assert float(last["valid_loss"]) != float(first["valid_loss"])


@pytest.mark.slow
def test_a_number_is_learned_and_kept_as_the_best_by_its_metric(numbers, tmp_path):
    best = ("--best-checkpoint-metric", "pearson", "--maximize-best-checkpoint-metric")
    done = train(numbers, tmp_path, "--arch", "bert_diet_rel", "--regression-target",
                 *TWICE, "--no-last-checkpoints", "--no-epoch-checkpoints", *best)  # fmt: skip
    assert done.status == 0, done.err
    lines = validated(done)
    assert {"valid_pearson", "valid_spearman"} <= lines[-1].keys()
    again = run("validate", numbers, "--path", tmp_path / "checkpoint_best.pt", "--task", "glue",
                "--regression-target", "--criterion", "glue", "--cpu", "--batch-size", "8",
                "--max-positions", "24")  # fmt: skip
    assert again.status == 0, again.err
    (found,) = re.findall(r"pearson ([-\d.]+)", again.text)
    # rounding differs with the batches
    best_of_all = max(float(line["valid_pearson"]) for line in lines)
    assert float(found) == pytest.approx(best_of_all, abs=0.1)


def test_numbers_are_compared_as_they_stand_in_the_file(numbers, tmp_path):
    """In half precision fairseq rounds whatever is float32."""
    done = train(numbers, tmp_path, "--arch", "bert_diet_rel", "--regression-target", *TWICE,
                 "--no-save", "--bf16")  # fmt: skip
    assert done.status == 0, done.err
    assert {"valid_pearson", "valid_spearman"} <= validated(done)[-1].keys()
    dataset = task_of(numbers, regression_target=True, no_shuffle=True).load_dataset("valid")
    target = apply_bfloat16(dataset.collater([dataset[0], dataset[1]]))["target"]
    labels = (numbers / "label" / "valid.label").read_text().split()
    assert target.tolist() == [float(label) for label in labels[:2]]


def test_parts_of_a_split_are_read_together_if_asked(numbers, tmp_path):
    (tmp_path / "label").mkdir()
    (tmp_path / "input0").mkdir()
    for path in (numbers / "input0").iterdir():
        name = path.name.replace("valid", "train1")
        (tmp_path / "input0" / name).symlink_to(path)
    for name, part in (("train", "train"), ("train1", "valid")):
        source = numbers / "label" / f"{part}.label"
        (tmp_path / "label" / f"{name}.label").symlink_to(source)
    for combine, count in ((False, 40), (True, 51)):
        task = task_of(tmp_path, regression_target=True)
        assert len(task.load_dataset("train", combine=combine)) == count


def test_segments_reach_the_model(pairs):
    task = task_of(pairs)
    dataset = task.load_dataset("valid")
    sample = dataset.collater([dataset[0], dataset[1]])["net_input"]
    # the tiny model knows other words, but as many
    sample["src_tokens"] = sample["src_tokens"].clamp(max=len(WORDS) - 1)
    same = {**sample, "segments": torch.zeros_like(sample["segments"])}
    assert sample["src_tokens"].size(1) <= 24
    for model, known in ((fresh(Case("diet_rel", family="bert"), max_positions=24), True),
                         (fresh(Case("diet_rel", family="roberta"), max_positions=24), False),
                         (stock("roberta", max_positions=24), False)):  # fmt: skip
        model.register_classification_head("head", num_classes=2)
        model.eval()
        found, other = (model(**one, classification_head_name="head")[0] for one in (sample, same))
        assert torch.equal(found, other) != known
    assert sample["src_tokens"].ne(PAD).any()


@pytest.mark.parametrize("family", ["bert", "roberta", "stock"])
def test_what_fine_tuning_does_not_use_is_not_trained(pairs, family):
    """Data parallel refuses a parameter without a gradient."""
    task = task_of(pairs, no_shuffle=True)
    given = arguments(Case("learned" if family == "stock" else "diet_rel", family="roberta"))
    given.arch = "roberta" if family == "stock" else f"{family}_diet_rel"
    model = task.build_model(given)
    samples = task.load_dataset("valid")
    batch = samples.collater([samples[number] for number in range(3)])
    model(**batch["net_input"], classification_head_name="head")[0].sum().backward()
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [name for name, p in model.named_parameters() if p.grad is not None]
    assert "encoder.sentence_encoder.embed_tokens.weight" in trained


@pytest.mark.slow
def test_two_processes_measure_what_one_does(pairs, tmp_path):
    """The dev set has eleven samples: the processes have another number of batches, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--arch", "bert_diet_rel", "--max-update", 4, "--metrics", "f1,matthews",
               "--positive-label", "yes", "--no-save", "--required-batch-size-multiple",
               1)  # fmt: skip
    together = ("--distributed-world-size", 2, "--distributed-no-spawn", "--device-id", 0,
                "--distributed-backend", "gloo", "--ddp-backend", "pytorch_ddp",
                "--distributed-init-method", f"tcp://127.0.0.1:{port}")  # fmt: skip
    with multiprocessing.pool.ThreadPool(2) as threads:
        both = threads.map(
            lambda rank: train(
                pairs, tmp_path / str(rank), *options, *together, "--distributed-rank", rank
            ),
            (0, 1),
        )
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    alone = train(pairs, tmp_path / "one", *options, "--update-freq", 2)
    assert alone.status == 0, alone.err
    found = validated(both[0]) or validated(both[1])
    for name in ("valid_loss", "valid_f1", "valid_matthews"):
        assert found[-1][name] == validated(alone)[-1][name]


# Bad input


def changed(data, tmp_path, part, text):
    """A copy of the data whose split "valid" of a part is another one."""
    folder = tmp_path / "data"
    folder.symlink_to(data) if part is None else folder.mkdir()
    for path in data.iterdir():
        if path.name != part:
            (folder / path.name).symlink_to(path)
    (tmp_path / "text").write_text(text)
    done = run("preprocess", "--only-source", "--srcdict", data / part / "dict.txt", "--trainpref",
               data.parent / part / "train", "--validpref", tmp_path / "text", "--destdir",
               folder / part, plugin=False)  # fmt: skip
    assert done.status == 0, done.err
    return folder


def test_a_label_that_training_does_not_know_is_refused(pairs, tmp_path):
    data = changed(pairs, tmp_path, "label", "yes\nno\nperhaps\n" + 8 * "no\n")
    done = train(data, tmp_path / "run", "--arch", "bert_t5", "--max-epoch", 1)
    assert done.status == 1
    assert done.last == (
        f"error: {data}/label/valid, line 3: its label is not among the 2 that are known in "
        "training: correct the data, and run fairseq-preprocess again"
    )


def test_sides_that_are_not_as_long_are_refused(pairs, tmp_path):
    data = changed(pairs, tmp_path, "input1", "w1\nw2\n")
    done = train(data, tmp_path / "run", "--arch", "bert_t5", "--max-epoch", 1)
    assert done.status == 1
    assert done.last == (
        f"error: {data}, valid, has 11 first texts and 2 second ones: prepare it again"
    )


def test_as_many_labels_as_texts_are_needed(pairs, numbers, tmp_path):
    data = changed(pairs, tmp_path, "label", "yes\nno\n")
    done = train(data, tmp_path / "run", "--arch", "bert_t5", "--max-epoch", 1)
    assert done.status == 1
    assert done.last == f"error: {data}, valid, has 11 texts and 2 labels: prepare it again"
    shorter = tmp_path / "shorter"
    (shorter / "label").mkdir(parents=True)
    (shorter / "input0").symlink_to(numbers / "input0")
    (shorter / "label" / "train.label").write_text("1.5\n")
    with pytest.raises(UserError, match=r"train, has \d+ texts and 1 labels: prepare it again"):
        task_of(shorter, regression_target=True).load_dataset("train")


def test_a_regression_label_that_is_no_number_is_refused(numbers, tmp_path):
    data = tmp_path / "data"
    (data / "label").mkdir(parents=True)
    (data / "input0").symlink_to(numbers / "input0")
    labels = (numbers / "label" / "valid.label").read_text().splitlines()
    labels[4] = "3,5"
    for split in ("train", "valid"):
        (data / "label" / f"{split}.label").write_text("\n".join(labels) + "\n")
    done = train(data, tmp_path / "run", "--arch", "bert_t5", "--regression-target")
    assert done.status == 1
    assert done.last == (
        f"error: {data}/label/valid.label, line 5: a label to regress on must be a number, but is "
        "'3,5'"
    )


def test_a_split_that_is_not_there_is_named(pairs, tmp_path):
    done = train(pairs, tmp_path, "--arch", "bert_t5", "--valid-subset", "valid,valid1")
    assert done.status == 1
    assert done.last.startswith("error: there is no data of the split valid1 in ")


def test_nothing_to_read_is_refused():
    with pytest.raises(UserError) as error:
        Texts(ListDataset([], []), bos=0, longest=16, name="data-bin, valid,")
    assert str(error.value) == (
        "data-bin, valid, is empty: prepare it from a file that holds examples"
    )


def test_a_length_without_room_is_refused(pairs, tmp_path):
    done = train(pairs, tmp_path, "--arch", "bert_t5", "--max-length", 4)
    assert done.status == 1
    assert done.last == "error: --max-length 4 has no room for two texts: take 5 or more"


def test_fairseq_s_own_task_with_too_few_classes_says_so(pairs, tmp_path):
    stock_task = ("--task", "sentence_prediction", "--criterion", "sentence_prediction")
    done = train(pairs, tmp_path, "--arch", "roberta", *stock_task, "--num-classes", 1)
    assert done.status == 1
    assert done.last == (
        "error: a label has number 1 (counting from 0), but the model has fewer classes: give a "
        "larger --num-classes, or take --task glue, which counts them"
    )


def test_fairseq_s_own_criterion_takes_the_task_too(pairs, tmp_path):
    done = train(pairs, tmp_path, "--arch", "bert_t5", "--max-update", 1, "--no-save",
                 "--criterion", "sentence_prediction")  # fmt: skip
    assert done.status == 0, done.err
