"""``--position-window`` and layers of two kinds, local and global."""

from itertools import combinations, product

import pytest
import torch
from torch import nn

from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.sampling import PositionSampling
from diet_fairseq.transformer import Decoder, DecodingCache, Encoder, StackConfig
from tests.support import mutants

close = torch.testing.assert_close
PAD, LENGTH = 1, 14
#: padding at no end, the right, the left, between tokens, and everywhere
PADDING = torch.zeros(5, LENGTH, dtype=torch.bool)
PADDING[1, 9:] = PADDING[2, :4] = PADDING[3, 5:8] = PADDING[3, 1] = PADDING[4] = True
LAYOUT = Layout.without_padding(LENGTH, torch.device("cpu"))
TWO_SCHEMES = {"scheme": "diet_rel", "position_layers": "lg", "position_global_scheme": "alibi"}
SHARED_SCHEMES = {
    "scheme": "t5", "position_sharing": "layer", "position_layers": "lg",
    "position_global_scheme": "diet_rel",
}  # fmt: skip


def is_visible(padding, i, j, window, causal):
    """Whether the token in slot i sees slot j, pair by pair."""
    if padding[j] and not padding.all():
        return False
    if causal and j > i:
        return False
    between = padding[min(i, j) + 1 : max(i, j) + 1]
    return window is None or len(between) - int(between.sum()) <= window


def check_mask(window):
    rows = [rows for n in (1, 2, 5) for rows in combinations(range(5), n)]
    for row, causal, queries in product(rows, (False, True), (None, 1, 4)):
        if queries and not causal:
            continue
        padding = PADDING[list(row)]
        layout = Layout.of_self_attention(padding, causal, queries).with_window(window)
        mask = torch.zeros(len(row), 1, queries or LENGTH, LENGTH, dtype=torch.bool)
        mask = mask if layout.mask is None else layout.mask.expand_as(mask)
        assert not mask.all(-1).any()  # softmax over no key is NaN
        for b, sentence in enumerate(padding):
            for a, i in enumerate(range(LENGTH)[-(queries or LENGTH) :]):
                if not sentence[i]:
                    expected = [is_visible(sentence, i, j, window, causal) for j in range(LENGTH)]
                    assert (~mask[b, 0, a]).tolist() == expected


@pytest.mark.parametrize("window", [None, 1, 3, 100])
def test_tokens_see_the_tokens_within_the_window(window):
    check_mask(window)


def check_sampled_mask(window):
    layout = Layout.of_self_attention(PADDING[:4])
    drawn = PositionSampling("randomised", 99).draw(layout, 4).with_window(window)
    real = ~PADDING[:4, None] & ~PADDING[:4, :, None]
    expected = layout.with_window(window).mask.expand(4, 1, -1, -1)[:, 0]
    assert torch.equal(drawn.mask[:, 0][real], expected[real])


def test_sampled_positions_do_not_change_the_window():
    check_sampled_mask(2)


def build(kind, scheme="rope", layers=6, **options):
    torch.manual_seed(1)
    config = StackConfig.for_scheme(
        scheme, layers=layers, embed_dim=16, heads=2, position_options=options, max_positions=32,
        is_decoder=kind is Decoder, dropout=0.0,
    )  # fmt: skip
    stack = kind(config, nn.Embedding(20, 16, PAD)).eval()
    for name, parameter in stack.named_parameters():
        nn.init.normal_(parameter, std=0.05 if "embed_tokens" in name else 0.3)
    return stack


@torch.no_grad()
def weights_of(stack, tokens):
    """The self-attention weights of every layer, (B, H, T, T) each."""
    if isinstance(stack, Encoder):
        out = stack.encode(tokens, need_weights=range(6))
    else:
        out = stack.decode(tokens, need_weights=range(6))
    return list(out.weights.values())


def find_kinds(stack, window=3):
    """A letter for each layer: l if all of its weights are within the window."""
    far = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() > window
    tokens = torch.randint(4, 20, (2, LENGTH))
    return "".join("gl"[int((w[..., far] == 0).all())] for w in weights_of(stack, tokens))


