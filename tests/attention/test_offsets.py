"""The Triton kernels for scores of offsets, without a GPU: interpreted, compiled, or not used."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from diet_fairseq.attention import backends
from diet_fairseq.attention.backends import (
    BACKENDS,
    AttentionCall,
    CallShape,
    choice,
    choose_backend,
    comparison,
    list_candidates,
)
from diet_fairseq.attention.backends.offsets import Launch, factor_sizes
from diet_fairseq.attention.rows import row_scores
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense, Offsets, QueryOffsets
from tests.attention.test_fast_paths import check_fast_path
from tests.support import commands, interpreted, tiny
from tests.support.attentions import attentions
from tests.support.tiny import Case

# the package has the function under this name
offsets = import_module("diet_fairseq.attention.backends.offsets")
CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")


def triton_version() -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return (0,)


needs_triton = pytest.mark.skipif(triton_version() < (3, 3), reason="needs Triton 3.3 or newer")


@pytest.fixture(autouse=True)
def no_comparisons(monkeypatch):
    monkeypatch.setattr(comparison, "comparisons", {})


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_kernels_compute_what_the_reference_does_forward_and_backward(slow):
    arguments = ["slow"] if slow else []
    done = commands.run("tests.support.interpreted:main", *arguments, plugin=False, limit=600)
    passed = [f"{name}: passed" for name in interpreted.checks_of(slow)]
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


def request_of(scheme: str, device: torch.device, tokens: int = 6, **changes) -> CallShape:
    """A request on a device that need not be there."""
    [first, *_] = attentions(tiny.model_of(Case(scheme, family="roberta")))
    with FakeTensorMode():
        positions = torch.empty(1, tokens, dtype=torch.int64, device=device)
    layout = Layout(positions, positions, length=tokens)
    return replace(CallShape(first.schemes, layout, (2, 2, 8), torch.bfloat16, 0.0), **changes)


def on_the_cpu(scheme: str, tokens: int = 6, **changes) -> CallShape:
    positions = torch.arange(tokens).unsqueeze(0)
    layout = Layout(positions, positions, length=tokens)
    return request_of(scheme, CPU, **{"layout": layout, "dtype": torch.float32} | changes)


@pytest.mark.parametrize(
    ("scheme", "device", "changes", "candidate"),
    [
        ("diet_rel", CUDA, {}, True),
        ("t5", CUDA, {"dtype": torch.float32}, True),
        ("t5", CUDA, {"dtype": torch.float64}, False),
        ("t5", CUDA, {"dropout": 0.1}, True),
        ("t5", CUDA, {"shape": (2, 2, 129)}, False),
        ("diet_rel", CPU, {}, False),
        *((scheme, CUDA, {}, True) for scheme in ("shaw", "diet_abs", "tupe_a", "tupe_r")),
        *((scheme, CUDA, {}, False) for scheme in ("none", "deberta", "fire", "diet_abs_lin")),
        *((scheme, CUDA, {"shape": (2, 2, 80)}, False) for scheme in ("shaw", "diet_abs")),
    ],
)
def test_offsets_is_a_candidate_where_it_can_compute_the_call(
    scheme, device, changes, candidate, monkeypatch
):
    monkeypatch.setattr(choice, "has_triton", lambda: True)
    assert ("offsets" in list_candidates(request_of(scheme, device, **changes))) == candidate


def test_offsets_is_no_candidate_without_triton(monkeypatch):
    monkeypatch.setattr(choice, "has_triton", lambda: False)
    assert "offsets" not in list_candidates(request_of("t5", CUDA))


@pytest.mark.parametrize(
    ("scheme", "training", "tokens", "dropout", "backend"),
    [
        ("none", True, 512, 0.0, "sdpa"),
        ("shaw", True, 512, 0.0, "offsets"),
        ("shaw", True, 512, 0.1, "offsets"),
        ("deberta", True, 512, 0.0, "sdpa"),
        ("diet_rel", True, 512, 0.0, "offsets"),
        ("t5", False, 512, 0.0, "offsets"),
        ("t5", True, 512, 0.1, "offsets"),
        ("tupe_r", True, 512, 0.0, "cudnn"),
        ("tupe_r", True, 512, 0.1, "offsets"),
        ("tupe_r", False, 500, 0.0, "offsets"),
        ("tupe_r", True, 1024, 0.0, "offsets"),
        ("diet_abs", True, 300, 0.0, "offsets"),
        ("diet_abs_lin", True, 512, 0.0, "sdpa"),
        ("diet_abs", True, 256, 0.0, "cudnn"),
        ("diet_abs", True, 512, 0.1, "factors"),
        ("diet_abs", True, 256, 0.1, "offsets"),
        ("deberta", True, 512, 0.1, "sdpa"),
        ("diet_abs", True, 512, 0.0, "cudnn, else factors"),
        ("diet_abs", True, 600, 0.0, "factors"),
        ("tupe_a", False, 1024, 0.0, "cudnn"),
        ("tupe_a", False, 2048, 0.0, "cudnn, else factors"),
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_auto_on_a_gpu_takes_the_kernels_only_if_trusted(
    scheme, training, tokens, dropout, backend, trusted, monkeypatch
):
    monkeypatch.setattr(choice, "has_triton", lambda: True)
    monkeypatch.setattr(choice, "is_trusted", lambda *_: trusted)
    request = request_of(scheme, CUDA, tokens, dropout=dropout)
    with torch.set_grad_enabled(training):
        kernels, _, other = backend.partition(", else ")
        if kernels in ("offsets", "cudnn") and not trusted:
            kernels = other or "sdpa"
        assert choose_backend(request) == kernels


@pytest.mark.parametrize(
    ("untie_cls", "tokens", "backend"),
    [("no", 512, "factors"), ("official", 512, "sdpa"), ("official", 1024, "factors")],
)
def test_wide_factors_train_on_a_gpu_from_1024_tokens_on(untie_cls, tokens, backend):
    shape = AttentionShape(2, 64, 128, Limit(8, "--max-positions"), Limit(8, "--max-positions"))
    schemes = (SCHEMES["tupe_a"].create(shape, untie_cls=untie_cls),)
    request = request_of("tupe_a", CUDA, tokens, schemes=schemes, shape=(2, 2, 64))
    assert choose_backend(request) == backend


@pytest.mark.parametrize(("rank", "compared"), [(None, 1), (4, 2)])
def test_kinds_of_calls_differ_in_the_rank_of_factors(rank, compared):
    shape = AttentionShape(2, 8, 16, Limit(8, "--max-positions"), Limit(8, "--max-positions"))
    for value in (None, rank):
        schemes = (SCHEMES["diet_abs"].create(shape, rank=value),)
        request = on_the_cpu("diet_abs", schemes=schemes)
        comparison.is_trusted("cudnn", BACKENDS["cudnn"], request)
    assert len(comparison.comparisons) == compared


@pytest.mark.parametrize(
    ("fault", "training"),
    [(None, True), (None, False), ("output", True), ("output", False), ("gradients", True)],
)
def test_kernels_with_wrong_results_are_not_trusted(fault, training, caplog):
    calls = []

    def kernel(call: AttentionCall):
        calls.append(call)
        out, _ = BACKENDS["reference"](call)
        if fault == "output":
            out = 1.2 * out
        if fault == "gradients":
            out = 1.2 * out - 0.2 * out.detach()
        return out, None

    request = on_the_cpu("t5")
    backend, state = replace(BACKENDS["offsets"], compute=kernel), torch.get_rng_state()
    with torch.set_grad_enabled(training), caplog.at_level("WARNING", "diet_fairseq"):
        trusted = {comparison.is_trusted("offsets", backend, request) for _ in range(2)}
    assert trusted == {fault is None}
    assert len(calls) == 1  # the second call of its kind is not compared
    warning = "does not use offsets: its results are wrong on this device, please report"
    assert (warning in caplog.text) == (fault is not None)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for scheme in request.schemes for p in scheme.parameters())


@pytest.mark.parametrize(
    "fault", [None, "nothing dropped", "another rate", "not scaled", "a gradient of other weights"]
)
def test_kernels_with_wrong_dropout_are_not_trusted(fault):
    def kernel(call: AttentionCall):
        dropped = replace(call, dropout=0.5) if fault == "another rate" else call
        out, _ = BACKENDS["reference"](dropped)
        if fault == "nothing dropped":
            out, _ = BACKENDS["reference"](replace(call, dropout=0.0))
        if fault == "not scaled":
            out = 0.5 * out
        if fault == "a gradient of other weights":
            others, _ = BACKENDS["reference"](call)
            out = others + (out - others).detach()
        return out, None

    request = on_the_cpu("t5", tokens=64, dropout=0.3)
    backend, state = replace(BACKENDS["offsets"], compute=kernel), torch.get_rng_state()
    assert comparison.is_trusted("offsets", backend, request) == (fault is None)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("dropout", "parts"),
    [(0.0, 0), (1e-9, 1), (0.003, 1), (0.1, 26), (0.5, 128), (0.999, 255), (1.0, 255)],
)
def test_a_rate_is_a_multiple_of_a_256th_and_neither_0_nor_1(dropout, parts):
    assert offsets.count_parts(dropout) == parts


def test_kernels_that_can_not_run_are_not_trusted(caplog):
    def kernel(call: AttentionCall):
        raise torch.OutOfMemoryError("no memory")

    with caplog.at_level("WARNING", "diet_fairseq"):
        backend = replace(BACKENDS["offsets"], compute=kernel)
        assert not comparison.is_trusted("offsets", backend, on_the_cpu("t5"))
    assert "auto does not use offsets: it fails on this device: no memory" in caplog.text


def test_activation_checkpointing_does_not_count_the_tensors_of_the_comparison():
    request = on_the_cpu("t5")

    def layer(x: torch.Tensor) -> torch.Tensor:
        assert comparison.is_trusted("sdpa", BACKENDS["sdpa"], request)  # compares once
        return x.exp()

    x = torch.ones(3, requires_grad=True)
    checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad, x.exp())


def test_kernels_are_not_compared_on_tensors_without_numbers():
    assert not comparison.is_trusted("sdpa", BACKENDS["sdpa"], request_of("t5", CPU))
    assert not comparison.comparisons


def test_compiled_code_reads_an_earlier_comparison_without_a_graph_break():
    request = on_the_cpu("t5")

    def layer(x: torch.Tensor) -> torch.Tensor:
        return x + comparison.is_trusted("sdpa", BACKENDS["sdpa"], request)

    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(())) == 0
    assert not comparison.comparisons
    assert layer(torch.zeros(())) == compiled(torch.zeros(())) == 1


def test_every_kind_of_call_is_compared_once():
    changes = [
        {},
        {},
        {"tokens": 9},
        {"dtype": torch.bfloat16},
        {"dropout": 0.1},
        {"scheme": "none"},
    ]
    with torch.no_grad():
        for change in changes:
            comparison.is_trusted("sdpa", BACKENDS["sdpa"], on_the_cpu(**{"scheme": "t5"} | change))
    assert len(comparison.comparisons) == 4


def attend(width: int, dtype: torch.dtype = torch.float32, scheme=None) -> list[torch.Tensor]:
    """Attend forward and backward on a CPU, as if it could interpret the kernels."""
    q, k, v = (torch.ones(2, 3, n, width, dtype=dtype, requires_grad=True) for n in (4, 5, 5))
    layout = Layout(torch.arange(1, 5).unsqueeze(0), torch.arange(5).unsqueeze(0))
    leaves = [torch.ones(3, 8, requires_grad=True)] if scheme is None else [*scheme.parameters()]
    score = Offsets(leaves[0]) if scheme is None else scheme.score(layout)
    out, _ = BACKENDS["offsets"](AttentionCall(q, k, v, (score,), (), layout, 0.0))
    return [out, *torch.autograd.grad(out.sum(), (q, k, v, *leaves))]


@pytest.mark.parametrize(
    ("name", "options", "learned"),
    [
        *(("diet_rel", {}, True), ("sandwich", {}, False)),
        *(("alibi", {"slopes": "fixed"}, False), ("alibi", {"slopes": "learned"}, True)),
    ],
)
def test_no_kernel_computes_the_gradient_of_a_fixed_line(name, options, learned, monkeypatch):
    started = []

    def start(launch: Launch, kernel: str, *_: object) -> dict[str, int]:
        started.append(kernel)
        return {"BM": 64, "BN": 64}

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(Launch, "start", start)
    monkeypatch.setattr(Launch, "delta", lambda _, g, out: g.sum(-1))
    monkeypatch.setattr(Launch, "line_gradient", lambda launch, *_, **__: launch.line)
    limit = Limit(5, "--max-positions")
    attend(8, scheme=SCHEMES[name].create(AttentionShape(3, 8, 24, limit, limit), **options))
    last = "backward_queries_and_line" if learned else "backward_queries"
    assert started == ["forward", "backward_keys", last]


@pytest.mark.parametrize("how", ["eager", "compiled", "fake"])
def test_the_registered_operator_is_called_only_where_operations_are_recorded(how, monkeypatch):
    calls = []
    monkeypatch.setattr(offsets, "offset_attention", lambda *_: calls.append("operator"))
    monkeypatch.setattr(offsets.OffsetAttention, "apply", lambda *_: calls.append("function"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: how == "compiled")
    with FakeTensorMode() if how == "fake" else nullcontext():
        offsets.attend(torch.ones(1, 2, 3, 8))
    assert calls == ["function" if how == "eager" else "operator"]


def test_without_triton_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, f"{backends.__name__}.offset_kernels", raising=False)
    monkeypatch.delattr(backends, "offset_kernels", raising=False)
    with pytest.raises(UserError, match=r"needs Triton 3.3 or newer \(.+\): pip install"):
        attend(8)


def test_gradients_have_the_shapes_and_types_of_their_inputs(monkeypatch):
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


@pytest.mark.parametrize(
    ("rank", "sizes"),
    [(0, (0, 0, 0)), (16, (16, 16, 0)), (48, (48, 64, 0)), (64, (64, 64, 0)), (80, (80, 64, 16))],
)
def test_factors_slightly_wider_than_a_power_of_two_have_further_columns(rank, sizes):
    assert tuple(factor_sizes(rank).values()) == sizes


@pytest.mark.parametrize("untie_cls", ["no", "paper", "official"])
@pytest.mark.parametrize(("causal", "queries"), [(False, None), (True, None), (True, 4)])
def test_the_parts_of_tupe_r_add_up_to_its_score(untie_cls, causal, queries):
    limit = Limit(9, "--max-positions")
    shape = AttentionShape(2, 4, 8, limit, limit, causal=causal)
    scheme = SCHEMES["tupe_r"].create(shape, untie_cls=untie_cls)
    for parameter in scheme.parameters():
        torch.nn.init.normal_(parameter)
    padding = torch.arange(9) >= torch.tensor([[9], [5]])
    layout = Layout.of_self_attention(padding, causal, queries)
    score = scheme.score(layout).times(0.5)
    parts = score.split(layout)
    assert tuple(map(type, parts)) == score.part_types
    matrix = sum(part.dense(layout) for part in parts)
    torch.testing.assert_close(matrix, score.dense(layout))
    assert parts[0].query.size(3) == scheme.rank


@pytest.mark.parametrize("untie_cls", ["no", "official"])
def test_a_score_is_not_split_if_padding_would_be_reset(untie_cls):
    limit = Limit(9, "--max-positions")
    shape = AttentionShape(2, 4, 8, limit, limit)
    scheme = SCHEMES["tupe_r"].create(shape, untie_cls=untie_cls)
    layout = Layout.of_self_attention(torch.arange(9) < torch.tensor([[0], [3]]))
    assert (scheme.score(layout).split(layout) is None) == (untie_cls != "no")


@pytest.mark.parametrize("is_toeplitz", [True, False])
@pytest.mark.parametrize(("causal", "queries"), [(False, None), (True, None), (True, 1)])
def test_products_with_rows_of_offsets_are_a_table_for_each_query(causal, queries, is_toeplitz):
    limit = Limit(9, "--max-positions")
    scheme = SCHEMES["shaw"].create(AttentionShape(2, 4, 8, limit, limit, causal=causal), clip=3)
    layout = Layout.of_self_attention(torch.zeros(1, 9, dtype=torch.bool), causal, queries)
    layout = replace(layout, is_toeplitz=is_toeplitz)
    q, k = tiny.vectors(2, 2, queries or 9, 4), tiny.vectors(2, 2, 9, 4)
    native = BACKENDS["offsets"].native_score
    [table] = row_scores((scheme,), q, k, layout, None, 1.0, native)
    [score] = row_scores((scheme,), q, k, layout, None, 1.0)
    assert type(table) is (QueryOffsets if is_toeplitz else Dense)
    assert type(score) is Dense
    torch.testing.assert_close(table.times(2.0).dense(layout), 2 * score.dense(layout))
