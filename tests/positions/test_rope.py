"""Rotary positions beside those of transformers, and what their papers promise."""

import sys

import pytest
import torch

from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from tests.support import mutants
from tests.support.cases import ENCODER_VALUES, Namespace
from tests.support.modeling import import_modeling

llama, roformer = import_modeling("llama"), import_modeling("roformer")
rope_utils = sys.modules["transformers.modeling_rope_utils"]

HEADS, WIDTH, LENGTH = 2, 64, 9


def scheme_of(name="rope", causal=False, **options):
    limit = Limit(512, "--max-positions")
    shape = AttentionShape(HEADS, WIDTH, HEADS * WIDTH, limit, limit, causal=causal)
    return SCHEMES[name].create(shape, **options)


def frequencies_of(scheme):
    return torch.tensor(scheme.frequencies)


def layout_of(length=LENGTH, left_pad=0, queries=None):
    mask = torch.zeros(1, length, dtype=torch.bool)
    mask[:, :left_pad] = True
    return Layout.of_self_attention(mask, queries=queries)


def config_of(parameters):
    return llama.LlamaConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, rope_parameters=parameters
    )


def vectors(length=LENGTH, batch=1):
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(batch, HEADS, length, WIDTH, generator=draw) for _ in "qk"]


def products(scheme, layout, q, k):
    turned_q, turned_k = scheme.transform(q, k, layout)
    return turned_q @ turned_k.mT


