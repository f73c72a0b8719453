"""The kernels for offsets compiled for GPUs that are not there: what their machine code has."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from diet_fairseq.attention.backends.offsets import TILES, tile_of
from tests.attention.test_offsets import needs_triton
from tests.support.sass import Machine, compiled

pytestmark = [pytest.mark.slow, needs_triton]
BACKWARD = [name for name in TILES if name != "forward"]
#: registers and bytes of shared memory of a multiprocessor (8.0, 9.0, 10.0; programming guide)
REGISTERS, SHARED = 65536, {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
#: kernels of which two programs fit into a multiprocessor
TWO = ["backward_line"]


@cache
def machine(
    name: str,
    arch: int,
    width: int = 64,
    near: bool = False,
    causal: bool = False,
    masked: bool = False,
    dtype: str = "bf16",
) -> Machine:
    """A kernel for vectors of this type and width; masked: with padding and dropout."""
    import tempfile

    from diet_fairseq.attention.backends import offset_kernels

    tile, far = (tile_of(one, torch.bfloat16, width) for one in (name, "backward_queries"))
    sizes = {"BM": tile.queries, "BN": tile.keys, "EDGE": masked}
    if name == "backward_line":
        sizes |= {"S": tile.queries, "BM": far.queries, "BN": far.keys}
    constants = {"d": width, "W": width, "NEAR": near, "CAUSAL": causal, "P": "ieee", **sizes}
    kernel = getattr(offset_kernels, f"offset_{name}")
    constants |= {} if masked else {"pad": None, "seed": None}
    with tempfile.TemporaryDirectory() as folder:
        return compiled(kernel, arch, constants, tile.warps, tile.stages, Path(folder), dtype)


def a_score(name: str, arch: int) -> float:
    """Instructions of a thread in the loop over whole near tiles, for each of its scores."""
    tile = tile_of(name, torch.bfloat16, 64)
    scores = tile.queries * tile.keys / (32 * tile.warps)
    return len(machine(name, arch).loop) / scores


@pytest.mark.parametrize("arch", [80, 90])
def test_a_score_takes_15_instructions_forward_and_42_backward(arch):
    assert a_score("forward", arch) <= 15
    assert sum(a_score(name, arch) for name in BACKWARD) <= 42


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("name", TILES)
def test_no_loop_spills_and_programs_fit_into_a_multiprocessor(name, arch):
    code, tile = machine(name, arch), tile_of(name, torch.bfloat16, 64)
    assert not [one for one in code.loop if one.startswith(("LDL", "STL"))]
    assert code.stack <= 16  # four registers, which are saved outside the loops
    programs = 2 if name in TWO else 1
    assert programs * code.registers * 32 * tile.warps <= REGISTERS
    assert programs * (code.shared + 1024) <= SHARED[arch]


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("name", BACKWARD)
def test_no_gradient_is_added_by_an_atomic_instruction(name, arch):
    code = machine(name, arch)
    assert code.instructions
    # 10.0 allocates its tensor memory by ATOMS.AND and ATOMS.OR, which add nothing
    atomic = r"(RED|REDG|ATOM|ATOMG)\b|ATOMS\.ADD"
    assert not [one for one in code.instructions if re.match(atomic, one)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["forward", "backward_keys", "backward_queries"])
def test_far_tiles_read_no_line(name, causal):
    """With a reach the shortest loop is a far one."""
    far, near = machine(name, 90, near=True, causal=causal).loop, machine(name, 90).loop
    assert sum(one.startswith("LDS") for one in far) < sum(one.startswith("LDS") for one in near)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", TILES)
def test_kernels_with_every_option_compile(name, dtype, masked):
    """Causal, padded, with far tiles and dropout, at the edges."""
    options = {"near": True, "causal": True, "masked": masked, "dtype": dtype}
    assert machine(name, 90, **options).stack <= 64


@pytest.mark.parametrize("name", TILES)
def test_wide_heads_fit_into_the_shared_memory_of_a_program(name):
    assert machine(name, 90, width=128).shared <= 227 * 1024


def test_an_atomic_addition_would_be_found(tmp_path):
    """The kernel of a file of its own, which Triton must read."""
    (tmp_path / "adding.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef adding(of_q, n):\n"
        "    tl.atomic_add(of_q + tl.arange(0, 32), tl.arange(0, 32).to(tl.bfloat16))\n"
    )
    code = (
        "import adding; from pathlib import Path; from tests.support.sass import compiled; "
        f"print(compiled(adding.adding, 90, {{}}, 1, 1, Path({str(tmp_path)!r})).instructions)"
    )
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert any(one in done.stdout for one in ("'ATOM", "'RED")), done.stdout + done.stderr
