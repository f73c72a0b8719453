"""The calls that the backend "cudnn" gives to cuDNN's kernel, which does not run here."""

from importlib import import_module

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, choice, list_candidates
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense, Factors
from tests.attention.test_offsets import CPU, CUDA, request_of
from tests.support import tiny

# the package has the function under this name
cudnn = import_module("diet_fairseq.attention.backends.cudnn")


@pytest.mark.parametrize(
    ("scheme", "tokens", "device", "changes", "candidate"),
    [
        *((scheme, 256, CUDA, {}, True) for scheme in ("tupe_a", "tupe_r", "t5", "fire", "cpb")),
        *((scheme, 256, CUDA, {}, False) for scheme in ("none", "shaw", "deberta", "cope")),
        *(("tupe_r", tokens, CUDA, {}, False) for tokens in (64, 192, 255)),
        ("tupe_r", 256, CUDA, {"dtype": torch.float32}, False),
        ("tupe_r", 256, CUDA, {"dropout": 0.1}, False),
        ("tupe_r", 256, CUDA, {"shape": (2, 2, 12)}, False),
        ("tupe_r", 256, CPU, {}, False),
    ],
)
def test_cudnn_is_a_candidate_for_even_lengths_and_shared_scores(
    scheme, tokens, device, changes, candidate, monkeypatch
):
    monkeypatch.setattr(choice, "has_triton", lambda: True)
    request = request_of(scheme, device, tokens, **changes)
    assert ("cudnn" in list_candidates(request)) == candidate


@pytest.mark.parametrize("why", ["padding", "future"])
def test_no_masked_call_goes_to_cudnn(why):
    """Its gradients may be NaN."""
    with FakeTensorMode():
        positions = torch.empty(1, 256, dtype=torch.int64, device=CUDA)
        padding = torch.empty(2, 256, dtype=torch.bool, device=CUDA) if why == "padding" else None
    layout = Layout(positions, positions, padding, causal=why == "future", length=256)
    assert not cudnn.cudnn_fits(layout, torch.bfloat16, CUDA, 64, 0.0)


@pytest.mark.parametrize(("sentences", "kernel"), [(1, "cudnn"), (2, "sdpa")])
def test_a_score_for_each_sentence_goes_to_sdpa(sentences, kernel, monkeypatch):
    calls = []
    monkeypatch.setattr(cudnn, "cudnn_fits", lambda *_: True)
    monkeypatch.setattr(cudnn, "sdpa", lambda _: calls.append("sdpa"))
    monkeypatch.setattr(cudnn.CudnnAttention, "apply", lambda *_: calls.append("cudnn"))
    positions = torch.arange(4).unsqueeze(0)
    q, score = tiny.vectors(2, 3, 4, 8), Dense(tiny.vectors(sentences, 1, 4, 4))
    call = AttentionCall(q, q, q, (score,), (), Layout(positions, positions), 0.0)
    BACKENDS["cudnn"](call)
    assert calls == [kernel]


@pytest.mark.parametrize(
    ("rank", "widths"),
    [(1, (8, 9, 8)), (5, (8, 13, 8)), (120, (8, 128, 8)), (121, (1, 3, 4, 4))],
)
def test_factors_are_further_columns_of_queries_and_keys_but_not_of_values(
    rank, widths, monkeypatch
):
    """Beyond cuDNN's widest vectors there is a score instead."""
    calls = []

    def attend(q, k, v, score):
        logits = q @ k.mT if score is None else q @ k.mT + score
        calls.append((v.size(3), k.size(3), v.size(3)) if score is None else tuple(score.shape))
        return logits.softmax(-1) @ v, None

    monkeypatch.setattr(cudnn, "cudnn_fits", lambda *_: True)
    monkeypatch.setattr(cudnn, "attend", attend)
    monkeypatch.setattr(cudnn.CudnnAttention, "apply", lambda *call: attend(*call)[0])
    positions = torch.arange(4).unsqueeze(0)
    leaves = [tiny.vectors(2, 3, 4, 8).requires_grad_() for _ in range(3)]
    leaves += [tiny.vectors(1, 3, 4, rank).requires_grad_() for _ in range(2)]
    score, layout = Factors(*leaves[3:]), Layout(positions, positions)
    results = []
    for backend in ("cudnn", "reference"):
        call = AttentionCall(*leaves[:3], (score,), (), layout, 0.0, temperature=2.0)
        out, _ = BACKENDS[backend](call)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert calls == [widths]
    torch.testing.assert_close(*results)


def test_factors_and_a_further_score_are_added_up(monkeypatch):
    """For example the scores of segments."""
    monkeypatch.setattr(cudnn, "cudnn_fits", lambda *_: True)
    monkeypatch.setattr(cudnn.CudnnAttention, "apply", lambda q, k, v, score: score)
    positions = torch.arange(4).unsqueeze(0)
    q, factor, matrix = tiny.vectors(2, 3, 4, 8), tiny.vectors(1, 3, 4, 5), tiny.vectors(1, 1, 4, 4)
    scores = Factors(factor, factor), Dense(matrix)
    call = AttentionCall(q, q, q, scores, (), Layout(positions, positions), 0.0)
    score, _ = BACKENDS["cudnn"](call)
    torch.testing.assert_close(score, factor @ factor.mT + matrix)
