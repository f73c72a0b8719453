"""The machine code of the kernels for offsets, compiled for three GPUs that need not be there."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from diet_fairseq.attention.backends.cudnn import TILE, warps
from diet_fairseq.attention.backends.offsets import TILES, Tile, tiles_of
from tests.attention.test_offsets import needs_triton
from tests.support.sass import Machine, compiled

pytestmark = [pytest.mark.slow, needs_triton]
BACKWARD = [name for name in TILES if name != "forward"]
#: registers and bytes of shared memory of a multiprocessor (8.0, 9.0, 10.0; programming guide)
REGISTERS, SHARED = 65536, {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
#: 10.0 allocates its tensor memory by ATOMS.AND and ATOMS.OR, which add nothing
ATOMIC = r"(RED|REDG|ATOM|ATOMG)\b|ATOMS\.ADD"
#: a call of an encoder with full tiles, and padded calls with far tiles and tiles that need checks
CALLS = {
    "encoder": {},
    "padded encoder": {"far": True, "padded": True},
    "padded decoder": {"far": True, "padded": True, "causal": True},
}
MOST = CALLS["padded decoder"]


def tiles(name: str, arch: int, width: int = 64, dropout: bool = False) -> tuple[Tile, ...]:
    return tiles_of(name, torch.bfloat16, width, arch // 10, dropout)


@cache
def machine(
    name: str,
    arch: int,
    tile: Tile,
    width: int = 64,
    far: bool = False,
    causal: bool = False,
    padded: bool = False,
    dropout: bool = False,
    dtype: str = "bf16",
) -> Machine:
    """A kernel for vectors of this type and width."""
    import tempfile

    from diet_fairseq.attention.backends import offset_kernels

    sizes = {"BM": tile.queries, "BN": tile.keys, "EDGE": padded, "EVEN": not padded}
    if name == "backward_line":
        queries = tiles("backward_queries", arch, width, dropout)[0]
        sizes |= {"S": tile.queries, "BM": queries.queries, "BN": queries.keys}
    columns = 1 << (width - 1).bit_length()
    constants = {"d": width, "W": columns, "HAS_FAR": far, "CAUSAL": causal, "P": "ieee", **sizes}
    kernel = getattr(offset_kernels, f"offset_{name}")
    constants |= ({} if padded else {"pad": None}) | ({} if dropout else {"seed": None})
    with tempfile.TemporaryDirectory() as folder:
        return compiled(kernel, arch, constants, tile.warps, tile.stages, Path(folder), dtype)


#: on 8.0 and 10.0 only the call that needs most registers, as compiling takes seconds
COMPILED = [(call, 90) for call in CALLS] + [("padded decoder", arch) for arch in (80, 100)]


@pytest.mark.parametrize(("call", "arch"), COMPILED)
@pytest.mark.parametrize("name", TILES)
def test_no_tile_spills_registers(name, call, arch):
    """No instruction outside the loops spills, either."""
    for tile in tiles(name, arch):
        assert_no_spills(machine(name, arch, tile, **CALLS[call]))


def assert_no_spills(code: Machine) -> None:
    assert code.instructions
    assert not [x for x in code.instructions if x.startswith(("LDL", "STL"))]
    assert code.stack == 0


@pytest.mark.parametrize(("width", "arch"), [(64, 80), (64, 90), (64, 100), (128, 90)])
@pytest.mark.parametrize("name", TILES)
def test_no_tile_spills_registers_with_dropout(name, width, arch):
    for tile in tiles(name, arch, width, dropout=True):
        assert_no_spills(machine(name, arch, tile, width, dropout=True, **MOST))


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("name", TILES)
def test_two_programs_of_a_tile_fit_into_a_multiprocessor(name, arch):
    """One computes exponentials while the other multiplies; the fastest tile is timed."""
    assert max(programs(machine(name, arch, tile), arch, tile) for tile in tiles(name, arch)) >= 2


def programs(code: Machine, arch: int, tile: Tile) -> int:
    """The number of programs that fit into a multiprocessor."""
    registers = -(-code.registers // 8) * 8 * 32 * tile.warps  # allocated in units of 8
    return min(REGISTERS // registers, SHARED[arch] // (code.shared + 1024))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", TILES)
def test_products_on_a_hopper_gpu_run_while_others_do(name, call):
    """ptxas makes every product wait for the one before if a path skips a loop (C7515)."""
    for tile in tiles(name, 90):
        code = machine(name, 90, tile, **CALLS[call])
        assert "HGMMA" in code.text
        assert code.waits <= 4
        assert "serialized" not in code.messages


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("name", BACKWARD)
def test_no_gradient_is_added_by_an_atomic_instruction(name, arch):
    code = machine(name, arch, tiles(name, arch)[0])
    assert code.instructions
    assert not [x for x in code.instructions if re.match(ATOMIC, x)]


@pytest.mark.parametrize("call", ["padded encoder", "padded decoder"])
@pytest.mark.parametrize("name", ["forward", "backward_keys", "backward_queries"])
def test_far_tiles_read_no_line(name, call):
    """With a reach there is a loop over tiles that reads less from shared memory."""
    tile = tiles(name, 90)[0]
    far, near = (
        min(
            sum(instruction.startswith("LDS") for instruction in loop)
            for loop in machine(name, 90, tile, **CALLS[call] | {"far": is_far}).loops
        )
        for is_far in (True, False)
    )
    assert far < near


@pytest.mark.parametrize("name", TILES)
def test_kernels_in_float16_compile(name):
    assert_no_spills(machine(name, 90, tiles(name, 90)[0], dtype="fp16", **MOST))


@pytest.mark.parametrize(("width", "arch"), [(96, 90), (128, 80), (128, 90), (128, 100)])
@pytest.mark.parametrize("name", TILES)
def test_wide_heads_fit_into_registers_and_shared_memory(name, width, arch):
    for tile in tiles(name, arch, width):
        code = machine(name, arch, tile, width, **MOST)
        assert_no_spills(code)
        assert code.shared + 1024 <= SHARED[arch]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("arch", [80, 90, 100])
def test_the_gradient_of_scores_neither_spills_nor_waits_nor_adds_by_atomics(arch, width, tmp_path):
    from diet_fairseq.attention.backends import score_kernels

    constants = {"d": width, "W": width, "BM": TILE, "BN": TILE, "P": "ieee"}
    code = compiled(score_kernels.score_gradient, arch, constants, warps(width), 2, tmp_path)
    assert_no_spills(code)
    assert code.waits <= 4
    assert "serialized" not in code.messages
    assert not [x for x in code.instructions if re.match(ATOMIC, x)]
    assert code.shared + 1024 <= SHARED[arch]


def test_an_atomic_addition_is_recognized(tmp_path):
    """The kernel of a file of its own, which Triton must read."""
    (tmp_path / "adding.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef adding(grad_q, n):\n"
        "    tl.atomic_add(grad_q + tl.arange(0, 32), tl.arange(0, 32).to(tl.bfloat16))\n"
    )
    code = (
        "import adding; from pathlib import Path; from tests.support.sass import compiled; "
        f"print(compiled(adding.adding, 90, {{}}, 1, 1, Path({str(tmp_path)!r})).instructions)"
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert any(name in done.stdout for name in ("'ATOM", "'RED")), done.stdout + done.stderr
