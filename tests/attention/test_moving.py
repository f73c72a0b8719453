"""Positions that tokens move: sums of steps in whole passes and in decoding."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diet_fairseq.attention import moving
from diet_fairseq.positions import SCHEMES, AttentionShape, PositionScheme
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Dense, Differences
from diet_fairseq.transformer import Decoder, DecodingCache, Encoder, StackConfig
from tests.support import mutants, tiny

HEADS, WIDTH, PAD = 2, 16, 1
#: padding on the right, on the left, and between tokens
PADDING = torch.tensor(
    [
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 1, 1, 0, 0, 0],
    ],
    dtype=torch.bool,
)


class Decay(PositionScheme):
    """c_i - c_j, or in encoders -|c_i - c_j|: a step softplus(w x) down for every token."""

    sharing = "none"
    score_type = Differences

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.weight = nn.Parameter(torch.zeros(shape.heads, shape.embed_dim))
        if not shape.causal:
            self.score_type, self.kinds = Dense, frozenset({"dense"})

    def steps(self, x: Tensor, layout: Layout) -> Tensor:
        return -F.softplus(x @ self.weight.to(x.dtype).T).transpose(1, 2).unsqueeze(-1)

    def score(self, layout: Layout) -> Differences | Dense:
        query, key = layout.moved
        if self.shape.causal:
            return Differences(query, key)
        return Dense(-(query - key.mT).abs())


class Turn(PositionScheme):
    """q and k are rotated pair by pair, by angles of their own that every token moves."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        pairs = shape.head_dim // 2
        self.weight = nn.Parameter(torch.zeros(shape.heads * pairs, shape.embed_dim))

    def steps(self, x: Tensor, layout: Layout) -> Tensor:
        pairs = self.shape.head_dim // 2
        return (x @ self.weight.to(x.dtype).T).sigmoid().unflatten(-1, (-1, pairs)).transpose(1, 2)

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        at_queries, at_keys = layout.moved
        return turn(q, at_queries), turn(k, at_keys)


