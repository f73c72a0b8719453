"""The backend that is quickest on the user's own device, by running each of them once.

``--attention-backend auto`` goes by this where docs/performance.md has no figures, which is
everywhere but on a CPU, and ``auto-measured`` there, too. A kind of call is measured when it first
occurs, on random inputs of its shape. What was chosen is kept in a file, for the next process on
the same device with the same versions.
"""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...atomic import written
from ...errors import UserError
from ...input_files import DESCRIPTION, read_bytes
from ...positions import PositionScheme
from ..context import Schemes, Term
from .call import AttentionCall, Backend, Request
from .choice import quickest

logger = logging.getLogger(__name__)

#: an environment variable: 0 measures nothing, so that committed rules hold everywhere
SWITCH = "DIET_FAIRSEQ_MEASURE"
#: after one run that counts for nothing, the best of so many
RUNS = 3
#: backends that few devices have run: taken only if their results match the reference on this one
DISTRUSTED = ("offsets",)
#: of results in half precision or TF32, relative to their norm; a fault's is larger
ROUNDING = 0.05


class Kind(NamedTuple):
    """What the time of a call depends on; `described` says it in words."""

    schemes: tuple[tuple[str, int, int | None], ...]
    layers: int
    heads_and_width: tuple[int, int]
    sizes: tuple[int, ...]
    dtype: torch.dtype
    training: bool
    dropout: bool
    masked: bool
    own_positions: bool
    device: torch.device
    deterministic: bool


def kind_of(request: Request) -> Kind:
    """Made at every call, so it is quick; sizes are the next powers of 2."""
    layout = request.inner_layout
    sizes = (request.shape[0], request.queries, request.keys)
    return Kind(
        tuple(map(_cost_of, request.schemes)),
        request.layers,
        request.shape[1:],
        tuple(1 << (size - 1).bit_length() for size in sizes),
        request.dtype,
        request.training,
        bool(request.dropout),
        layout.mask is not None,
        layout.key_positions.size(0) > 1,
        request.device,
        torch.are_deterministic_algorithms_enabled(),
    )


def _cost_of(scheme: PositionScheme) -> tuple[str, int, int | None]:
    return type(scheme).__name__, scheme.shape.heads, getattr(scheme, "rank", None)


def _in_words(cost: tuple[str, int, int | None]) -> str:
    name, heads, rank = cost
    return f"{name} with {heads} score{'s' * (heads > 1)}" + (f" of rank {rank}" if rank else "")


def described(kind: Kind) -> str:
    """The kind in words, with the names of the device and of PyTorch's version."""
    threads = f", {torch.get_num_threads()} threads" if kind.device.type == "cpu" else ""
    words = [
        "+".join(map(_in_words, kind.schemes)) or "no scheme",
        f"shared by {kind.layers} layers" if kind.layers > 1 else "",
        "{} heads of {}".format(*kind.heads_and_width),
        "{} x {} queries x {} keys".format(*kind.sizes),
        str(kind.dtype).removeprefix("torch."),
        "training" if kind.training else "inference",
        "dropout" if kind.dropout else "",
        "masked" if kind.masked else "",
        "positions of each sentence" if kind.own_positions else "",
        "deterministic" if kind.deterministic else "",
        f"{name_of(kind.device)}{threads}",
        f"PyTorch {torch.__version__}",
    ]
    return ", ".join(filter(None, words))


def name_of(device: torch.device) -> str:
    """Which one it is, as far as PyTorch says."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"cpu {torch.backends.cpu.get_cpu_capability()}"
    return device.type


class Choices:
    """What was chosen in this process, and in earlier ones."""

    def __init__(self) -> None:
        self.chosen: dict[Kind, str] = {}

    def __call__(self, request: Request, backends: Mapping[str, Backend]) -> str:
        """The name of the quickest, or where nothing can be measured, that of `quickest`."""
        if len(request.candidates) == 1:
            return request.candidates[0]
        if os.environ.get(SWITCH) == "0" or not measurable(request):
            return quickest(request)
        kind = kind_of(request)
        if kind not in self.chosen:
            name = described(kind)
            kept = remembered().get(name)
            if kept not in request.candidates:
                kept = measured(name, request, backends)
            self.chosen[kind] = chosen_first(name, kept)
        return self.chosen[kind]


def measured(name: str, request: Request, backends: Mapping[str, Backend]) -> str:
    """The quickest backend, which is remembered; the log has one line with all times."""
    times = {one: seconds(one, backends[one], request) for one in request.candidates}
    best = min(times, key=lambda one: times[one])
    if best in DISTRUSTED and not matches_reference(best, request, backends):
        logger.warning(f"attention by {best} is quickest, but wrong here: please report ({name})")
        del times[best]
        best = min(times, key=lambda one: times[one])
    said = ", ".join(f"{one} {1000 * time:.3g} ms" for one, time in times.items())
    logger.info(f"attention ({name}): {best} is quickest ({said})")
    remember(name, best)
    return best


def measurable(request: Request) -> bool:
    """Not while a graph is recorded, by torch.compile or CUDA, or tensors are fake."""
    if torch.compiler.is_compiling() or type(request.layout.key_positions) is not Tensor:
        return False
    return not (request.device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def chosen_first(name: str, found: str) -> str:
    """The choice of the first process that has made one, where several train together.

    They meet different kinds of calls at different times, so that none can wait for another.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return found
    store = torch.distributed.distributed_c10d._get_default_store()
    return store.compare_set(f"diet_fairseq attention: {name}", "", found).decode()


