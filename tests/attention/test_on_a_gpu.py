"""A model computes on a GPU what it does on a CPU, every backend there what the reference does."""

from dataclasses import replace

import pytest
import torch

from diet_fairseq.attention.backends import BACKENDS, Request, candidates, comparison
from diet_fairseq.attention.backends.offsets import TILES, Launch, Tile, tiles_of
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from tests.attention.test_fast_paths import PATHS, check_fast_path, once_by_the_reference
from tests.support import tiny

pytestmark = pytest.mark.gpu
#: relative to a result's norm; half precision is rounded at other places
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.005}
#: queries, keys, width and whether the future is masked; the third one is a step of decoding
CALLS = [
    *((100, 100, 64, False), (128, 128, 24, True), (1, 77, 64, True)),
    *((512, 512, 64, False), (300, 520, 128, True)),
]


@pytest.mark.parametrize(
    ("case", "backend"), [pytest.param(*path, id="-".join(map(str, path))) for path in PATHS]
)
def test_a_model_computes_what_it_does_on_a_cpu(case, backend):
    check_fast_path(case, backend, once_by_the_reference, "cuda")


def request(scheme: str, queries: int, keys: int, width: int, dtype: torch.dtype, causal: bool):
    """With parameters that make a difference, and sentences padded on the left."""
    limit = Limit(keys, "--max-positions")
    kind = SCHEMES[scheme]
    shape = AttentionShape(4, width, 4 * width, limit, limit, causal=causal)
    some = (kind.create(shape),) if kind.in_attention else ()
    for parameter in (parameter for one in some for parameter in one.parameters()):
        torch.nn.init.normal_(parameter, std=0.05)
    padding = torch.arange(keys, device="cuda") < torch.tensor([[0], [7]], device="cuda")
    layout = Layout.of_self_attention(padding, causal, queries)
    return Request(tuple(one.cuda() for one in some), layout, (2, 4, width), dtype, 0.0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("scheme", ["none", "t5", "diet_rel", "diet_abs", "tupe_a", "tupe_r"])
def test_every_candidate_computes_what_the_reference_does_forward_and_backward(
    scheme, dtype, monkeypatch
):
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[dtype])
    for queries, keys, width, causal in CALLS:
        asked = request(scheme, queries, keys, width, dtype, causal)
        for backend in candidates(asked):
            found = comparison.matches_reference(BACKENDS[backend], asked)
            assert found, f"{backend}: {queries} x {keys}, {width} wide, causal: {causal}"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", TILES)
def test_every_tile_of_a_kernel_computes_what_the_reference_does(kernel, causal, monkeypatch):
    asked = request("t5", 300, 520, 64, torch.bfloat16, causal)
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[torch.bfloat16])
    major, _ = torch.cuda.get_device_capability()
    for tile in tiles_of(kernel, torch.bfloat16, 64, major):

        def tiles(launch: Launch, name: str, tile: Tile = tile) -> tuple[Tile, ...]:
            return (tile,) if name == kernel else tiles_of(name, torch.bfloat16, 64, major)[:1]

        monkeypatch.setattr(Launch, "tiles", tiles)
        assert comparison.matches_reference("offsets", BACKENDS["offsets"], asked), tile


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_two_runs_of_the_kernels_for_offsets_give_the_same_bits(causal, dropout):
    asked = replace(request("t5", 512, 512, 64, torch.bfloat16, causal), dropout=dropout)
    first, second = (comparison.run("offsets", BACKENDS["offsets"], asked) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_compiled_model_and_its_cuda_graph_compute_what_it_does(scheme):
    """In the mode that records CUDA graphs; they are replayed from the third call on."""
    model = tiny.fresh(tiny.Case(scheme, family="roberta")).cuda()
    sources = tiny.sentences(9, 9)
    with torch.no_grad():
        expected = tiny.logits(model, sources)
        model.forward = torch.compile(model.forward, mode="reduce-overhead")
        for _ in range(4):
            torch.testing.assert_close(tiny.logits(model, sources), expected, rtol=1e-4, atol=1e-4)
