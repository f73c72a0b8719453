"""bfloat16 on a CPU without instructions for it: what such instructions give, in usable time."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from diet_fairseq.patches import products


@pytest.fixture
def random():
    draw = torch.Generator().manual_seed(1)
    return lambda *shape: torch.randn(shape, generator=draw).bfloat16()


PRODUCTS = {
    "mm": (torch.mm, (5, 96), (96, 7)),
    "bmm": (torch.bmm, (3, 5, 96), (3, 96, 7)),
    "addmm": (torch.addmm, (7,), (5, 96), (96, 7)),
    "baddbmm": (torch.baddbmm, (3, 5, 7), (3, 5, 96), (3, 96, 7)),
    "linear": (F.linear, (5, 96), (7, 96), (7,)),
    "matmul": (torch.matmul, (2, 3, 5, 96), (2, 3, 96, 7)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_and_its_gradients_are_those_of_float32_rounded_once(random, name):
    product, *shapes = PRODUCTS[name]
    given = [random(*shape).requires_grad_() for shape in shapes]
    wide = [one.detach().float().requires_grad_() for one in given]
    with products.InFloat32():
        found = product(*given)
        weight = random(*found.shape)
        gradients = torch.autograd.grad(found, given, weight)
    expected = product(*wide)
    assert torch.equal(found, expected.bfloat16())
    for one, other in zip(gradients, torch.autograd.grad(expected, wide, weight.float()),
                          strict=True):  # fmt: skip
        assert one.dtype is torch.bfloat16
        torch.testing.assert_close(one, other.bfloat16(), rtol=2**-7, atol=0)


def test_other_numbers_are_multiplied_as_ever():
    class Seen(products.InFloat32):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func in products.PRODUCTS:
                dtypes.append(args[0].dtype)
            return func(*args, **(kwargs or {}))

    dtypes = []
    with Seen(), products.InFloat32():  # the inner one is asked first
        for dtype in (torch.float32, torch.float16, torch.float64, torch.bfloat16):
            torch.ones(2, 2, dtype=dtype) @ torch.ones(2, 2, dtype=dtype)
    assert dtypes == [torch.float32, torch.float16, torch.float64, torch.float32]


@pytest.mark.parametrize(
    ("bf16", "device", "slow", "expected"),
    [
        (True, "cpu", True, products.InFloat32),
        (True, "cpu", False, type(None)),  # the CPU has instructions for it
        (True, "cuda", True, type(None)),
        (False, "cpu", True, type(None)),
    ],
)
def test_a_step_is_taken_so_where_it_helps(monkeypatch, bf16, device, slow, expected):
    monkeypatch.setattr(products, "are_slow", lambda: slow)
    trainer = Namespace(cfg=Namespace(common=Namespace(bf16=bf16)), device=torch.device(device))
    step = products.quick(lambda trainer, batch: (batch, _get_current_dispatch_mode()))
    batch, mode = step(trainer, 3)
    assert (batch, type(mode)) == (3, expected)
    assert _get_current_dispatch_mode() is None
