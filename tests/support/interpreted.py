"""The kernels of the backends for offsets in Triton's interpreter, against the reference.

`main` runs in a process of its own, as Triton is imported for its interpreter or for a device, and
prints how each check ended.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from diet_fairseq.attention.backends import BACKENDS, AttentionCall, CallShape, comparison
from diet_fairseq.attention.rows import row_scores
from diet_fairseq.attention.terms import compute_scores
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout, toeplitz

# the package has the function under this name
offsets: Any = import_module("diet_fairseq.attention.backends.offsets")
ATEN = torch.ops.aten
BATCH, HEADS = 2, 2


@dataclass(frozen=True)
class Call:
    """An attention call of sentences with so many tokens, of which the last are queries."""

    scheme: str
    lengths: tuple[int, int]
    causal: bool = False
    left_pad: bool = False
    queries: int | None = None
    width: int = 12
    dtype: torch.dtype = torch.float32
    heads_share: bool = False
    tile: int = 16
    window: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    std: float = 1.0

    def results(self, backend: str, dropout: float = 0.0, **options: Any) -> tuple[Tensor, ...]:
        """The output, and the gradients of queries, keys, values and the scheme.

        Args:
            options: changes of the backend
        """
        call, leaves, gradient = self.create(backend, dropout)
        out, _ = replace(BACKENDS[backend], **options)(call)
        return out, *torch.autograd.grad(out, leaves, gradient)

    def create(self, backend: str, dropout: float) -> tuple[AttentionCall, list[Tensor], Tensor]:
        """The call, the tensors that need gradients, and the output's gradient."""
        keys = max(self.lengths)
        limit = Limit(keys, "--max-positions")
        heads = 1 if self.heads_share else HEADS
        shape = AttentionShape(
            heads, self.width, HEADS * self.width, queries=limit, keys=limit, causal=self.causal
        )
        torch.manual_seed(1)
        has_gain = self.scheme not in ("alibi", "rope", "tupe_a")
        options = {"gain": 1.0, **self.options} if has_gain else self.options
        scheme = SCHEMES[self.scheme].create(shape, **options)
        for parameter in scheme.parameters():
            torch.nn.init.normal_(parameter, std=self.std)
        place, lengths = torch.arange(keys), torch.tensor(self.lengths).unsqueeze(1)
        padding = place < keys - lengths if self.left_pad else place >= lengths  # (B, Tk)
        layout = Layout.of_self_attention(padding, self.causal, self.queries)
        layout = layout.with_window(self.window)
        q, k, v, gradient = (
            torch.randn(tokens, BATCH, HEADS, self.width, dtype=self.dtype).permute(1, 2, 0, 3)
            for tokens in (self.queries or keys, keys, keys, self.queries or keys)
        )
        leaves = [*(x.requires_grad_() for x in (q, k, v)), *scheme.parameters()]
        native = BACKENDS[backend].native_score
        scores = compute_scores((scheme,), layout, native)
        scaled, none = q * self.width**-0.5, cast(Any, None)
        scores += row_scores((scheme,), scaled, k, layout, none, 1.0, native)
        call = AttentionCall(scaled, k, v, scores, (scheme,), layout, dropout)
        return call, leaves, gradient


def kernels_with(tile: int, faulty: Callable[..., Any] | None = None) -> Any:
    """Tiles small enough for the interpreter: queries are met two tiles at a time."""

    def select_tiles(kernel: str, *_: Any) -> Any:
        return (offsets.Tile(2 * tile, tile, 4, 2),)

    replaced: dict[str, Any] = {"select_tiles": select_tiles} | (
        {"Launch": faulty} if faulty else {}
    )
    return patch.multiple(offsets, **replaced)


close: Any = partial(torch.testing.assert_close, rtol=2e-5, atol=2e-5)


def check(call: Call) -> None:
    with kernels_with(call.tile), patch.object(offsets, "reference", None):
        results = call.results("offsets")
    # half precision is rounded at other places, float32 only summed in another order
    error = 2e-5 if call.dtype == torch.float32 else 1e-2
    for result, expected in zip(results, call.results("reference"), strict=True):
        assert result.dtype == expected.dtype
        torch.testing.assert_close(result, expected, rtol=error, atol=error)


