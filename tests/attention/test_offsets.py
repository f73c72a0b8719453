"""The Triton kernels for scores of offsets, without a GPU: interpreted, compiled, or not used."""

import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from diet_fairseq.attention import backends
from diet_fairseq.attention.backends import BACKENDS, AttentionCall, Request, call, measured
from diet_fairseq.attention.context import Term
from diet_fairseq.errors import UserError
from diet_fairseq.positions.layout import Layout
from tests.attention.test_fast_paths import check_fast_path
from tests.support import commands, interpreted, tiny
from tests.support.attentions import attentions
from tests.support.tiny import Case

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")


def triton_version() -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return (0,)


needs_triton = pytest.mark.skipif(triton_version() < (3, 3), reason="needs Triton 3.3 or newer")


@needs_triton
@pytest.mark.parametrize("more", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_kernels_compute_what_the_reference_does_forward_and_backward(more):
    arguments = ["more"] if more else []
    done = commands.run("tests.support.interpreted:main", *arguments, plugin=False, limit=300)
    passed = [f"{name}: passed" for name in interpreted.checks_of(more)]
    assert done.out.splitlines() == passed, done.text


@pytest.mark.parametrize(
    "case",
    [
        *(Case("t5"), Case("diet_rel").but(position_sharing="head")),
        Case("diet_rel").but(position_sharing="layer", position_clip=2),
        *(Case("diet_rel", family=family) for family in ("roberta", "bert")),
        *(Case("none"), Case("tupe_r", family="roberta"), Case("diet_abs_lin", family="roberta")),
    ],
    ids=str,
)
def test_where_the_kernels_can_not_run_a_model_computes_the_reference(case):
    check_fast_path(case, "offsets")


def request_of(scheme: str, device: torch.device, **changes) -> Request:
    """On a device that need not be there."""
    [first, *_] = attentions(tiny.model_of(Case(scheme, family="roberta")))
    with FakeTensorMode():
        positions = torch.empty(1, 6, dtype=torch.int64, device=device)
    layout = Layout(positions, positions, length=6)
    return replace(Request(first.schemes, layout, (2, 2, 8), torch.bfloat16, 0.0), **changes)


@pytest.mark.parametrize(
    ("scheme", "device", "changes", "candidate"),
    [
        ("diet_rel", CUDA, {}, True),
        ("t5", CUDA, {"dtype": torch.float32}, True),
        ("t5", CUDA, {"dtype": torch.float64}, False),
        ("t5", CUDA, {"dropout": 0.1}, False),
        ("t5", CUDA, {"shape": (2, 2, 129)}, False),
        ("diet_rel", CPU, {}, False),
        *((scheme, CUDA, {}, False) for scheme in ("none", "shaw", "diet_abs", "tupe_r")),
    ],
)
def test_they_are_timed_where_they_can_compute_the_call(
    scheme, device, changes, candidate, monkeypatch
):
    monkeypatch.setattr(call, "has_triton", lambda: True)
    assert ("offsets" in request_of(scheme, device, **changes).candidates) == candidate


@pytest.mark.parametrize("scheme", ["none", "t5", "diet_abs"])
def test_flex_attention_is_not_timed_as_it_is_compiled_for_every_kind_of_call(scheme):
    assert "flex" not in request_of(scheme, CUDA).candidates


def test_they_are_not_timed_without_triton_or_where_runs_must_not_differ(monkeypatch):
    monkeypatch.setattr(call, "has_triton", lambda: True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert "offsets" not in request_of("t5", CUDA).candidates
    with torch.no_grad():  # which adds nothing up in any order
        assert "offsets" in request_of("t5", CUDA).candidates
        monkeypatch.setattr(call, "has_triton", lambda: False)
        assert "offsets" not in request_of("t5", CUDA).candidates


@pytest.mark.parametrize(
    ("fault", "training"),
    [(None, True), (None, False), ("output", True), ("output", False), ("gradients", True)],
)
def test_though_quickest_they_are_not_taken_where_their_results_are_wrong(
    fault, training, monkeypatch, caplog, tmp_path
):
    """One kind of GPU has run them, so that no other is trusted unseen."""

    def kernel(call: AttentionCall):
        out, _ = BACKENDS["reference"](call)
        if fault == "output":
            out = 1.2 * out
        if fault == "gradients":
            out = 1.2 * out - 0.2 * out.detach()
        return out, None

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(call, "has_triton", lambda: True)
    monkeypatch.setattr(measured, "seconds", lambda name, *_: float(name != "offsets"))
    positions = torch.arange(6).unsqueeze(0)
    layout = Layout(positions, positions, length=6)
    request = request_of("t5", CPU, dtype=torch.float32, layout=layout)
    with torch.set_grad_enabled(training), caplog.at_level("WARNING", "diet_fairseq"):
        chosen = measured.Choices()(request, BACKENDS | {"offsets": kernel})
    assert (chosen == "offsets") == (fault is None)
    assert ("offsets is quickest, but wrong here" in caplog.text) == (fault is not None)


def attend(width: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Forward and backward on a CPU, as if it could interpret the kernels."""
    q, k, v = (torch.ones(2, 3, n, width, dtype=dtype, requires_grad=True) for n in (4, 5, 5))
    line = torch.ones(3, 8, requires_grad=True)
    layout = Layout(torch.arange(1, 5).unsqueeze(0), torch.arange(5).unsqueeze(0))
    term = Term(line=(line, 4))
    out, _ = BACKENDS["offsets"](AttentionCall(q, k, v, term, (), layout, 0.0))
    return [out, *torch.autograd.grad(out.sum(), (q, k, v, line))]


def test_without_triton_one_who_asks_for_them_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, f"{backends.__name__}.offset_kernels", raising=False)
    monkeypatch.delattr(backends, "offset_kernels", raising=False)
    with pytest.raises(UserError, match=r"needs Triton 3.3 or newer \(.+\): pip install"):
        attend(8)


def test_gradients_have_the_shapes_and_types_of_what_they_are_of(monkeypatch):
    """Tensors without numbers, for which no kernel runs."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with FakeTensorMode():
        out, of_q, of_k, of_v, of_line = attend(8, torch.float16)
    assert [x.dtype for x in (out, of_q, of_k, of_v, of_line)] == [torch.float16] * 4 + [
        torch.float32
    ]
    assert of_q.shape == out.shape == (2, 3, 4, 8)
    assert of_k.shape == of_v.shape == (2, 3, 5, 8)
    assert of_line.shape == (3, 8)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "width", "tile"), [("bf16", 64, 64), ("fp32", 128, 16)])
def test_triton_compiles_the_kernels_for_gpus(dtype, width, tile, monkeypatch, tmp_path):
    """And what they keep fits into the 99 KiB that a program may have on most of them."""
    import triton
    from triton.backends.compiler import GPUTarget

    from diet_fairseq.attention.backends import offset_kernels as kernels

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = dict.fromkeys(["q", "k", "v", "g", "o", "of_k", "of_v"], f"*{dtype}")
    types |= dict.fromkeys(["line", "norm", "mean", "of_q", "of_line"], "*fp32") | {
        "padding": "*u8"
    }
    chosen = {"d": width, "W": width, "S": tile, "CAUSAL": True, "P": "ieee"}
    types |= dict.fromkeys(chosen, "constexpr")
    for kernel, arch in ((kernels.forward, 90), (kernels.backward, 80)):
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        constants = {(kernel.arg_names.index(name),): value for name, value in chosen.items()}
        source = triton.compiler.ASTSource(kernel, signature, constants)
        compiled = triton.compile(
            source,
            target=GPUTarget("cuda", arch, 32),
            options={"num_warps": 8 if tile == 64 else 4},
        )
        assert compiled.metadata.shared <= 99 * 1024
        assert compiled.asm["cubin"]
