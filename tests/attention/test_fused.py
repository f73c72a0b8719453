"""Backends on a GPU that is not there: kernels, widths, shapes and types."""

from importlib import import_module
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.attention.backends.fused import kernel_width, widen
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense, Factors, Offsets

fused: Any = import_module(kernel_width.__module__)  # the package has the function's name


def cudnn_is_allowed(backend: str, scored: bool, padded: bool, causal: bool) -> bool:
    """Whether PyTorch's attention could take cuDNN's kernel if this CPU were a GPU."""
    allowed: list[bool] = []

    def attend(q: Tensor, *_: Any, **__: Any) -> Tensor:
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return q

    choose = fused.avoid_cudnn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "avoid_cudnn", lambda masked, _: choose(masked, "cuda"))
        patch.setattr(fused.F, "scaled_dot_product_attention", attend)
        q, k, v = (torch.ones(2, 3, 5, 8) for _ in range(3))
        positions = torch.arange(5).unsqueeze(0)
        padding = torch.arange(5) > torch.tensor([[2], [4]])
        layout = Layout(positions, positions, padding if padded else None, causal)
        scores = (Dense(torch.ones(1, 3, 5, 5)),) if scored else ()
        BACKENDS[backend](AttentionCall(q, k, v, scores, (), layout, 0.0))
    return allowed == [True]


MASKED = list(product([False, True], repeat=3))[1:]


def assert_masked_calls_avoid_cudnn() -> None:
    assert not any(cudnn_is_allowed("sdpa", *call) for call in MASKED)


def test_masked_calls_on_a_gpu_avoid_cudnn_and_others_may_take_it():
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert_masked_calls_avoid_cudnn()
    assert cudnn_is_allowed("sdpa", False, False, False)
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    ("width", "dtype", "device", "masked", "wide"),
    [
        (96, torch.bfloat16, "cuda", False, 96),
        (91, torch.float16, "cuda", False, 96),
        (91, torch.float32, "cuda", False, 91),
        (91, torch.float16, "cpu", False, 91),
        (91, torch.float16, "cuda", True, 91),
        (260, torch.float16, "cuda", False, 260),
    ],
)
def test_vectors_are_widened_for_flash_attention(width, dtype, device, masked, wide):
    assert kernel_width(width, dtype, device, masked) == wide


def test_vectors_of_the_right_width_are_not_copied():
    x = torch.ones(1, 1, 2, 8)
    assert widen(x, 8) is x
    assert torch.equal(widen(x, 9), torch.cat([x, torch.zeros(1, 1, 2, 1)], -1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fake_gpu_tensors_have_the_right_shapes_and_types(backend, dtype):
    """Tensors without numbers: forward on CUDA; gradients on no device, as a CPU's PyTorch can."""
    if torch.version.cuda and not torch.cuda.is_available():
        pytest.skip("PyTorch for CUDA asks for a driver, tensors without numbers or not")
    for device in ("cuda:0", "meta"):
        training = device == "meta"
        with FakeTensorMode(), torch.device(device), torch.set_grad_enabled(training):
            qkv = [torch.empty(2, 3, tokens, 8, dtype=dtype) for tokens in (5, 7, 7)]
            added = [torch.empty(1, 3, 5, 7)]
            if backend == "factors":
                added = [torch.empty(1, 3, tokens, 5) for tokens in (5, 7)]
            elif backend.startswith("offsets"):
                added = [torch.empty(3, 5 + 7 - 1)]
            leaves = [tensor.requires_grad_(training) for tensor in (*qkv, *added)]
            queries, keys = torch.arange(2, 7).unsqueeze(0), torch.arange(7).unsqueeze(0)
            layout = Layout(queries, keys)
            score = Factors(*added) if backend == "factors" else Dense(added[0])
            if backend.startswith("offsets"):
                score = Offsets(added[0])
            out, _ = BACKENDS[backend](AttentionCall(*qkv, (score,), (), layout, 0.0))
            assert (out.shape, out.dtype) == ((2, 3, 5, 8), dtype)
            assert out.device == torch.device(device)
            grads = torch.autograd.grad(out.sum(), leaves) if training else []
            for grad, leaf in zip(grads, leaves, strict=False):
                assert (grad.shape, grad.dtype) == (leaf.shape, leaf.dtype)