#: tiles are of 16 and 32 tokens; one sentence has only padding
CALLS = {
    "a decoder, padded on the left, heads share": Call(
        "diet_rel", (3, 20), causal=True, left_pad=True, heads_share=True
    ),
    "the last queries, clipped offsets": Call(
        "diet_rel", (20, 20), causal=True, queries=5, options={"clip": 3}
    ),
    "a sentence without tokens": Call("diet_rel", (3, 0)),
    "a window, padded by more than the window": Call("diet_rel", (70, 40), window=7),
    "factors in a decoder, padded on the left": Call(
        "diet_abs", (40, 25), causal=True, left_pad=True, options={"rank": 20}
    ),
    "factors and buckets, the first token untied": Call(
        "tupe_r", (40, 25), width=16, options={"untie_cls": "official"}, std=0.3
    ),
    "a table for each query, padded": Call("shaw", (70, 50), options={"clip": 4}),
    "a window in a decoder, padded on the left": Call(
        "diet_rel", (70, 40), causal=True, left_pad=True, window=7
    ),
}
SLOW_CALLS = {
    "an encoder, nothing padded": Call("diet_rel", (9, 9)),
    "half precision": Call("diet_rel", (9, 7), dtype=torch.float16),
    "fixed slopes": Call("alibi", (9, 7), options={"slopes": "fixed"}),
    "clipped offsets on both sides": Call("diet_rel", (35, 20), options={"clip": 3}),
    "buckets, padded on the right": Call("t5", (20, 13), options={"buckets": 8}),
    "a decoder, clipped offsets": Call(
        "diet_rel", (40, 30), causal=True, left_pad=True, options={"clip": 3}
    ),
    "a window of rotated vectors": Call("rope", (70, 40), window=5),
    "a window of one token": Call("t5", (40, 30), window=1),
    "a window larger than a tile": Call("diet_rel", (120, 100), window=40),
    "a window, the last queries": Call("diet_rel", (70, 60), causal=True, queries=20, window=9),
    "a window, even": Call("diet_rel", (64, 64), window=16),
    "factors, even": Call("diet_abs", (64, 64), width=64, options={"rank": 34}),
    "factors in half precision": Call(
        "diet_abs", (40, 33), options={"rank": 20}, dtype=torch.float16
    ),
    "80 columns of factors": Call(
        "tupe_a", (40, 25), width=64, options={"untie_cls": "official"}, std=0.3
    ),
    "factors and buckets": Call(
        "tupe_r", (40, 25), width=16, left_pad=True, options={"untie_cls": "no"}, std=0.3
    ),
    "factors and buckets, padding before the first token": Call(
        "tupe_r", (40, 25), width=16, left_pad=True, options={"untie_cls": "official"}, std=0.3
    ),
    "factors and buckets, 80 columns": Call(
        "tupe_r", (40, 25), width=64, options={"untie_cls": "official"}, std=0.3
    ),
    "factors and buckets, the last queries": Call(
        "tupe_r", (40, 25), causal=True, queries=9, options={"untie_cls": "paper"}, std=0.3
    ),
    "factors and buckets, a window": Call(
        "tupe_r", (64, 64), window=9, options={"untie_cls": "official"}, std=0.3
    ),
    "a table, even": Call("shaw", (128, 128), options={"clip": 4}),
    "a table, padded on the left": Call("shaw", (100, 70), left_pad=True, options={"clip": 4}),
    "a table in a decoder": Call(
        "shaw", (100, 70), causal=True, left_pad=True, options={"clip": 4}
    ),
    "a table, the last queries": Call(
        "shaw", (100, 70), causal=True, queries=20, options={"clip": 4}
    ),
    "a table, one query": Call(
        "shaw", (100, 70), causal=True, left_pad=True, queries=1, options={"clip": 4}
    ),
    "a table and a window": Call("shaw", (100, 70), window=9, options={"clip": 4}),
    "a table of all offsets": Call("shaw", (5, 3)),
    "a table of three offsets, heads share": Call(
        "shaw", (70, 50), heads_share=True, options={"clip": 1}
    ),
    "a table in half precision": Call("shaw", (70, 50), dtype=torch.float16, options={"clip": 4}),
    "one query, padded": Call("t5", (9, 7), causal=True, left_pad=True, queries=1),
} | {
    f"{scheme}, {width} wide, {dtype}, {'causal, ' if causal else ''}{side}": Call(
        *(scheme, lengths, causal, side == "left", queries, width, dtype)
    )
    for scheme, lengths, width, dtype, causal, side, queries in [
        ("diet_rel", (40, 25), 64, torch.float32, False, "left", None),
        ("t5", (40, 25), 128, torch.float32, True, "right", None),
        ("diet_rel", (40, 25), 64, torch.float16, True, "left", None),
        ("t5", (40, 25), 24, torch.float16, True, "right", 35),
        ("t5", (32, 32), 65, torch.float16, False, "right", None),
        ("diet_rel", (40, 25), 1, torch.float32, True, "right", 35),
    ]
}