SCALINGS = {
    "default": {},
    "another base": {"base": 500.0},
    "linear": {"scaling": "linear", "factor": 4.0},
    "YaRN": {"scaling": "yarn", "factor": 4.0, "trained": 128},
    "YaRN of a large base": {"scaling": "yarn", "factor": 32.0, "trained": 4096, "base": 1e6},
    "YaRN of nothing": {"scaling": "yarn", "factor": 1.0, "trained": 2},
    "dynamic": {"scaling": "dynamic", "factor": 4.0, "trained": 128},
    "dynamic within training": {"scaling": "dynamic", "factor": 4.0, "trained": 200},
    "LongRoPE": {"scaling": "longrope", "factor": 32.0, "trained": 128},
    "LongRoPE within training": {"scaling": "longrope", "factor": 32.0, "trained": 200},
    "LongRoPE of nothing": {"scaling": "longrope", "factor": 1.0, "trained": 128},
}
#: divisors as in Phi-3's configuration: they rise from 1 to 2 (short) and from 1 to 64 (long)
DIVISORS = {
    name: [top ** (pair / (WIDTH // 2 - 1)) for pair in range(WIDTH // 2)]
    for name, top in (("short", 2.0), ("long", 64.0))
}


def check_llama(kind):
    options = dict(SCALINGS[kind])
    parameters = {
        "rope_type": options.get("scaling", "default"),
        "rope_theta": options.get("base", 10000.0),
    }
    if "factor" in options:
        parameters["factor"] = options["factor"]
    if "trained" in options:
        parameters["original_max_position_embeddings"] = options["trained"]
    if options.get("scaling") == "longrope":
        for name, divisors in DIVISORS.items():
            parameters[f"{name}_factor"] = divisors
            options[name] = ",".join(map(str, divisors))
    config = config_of(parameters)
    if options.get("scaling") == "dynamic":
        config.max_position_embeddings = options["trained"]
    rotary = llama.LlamaRotaryEmbedding(config)
    scheme = scheme_of(**{f"rope_{name}": value for name, value in options.items()})
    torch.testing.assert_close(frequencies_of(scheme), rotary.inv_freq)
    assert scheme.magnitude == pytest.approx(rotary.attention_scaling)
    q, k = vectors(200)
    cos, sin = rotary(q, torch.arange(200).unsqueeze(0))
    expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rotated = scheme.transform(q, k, layout_of(200))
    torch.testing.assert_close(rotated, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", SCALINGS)
def test_queries_and_keys_are_those_of_transformers_llama(kind):
    check_llama(kind)


def check_lengths(scaling):
    """A sentence is scaled by its own length, whatever batch it is in, and padded on any side."""
    options = next(
        values for values in ENCODER_VALUES if values["position_rope_scaling"] == scaling
    )
    options = {name.removeprefix("position_"): value for name, value in options.items()}
    limit = Limit(512, "--max-positions")
    scheme = SCHEMES["rope"].create(AttentionShape(HEADS, 8, HEADS * 8, limit, limit), **options)
    lengths = (12, 6, 3)  # trained on 4
    vectors_ = [x[..., :8] for x in vectors(12)]
    alone = [products(scheme, layout_of(n), *(x[:, :, :n] for x in vectors_)) for n in lengths]
    for left in (False, True):
        slots = torch.arange(12).flip(0) if left else torch.arange(12)
        padding = slots >= torch.tensor(lengths).unsqueeze(1)  # (B, T)
        q, k = (torch.cat([x.roll(12 - n, 2) if left else x for n in lengths]) for x in vectors_)
        together = products(scheme, Layout.of_self_attention(padding), q, k)
        for row, expected in enumerate(alone):
            real = ~padding[row]
            torch.testing.assert_close(together[row][:, real][:, :, real], expected[0])


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_frequencies_follow_the_length_of_each_sentence(scaling):
    check_lengths(scaling)


def test_scores_are_those_of_transformers_roformer_which_pairs_neighbours():
    table = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, WIDTH).create_weight()
    q, k = vectors()
    neighbours = [x.unflatten(-1, (2, -1)).mT.flatten(-2) for x in (q, k)]
    turned = roformer.RoFormerSelfAttention.apply_rotary_position_embeddings(
        table[None, None], *neighbours
    )
    expected = turned[0] @ turned[1].mT
    torch.testing.assert_close(products(scheme_of(), layout_of(), q, k), expected)


def check_share(share):
    share = float(share)
    parameters = {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": share}
    expected, _ = rope_utils.ROPE_INIT_FUNCTIONS["proportional"](config_of(parameters))
    scheme = scheme_of(rope_share=share)
    torch.testing.assert_close(frequencies_of(scheme), expected)


@pytest.mark.parametrize("share", ["1", "0.75", "0.51", "0.25"])
def test_p_rope_keeps_the_highest_frequencies_as_transformers_does(share):
    check_share(share)


def test_p_rope_turns_at_least_one_pair():
    assert frequencies_of(scheme_of(rope_share=0.01)).tolist() == [1.0] + [0.0] * (WIDTH // 2 - 1)


ALL = {
    "all pairs": ("rope", {}),
    "half of the pairs": ("rope", {"rope_share": 0.5}),
    "YaRN": ("rope", {"rope_scaling": "yarn", "rope_factor": 4.0, "rope_trained": 16}),
    "xPos": ("xpos", {}),
}
each = pytest.mark.parametrize("kind", ALL)


def of_kind(kind):
    name, options = ALL[kind]
    return scheme_of(name, **options)


def check_gradient(kind):
    """The gradient is the transposed map, whose rows are the images of the unit vectors."""
    scheme, layout = of_kind(kind), layout_of(3)
    units = torch.eye(WIDTH)[:, None, None].expand(-1, HEADS, 3, -1)  # (d_h, H, T, d_h)
    images = scheme.transform(units, units, layout)
    x, weights = [vector.requires_grad_() for vector in vectors(3)], vectors(3)
    turned = scheme.transform(*x, layout)
    gradients = torch.autograd.grad(turned, x, weights)
    for gradient, image, weight in zip(gradients, images, weights, strict=True):
        expected = (image * weight).sum(-1).permute(1, 2, 0)  # (H, T, d_h)
        torch.testing.assert_close(gradient[0], expected)


@each
def test_gradients_are_turned_back(kind):
    check_gradient(kind)


def test_a_gradient_has_a_gradient():
    x = vectors(2)[0].requires_grad_()
    squares = (scheme_of().transform(x, x, layout_of(2))[0] ** 2).sum()
    [gradient] = torch.autograd.grad(squares, x, create_graph=True)
    [second] = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(gradient, 2 * x)  # as turning keeps lengths
    torch.testing.assert_close(second, torch.full_like(x, 2.0))


def check_half(kind):
    scheme, vectors_ = of_kind(kind), [x.bfloat16() for x in vectors(300)]
    exact = scheme.transform(*(x.float() for x in vectors_), layout_of(300))
    with torch.autocast("cpu", torch.bfloat16):
        half = scheme.bfloat16().transform(*vectors_, layout_of(300))
    for rounded, expected in zip(half, exact, strict=True):
        assert rounded.dtype is torch.bfloat16
        torch.testing.assert_close(rounded.float(), expected, atol=0.05, rtol=0.02)


@each
def test_angles_are_float32_whatever_the_model_is(kind):
    check_half(kind)


def check_once(kind):
    """Layers share cosines also where only new keys are turned."""
    layers = [of_kind(kind) for _ in range(3)]
    for layout in (layout_of(), layout_of(queries=1)):
        new = layout.query_positions.size(1)
        turns = [layer._rotations(layout.last_keys(new), torch.float32) for layer in layers]
        assert all(turn is turns[0] for turn in turns)


@each
def test_layers_compute_cosines_once(kind):
    check_once(kind)


def test_other_options_have_cosines_of_their_own():
    layout, schemes = layout_of(), [*map(of_kind, ALL), scheme_of(rope_base=100.0)]
    turns = [
        scheme._rotations(layout, dtype)
        for scheme in schemes
        for dtype in (torch.float32, torch.bfloat16)
    ]
    assert len({id(turn) for turn in turns}) == len(turns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position_rope_base": 1.0}, "--position-rope-base must be at least 2, but is 1.0"),
        (
            {"position_rope_share": 0.0},
            "--position-rope-share must be above 0 and at most 1, but is 0.0",
        ),
        ({"position_rope_share": 1.5}, "--position-rope-share must be above 0 and at most 1, but"),
        ({"position_rope_factor": 0.5}, "--position-rope-factor must be at least 1, but is 0.5"),
        ({"position_rope_trained": 0}, "--position-rope-trained must be at least 1, but is 0"),
    ],
    ids=str,
)
def test_values_that_mean_nothing_are_refused(options, message):
    with pytest.raises(UserError) as error:
        PositionConfig.from_args(Namespace(position_scheme="rope", **options))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rope_scaling": "linear"},
            "--position-rope-scaling linear needs --position-rope-factor: length of the inputs",
        ),
        (
            {"rope_scaling": "yarn", "rope_factor": 2.0},
            "--position-rope-scaling yarn needs --position-rope-trained: number of positions",
        ),
        (
            {"rope_factor": 2.0},
            "--position-rope-factor 2.0 has no effect with --position-rope-scaling none: leave it",
        ),
        (
            {"rope_scaling": "linear", "rope_factor": 2.0, "rope_trained": 8},
            "--position-rope-trained 8 has no effect with --position-rope-scaling linear: leave",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit_the_scaling_are_refused(options, message):
    with pytest.raises(UserError) as error:
        scheme_of(**options)
    assert str(error.value).startswith(message)


LONGROPE = {"rope_scaling": "longrope", "rope_factor": 2.0, "rope_trained": 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--position-rope-scaling longrope needs --position-rope-short: divisors of the"),
        (
            {"rope_short": "1,2", "rope_long": "1,2"},
            "--position-rope-short must have 32 numbers, one for each pair of a head's dimensions, "
            "but has 2",
        ),
    ],
    ids=str,
)
def test_divisors_that_are_missing_or_too_few_are_refused(options, message):
    with pytest.raises(UserError) as error:
        scheme_of(**LONGROPE, **options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("text", ["", "1,x", "1,0", "1,-2", "1,nan", "1,inf"])
def test_divisors_that_are_no_numbers_above_0_are_refused(text):
    with pytest.raises(UserError) as error:
        PositionConfig.from_args(Namespace(position_scheme="rope", position_rope_long=text))
    assert str(error.value) == (
        "--position-rope-long must be numbers above 0, one for each pair of dimensions of a head, "
        f"separated by commas, but is {text!r}"
    )


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_scalings_by_length_are_refused_in_decoders(scaling):
    options = {"rope_scaling": scaling, "rope_factor": 2.0, "rope_trained": 8}
    if scaling == "longrope":
        options |= {f"rope_{name}": ",".join(["1"] * (WIDTH // 2)) for name in DIVISORS}
    with pytest.raises(UserError) as error:
        scheme_of(causal=True, **options)
    assert str(error.value) == (
        "--position-rope-scaling must be none, linear or yarn in a decoder, because cached keys "
        f"would have the frequencies of shorter inputs, but is {scaling}"
    )


def test_heads_of_an_odd_width_are_refused():
    limit = Limit(8, "--max-positions")
    with pytest.raises(UserError, match=r"must be even, .* but is 7: "):
        SCHEMES["rope"].create(AttentionShape(2, 7, 14, limit, limit))


MUTANTS: mutants.Table = [
    (check_llama, mutants.yarn_without_its_temperature, "YaRN"),
    (check_gradient, mutants.gradients_turned_on, "all pairs"),
    (check_half, mutants.angles_in_half_precision, "all pairs"),
    (check_once, mutants.nothing_that_layers_share, "all pairs"),
    (check_share, mutants.the_lowest_frequencies_turn, "0.5"),
    (check_lengths, mutants.lengths_with_padding, "dynamic"),
    (check_lengths, mutants.lengths_with_padding, "longrope"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
