"""The tiles of the kernels for offsets: which ones a call may take, and when they are timed."""

from itertools import product

import pytest
import torch

from diet_fairseq.attention.backends.offsets import AUTOTUNED, TILES, Launch, select_tiles


def launch(sentences: int, dropout: float = 0.0, causal: bool = False) -> Launch:
    """A call of 16 heads and 512 tokens, on tensors without numbers."""
    q = torch.empty(sentences, 16, 512, 64, dtype=torch.bfloat16, device="meta")
    line = torch.empty(16, 1023, device="meta")
    return Launch(q, q, q, line, None, None, causal, dropout)


@pytest.mark.parametrize(
    ("kernel", "width", "a100", "h100", "b200"),
    [
        ("forward", 64, [0, 1, 2], [0, 1, 2], [0, 2]),
        ("backward_keys", 64, [1, 2], [0, 1, 2], [0, 1, 2]),
        ("backward_keys", 128, [2], [0, 1, 2], [2]),
    ],
)
def test_tiles_that_spill_registers_on_a_gpu_are_left_out(kernel, width, a100, h100, b200):
    tiles = TILES[kernel][width > 64]
    for major, indices in ((8, a100), (9, h100), (10, b200)):
        expected = tuple(tiles[index] for index in indices)
        assert select_tiles(kernel, torch.bfloat16, width, major) == expected


@pytest.mark.parametrize("major", [7, 8, 9, 10, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_call_has_tiles(dtype, major):
    for width, dropout in product([8, 64, 65, 128], [False, True]):
        assert all(select_tiles(name, dtype, width, major, dropout) for name in TILES)


def test_only_calls_that_fill_a_gpu_are_timed():
    assert 7 * 16 * 512 < AUTOTUNED <= 8 * 16 * 512
    assert len(launch(7).tiles("forward")) == 1
    assert len(launch(8).tiles("forward")) == len(TILES["forward"][0])


def test_deterministic_algorithms_take_tiles_that_no_timing_chooses():
    torch.use_deterministic_algorithms(True)
    try:
        assert launch(8).tiles("forward") == TILES["forward"][0][:1]
    finally:
        torch.use_deterministic_algorithms(False)