def attend_line(
    q: Tensor, k: Tensor, v: Tensor, line: Tensor, *,
    seed: Tensor | None = None, causal: bool = False, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """The output with a score for each offset."""
    scores = line, None, None, None
    out, *_ = offsets.attend(q, k, v, *scores, None, seed, causal, dropout, None, 0, 0, True)
    return out


def cross_attention() -> None:
    """More queries than keys."""
    torch.manual_seed(1)
    q, k, v, g = (torch.randn(1, 2, n, 16) for n in (70, 33, 33, 70))
    numbers, reach = torch.randn(2, 11), 5
    rows = torch.arange(1 - 33, 70).clamp(-reach, reach) + reach
    leaves = [x.requires_grad_() for x in (q, k, v, numbers)]
    with kernels_with(16):
        line = numbers[:, rows]
        out = attend_line(q, k, v, line)
        gradients = torch.autograd.grad(out, leaves, g)
    expected = (q @ k.mT + toeplitz(numbers[:, rows], 70)).softmax(-1) @ v
    expected_gradients = torch.autograd.grad(expected, leaves, g)
    close((out, *gradients), (expected, *expected_gradients))


#: the rate of the checks below, and its rounded value
RATE, ROUNDED = 0.3, 77 / 256


def unpack(bits: Tensor, queries: int, keys: int) -> Tensor:
    """Which weights are kept, (B, H, Tq, Tk), from the words of `offsets.empty_outputs`."""
    i, j = torch.arange(queries).unsqueeze(1), torch.arange(keys)
    words = bits[:, :, i // 16, j // 64, i % 8 * 4 + j % 8 // 2]
    return (words >> (j % 2 * 16 + i // 8 % 2 * 8 + j // 8 % 8)) & 1 == 1


def check_dropout(call: Call) -> None:
    """Outputs and gradients equal the reference, if it drops the same weights."""
    words = []

    class Watched(offsets.Launch):
        def backward(
            self, gradient: Tensor, out: Tensor, norm: Tensor, bits: Tensor, *rest: Any
        ) -> Any:
            words.append(bits)
            return super().backward(gradient, out, norm, bits, *rest)

    with kernels_with(call.tile, Watched), patch.object(offsets, "reference", None):
        results = call.results("offsets", RATE)
    with torch.no_grad():
        _, weights = BACKENDS["reference"](call.create("reference", 0.0)[0])
    assert weights is not None
    is_kept = unpack(words[0], *weights.shape[2:])
    share = float(is_kept[weights > 0].double().mean())
    deviation = (ROUNDED * (1 - ROUNDED) / int((weights > 0).sum())) ** 0.5
    assert abs(1 - share - ROUNDED) < 4 * deviation, share
    compute = partial(comparison.attend_with_factors, is_kept / (1 - ROUNDED))
    expected = call.results("reference", 0.0, compute=compute)
    error = 3e-5 if call.dtype == torch.float32 else 1e-2
    for result, of_reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, of_reference, rtol=error, atol=error)


DROPOUT_CALLS = {
    "dropout in a decoder, padded on the left": Call(
        "diet_rel", (70, 40), causal=True, left_pad=True, options={"clip": 3}
    ),
}
SLOW_DROPOUT_CALLS = {
    "dropout, padded on the right": Call("t5", (70, 45), options={"buckets": 8}),
    "dropout, tiles of 64 and 128 tokens": Call("diet_rel", (200, 130), tile=64),
    "dropout, even": Call("diet_rel", (64, 64)),
    "dropout in half precision": Call("diet_rel", (70, 45), dtype=torch.float16),
    "dropout and fixed slopes": Call("alibi", (70, 45), options={"slopes": "fixed"}),
    "dropout, wide heads": Call("diet_rel", (40, 25), causal=True, width=100),
    "dropout, the last queries": Call("diet_rel", (70, 60), causal=True, queries=20),
    "dropout, one query": Call("t5", (70, 45), causal=True, left_pad=True, queries=1),
    "dropout and a window": Call("diet_rel", (100, 70), causal=True, left_pad=True, window=9),
    "dropout, factors and buckets": Call(
        "tupe_r", (70, 45), width=16, options={"untie_cls": "official"}, std=0.3
    ),
    "dropout and a table for each query": Call("shaw", (70, 50), options={"clip": 4}),
    "dropout and a table in a decoder": Call(
        "shaw", (100, 70), causal=True, left_pad=True, options={"clip": 4}
    ),
}


def kept_weights(seed: int, rate: float, n: int = 200) -> Tensor:
    """Which weights of a seed are kept, (2, 2, n, n), where all weights are equal."""
    q, v = torch.zeros(2, 2, n, 256), torch.eye(n, 256).expand(2, 2, -1, -1)
    with kernels_with(64), torch.no_grad():
        line = torch.zeros(2, 2 * n - 1)
        out = attend_line(q, q, v, line, seed=torch.tensor([seed]), dropout=rate)
    is_kept = out[..., :n] != 0
    share = offsets.count_parts(rate) / 256
    torch.testing.assert_close(out[..., :n], is_kept / (1 - share) / n)
    return is_kept


def independence() -> None:
    """Weights are dropped independently of each other, of the head, the sentence and the seed."""
    numbers, others = (kept_weights(seed, RATE).double() - (1 - ROUNDED) for seed in (7, 8))
    variance = ROUNDED * (1 - ROUNDED)

    def correlation(x: Tensor, y: Tensor) -> float:
        """The correlation, in standard deviations of the correlation of independent numbers."""
        return float((x * y).mean() / variance * x.numel() ** 0.5)

    pairs = {
        "seeds": (numbers, others),
        "heads": (numbers[:, 0], numbers[:, 1]),
        "sentences": (numbers[0], numbers[1]),
    }
    for distance in (1, 2, 7, 8, 16, 64, 128):  # in words and between words
        pairs[f"queries {distance} apart"] = numbers[:, :, distance:], numbers[:, :, :-distance]
        pairs[f"keys {distance} apart"] = numbers[..., distance:], numbers[..., :-distance]
    for name, (x, y) in pairs.items():
        assert abs(correlation(x, y)) < 4.5, name
    means = numbers.mean(-1).abs().max() / (variance / 200) ** 0.5  # of 800 rows
    assert means < 4.5, means
    assert abs(float(numbers.mean())) < 4 * (variance / numbers.numel()) ** 0.5


def rates() -> None:
    """The smallest and the largest rate, and one whose binary digits end with 1."""
    for rate, rounded in ((1e-9, 1 / 256), (0.1, 26 / 256), (0.5, 0.5), (0.9999, 255 / 256)):
        is_kept = kept_weights(7, rate, 100)
        deviation = (rounded * (1 - rounded) / is_kept.numel()) ** 0.5
        assert abs(1 - rounded - float(is_kept.double().mean())) < 4 * deviation, rate


def other_tiles() -> None:
    """The kernels of the backward pass drop the same weights with any tiles."""
    call = Call("diet_rel", (150, 130))
    sizes = {"forward": (64, 64), "backward_keys": (32, 128)}
    results = []
    for tiles in (sizes, {"forward": (32, 16), "backward_keys": (16, 32)}):

        def select_tiles(kernel: str, *_: Any, tiles: Any = tiles) -> Any:
            return (offsets.Tile(*tiles.get(kernel, (64, 32)), 4, 2),)

        with patch.object(offsets, "select_tiles", select_tiles):
            results.append(call.results("offsets", RATE))
    close(*results)


def compared_with_dropout() -> None:
    """`auto` trusts the kernels with dropout, but not if the gradients are of other weights."""
    limit = Limit(40, "--max-positions")
    scheme = SCHEMES["t5"].create(AttentionShape(2, 8, 16, queries=limit, keys=limit))
    layout = Layout.without_padding(40, torch.device("cpu"))
    shape = CallShape((scheme,), layout, (3, 2, 8), torch.float32, RATE)
    with kernels_with(16):
        assert comparison.matches_reference(BACKENDS["offsets"], shape)
        with torch.no_grad():
            assert comparison.matches_reference(BACKENDS["offsets"], shape)
    for fault in (OtherWeightsDroppedBackward, AllWeightsKept):
        with kernels_with(16, fault):
            assert not comparison.matches_reference(BACKENDS["offsets"], shape), fault


class OtherWeightsDroppedBackward(offsets.Launch):
    def backward(
        self, gradient: Tensor, out: Tensor, norm: Tensor, bits: Tensor, *rest: Any
    ) -> Any:
        return super().backward(gradient, out, norm, bits.roll(1, -1), *rest)


class AllWeightsKept(offsets.Launch):
    def __init__(self, *inputs: Any) -> None:
        super().__init__(*inputs)
        self.parts = 0


def no_bits_without_gradients() -> None:
    """The bits are stored only for a backward pass."""
    call = Call("t5", (40, 25)).create("offsets", RATE)[0]
    sizes = []

    class Watched(offsets.Launch):
        def forward(self, out: Tensor, norm: Tensor, bits: Tensor) -> None:
            sizes.append(bits.numel() * bits.element_size())
            super().forward(out, norm, bits)

    outputs = []
    with kernels_with(16, Watched):
        for enabled in (True, False):
            torch.manual_seed(1)
            with torch.set_grad_enabled(enabled):
                outputs.append(BACKENDS["offsets"](call)[0])
        with torch.no_grad():
            outputs.append(BACKENDS["offsets"](replace(call, dropout=0.0))[0])
    assert torch.equal(outputs[0], outputs[1])
    assert sizes == [BATCH * HEADS * 128 * 128 // 8, 0, 0], sizes


def timed_tiles() -> None:
    """Tiles are timed once, and all kernels work with those that were the fastest."""
    from triton.runtime.autotuner import Autotuner

    call, timed = Call("diet_rel", (70, 45), options={"clip": 3}), []

    def bench(_: Any, run: Callable[[], None], quantiles: Any) -> list[float]:
        run()
        timed.append(run)
        return [-float(len(timed))]  # the last is the fastest

    def tiles(launch: Any, name: str) -> Any:
        return offsets.Tile(32, 32, 4, 2), offsets.Tile(64, 16, 8, 2)

    with patch.object(Autotuner, "do_bench", bench), patch.object(offsets.Launch, "tiles", tiles):
        for _ in range(2):
            close(call.results("offsets"), call.results("reference"))
        kernels = ["forward", "backward_keys", "backward_queries_and_line"]
        assert len(timed) == 2 * len(kernels), timed
        sizes = offsets.autotune_kernel(kernels[2], tiles(None, "")).best_config.kwargs
        assert sizes == {"BM": 64, "BN": 16}, sizes


def products_of_few_rows() -> None:
    """The line's gradient as on compute capability 8.0, with 6 and 24 diagonals of blocks."""
    with patch.object(offsets, "product_rows", lambda major: 16):
        check(Call("diet_rel", (40, 25)))
        check(Call("diet_rel", (150, 130), tile=64))


def two_runs() -> None:
    """Two runs give the same bits, dropout included."""
    call = Call("diet_rel", (40, 25), options={"clip": 3})
    with kernels_with(16):
        first, second = (call.results("offsets", dropout=0.1) for _ in range(2))
        [without, *_] = call.results("offsets")
    assert not torch.equal(first[0], without)
    assert all(map(torch.equal, first, second))


def score_gradient() -> None:
    """The backend "cudnn", with a CPU's kernel in the place of cuDNN's."""

    def attend(q: Tensor, k: Tensor, v: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        return ATEN._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=score.expand(BATCH, -1, -1, -1), scale=1.0
        )

    def attend_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        score, out, norm, _ = rest
        return ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
            g, q, k, v, out, norm, 0.0, False,
            attn_mask=score.expand(BATCH, -1, -1, -1), scale=1.0,
        )  # fmt: skip

    cudnn: Any = import_module("diet_fairseq.attention.backends.cudnn")
    torch.manual_seed(1)
    q, k, v, g = (torch.randn(64, BATCH, HEADS, 24).permute(1, 2, 0, 3) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v, torch.randn(1, HEADS, 64, 64))]
    expected = (q @ k.mT + leaves[3]).softmax(-1) @ v
    expected_gradients = torch.autograd.grad(expected, leaves, g)
    # the batch in parts, and at once
    for tile, programs in ((32, 1024), (16, 1)):
        constants: dict[str, Any] = {"TILE": tile, "MIN_PROGRAMS": programs}
        with patch.multiple(cudnn, attend=attend, attend_backward=attend_backward, **constants):
            out = cudnn.CudnnAttention.apply(*leaves)
            gradients = torch.autograd.grad(out, leaves, g)
        close((out, *gradients), (expected, *expected_gradients))


class PaddingForgotten(offsets.Launch):
    def start(self, name: str, grid: Any, *rest: Any) -> dict[str, int]:
        self.pad = None
        return super().start(name, grid, *rest)


class AWindowOneTokenWider(offsets.Launch):
    def __init__(self, *inputs: Any) -> None:
        super().__init__(*inputs)
        self.window += 1


class GradientsOnTheNextDiagonal(offsets.Launch):
    def line_gradient(self, sums: Tensor, BM: int, BN: int) -> Tensor:
        return super().line_gradient(sums, BM, BN).roll(1, 1)


class ATableOneOffsetFurther(offsets.Launch):
    low: int
    high: int

    def __init__(self, *inputs: Any) -> None:
        super().__init__(*inputs)
        self.low, self.high = self.low + 1, self.high + 1


class HalfTheGradientOfFactors(offsets.Launch):
    def backward(self, *inputs: Any) -> tuple[Tensor, ...]:
        *grads, of_a, of_c = super().backward(*inputs)
        return *grads, of_a / 2, of_c


class FarScoresExchanged(offsets.Launch):
    clipped: Tensor

    def __init__(self, *inputs: Any) -> None:
        super().__init__(*inputs)
        self.clipped = self.clipped.flip(2)


WINDOWED = Call("diet_rel", (6, 4), causal=True, left_pad=True, window=2)
MUTANTS: dict[Any, Call] = {
    PaddingForgotten: WINDOWED,
    AWindowOneTokenWider: WINDOWED,
    GradientsOnTheNextDiagonal: WINDOWED,
    ATableOneOffsetFurther: Call("shaw", (9, 7), options={"clip": 2}),
    FarScoresExchanged: Call("shaw", (70, 70), options={"clip": 2}),
    HalfTheGradientOfFactors: Call("diet_abs", (6, 4)),
}


def caught(mutant: type) -> None:
    with patch.object(offsets, "Launch", mutant):
        try:
            check(MUTANTS[mutant])
        except AssertionError:
            return
    raise AssertionError("not caught")


def opcheck() -> None:
    """The description of the operator for `torch.compile` is true."""
    q, k, v = (torch.randn(1, 2, tokens, 8, requires_grad=True) for tokens in (3, 5, 5))
    pad = torch.tensor([[0.0, 0.0, 0.0, 0.0, -torch.inf]])
    line = torch.randn(2, 7, requires_grad=True)
    with kernels_with(16):
        rows = torch.randn(1, 2, 3, 4, requires_grad=True)
        a, c = (torch.randn(1, 2, tokens, 16, requires_grad=True) for tokens in (3, 5))
        rest = pad, None, False, 0.0, None
        dropped = pad, torch.tensor([7]), False, RATE, None
        check = partial(torch.library.opcheck, offsets.offset_attention)
        check((q, k, v, line, None, None, None, *rest, 0, 0, True))
        check((q, k, v, line, None, None, None, *dropped, 0, 0, True))
        check((q, k, v, line, None, None, None, *dropped, 0, 0, False), test_utils=SCHEMA)
        check((q, k, v, None, rows, a, c, *rest, -2, 1, True))


SCHEMA = ("test_schema", "test_faketensor")


class Attention(torch.nn.Module):
    """Self-attention with one trained line and dropout, on tokens (T, B, H d_h)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.projection = torch.nn.Linear(16, 48)
        self.line = torch.nn.Parameter(torch.randn(2, 9))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projection(x).view(5, 1, 3, 2, 8).permute(2, 1, 3, 0, 4)
        seed = torch.tensor([7])
        return attend_line(q, k, v, self.line, seed=seed, causal=True, dropout=RATE)


class Checkpointed(Attention):
    """The same, with activation checkpointing."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


def compile_and_fsdp() -> None:
    """`torch.compile`, FSDP2, of one process here, and activation checkpointing change nothing."""
    from torch.distributed import HashStore, destroy_process_group, init_process_group
    from torch.distributed.fsdp import fully_shard

    x, models = torch.randn(5, 1, 16), [Attention() for _ in range(3)]
    models.append(Checkpointed())
    models[1].compile(backend="aot_eager", fullgraph=True)
    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    fully_shard(models[2], mesh=torch.distributed.init_device_mesh("cpu", (1,)))
    with kernels_with(16):
        outputs = [model(x) for model in models]
        for out in outputs:
            out.square().sum().backward()
    gradients = [[p.grad for p in model.parameters()] for model in models]
    gradients[2] = [grad.full_tensor() for grad in gradients[2]]  # type: ignore[union-attr]
    destroy_process_group()
    for out, grads in zip(outputs[1:], gradients[1:], strict=True):
        torch.testing.assert_close([out, *grads], [outputs[0], *gradients[0]])


def checks_of(slow: bool) -> dict[str, Callable[[], None]]:
    calls, dropout_calls, functions = CALLS, DROPOUT_CALLS, [score_gradient]
    if slow:
        calls, dropout_calls = SLOW_CALLS, SLOW_DROPOUT_CALLS
        functions = [cross_attention, independence, rates, other_tiles, compared_with_dropout]
        functions += [no_bits_without_gradients, products_of_few_rows, two_runs, timed_tiles]
        functions += [opcheck, compile_and_fsdp]
    checks: dict[str, Callable[[], None]] = {n: partial(check, call) for n, call in calls.items()}
    checks |= {name: partial(check_dropout, call) for name, call in dropout_calls.items()}
    if not slow:
        checks |= {mutant.__name__: partial(caught, mutant) for mutant in MUTANTS}
    return checks | {function.__name__: function for function in functions}


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    for name in [*sys.modules]:  # PyTorch's compiler may have imported it already
        if name.startswith("triton") and not name.startswith("triton._C"):
            del sys.modules[name]
    offsets.EVEN = 32  # short sentences may be even, too
    torch.use_deterministic_algorithms(True)  # what no kernel writes is NaN
    np.seterr(all="ignore")  # rows beyond the end of a tile hold anything
    for name, run in checks_of(slow="slow" in sys.argv).items():
        try:
            run()
            print(f"{name}: passed")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
