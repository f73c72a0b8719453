"""Triton kernels compiled for a GPU that need not be there, and what their machine code has."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POINTERS = {
    **dict.fromkeys(["q", "k", "v", "g", "o", "grad_q", "grad_k", "grad_v", "score"], "*bf16"),
    **dict.fromkeys(["table", "a", "c", "grad_a", "grad_c", "grad_table"], "*bf16"),
    **dict.fromkeys(
        ["line", "norm", "delta", "pad", "sums", "grad_line", "grad_score", "clipped"], "*fp32"
    ),
    **{"seed": "*i64", "bits": "*i32"},
}


@dataclass(frozen=True)
class Machine:
    """A kernel's machine code.

    Attributes:
        text: the disassembly
        messages: the messages of ptxas for compute capability 9.0; empty for others
        registers, stack, shared: registers a thread, bytes of stack a thread, of shared memory
    """

    text: str
    messages: str
    registers: int
    stack: int
    shared: int

    @property
    def instructions(self) -> list[str]:
        pattern = r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)[^;]*;"
        return re.findall(pattern, self.text)

    @property
    def loops(self) -> list[list[str]]:
        """The instructions of each loop, from the target of a branch backward to the branch."""
        lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);", self.text)
        code = [(int(place, 16), instruction) for place, instruction in lines]
        loops = []
        for end, instruction in code:
            start = re.search(r"\bBRA\b.*0x([0-9a-f]+)", instruction)
            if start:  # backward, if anything lies between the two
                loop = [x for place, x in code if int(start.group(1), 16) <= place <= end]
                loops += [loop] if loop else []
        return loops

    @property
    def waits(self) -> int:
        """The largest number of waits for products in a loop; 0 if no product is a wgmma."""
        return max([0, *(sum("WARPGROUP.DEPBAR" in x for x in loop) for loop in self.loops)])


def compiled(
    kernel: Any,
    arch: int,
    constants: dict[str, Any],
    warps: int,
    stages: int,
    folder: Path,
    dtype: str = "bf16",
) -> Machine:
    """Compile a kernel with tensors and strides that are multiples of 16.

    Args:
        constants: the constexpr arguments and, as None, tensors that are not given; names that the
            kernel lacks are left out
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import get_ptxas
    from triton.compiler import ASTSource

    names = kernel.arg_names
    known = {(names.index(n),): value for n, value in constants.items() if n in names}
    types = {name: of.replace("bf16", dtype) for name, of in POINTERS.items()}
    types |= {"dropout": "fp32"} | dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in names}
    even = [n for n, t in signature.items() if t[0] == "*" or re.fullmatch("[a-z]_[bht]", n)]
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in even}
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": True}
    source = ASTSource(kernel, signature, known, attributes)
    code = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    cubin = folder / f"{kernel.__name__}-{arch}.cubin"
    cubin.write_bytes(code.asm["cubin"])
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"  # come with Triton
    text, usage = (run([tools / "cuobjdump", option, cubin]) for option in ("-sass", "-res-usage"))
    messages = ""
    if arch == 90:  # Triton drops the messages
        ptx = cubin.with_suffix(".ptx")
        ptx.write_text(code.asm["ptx"])
        messages = run([get_ptxas(arch).path, "-v", "--gpu-name=sm_90a", ptx, "-o", cubin])
    [(registers, stack)] = re.findall(r"REG:(\d+) STACK:(\d+)", usage)
    return Machine(text, messages, int(registers), int(stack), code.metadata.shared)


def run(command: list[str | Path]) -> str:
    """The output of a command, errors included."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    return done.stdout.decode()
