"""Backends are timed on the user's device, once a kind of call, and the quickest is taken."""

import json
import multiprocessing.pool
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, Request, measured, quickest
from diet_fairseq.attention.backends.fused import kernel_width, widened
from diet_fairseq.attention.context import Term
from diet_fairseq.positions.layout import Layout
from tests.support import tiny
from tests.support.attentions import attentions
from tests.support.tiny import Case

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measured, "RUNS", 1)
    return tmp_path / "diet_fairseq" / "attention.json"


def request_of(scheme: str = "diet_abs", tokens: int = 6, **changes) -> Request:
    model = tiny.model_of(Case(scheme, family="roberta"))
    [first, *_] = attentions(model)
    layout = Layout.of_self_attention(torch.zeros(2, tokens, dtype=torch.bool))
    shape = (2, tiny.HEADS, tiny.DIM // tiny.HEADS)
    return replace(Request(first.schemes, layout, shape, torch.float32, 0.0), **changes)


def times(monkeypatch, **seconds):
    """Backends that take so long; what was asked of them."""
    asked = []

    def told(name, backend, request):
        asked.append(name)
        return seconds.get(name, 1.0)

    monkeypatch.setattr(measured, "seconds", told)
    return asked


@pytest.mark.parametrize(
    ("scheme", "training", "names"),
    [
        ("none", False, "reference sdpa"),
        ("shaw", False, "reference"),
        ("diet_rel", False, "reference sdpa"),
        ("diet_rel", True, "reference sdpa recompute"),
        ("diet_abs", True, "reference sdpa factors recompute"),
        ("bert_ad", True, "reference sdpa"),
        ("diet_abs_lin", False, "reference sdpa factors"),
    ],
)
def test_every_backend_that_can_compute_a_call_is_timed_with_its_gradients(
    scheme, training, names, monkeypatch
):
    run = []
    for name, backend in BACKENDS.items():

        def watched(call, name=name, backend=backend):
            run.append((name, bool(call.term.factors), call.q.requires_grad))
            return backend(call)

        monkeypatch.setitem(tiny.BACKENDS, name, watched)
    with torch.set_grad_enabled(training):
        request = request_of(scheme)
        chosen = measured.Choices()(request, tiny.BACKENDS)
    expected = names.split()
    assert chosen in expected
    timed = [(name, name == "factors", training) for name in expected for _ in range(2)]
    assert run == (timed if len(expected) > 1 else [])


def test_a_batch_shorter_than_what_keys_are_compressed_to_is_measured(caplog):
    model = tiny.model_of(Case("diet_abs_lin", family="roberta"))
    compressed = attentions(model)[0].schemes[0].shape.keys.positions
    with caplog.at_level("INFO", "diet_fairseq"):
        measured.Choices()(request_of("diet_abs_lin", tokens=compressed - 1), BACKENDS)
    assert " is quickest (" in caplog.text
    assert "inf" not in caplog.text.partition(" is quickest (")[2]


@pytest.mark.parametrize("options", [{"position_rank": 3}, {"position_sharing": "head"}])
def test_what_decides_the_cost_of_a_scheme_is_part_of_what_is_remembered(options):
    kinds = []
    for case in (
        Case("diet_abs", family="roberta"),
        Case("diet_abs", family="roberta").but(**options),
    ):
        [first, *_] = attentions(tiny.model_of(case))
        kinds.append(measured.kind_of(replace(request_of(), schemes=first.schemes)))
    assert measured.described(kinds[0]) != measured.described(kinds[1])


def test_a_choice_is_not_taken_over_into_a_mode_that_forbids_it(monkeypatch):
    request = request_of("diet_rel")
    monkeypatch.setattr(Request, "candidates", ("reference", "offsets"))
    monkeypatch.setattr(measured, "matches_reference", lambda *_: True)
    times(monkeypatch, offsets=0.1)
    choose = measured.Choices()
    assert choose(request, BACKENDS) == "offsets"
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    monkeypatch.setattr(Request, "candidates", ("reference", "sdpa"))
    assert choose(request, BACKENDS) == measured.Choices()(request, BACKENDS) != "offsets"


@pytest.mark.parametrize("scheme", tiny.SCHEMES)
def test_timing_leaves_no_trace_in_parameters_and_random_numbers(scheme):
    request = request_of(scheme, dropout=0.1)
    parameters = [p for scheme in request.schemes for p in scheme.parameters()]
    before, state = [p.clone() for p in parameters], torch.get_rng_state()
    for name in request.candidates:
        assert measured.seconds(name, BACKENDS[name], request) < 60
    assert torch.equal(torch.get_rng_state(), state)
    for parameter, value in zip(parameters, before, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, value)


def test_the_quickest_is_taken_and_said_in_one_line(monkeypatch, caplog, cache):
    asked = times(monkeypatch, sdpa=0.5, factors=0.002, recompute=0.003)
    choose = measured.Choices()
    with caplog.at_level("INFO", "diet_fairseq"):
        assert {choose(request_of(), BACKENDS) for _ in range(3)} == {"factors"}
    assert asked == ["reference", "sdpa", "factors", "recompute"]
    [line] = [one for one in caplog.messages if "quickest" in one]
    assert "2 heads of 8, 2 x 8 queries x 8 keys, float32, training" in line
    assert line.endswith(
        "factors is quickest (reference 1e+03 ms, sdpa 500 ms, factors 2 ms, recompute 3 ms)"
    )
    assert list(json.loads(cache.read_text()).values()) == ["factors"]


def test_what_an_earlier_process_chose_is_taken(monkeypatch, cache):
    times(monkeypatch, recompute=0.1)
    assert measured.Choices()(request_of(), BACKENDS) == "recompute"
    asked = times(monkeypatch, sdpa=0.1)
    assert measured.Choices()(request_of(), BACKENDS) == "recompute"
    assert not asked
    cache.write_text('{"cut off')
    assert measured.Choices()(request_of(), BACKENDS) == "sdpa"
    cache.write_text(json.dumps(dict.fromkeys(json.loads(cache.read_text()), "no such backend")))
    assert measured.Choices()(request_of(), BACKENDS) == "sdpa"


def test_a_cache_that_can_not_be_written_is_no_loss(monkeypatch, tmp_path):
    (tmp_path / "diet_fairseq").write_text("a file")
    times(monkeypatch, sdpa=0.1)
    assert measured.Choices()(request_of(), BACKENDS) == "sdpa"


def test_a_user_without_a_home_measures_anew(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", mock.Mock(side_effect=RuntimeError("no home directory")))
    times(monkeypatch, sdpa=0.1)
    assert measured.Choices()(request_of(), BACKENDS) == "sdpa"


def test_kinds_of_calls_are_measured_apart(monkeypatch):
    asked = times(monkeypatch)
    choose = measured.Choices()
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[0, -1] = True
    layout = Layout.of_self_attention(padding)
    changes = [
        *({}, {"tokens": 5}),
        *({"tokens": 9}, {"dropout": 0.1}, {"dtype": torch.bfloat16}, {"layers": 4}),
        *({"shape": (3, 2, 4)}, {"layout": layout}, {"scheme": "tupe_a"}),
    ]
    new = []
    for change in changes:
        asked.clear()
        choose(request_of(**change), BACKENDS)
        new.append(bool(asked))
    assert new == [True, False, *[True] * 7]
    with torch.no_grad():
        asked.clear()
        choose(request_of(), BACKENDS)
        assert asked


def test_a_backend_without_memory_or_kernel_is_not_taken():
    def fails(call):
        raise torch.OutOfMemoryError("no memory")

    assert measured.seconds("sdpa", fails, request_of()) == float("inf")


@pytest.mark.parametrize("why", ["switched off", "compiled", "fake"])
def test_where_nothing_can_be_measured_the_committed_rule_holds(why, monkeypatch):
    asked = times(monkeypatch)
    request = request_of()
    if why == "switched off":
        monkeypatch.setenv(measured.SWITCH, "0")
    elif why == "compiled":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        with FakeTensorMode():
            positions = torch.arange(6).unsqueeze(0)
            request = replace(request, layout=Layout(positions, positions, length=6))
    assert measured.Choices()(request, BACKENDS) == quickest(request)
    assert not asked


@pytest.mark.parametrize("scheme", ["none", "diet_rel", "diet_abs", "tupe_r", "diet_abs_lin"])
def test_a_model_computes_the_same_whatever_was_quickest(scheme, monkeypatch):
    case = Case(scheme, family="roberta")
    expected = tiny.logits(tiny.model_of(case))
    model = tiny.copy_of(tiny.model_of(case), case.but(attention_backend="auto-measured"))
    found = {}
    for name in ("reference", "sdpa", "factors", "recompute"):
        monkeypatch.setattr(measured.choose, "chosen", {})
        monkeypatch.setenv("XDG_CACHE_HOME", f"/nowhere/{name}")
        times(monkeypatch, **{name: 0.1})
        torch.testing.assert_close(tiny.logits(model), expected, **tiny.TOLERANCE)
        found[name] = set(measured.choose.chosen.values())
    assert found["reference"] == {"reference"}
    assert found["sdpa"] == {"sdpa"}


def test_several_processes_take_what_the_first_has_chosen():
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    class Group:
        _get_default_store = staticmethod(lambda: store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "distributed_c10d", Group)
        with multiprocessing.pool.ThreadPool(2) as threads:
            found = threads.map(
                lambda name: measured.chosen_first("a kind", name), ["sdpa", "factors"]
            )
        assert len(set(found)) == 1
        assert measured.chosen_first("another", "reference") == "reference"


class PassThrough(TorchDispatchMode):
    """Dispatches every operation as it is."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["none", "t5", "diet_rel", "diet_abs", "tupe_a", "bert_ad"])
@pytest.mark.parametrize("family", ["roberta", "transformer"])
def test_flex_attention_equals_the_reference_forward(scheme, family):
    case = Case(scheme, family=family)
    expected = tiny.logits(tiny.model_of(case))
    model = tiny.copy_of(tiny.model_of(case), case.but(attention_backend="flex"))
    torch.testing.assert_close(tiny.logits(model), expected, **tiny.TOLERANCE)
    with PassThrough():  # a dispatch mode, in which it can't run: the reference does
        torch.testing.assert_close(tiny.logits(model), expected, **tiny.TOLERANCE)


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
def test_vectors_are_widened_where_flash_attention_takes_them_then(
    width, dtype, device, masked, wide
):
    assert kernel_width(width, dtype, device, masked) == wide


def test_vectors_of_the_right_width_are_not_copied():
    x = torch.ones(1, 1, 2, 8)
    assert widened(x, 8) is x
    assert torch.equal(widened(x, 9), torch.cat([x, torch.zeros(1, 1, 2, 1)], -1))


@pytest.mark.parametrize("backend", sorted(set(BACKENDS) - {"flex"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shapes_and_types_are_right_on_a_gpu_that_is_not_there(backend, dtype):
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
            elif backend == "offsets":
                added = [torch.empty(3, 5 + 7 - 1)]
            leaves = [one.requires_grad_(training) for one in (*qkv, *added)]
            term = Term(factors=(tuple(added),)) if backend == "factors" else Term(added[0])
            if backend == "offsets":
                term = Term(line=(added[0], 5))
            queries, keys = torch.arange(2, 7).unsqueeze(0), torch.arange(7).unsqueeze(0)
            layout = Layout(queries, keys)
            out, _ = BACKENDS[backend](AttentionCall(*qkv, term, (), layout, 0.0))
            assert (out.shape, out.dtype) == ((2, 3, 5, 8), dtype)
            assert out.device == torch.device(device)
            grads = torch.autograd.grad(out.sum(), leaves) if training else []
            for grad, leaf in zip(grads, leaves, strict=False):
                assert (grad.shape, grad.dtype) == (leaf.shape, leaf.dtype)