def turn(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@pytest.fixture(autouse=True)
def schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in (Decay, Turn):
        monkeypatch.setitem(SCHEMES, scheme.__name__, scheme)


def build(scheme: str, kind: type = Decoder, **options: Any) -> Any:
    """A model of two layers whose parameters are random."""
    torch.default_generator.manual_seed(1)
    config = StackConfig.for_scheme(
        scheme,
        layers=2,
        embed_dim=WIDTH,
        heads=HEADS,
        is_decoder=kind is Decoder,
        position_options=options,
        dropout=0.0,
    )
    model = kind(config, nn.Embedding(24, WIDTH, PAD)).eval()
    for part in model.modules():
        if isinstance(part, PositionScheme):
            part.weight.data.normal_()
    return model


def tokens(padding: Tensor = PADDING, seed: int = 1) -> Tensor:
    words = torch.randint(4, 24, padding.shape, generator=torch.Generator().manual_seed(seed))
    return words.masked_fill(padding, PAD)


def compute(model: Any, words: Tensor) -> Tensor:
    """(real tokens, d)"""
    out = model.decode(words) if isinstance(model, Decoder) else model.encode(words)
    return out.features[words.ne(PAD)]


# --- the equation -----------------------------------------------------------------------------


def expected_output(attention: Any, x: Tensor, causal: bool) -> Tensor:
    """One sentence x (T, d) in loops: (T, d)."""
    heads, width = attention.num_heads, attention.head_dim
    scheme = attention.positions
    q, k, v = (part(x) for part in (attention.q_proj, attention.k_proj, attention.v_proj))
    out = torch.zeros_like(x)
    for head in range(heads):
        dims = slice(head * width, (head + 1) * width)
        sums = [torch.zeros(())]
        rows = scheme.weight.view(heads, -1, x.size(1))[head]
        for token in x:
            step = torch.stack([row @ token for row in rows])
            step = -F.softplus(step) if isinstance(scheme, Decay) else step.sigmoid()
            sums.append(sums[-1] + step)
        for i in range(len(x)):
            seen, logits = range(i + 1) if causal else range(len(x)), []
            for j in seen:
                query, key, added = q[i, dims], k[j, dims], 0.0
                if isinstance(scheme, Decay):
                    added = -abs(float(sums[i + 1] - sums[j + 1]))
                else:
                    query, key = turn(query, sums[i + 1]), turn(key, sums[j + 1])
                logits.append(query @ key / math.sqrt(width) + added)
            weights = torch.stack(logits).softmax(0)
            out[i, dims] = sum(w * v[j, dims] for w, j in zip(weights, seen, strict=True))
    return attention.out_proj(out)


@torch.no_grad()
def check_equation(scheme: str) -> None:
    """Padding anywhere moves nothing; a token moves itself and all later tokens."""
    for kind in (Encoder, Decoder):
        model = build(scheme, kind, position_sharing="none")
        attention, causal = model.layers[0].self_attn, kind is Decoder
        x = tiny.vectors(*PADDING.shape, WIDTH)
        layout = Layout.of_self_attention(PADDING, causal)
        for backend in ("reference", "sdpa", "factors"):
            context = attention.create_context(layout, len(x), backend=backend)
            out = attention(x.transpose(0, 1), context)[0].transpose(0, 1)
            for row, padding in enumerate(PADDING):
                expected = expected_output(attention, x[row, ~padding], causal)
                torch.testing.assert_close(out[row, ~padding], expected, **tiny.TOLERANCE)


@pytest.mark.parametrize("scheme", ["Decay", "Turn"])
def test_attention_with_moved_positions_is_its_equation(scheme):
    check_equation(scheme)


# --- layers and decoding ----------------------------------------------------------------------


@torch.no_grad()
def test_every_layer_moves_positions_by_its_own_input_even_if_layers_share_the_scheme():
    model, words = build("Decay", position_sharing="layer"), tokens()
    inputs: list[Tensor] = []
    steps = Decay.steps

    def record(self: Decay, x: Tensor, layout: Layout) -> Tensor:
        inputs.append(x)
        return steps(self, x, layout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decay, "steps", record)
        states = model.decode(words).states
    real = words.ne(PAD)
    assert len(inputs) == 2
    for x, state in zip(inputs, states, strict=False):
        torch.testing.assert_close(x[real], state[real], rtol=0, atol=0)
    context = model.create_context(Layout.of_self_attention(PADDING, True), len(words))
    assert (len(context.shared), context.scores) == (1, None)


@torch.no_grad()
def check_decoding(scheme: str, dtype: torch.dtype = torch.float32) -> None:
    """Decoding in parts, with rows that change places, equals decoding at once."""
    for sharing in ("none", "layer"):
        model = build(scheme, position_sharing=sharing, attention_backend="reference").to(dtype)
        words, cache, order = tokens(), DecodingCache(), torch.tensor([1, 1, 3, 0])
        for begin, end in ((0, 3), (3, 4), (4, 7), (7, 8), (8, 9)):
            new = model.decode(words[:, begin:end], cache=cache, padding_mask=words[:, :end] == PAD)
            whole = model.decode(words[:, :end]).features[:, begin:]
            real = words[:, begin:end].ne(PAD)
            tolerance = 1e-5 if dtype is torch.float32 else 0.05
            assert tiny.difference(new.features[real], whole[real]) <= tolerance
            if end == 4:
                cache.reorder(order)
                words = words[order]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", ["Decay", "Turn"])
def test_decoding_in_parts_equals_decoding_at_once(scheme, dtype):
    check_decoding(scheme, dtype)


def last_sum(scheme: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The moved position of the last token after many steps alone, and of all tokens at once."""
    shape = StackConfig.for_scheme(scheme, layers=1, embed_dim=WIDTH, heads=HEADS, is_decoder=True)
    part: Any = SCHEMES[scheme].create(shape.attention_shape())
    part.weight.data.copy_(tiny.vectors(*part.weight.shape))
    x, store = tiny.vectors(300, 1, WIDTH), DecodingCache().store(0, is_cross=False)
    keys = tiny.vectors(300, 1, HEADS, 1, WIDTH // HEADS).to(dtype)
    padding = torch.zeros(1, 300, dtype=torch.bool)

    def context(tokens: int) -> Any:
        layout = Layout.of_self_attention(padding[:, :tokens], causal=True, queries=1)
        return moving.Context(layout)

    for n in range(300):
        moved, wide = moving.move_positions(part, x[n : n + 1], context(n + 1), store)
        wide.append(keys[n], keys[n])
    layout = Layout.of_self_attention(padding, causal=True)
    whole, _ = moving.move_positions(part, x, moving.Context(layout))
    return moved.layout.moved[0], whole.layout.moved[0][:, :, -1:]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scheme", ["Decay", "Turn"])
def test_a_cache_in_half_precision_adds_no_error_to_moved_positions(scheme, dtype):
    stepwise, whole = last_sum(scheme, dtype)
    in_float32, _ = last_sum(scheme, torch.float32)
    assert whole.abs().min() > 50
    torch.testing.assert_close(stepwise, in_float32, rtol=0, atol=0)
    torch.testing.assert_close(stepwise, whole, rtol=1e-5, atol=0)


@torch.no_grad()
def test_a_scheme_that_only_transforms_reads_its_last_sum_from_the_cache(monkeypatch):
    read = []
    join = moving.join_parts
    monkeypatch.setattr(moving, "join_parts", lambda x, r: read.append(x.size(2)) or join(x, r))
    for scheme, expected in (("Turn", [1, 1]), ("Decay", [8, 8])):
        model, words, cache = build(scheme), tokens(), DecodingCache()
        model.decode(words[:, :8], cache=cache)
        model.decode(words[:, 8:], cache=cache)
        assert read == expected
        read.clear()


# --- what a scheme with steps can't do --------------------------------------------------------


def test_steps_in_cross_attention_or_with_compressed_keys_are_refused():
    shape = StackConfig.for_scheme("Decay", layers=1, embed_dim=WIDTH, heads=HEADS)
    message = "Across.steps must be in self-attention .* is in cross-attention: leave out cross in"
    across = type("Across", (Decay,), {})
    with pytest.raises(TypeError, match=message):
        across.create(shape.attention_shape(is_cross=True))
    few = type("Few", (Decay,), {"compressed": True})
    with pytest.raises(TypeError, match="a scheme that compresses keys: leave out compressed in"):
        few.create(shape.attention_shape())


def test_moved_positions_without_steps_name_the_method_that_lacks():
    layout = Layout.without_padding(3, torch.device("cpu"))
    with pytest.raises(TypeError, match="the sum of a scheme's steps: override steps, too"):
        layout.moved  # noqa: B018


# --- mutants ----------------------------------------------------------------------------------


MUTANTS: mutants.Table = [
    (check_equation, mutants.padding_that_moves, "Decay"),
    (check_equation, mutants.padding_that_moves, "Turn"),
    (check_equation, mutants.sums_without_the_token_itself, "Turn"),
    (check_equation, mutants.sums_from_the_end, "Decay"),
    (check_decoding, mutants.a_cache_that_forgets, "Decay"),
    (check_decoding, mutants.a_cache_that_forgets, "Turn"),
    (check_equation, mutants.queries_at_the_first_position, "Turn"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