def check_pattern(pattern):
    for kind in (Encoder, Decoder):
        stack = build(kind, position_window=3, position_layers=pattern)
        assert find_kinds(stack) == (pattern * 6)[:6]


@pytest.mark.parametrize("pattern", ["gll", "lllg", "lg", "gl"])
def test_layers_follow_the_pattern(pattern):
    check_pattern(pattern)


def test_without_a_pattern_all_layers_are_local():
    for kind in (Encoder, Decoder):
        assert find_kinds(build(kind, position_window=3)) == "llllll"


def test_without_a_window_and_a_pattern_no_layer_is_local():
    assert find_kinds(build(Encoder)) == "gggggg"


@torch.no_grad()
def check_decoding(options):
    """Decoding step by step, in chunks, with reordering and padding, equals decoding at once."""
    decoder = build(Decoder, **options)
    tokens = torch.randint(4, 20, (5, LENGTH)).masked_fill(PADDING, PAD)[:4]
    for chunks in ([1] * LENGTH, [6, 1, 1, 6]):
        words, cache, start = tokens, DecodingCache(), 0
        for number, size in enumerate(chunks):
            if number == 3:
                order = torch.tensor([2, 2, 3, 0])
                cache.reorder(order)
                words = words[order]
            end = start + size
            new = decoder.decode(
                words[:, start:end], cache=cache, padding_mask=words[:, :end].eq(PAD)
            )
            whole = decoder.decode(words[:, :end]).features[:, start:end]
            real = words[:, start:end].ne(PAD)
            close(new.features[real], whole[real], rtol=1e-5, atol=1e-5)
            start = end


WINDOWS = {"position_window": 2, "position_layers": "lg"}


@pytest.mark.parametrize("scheme", ["rope", "t5", "shaw", "diet_abs", "cope"])
def test_decoding_with_windows_is_exact(scheme):
    check_decoding(WINDOWS | {"scheme": scheme})


def layer_schemes(stack, layout):
    """The scheme in the self-attention of every layer, in the layer or shared."""
    contexts = stack.create_contexts(layout, 1)
    return [
        (layer.self_attn.layer_schemes() or context.shared)[0]
        for layer, context in zip(stack.layers, contexts, strict=True)
    ]


def check_schemes(options):
    """The schemes of layers, and a layer's output in a model of its scheme alone."""
    stack = build(Encoder, **options)
    names = [type(scheme).__name__ for scheme in layer_schemes(stack, LAYOUT)]
    assert names == ["DietRel", "Alibi"] * 3
    alibi, x = build(Encoder, "alibi"), torch.randn(LENGTH, 1, 16)
    alibi.layers[1].load_state_dict(stack.layers[1].state_dict())
    outputs = [s.layers[1](x, s.create_contexts(LAYOUT, 1)[1])[0] for s in (stack, alibi)]
    close(*outputs)


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_global_layers_have_their_own_scheme(sharing):
    check_schemes(TWO_SCHEMES | {"position_sharing": sharing})


def check_sharing(options):
    """Layers of one kind share one scheme, layers of two kinds do not share."""
    stack = build(Encoder, **options)
    first, second = stack.positions, stack.global_positions
    assert (type(first).__name__, type(second).__name__) == ("T5", "DietRel")
    shared = [context.shared for context in stack.create_contexts(LAYOUT, 1)]
    assert shared == [(first,), (second,)] * 3
    assert all(layer.self_attn.positions is None for layer in stack.layers)


def test_layers_of_one_kind_share_a_scheme():
    check_sharing(SHARED_SCHEMES)


def test_layers_with_the_same_scheme_share_it_across_kinds():
    stack = build(Encoder, "t5", position_window=2, position_layers="lg")
    assert stack.global_positions is None
    assert not any("global" in name for name in stack.state_dict())


def check_base(sharing):
    stack = build(
        Encoder, position_layers="gl", position_global_base=160000.0, position_sharing=sharing
    )
    local, other = (build(Encoder, position_rope_base=base) for base in (10000.0, 160000.0))
    expected = [layer_schemes(plain, LAYOUT)[0].frequencies for plain in (other, local)] * 3
    assert [scheme.frequencies for scheme in layer_schemes(stack, LAYOUT)] == expected


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_global_layers_have_their_own_base(sharing):
    check_base(sharing)


