"""bfloat16: on a CPU without instructions for it, and in commands where fairseq ignores it."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from diet_fairseq.patches import bfloat16
from diet_fairseq.patches.sharding import COMPUTES_IN
from tests.support import commands


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
    with bfloat16.InFloat32():
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
    class Seen(bfloat16.InFloat32):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func in bfloat16.PRODUCTS:
                dtypes.append(args[0].dtype)
            return func(*args, **(kwargs or {}))

    dtypes = []
    with Seen(), bfloat16.InFloat32():  # the inner one is asked first
        for dtype in (torch.float32, torch.float16, torch.float64, torch.bfloat16):
            torch.ones(2, 2, dtype=dtype) @ torch.ones(2, 2, dtype=dtype)
    assert dtypes == [torch.float32, torch.float16, torch.float64, torch.float32]


@pytest.mark.parametrize(
    ("asked", "sharded", "device", "slow", "expected"),
    [
        (True, False, "cpu", True, bfloat16.InFloat32),
        (False, True, "cpu", True, bfloat16.InFloat32),
        (True, False, "cpu", False, type(None)),  # the CPU has instructions for it
        (True, False, "cuda", True, type(None)),
        (False, False, "cpu", True, type(None)),
    ],
)
def test_a_step_is_taken_so_where_it_helps(monkeypatch, asked, sharded, device, slow, expected):
    monkeypatch.setattr(bfloat16, "are_slow", lambda: slow)
    model = Namespace(**({COMPUTES_IN: torch.bfloat16} if sharded else {}))
    cfg = Namespace(common=Namespace(bf16=asked))
    trainer = Namespace(cfg=cfg, _model=model, device=torch.device(device))
    step = bfloat16.quick(lambda trainer, batch: (batch, _get_current_dispatch_mode()))
    batch, mode = step(trainer, 3)
    assert (batch, type(mode)) == (3, expected)
    assert _get_current_dispatch_mode() is None


@pytest.mark.parametrize(
    ("asked", "path", "slow", "expected"),
    [
        (True, "x.pt", False, torch.bfloat16),
        (True, "x.pt", True, torch.float32),
        (False, "x.pt", False, torch.float32),
        (True, None, False, torch.float32),  # what a checkpoint was trained in
    ],
)
def test_a_command_that_is_given_bf16_computes_in_it_where_that_helps(
    monkeypatch, caplog, asked, path, slow, expected
):
    monkeypatch.setattr(bfloat16, "are_slow", lambda: slow)
    caplog.set_level("INFO", "diet_fairseq")
    translator = nn.Linear(2, 2)
    cfg = Namespace(common=Namespace(bf16=asked), common_eval=Namespace(path=path))
    bfloat16.at_inference(lambda model, cfg: None)(translator, cfg)
    assert {one.dtype for one in translator.parameters()} == {expected}
    assert ("--bf16 is not used: this CPU has no instructions for it" in caplog.text) == slow


@pytest.mark.slow
def test_fairseq_generate_says_what_it_does_with_bf16(tmp_path):
    data = commands.corpus(tmp_path)
    done = commands.run("train", data, *commands.TINY, "--max-update", 1, "--save-dir", tmp_path)
    assert done.status == 0, done.err
    pair = ("-s", "de", "-t", "en", "--max-len-b", 5, "--cpu", "--path")
    found = [
        commands.run("generate", data, *pair, tmp_path / "checkpoint_last.pt", *more)
        for more in ((), ("--bf16",))
    ]
    assert [done.status for done in found] == [0, 0]
    said = "--bf16 is not used: this CPU has no instructions for it" in found[1].text
    assert said == bfloat16.are_slow()
    lines = [[line for line in done.out.splitlines() if line.startswith("H-")] for done in found]
    assert (lines[0] == lines[1]) == said
