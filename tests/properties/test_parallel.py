"""PyTorch's data parallel: every parameter has one gradient in every step."""

import socket
import sys

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import ModuleProxyWrapper
from torch.nn.parallel import DistributedDataParallel

from diet_fairseq.criterions.diet_fused_label_smoothing import FusedLabelSmoothedCrossEntropy
from tests.criterions.test_fused_label_smoothing import losses, sample_of
from tests.support import mutants, tiny
from tests.support.tiny import SOURCES, TARGETS, Case, padded


@pytest.fixture(scope="module", autouse=True)
def _one_process():
    """torch.distributed with this process alone."""
    hook = sys.excepthook  # torch puts one of its own there, which names the process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()
    sys.excepthook = hook


def check_steps(case: Case, **options: bool) -> None:
    """Data parallel refuses parameters with two gradients, and a step after one without any."""
    model = tiny.fresh(case, **options).train()
    parallel = DistributedDataParallel(model)
    inputs = {"src_tokens": padded(SOURCES, left_pad=False)}
    if tiny.is_encoder(model):
        inputs["segments"] = tiny.segments_of(model, SOURCES, left_pad=False)
    else:
        inputs["src_lengths"] = torch.tensor([len(source) for source in SOURCES])
        inputs["prev_output_tokens"] = padded(TARGETS, left_pad=False)
    try:
        for _ in range(2):
            out, extra = parallel(**inputs)
            loss = tiny.some_loss(out)
            if "nsp_logits" in extra:
                loss = loss + tiny.some_loss(extra["nsp_logits"])
            loss.backward()
    except RuntimeError as error:
        raise AssertionError(f"data parallel can't train it: {error}") from error
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def check_recomputing(case: Case) -> None:
    check_steps(case, checkpoint_activations=True)


@tiny.each(tiny.CASES)
def test_data_parallel_trains_every_parameter(case):
    check_steps(case)


@tiny.each([case for case in tiny.ENCODERS if case.family == "bert"])
def test_data_parallel_trains_every_parameter_of_next_sentence_prediction(case):
    check_steps(case, nsp=True)


@tiny.each(tiny.CASES)
def test_data_parallel_with_activation_checkpointing_trains_everything(case):
    check_recomputing(case)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("unused", [False, True], ids=["all_used", "unused_sought"])
def test_data_parallel_trains_with_the_fused_criterion(unused, tied):
    model = tiny.fresh(tiny.named("diet_rel"), share_all_embeddings=tied).train()
    parallel = DistributedDataParallel(model, find_unused_parameters=unused)
    ours, theirs = (
        losses(kind, trained, sample_of())
        for kind, trained in (
            (FusedLabelSmoothedCrossEntropy, ModuleProxyWrapper(parallel)),
            (LabelSmoothedCrossEntropyCriterion, model),
        )
    )
    gradients = {name.removeprefix("module.module."): value for name, value in ours[3].items()}
    tiny.assert_same(gradients, theirs[3])


MUTANTS: mutants.Table = [
    (check_steps, mutants.a_pooler_that_is_trained_for_nothing, "diet_rel-bert"),
    (check_recomputing, mutants.fairseqs_activation_checkpointing, "t5"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
