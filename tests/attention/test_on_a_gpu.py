"""A model computes on a GPU what it does on a CPU, every backend there what the reference does.

`DEVICE=cpu tools/gpu.sh tests` rehearses these tests in Triton's interpreter.
"""

from dataclasses import replace

import pytest
import torch

from diet_fairseq.attention.backends import BACKENDS, CallShape, comparison, list_candidates
from diet_fairseq.attention.backends.offsets import TILES, Launch, Tile, select_tiles
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from tests.attention.test_fast_paths import PATHS as CPU_PATHS
from tests.attention.test_fast_paths import check_fast_path, once_by_the_reference
from tests.support import tiny

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Triton's interpreter is slow, and misreads bfloat16
SHORTER = 1 if DEVICE == "cuda" else 4
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16
#: relative to a result's norm; half precision is rounded at other places
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.005}
#: queries, keys, width and whether the future is masked; the third call is a step of decoding
CALLS = [
    *((100, 100, 64, False), (128, 128, 24, True), (1, 77, 64, True)),
    *((512, 512, 64, False), (300, 520, 128, True)),
]
PATHS = [
    (case, backend)
    for case in dict.fromkeys(case for case, _ in CPU_PATHS)
    for backend in ("sdpa", "factors", "offsets", "cudnn")
    if backend in ("sdpa", "cudnn") or case.kind.kinds == {backend.removesuffix("_v2")}
]


@pytest.mark.parametrize(
    ("case", "backend"), [pytest.param(*path, id="-".join(map(str, path))) for path in PATHS]
)
def test_a_model_computes_on_a_gpu_what_it_does_on_a_cpu(case, backend):
    check_fast_path(case, backend, once_by_the_reference, DEVICE)


def request_of(
    name: str,
    queries: int,
    keys: int,
    width: int,
    dtype: torch.dtype,
    causal: bool,
    padding: int = 7,
) -> CallShape:
    """A call with random position parameters; the second sentence is padded on the left."""
    queries, keys = -(-queries // SHORTER), -(-keys // SHORTER)
    limit = Limit(keys, "--max-positions")
    kind = SCHEMES[name]
    shape = AttentionShape(4, width, 4 * width, limit, limit, causal=causal)
    schemes = (kind.create(shape).to(DEVICE),) if kind.in_attention else ()
    for scheme in schemes:
        for parameter in scheme.parameters():
            torch.nn.init.normal_(parameter, std=0.05)
    is_padding = torch.arange(keys, device=DEVICE) < torch.tensor([[0], [padding]], device=DEVICE)
    layout = Layout.of_self_attention(is_padding, causal, queries)
    return CallShape(schemes, layout, (2, 4, width), dtype, 0.0)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    "scheme", ["none", "t5", "diet_rel", "diet_abs", "tupe_a", "tupe_r", "shaw"]
)
def test_every_candidate_equals_the_reference_forward_and_backward(scheme, dtype, monkeypatch):
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[dtype])
    for queries, keys, width, causal in CALLS:
        request = request_of(scheme, queries, keys, width, dtype, causal)
        for backend in list_candidates(request):
            equal = comparison.matches_reference(BACKENDS[backend], request)
            assert equal, f"{backend}: {queries} x {keys}, {width} wide, causal: {causal}"


@pytest.mark.parametrize("scheme", ["t5", "diet_abs", "tupe_r", "shaw"])
def test_the_kernels_with_dropout_equal_the_reference_without_the_same_weights(scheme, monkeypatch):
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[HALF])
    for queries, keys, width, causal in CALLS if DEVICE == "cuda" else CALLS[1:2]:
        request = request_of(scheme, queries, keys, width, HALF, causal)
        if "offsets" in list_candidates(request):
            request = replace(request, dropout=0.1)
            equal = comparison.matches_reference(BACKENDS["offsets"], request)
            assert equal, f"{queries} x {keys}, {width} wide, causal: {causal}"


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", TILES)
def test_every_tile_of_a_kernel_computes_what_the_reference_does(
    kernel, causal, dropout, monkeypatch
):
    options = dropout > 0, False
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[HALF])
    major = torch.cuda.get_device_capability()[0] if DEVICE == "cuda" else 9
    for width in (64, 128):
        request = replace(request_of("t5", 300, 520, width, HALF, causal), dropout=dropout)
        for tile in select_tiles(kernel, HALF, width, major, *options):

            def tiles(
                launch: Launch, name: str, tile: Tile = tile, width: int = width
            ) -> tuple[Tile, ...]:
                others = select_tiles(name, HALF, width, major, *options)
                return (tile,) if name == kernel else others[:1]

            monkeypatch.setattr(Launch, "tiles", tiles)
            assert comparison.matches_reference(BACKENDS["offsets"], request), (width, tile)


@pytest.mark.skipif(DEVICE == "cpu", reason="cuDNN needs a GPU")
@pytest.mark.parametrize("scheme", ["t5", "tupe_a", "tupe_r", "fire", "diet_abs"])
@pytest.mark.parametrize("tokens", [128, 512])
def test_cudnn_with_a_score_equals_the_reference(tokens, scheme, monkeypatch):
    monkeypatch.setattr(comparison, "ROUNDING", ROUNDING[HALF])
    request = request_of(scheme, tokens, tokens, 64, HALF, causal=False, padding=0)
    assert "cudnn" in list_candidates(request)
    assert comparison.matches_reference(BACKENDS["cudnn"], request)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_two_runs_of_the_kernels_for_offsets_give_the_same_bits(dropout, causal):
    request = replace(request_of("t5", 512, 512, 64, HALF, causal), dropout=dropout)
    runs = []
    for _ in range(2):
        torch.manual_seed(1)  # of dropout
        runs.append(comparison.compute_results(BACKENDS["offsets"], request))
    first, second = runs
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_compiled_model_and_its_cuda_graph_compute_the_same(scheme):
    """In the mode that records CUDA graphs; they are replayed from the third call on."""
    model = tiny.fresh(tiny.Case(scheme, family="roberta")).to(DEVICE)
    sources = tiny.sentences(9, 9)
    with torch.no_grad():
        expected = tiny.logits(model, sources)
        model.forward = torch.compile(model.forward, mode="reduce-overhead")
        for _ in range(4):
            torch.testing.assert_close(tiny.logits(model, sources), expected, rtol=1e-4, atol=1e-4)