def check_defaults(pair):
    """An option with the local scheme's default has the global scheme's default in its layers."""
    local, other, name, value = pair
    config = PositionConfig.from_options(
        local, {"position_layers": "lg", "position_global_scheme": other}
    )
    plain = PositionConfig.from_options(other, {})
    assert getattr(config.at_layer(1), name) == getattr(plain, name) == value
    assert getattr(config.at_layer(0), name) != value


DEFAULTS = ("t5", "deberta", "position_buckets", 256)


def test_global_layers_have_the_defaults_of_their_scheme():
    check_defaults(DEFAULTS)
    check_defaults(("deberta", "t5", "position_max_distance", 128))


def test_options_given_for_one_scheme_hold_for_both():
    config = PositionConfig.from_options(
        "t5",
        {"position_layers": "lg", "position_global_scheme": "deberta", "position_buckets": 8},
    )
    assert [config.at_layer(n).position_buckets for n in (0, 1)] == [8, 8]


def test_options_of_the_global_scheme_are_accepted():
    config = PositionConfig.from_options(
        "alibi",
        {"position_layers": "lg", "position_global_scheme": "fire", "position_fire_width": 5},
    )
    scheme = config.at_layer(1).scheme
    assert config.at_layer(1).constructor_options(scheme)["fire_width"] == 5


def test_encoders_have_the_encoder_defaults_of_both_schemes():
    config = StackConfig.for_encoder(
        "rope", layers=2, embed_dim=16, heads=2,
        position_options={"position_layers": "lg", "position_global_scheme": "t5"},
    )  # fmt: skip
    assert config.positions.at_layer(1).position_peak == 6


@pytest.mark.parametrize("local", ["rope", "diet_abs"])
def test_the_length_limit_looks_at_both_kinds(local):
    other = {"rope": "diet_abs", "diet_abs": "rope"}[local]
    stack = build(Encoder, local, position_layers="lg", position_global_scheme=other)
    assert stack.limit.positions == 32
    with pytest.raises(UserError, match="a sentence of 33 tokens is longer than the 32 positions"):
        stack(torch.full((1, 33), 4))
    assert build(Encoder, "rope", position_window=3).limit.positions > 32


def test_a_window_as_long_as_the_sentence_adds_no_mask():
    assert LAYOUT.with_window(LENGTH - 1) is LAYOUT
    assert LAYOUT.with_window(None) is LAYOUT
    assert LAYOUT.with_window(LENGTH - 2).mask is not None


def test_the_label_of_a_scheme_names_windows_and_global_layers():
    options = {"position_layers": "gll", "position_window": 64, "position_global_base": 160000.0}
    labels = [
        PositionConfig.from_options("rope", given).scheme_label
        for given in ({}, options, {"position_layers": "lg", "position_global_scheme": "none"})
    ]
    assert labels == [
        "rope",
        "rope (window 64, layers gll, global base 160000.0)",
        "rope (layers lg, global scheme none)",
    ]


MUTANTS: mutants.Table = [
    (check_mask, mutants.a_window_one_token_wider, 3),
    (check_mask, mutants.windows_that_count_padding, 3),
    (check_mask, mutants.padding_sees_no_key, 1),
    (check_sampled_mask, mutants.windows_of_sampled_positions, 2),
    (check_pattern, mutants.a_pattern_that_begins_one_layer_later, "gll"),
    (check_pattern, mutants.every_layer_in_the_context_of_the_first, "lg"),
    (check_decoding, mutants.a_window_one_token_wider_in_decoding, WINDOWS),
    (check_schemes, mutants.every_layer_with_the_local_scheme, TWO_SCHEMES),
    (check_sharing, mutants.layers_of_both_kinds_share_one_scheme, SHARED_SCHEMES),
    (check_base, mutants.every_layer_with_the_local_scheme, "head"),
    (check_base, mutants.layers_of_both_kinds_share_one_scheme, "layer"),
    (check_defaults, mutants.global_layers_with_the_local_scheme_s_defaults, DEFAULTS),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
