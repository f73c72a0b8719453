"""Every fast path computes what the reference does, and is taken where it is quickest."""

from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from diet_fairseq.positions.diet_abs import DietAbs
from diet_fairseq.positions.scores import Factors
from diet_fairseq.transformer import PositionalAttention
from tests.support import mutants, tiny
from tests.support.tiny import SIDES, TOLERANCE, Case, run_of

close = torch.testing.assert_close


#: Which positions are at the input makes no difference, and BERT has all that RoBERTa has.
DIFFERENT = [
    case
    for case in tiny.NO_BACKEND
    if case.family != "roberta" or case.kind.compressed
    if not (case.kind.in_attention and case.option("position_input") != "none")
]
QUICK = tiny.quick_cases(__name__, DIFFERENT, all_schemes=True)
SHARE = {*QUICK, *tiny.share_of(__name__, DIFFERENT, own_part=1)}
PATHS = [(case, path) for case in DIFFERENT if case in SHARE for path in tiny.fast_paths(case)]


def forward_and_backward(model: tiny.Model) -> list[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    """Outputs for tokens padded on either side, and the gradients; dropout is 0."""
    results = []
    for left_source, left_target in SIDES:
        out = tiny.logits(model.train(), left_source=left_source, left_target=left_target)
        grads = tiny.gradients(model, tiny.some_loss(out))
        results.append((out.detach().cpu(), {name: grad.cpu() for name, grad in grads.items()}))
    return results


def by_the_reference(case: Case) -> list[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    return forward_and_backward(tiny.model_to_change(case))


def check_fast_path(
    case: Case, backend: str = "factors", expected=by_the_reference, device: str = "cpu"
) -> None:
    fast = tiny.copy_of(tiny.model_of(case), case.but(attention_backend=backend)).to(device)
    pairs = zip(forward_and_backward(fast), expected(case), strict=True)
    for (out, grads), (expected_out, expected_grads) in pairs:
        close(out, expected_out, **TOLERANCE)
        for name, gradient in expected_grads.items():
            # sums over many tokens, which may cancel, in another order on another device
            part = 2e-5 if device == "cpu" else 1e-4  # of the largest entry
            close(
                grads.get(name, torch.zeros_like(gradient)),
                gradient,
                rtol=1e-5,
                atol=part * max(1.0, float(gradient.abs().max())),
            )


once_by_the_reference = lru_cache(maxsize=1)(by_the_reference)  # a case's paths come in a row


@pytest.mark.parametrize(
    ("case", "backend"),
    [
        pytest.param(*path, id="-".join(map(str, path)), marks=run_of(path[0], QUICK))
        for path in PATHS
    ],
)
def test_a_fast_path_equals_the_reference_forward_and_backward(case, backend):
    check_fast_path(case, backend, once_by_the_reference)


def test_a_step_of_decoding_multiplies_no_more_rows_than_it_reads(monkeypatch):
    """A table has a row for every position that the model could have."""
    model = tiny.fresh(Case("diet_abs").but(position_sharing="none"))
    sizes = []
    amplify = DietAbs.amplify
    monkeypatch.setattr(
        DietAbs, "amplify", lambda self, rows: [sizes.append(rows.size(1)), amplify(self, rows)][1]
    )
    encoder_out = model.encoder(tiny.padded(tiny.SOURCES, False))
    state: dict = {}
    target = tiny.padded(tiny.TARGETS, False)
    for length in range(1, 4):
        sizes.clear()
        model.decoder(target[:, :length], encoder_out=encoder_out, incremental_state=state)
        assert set(sizes) == {1, length}  # queries and keys


#: what "auto" takes for so many tokens, when no gradient is wanted and when one is
AUTO = [
    ("none", 127, "reference", "reference"),
    ("none", 128, "sdpa", "sdpa"),
    ("diet_rel", 127, "reference", "reference"),
    ("diet_rel", 1024, "sdpa", "reference"),
    ("shaw", 1024, "sdpa", "reference"),
    ("diet_abs", 1023, "sdpa", "reference"),
    ("diet_abs", 1024, "sdpa", "factors"),
    ("tupe_a", 1024, "sdpa", "factors"),
    ("tupe_r", 1024, "sdpa", "reference"),
    ("bert_ad", 127, "reference", "reference"),
    ("bert_ad", 128, "sdpa", "sdpa"),
    ("diet_abs_lin", 1024, "sdpa", "reference"),
]
#: the same in bfloat16
AUTO_BF16 = [
    ("none", 128, "sdpa", "reference"),
    ("none", 511, "sdpa", "reference"),
    ("none", 512, "sdpa", "sdpa"),
    ("diet_rel", 512, "sdpa", "reference"),
    ("diet_abs", 1024, "sdpa", "factors"),
]


@pytest.mark.parametrize(("scheme", "tokens", "without", "with_gradient"), AUTO)
def test_auto_takes_the_backend_that_was_measured_to_be_quickest(
    scheme, tokens, without, with_gradient, monkeypatch
):
    assert_auto_takes(scheme, tokens, without, with_gradient, monkeypatch)


@pytest.mark.parametrize(("scheme", "tokens", "without", "with_gradient"), AUTO_BF16)
@pytest.mark.parametrize("autocast", [False, True])
def test_auto_takes_the_backend_measured_to_be_quickest_in_bfloat16(
    scheme, tokens, without, with_gradient, autocast, monkeypatch
):
    dtype = torch.float32 if autocast else torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        assert_auto_takes(scheme, tokens, without, with_gradient, monkeypatch, dtype, near=0.05)


def assert_auto_takes(
    scheme, tokens, without, with_gradient, monkeypatch, dtype=torch.float32, near=1e-4
):
    calls = []
    for name, backend in tiny.BACKENDS.items():

        def watched(call, name=name, backend=backend):
            calls.append((name, any(isinstance(score, Factors) for score in call.scores)))
            return backend(call)

        monkeypatch.setitem(tiny.BACKENDS, name, replace(backend, compute=watched))
    model = tiny.fresh(Case(scheme, family="roberta"), max_positions=1030).to(dtype)
    sentences = tiny.sentences(tokens)
    with torch.no_grad():
        out = tiny.logits(model, sentences)
    assert calls == [(without, False)] * tiny.LAYERS
    calls.clear()
    close(tiny.logits(model, sentences), out, rtol=near, atol=near)  # sums over 1,024 keys
    assert calls == [(with_gradient, with_gradient == "factors")] * tiny.LAYERS


def test_attention_dropout_takes_the_plain_equation_in_training(monkeypatch):
    model = tiny.fresh(Case("none", family="roberta"), max_positions=200)
    for module in model.modules():
        if isinstance(module, PositionalAttention):
            module.dropout_module.p = 0.1
    fused = replace(tiny.BACKENDS["sdpa"], compute=None)
    monkeypatch.setitem(tiny.BACKENDS, "sdpa", fused)
    tiny.logits(model.train(), tiny.sentences(128))


MUTANTS: mutants.Table = [(check_fast_path, mutants.keys_without_gradient, "diet_abs")]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
