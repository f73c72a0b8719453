"""The kernels' machine code, compiled for three GPUs that need not be there.

No registers are spilled, a tile on a Hopper GPU waits at most four times for products, no gradient
is added by an atomic instruction, and a program fits into the shared memory of a multiprocessor: of
one tile at least two do, so that one computes exponentials while the other multiplies.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch

from diet_fairseq.attention.backends.cudnn import TILE, warps
from diet_fairseq.attention.backends.offsets import (
    SMALL,
    TILES,
    Tile,
    factor_sizes,
    product_rows,
    select_tiles,
)
from tests.attention.test_offsets import needs_triton
from tests.support.sass import Machine, compiled

pytestmark = [pytest.mark.slow, needs_triton]
#: registers and bytes of shared memory of a multiprocessor (8.0, 9.0, 10.0; programming guide)
REGISTERS, SHARED = 65536, {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
#: 10.0 allocates its tensor memory by ATOMS.AND and ATOMS.OR, which add nothing
ATOMIC = r"(RED|REDG|ATOM|ATOMG)\b|ATOMS\.ADD"

#: waits for products in a tile on 9.0. Triton waits for each product whose result is not only added
#: up; with factors and a line's gradient: of queries and keys, of the factors, of their further
#: columns, of gradients and values, and the two of `store_diagonals`
WAITS, WAITS_OF_FACTORS_AND_LINE = 4, 6
#: instructions that spill registers in the gradients of keys and values with 80 columns of factors
#: and a line, on 8.0: no tile was found that needs none
SPILLS_OF_KEYS = 26

FACTORS = ["a", "c", "grad_a", "grad_c"]


@dataclass(frozen=True)
class Call:
    """What a kernel is compiled for; the defaults need most registers."""

    arch: int = 90
    width: int = 64
    dropout: bool = False
    padded: bool = True
    causal: bool = True
    dtype: str = "bf16"
    has_window: bool = False
    score: str = "line"
    rank: int = 0

    def tiles(self, name: str) -> tuple[Tile, ...]:
        is_full = not (self.padded or self.causal or self.has_window)
        options = self.dropout, self.has_window, self.score, is_full
        return select_tiles(name, torch.bfloat16, self.width, self.arch // 10, *options)

    def constants(self, name: str, tile: Tile) -> dict[str, Any]:
        sizes = {"BM": tile.queries, "BN": tile.keys, "EVEN": not self.padded}
        columns = 1 << (self.width - 1).bit_length()
        sizes |= {"d": self.width, "W": columns, "CAUSAL": self.causal}
        sizes |= factor_sizes(self.rank) | {"ROWS": product_rows(self.arch // 10)}
        sizes |= {"PARTS": 26 if self.dropout else 0}
        is_present = {"pad": self.padded, "window": self.has_window}
        is_present |= dict.fromkeys(["seed", "bits"], self.dropout)
        has_table = self.score == "table"
        # 80 columns are those of tupe_r, which has a line, too
        has_line = self.score == "line" or self.rank == 80 or name.endswith("_line")
        is_present |= {"line": has_line} | dict.fromkeys(FACTORS, self.rank > 0)
        is_present |= dict.fromkeys(["table", "clipped", "grad_table"], has_table)
        absent: dict[str, Any] = {key: None for key, present in is_present.items() if not present}
        if name == "backward_queries":
            absent["grad_line"] = None
        return sizes | {"P": "ieee"} | absent


CALLS = [
    *(Call(padded=False, causal=False), Call(dtype="fp16"), Call(width=96)),
    *(Call(arch) for arch in (80, 90, 100)),
    *(Call(arch, has_window=True) for arch in (80, 90, 100)),
    *(Call(80, width=128), Call(90, width=128, dropout=True)),
    Call(dropout=True, has_window=True),
    *(Call(arch, dropout=True) for arch in (80, 90, 100)),
    *(Call(90, dropout=True, score="factors", rank=80), Call(90, dropout=True, score="table")),
    *(Call(arch, dropout=True, score="factors", rank=80) for arch in (80, 100)),
    *(Call(arch, dropout=True, score="table") for arch in (80, 100)),
    *(Call(arch, score="factors", rank=80) for arch in (80, 90, 100)),
    *(Call(arch, score="table") for arch in (80, 90, 100)),
    *(Call(padded=False, causal=False, score="factors", rank=rank) for rank in (64, 80)),
    *(Call(padded=False, causal=False, score="table"), Call(score="table", has_window=True)),
]


def check(
    code: Machine, arch: int, has_wgmma: bool = True, waits: int = WAITS, spills: int = 0
) -> None:
    assert code.instructions
    assert sum(x.startswith(("LDL", "STL")) for x in code.instructions) <= spills
    assert code.stack == 0 or spills
    assert not [x for x in code.instructions if re.match(ATOMIC, x)]
    assert code.shared + 1024 <= SHARED[arch]
    if arch == 90:  # ptxas makes every product wait if a path skips a loop (C7515)
        assert "HGMMA" in code.text or not has_wgmma
        assert "serialized" not in code.messages
        assert code.waits > 0 or not has_wgmma
        assert code.waits <= waits


@pytest.mark.parametrize("call", CALLS, ids=lambda call: "-".join(map(str, asdict(call).values())))
@pytest.mark.parametrize("name", TILES)
def test_a_kernel_s_code_spills_waits_and_adds_nothing(name, call, tmp_path):
    from diet_fairseq.attention.backends import offset_kernels

    if call.score == "table" and name.endswith("_line"):
        pytest.skip("a table has no line")
    kernel = getattr(offset_kernels, f"offset_{name.removesuffix('_and_line')}")
    programs = []
    for tile in call.tiles(name):
        constants = call.constants(name, tile)
        options = (tile.warps, tile.stages, tmp_path, call.dtype)
        code = compiled(kernel, call.arch, constants, *options)
        is_small = tile == SMALL  # for wgmma
        has_both = call.score == "factors" and name == "backward_queries_and_line"
        waits = WAITS_OF_FACTORS_AND_LINE if has_both else WAITS
        is_largest = (name, call.arch, call.rank) == ("backward_keys", 80, 80)
        spills = SPILLS_OF_KEYS if is_largest else 0
        check(code, call.arch, call.width <= 64 and not is_small, waits, spills)
        registers = -(-code.registers // 8) * 8 * 32 * tile.warps  # allocated in units of 8
        programs.append(min(REGISTERS // registers, SHARED[call.arch] // (code.shared + 1024)))
    # no tile of these gradients of keys was found with two programs and without spills
    is_alone = call.dropout and call.score == "factors" and name == "backward_keys"
    assert max(programs) >= 2 or call.width > 64 or is_alone


@pytest.mark.parametrize("name", TILES)
def test_dropout_needs_few_instructions(name, tmp_path):
    """A score of a call without dropout needs 11 to 14, and a random number alone 20."""
    from diet_fairseq.attention.backends import offset_kernels

    kernel = getattr(offset_kernels, f"offset_{name.removesuffix('_and_line')}")
    sizes = []
    for dropout in (False, True):
        call = Call(padded=False, causal=False, dropout=dropout)
        constants = call.constants(name, Tile(64, 64, 4, 2))
        code = compiled(kernel, 90, constants, 4, 2, tmp_path)
        sizes.append(max(len(loop) for loop in code.loops if "HGMMA" in " ".join(loop)))
    assert sizes[1] - sizes[0] <= 5 * 64 * 64 / 128  # threads


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_gradient_of_scores_spills_waits_and_adds_nothing(arch, width, tmp_path):
    from diet_fairseq.attention.backends import score_kernels

    constants = {"d": width, "W": width, "BM": TILE, "BN": TILE, "P": "ieee"}
    code = compiled(score_kernels.score_gradient, arch, constants, warps(width), 2, tmp_path)
    check(code, arch, has_wgmma=width <= 64)


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_sum_of_the_line_s_gradient_spills_and_adds_nothing_by_atomics(arch, window, tmp_path):
    from diet_fairseq.attention.backends import offset_kernels

    constants = {"BM": 64, "BN": 64, "CAUSAL": True, "window": window}
    code = compiled(offset_kernels.offset_line, arch, constants, 4, 2, tmp_path)
    assert code.stack == 0
    assert not [x for x in code.instructions if re.match(ATOMIC, x)]
