"""Task and criterion ``question_answering``: what is learned, what is measured, what is refused."""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from diet_fairseq.criterions import diet_question_answering as criterion
from diet_fairseq.errors import UserError
from diet_fairseq.tasks.diet_question_answering import (
    HEAD,
    QuestionAnsweringConfig,
    QuestionAnsweringTask,
)
from tests.support import reading
from tests.support.commands import run, together
from tests.support.tiny import Case, arguments, fresh, stock


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Contexts of 9 tokens, which samples of 11 take in two windows."""
    return reading.write(tmp_path_factory.mktemp("reading"), {"train": 24, "valid": 7})


SMALL = (
    *("--encoder-layers", 1, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--max-positions", 32, "--max-length", 11, "--stride", 4),
    *("--dropout", 0, "--attention-dropout", 0, "--optimizer", "fused_adamw", "--lr", 0.01),
    *("--lr-scheduler", "fixed", "--num-workers", 0, "--batch-size", 8, "--log-format", "json"),
    *("--log-interval", 1, "--cpu", "--seed", 1, "--required-batch-size-multiple", 1),
    *("--task", "question_answering", "--criterion", "question_answering"),
)


def train(data, folder, *options, **more):
    return run("train", data, *SMALL, "--save-dir", folder, *options, **more)


def validated(done):
    found = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    return [line for line in found if "valid_loss" in line]


@pytest.mark.parametrize(
    ("arch", "more"),
    [
        ("bert_diet_rel", ["--checkpoint-activations"]),
        ("roberta_diet_abs", ["--bf16"]),
        ("roberta", ["--update-freq", 2]),
    ],
)
def test_every_kind_of_encoder_is_trained_and_measured_over_the_set(data, tmp_path, arch, more):
    best = ("--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric")
    done = train(data, tmp_path, "--arch", arch, "--max-update", 2, "--no-last-checkpoints",
                 *best, *more)  # fmt: skip
    assert done.status == 0, done.last
    [line] = validated(done)
    wholes = [float(line["valid_exact_match"]) * 7 / 100]
    assert wholes == pytest.approx([round(whole) for whole in wholes], abs=1e-3)  # of 7 questions
    assert float(line["valid_f1"]) >= float(line["valid_exact_match"])
    assert (tmp_path / "checkpoint_best.pt").exists()


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_what_fine_tuning_does_not_use_is_not_trained(data, family):
    task = task_of(data, no_shuffle=True)
    model = task.build_model(arguments(Case("diet_rel", family=family)))
    tokens = torch.arange(4, 12).unsqueeze(0)
    model(tokens, classification_head_name=HEAD)[0].sum().backward()
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == [name for name, p in model.named_parameters() if p.grad is not None]


def task_of(data, **options):
    given = {"max_positions": 32, "max_length": 11, "stride": 4, "seed": 1}
    return QuestionAnsweringTask.setup_task(
        QuestionAnsweringConfig(data=str(data), **given | options)
    )


def loss_of(task, model, batch):
    loss = criterion.QuestionAnsweringLoss(criterion.QuestionAnsweringCriterionConfig(), task)
    with torch.no_grad():
        value, size, log = loss(model.eval(), batch)
    return value / size, log["answers"]


@pytest.mark.parametrize("model", ["bert", "roberta", "stock"])
def test_padding_on_either_side_changes_nothing(data, model):
    """Neither the loss nor the answers; fairseq's own RoBERTa counts positions from the left."""
    task = task_of(data, no_shuffle=True, stride=8)
    samples = task.load_dataset("valid")
    if model == "stock":
        model = stock("roberta", max_positions=32)
    else:
        model = fresh(Case("diet_rel", family=model), max_positions=32)
    add_head(task, model)
    one, other = samples[0], samples[1]
    assert len(one["tokens"]) != len(other["tokens"])
    found = []
    for left_pad in (False, True):
        samples.left_pad = left_pad
        batch = samples.collater([one, other])
        batch["net_input"]["src_tokens"].clamp_(max=27)  # the tiny model's words
        found.append(loss_of(task, model, batch))
    assert found[0][0] == pytest.approx(float(found[1][0]), abs=1e-5)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-5)


def add_head(task, model):
    from diet_fairseq.models.span_head import SpanHead

    size = model.encoder.sentence_encoder.embed_tokens.embedding_dim
    model.classification_heads[HEAD] = SpanHead(size, size, 2, "tanh", 0.0)


def test_a_question_s_answer_is_the_best_of_its_windows():
    class Meter:
        tensor = torch.tensor([[0, 3.0, 1.0], [1, 5.0, 0.0], [0, 4.0, 0.0], [1, 6.0, 0.5]])

    assert criterion.of_all_questions(2, {"_answers": Meter}) == 25.0


def test_a_question_whose_scores_are_no_numbers_counts_as_wrong(data):
    """The model has diverged: the set is measured, and its questions are not left out."""
    task = task_of(data)
    samples = task.load_dataset("valid")
    loss = criterion.QuestionAnsweringLoss(criterion.QuestionAnsweringCriterionConfig(), task)
    batch = samples.collater([samples[0], samples[1]])
    tokens = batch["net_input"]["src_tokens"]
    rows = torch.from_numpy(loss._scored(torch.full((*tokens.shape, 2), torch.nan), batch))
    assert rows[:, 1:].tolist() == [[-torch.inf, 0, 0]] * 2
    meters = {"_answers": SimpleNamespace(tensor=rows)}
    assert criterion.of_all_questions(2, meters) == 0


def test_parts_of_a_split_are_read_together_if_asked(tmp_path):
    reading.write(tmp_path, {"train": 3, "train1": 2, "train3": 9})
    for combine, count in ((False, 3), (True, 5)):
        dataset = task_of(tmp_path, no_shuffle=True).load_dataset("train", combine=combine)
        assert len({window.question for window in dataset.windows}) == count


@pytest.mark.slow
def test_two_processes_measure_what_one_does(data, tmp_path):
    options = ("--arch", "bert_diet_rel", "--max-update", 2, "--no-save")
    both = together(data, *SMALL, *options, "--save-dir", tmp_path / "two")
    assert [done.status for done in both] == [0, 0], both[0].err + both[1].err
    alone = train(data, tmp_path / "one", *options, "--update-freq", 2)
    assert alone.status == 0, alone.err
    found = validated(both[0]) or validated(both[1])
    for name in ("valid_loss", "valid_f1", "valid_exact_match"):
        assert found[-1][name] == validated(alone)[-1][name]


# Bad input


def test_a_line_that_is_no_context_is_refused(data, tmp_path):
    reading.write(tmp_path, {"valid": 2})
    with open(tmp_path / "valid.jsonl", "a") as file:
        file.write('{"context": "a"}\n')
    with pytest.raises(UserError) as error:
        task_of(tmp_path).load_dataset("valid")
    assert str(error.value) == (
        f"{tmp_path}/valid.jsonl, line 3 is not a context with its questions "
        "(KeyError('begins')): prepare it again"
    )


def test_options_out_of_range_are_refused(data):
    with pytest.raises(UserError) as error:
        task_of(data, stride=0)
    assert str(error.value) == "--stride 0: take 1 or more"


def test_a_model_without_heads_is_refused(data, tmp_path):
    done = train(data, tmp_path, "--arch", "transformer_diet_rel_tiny")
    assert done.status != 0
    assert done.last.startswith("error: ")
