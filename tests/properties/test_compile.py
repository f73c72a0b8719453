"""torch.compile computes what the model computes, as those are told who try TorchScript."""

import shutil

import pytest
import torch

from tests.support import tiny
from tests.support.tiny import Case

#: a scheme of each kind: the compiler meets what is done with a score, not how it is learned;
#: encoders have one layer, and the last case has several, which share a score
CASES = [
    *{
        (case.kind.kinds, case.kind.compressed): case
        for case in reversed(tiny.first_of_each_scheme(tiny.ENCODERS))
    }.values(),
    Case("diet_abs"),
]


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    """Compiled code counts against a limit that all models share."""
    torch.compiler.reset()


@pytest.mark.slow
@tiny.each(CASES)
def test_a_compiled_model_and_its_gradients_are_the_same(case: Case):
    layers = {} if case.family == "transformer" else {"encoder_layers": 1}
    model = tiny.fresh(case, **layers).train()
    source, target = (
        tiny.padded(tiny.SOURCES, left_pad=True),
        tiny.padded(tiny.TARGETS, left_pad=False),
    )
    inputs, real = (source, None, target), target.ne(tiny.PAD)
    if tiny.is_encoder(model):
        inputs, real = (source,), source.ne(tiny.PAD)
    plain = model(*inputs)[0][real]
    expected = tiny.gradients(model, tiny.some_loss(plain))
    # traced in full, both ways, but left to PyTorch's kernels: no C++ compiler may be here
    compiled = torch.compile(model, backend="aot_eager")(*inputs)[0][real]
    torch.testing.assert_close(compiled, plain, **tiny.TOLERANCE)
    gradients = tiny.gradients(model, tiny.some_loss(compiled))
    # sums in another order: their rounding is that of the largest terms
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    tiny.assert_same(
        *({n: g / largest for n, g in grads.items()} for grads in (gradients, expected))
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="Inductor needs a C++ compiler")
def test_inductor_computes_what_the_model_computes():
    model = tiny.fresh(Case("rope", family="roberta"), encoder_layers=1)  # complex numbers
    source = tiny.sentences(9, 9)
    with torch.no_grad():
        expected = tiny.logits(model, source)
        model.forward = torch.compile(model.forward)
        torch.testing.assert_close(tiny.logits(model, source), expected, **tiny.TOLERANCE)