def seconds(name: str, backend: Backend, request: Request) -> float:
    """What a layer's attention takes with its share of the term; infinite if it can't be run."""
    devices = [request.device] if request.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        try:
            runs = (sum(timed(name, backend, request)) for _ in range(1 + RUNS))
            next(runs)
            return min(runs)
        except Exception as error:  # too little memory, no such kernel, one that doesn't compile
            logger.debug(f"attention by {name} can't be measured: {error}")
            return float("inf")


def matches_reference(name: str, request: Request, backends: Mapping[str, Backend]) -> bool:
    """Whether it gives what the reference does, with gradients, for the same random inputs."""
    found: list[list[Tensor]] = []
    for one in (name, "reference"):
        with torch.random.fork_rng([request.device] if request.device.type == "cuda" else []):
            found.append(run(one, backends[one], request)[2])
    norms = [other.float().norm() for other in found[1]]
    return all(
        # entries of the smallest gradients may cancel
        (a.float() - b.float()).norm() <= ROUNDING * torch.maximum(norm, max(norms) / 10)
        for a, b, norm in zip(*found, norms, strict=True)
    )


def timed(name: str, backend: Backend, request: Request) -> tuple[float, float]:
    """Of the term, divided by the layers that share it, and of attention."""
    of_term, of_attention, _ = run(name, backend, request)
    return of_term, of_attention


def run(name: str, backend: Backend, request: Request) -> tuple[float, float, list[Tensor]]:
    """The two times, and what came out, with the gradients that are wanted."""
    batch, heads, width = request.shape
    layout = request.inner_layout
    q, k, v = (
        torch.randn(batch, tokens, heads, width, dtype=request.dtype, device=request.device)
        .transpose(1, 2)
        .mul_(width**-0.5)
        .requires_grad_(request.training)
        for tokens in (request.queries, request.keys, request.keys)
    )  # (B, H, T, d_h) each, as attention has them
    clock = Clock(request.device)
    term = Term.of(request.schemes, layout, name)
    of_term = clock.lap()
    given, leaves = _leaves(term)
    shifted = given.shifted(q, k)
    out, _ = backend(AttentionCall(*shifted, v, given, request.schemes, layout, request.dropout))
    results = [out.detach()]
    if request.training:
        grads = torch.autograd.grad(out.sum(), [q, k, v, *leaves.values()], allow_unused=True)
        of_attention = clock.lap()
        results += [*grads[:3], *_back_to_parameters(leaves, grads[3:], request.schemes)]
        of_term += clock.lap()
    else:
        of_attention = clock.lap()
    return of_term / request.layers, of_attention, results


def _leaves(term: Term) -> tuple[Term, dict[Tensor, Tensor]]:
    """The term on its own, and by its tensors with a gradient those that stand for them."""
    leaves: dict[Tensor, Tensor] = {}

    def cut(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        leaves[tensor] = tensor.detach().requires_grad_()
        return leaves[tensor]

    def pairs(some: Any) -> Any:
        return tuple((cut(one), cut(other)) for one, other in some)

    score = None if term.score is None else cut(term.score)
    line = None if term.line is None else (cut(term.line[0]), term.line[1])
    return Term(score, pairs(term.factors), pairs(term.shifts), line), leaves


def _back_to_parameters(
    leaves: dict[Tensor, Tensor], grads: Sequence[Tensor | None], schemes: Schemes
) -> list[Tensor]:
    """The parameters' gradients, by going backward through the term without a trace in them."""
    parameters = [p for scheme in schemes for p in scheme.parameters() if p.requires_grad]
    wanted = [(term, grad) for term, grad in zip(leaves, grads, strict=True) if grad is not None]
    if not parameters or not wanted:
        return []
    terms, given = zip(*wanted, strict=True)
    found = torch.autograd.grad(terms, parameters, given, allow_unused=True)
    return [grad for grad in found if grad is not None]


class Clock:
    """Seconds since the last lap, when the device has done what it was told."""

    def __init__(self, device: torch.device) -> None:
        self.waits = device.type != "cpu"
        self.lap()

    def lap(self) -> float:
        if self.waits:
            torch.accelerator.synchronize()
        before, self.last = getattr(self, "last", 0.0), time.perf_counter()
        return self.last - before


def cache() -> Path:
    """The file of what was chosen.

    Raises:
        RuntimeError: the user has no home, as in some containers
    """
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "diet_fairseq" / "attention.json"


def remembered() -> dict[str, str]:
    """What earlier processes chose; nothing where the file can't be read."""
    try:
        if not os.path.lexists(cache()):
            return {}
        found = json.loads(read_bytes(cache(), DESCRIPTION))
        return {str(name): str(backend) for name, backend in found.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        logger.warning(f"{cache()} can't be read ({error}): what it had is measured again")
        return {}
    except RuntimeError:
        return {}


def remember(name: str, backend: str) -> None:
    """Add a choice to the file; it is no loss where that can't be."""
    try:
        path = cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        found = remembered() | {name: backend}
        with written(path) as file:
            json.dump(found, file, indent=1, sort_keys=True)
    except (OSError, UserError, RuntimeError) as error:
        logger.debug(f"the choice of {name} can't be written: {error}")


choose = Choices()
