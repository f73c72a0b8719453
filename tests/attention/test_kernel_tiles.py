"""The tiles of the kernels for offsets: which one a call takes."""

from itertools import product

import pytest
import torch

from diet_fairseq.attention.backends.offsets import TILES, tile_of


@pytest.mark.parametrize(
    ("kernel", "width", "a100", "h100", "b200"),
    [
        ("forward", 64, 0, 0, 0),
        ("backward_keys", 64, 1, 0, 0),
        ("backward_keys", 128, 2, 0, 1),
    ],
)
def test_tiles_that_spill_registers_on_a_gpu_are_left_out(kernel, width, a100, h100, b200):
    tiles = TILES[kernel][width > 64]
    for major, index in ((8, a100), (9, h100), (10, b200)):
        assert tile_of(kernel, torch.bfloat16, width, major) == tiles[index]


@pytest.mark.parametrize("major", [7, 8, 9, 10, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_call_has_a_tile_and_the_lines_divide_the_queries(dtype, major):
    for width, dropout in product([8, 64, 65, 128], [False, True]):
        tiles = {name: tile_of(name, dtype, width, major, dropout) for name in TILES}
        [step] = set(tiles["backward_line"][:2])
        assert not any(size % step for size in tiles["backward_queries"][:2])
