"""The calls that the backend "cudnn" gives to cuDNN's kernel; none runs here."""

from importlib import import_module

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, choice, list_candidates
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense
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
