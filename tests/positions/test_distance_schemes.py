"""ALiBi, KERPLE, Sandwich, FIRE and CPB beside code that others wrote, and beside their papers."""

import math

import pytest
import torch
from torch import nn

from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, PositionScheme
from diet_fairseq.positions.distances import CPB_WIDTH, published_slopes
from diet_fairseq.positions.layout import Layout
from tests.support import mutants
from tests.support.modeling import import_modeling

bloom, swin = import_modeling("bloom"), import_modeling("swinv2")

LENGTH = 9
#: of two sentences
ACROSS = {"target": (5, 3), "source": (7, 4)}


def scheme_of(
    name: object, heads: int = 4, causal: bool = False, cross: bool = False, **options: object
) -> PositionScheme:
    limit = Limit(512, "--max-positions")
    shape = AttentionShape(heads, 2, 2 * heads, limit, limit, causal, cross)
    scheme = SCHEMES[str(name)].create(shape, **options)
    if str(name) == "fire":  # an L within the sentence
        nn.init.constant_(scheme.threshold, 4 / 512)
    return scheme


def full(length: int = LENGTH, causal: bool = False) -> Layout:
    return Layout.of_self_attention(torch.zeros(1, length, dtype=torch.bool), causal)


def matrix_of(scheme: PositionScheme, layout: Layout) -> torch.Tensor:
    """The scores (B|1, H|1, Tq, Tk) of a scheme."""
    score = scheme.score(layout)
    assert score is not None
    return score.dense(layout)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance)


# --- code that others wrote ------------------------------------------------------------------


def check_bloom(heads: int) -> None:
    """BLOOM's score of a key differs by the query's position, which softmax doesn't see."""
    theirs = bloom.build_alibi_tensor(torch.ones(1, LENGTH), heads, torch.float32)  # (H, 1, Tk)
    score = matrix_of(scheme_of("alibi", heads, causal=True), full(causal=True))[0]  # (H, T, T)
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    ours, theirs = (x.masked_fill(future, -torch.inf).softmax(-1) for x in (score, theirs))
    close(ours, theirs)


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16, 20])
def test_alibi_gives_the_weights_of_bloom(heads: int) -> None:
    check_bloom(heads)


def check_swin(window: int) -> None:
    heads = 4
    theirs = swin.Swinv2SelfAttention(
        swin.Swinv2Config(), dim=16, num_heads=heads, window_size=window
    )
    network = theirs.continuous_position_bias_mlp
    scheme = scheme_of("cpb")
    with torch.no_grad():
        for linear in (network[0], network[2]):
            linear.weight.normal_()
        scheme.hidden.copy_(torch.stack([network[0].weight[:, 1], network[0].bias]))
        scheme.output.copy_(network[2].weight)
    assert network[0].out_features == CPB_WIDTH
    across = theirs.relative_coords_table[0, window - 1]  # (2 W - 1, 2): one row, all columns
    expected = 16 * torch.sigmoid(network(across))  # (2 W - 1, H)
    close(scheme.score(full(window)).line.T + 8, expected)


def test_cpb_equals_swin_v2_in_a_window_of_nine_tokens() -> None:
    check_swin(window=9)


class KerpleAsReleased(nn.Module):
    """KERPLE of one head, as github.com/chijames/KERPLE computes and clamps it."""

    def __init__(self, kind: str, bias_p: float, bias_a: float) -> None:
        super().__init__()
        self.kind = kind
        self.bias_p, self.bias_a = (nn.Parameter(torch.tensor(x)) for x in (bias_p, bias_a))

    def forward(self, diff: torch.Tensor) -> torch.Tensor:
        self.bias_a.data = self.bias_a.data.clamp(min=1e-2)
        self.bias_p.data = self.bias_p.data.clamp(min=1e-2, max=None if self.kind == "log" else 2)
        if self.kind == "log":
            return -self.bias_p * torch.log(1 + self.bias_a * diff)
        return -self.bias_a * diff.pow(self.bias_p)


#: within the bounds, below them and above them; the first is r1, which has 0 for the code's 0.01
PAIRS = [(1.5, 0.7), (0.5, 1.7), (0.3, -0.4), (0.8, 2.5)]


def check_kerple(kind: str) -> None:
    scheme = scheme_of("kerple", kerple=kind, causal=True)
    with torch.no_grad():
        for head, pair in enumerate(PAIRS):
            scheme.r1[head], scheme.r2[head] = pair
    score = matrix_of(scheme, full(causal=True))[0]  # (H, T, T)
    weights = torch.linspace(0.5, 2, LENGTH)
    (score[:, -1].flip(-1) * weights).sum().backward()
    for head, (r1, r2) in enumerate(PAIRS):
        theirs = KerpleAsReleased(kind, *((r1, r2) if kind == "log" else (r2, r1)))
        expected = theirs(torch.arange(LENGTH, dtype=torch.float32))
        close(score[head, -1].flip(0), expected)
        (expected * weights).sum().backward()
        p, a = theirs.bias_p.grad, theirs.bias_a.grad
        close(scheme.r1.grad[head], p if kind == "log" else a)
        close(scheme.r2.grad[head], a if kind == "log" else p)
    assert scheme.r2.tolist() == pytest.approx([r2 for _, r2 in PAIRS])  # nothing writes to it


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_is_the_released_code_s_with_its_bounds_and_gradients(kind: str) -> None:
    check_kerple(kind)


def check_bound(kind: str) -> None:
    """An r1 below 0 is taken as 0, which the released code has as 0.01, and can come back."""
    scheme = scheme_of("kerple", kerple=kind)
    nn.init.constant_(scheme.r1, -0.5)
    line = scheme.score(full()).line
    assert not line.any()
    line.sum().backward()
    assert bool((scheme.r1.grad != 0).all())


@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_s_scores_never_rise_with_the_distance(kind: str) -> None:
    check_bound(kind)


class FireAsListed(nn.Module):
    """FIRE as the listing of the paper's appendix and FAT5's positional_encoding.py have it."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, heads))
        self.c, self.multiplier = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(1.0))

    def forward(self, length: int) -> torch.Tensor:
        positions = torch.arange(length, dtype=torch.float)
        distance = positions[:, None] - positions[None, :]
        threshold = torch.abs(self.multiplier * 512.0)
        longest = torch.max(positions, threshold)[:, None]
        distance = torch.sign(distance) * torch.log(torch.abs(self.c * distance) + 1)
        longest = torch.log(torch.abs(self.c * longest) + 1) + 1e-6
        return self.mlp((distance / longest).unsqueeze(-1)).permute(2, 0, 1)  # (H, T, T)


def listed(scheme: PositionScheme, c: float, multiplier: float) -> FireAsListed:
    """The listing's module, with the scheme's network, and these two numbers in both."""
    theirs = FireAsListed(len(scheme.output), scheme.hidden.size(1))
    with torch.no_grad():
        scheme.c.fill_(c)
        scheme.threshold.fill_(multiplier)
        theirs.c.fill_(c)
        theirs.multiplier.fill_(multiplier)
        theirs.mlp[0].weight.copy_(scheme.hidden[0].unsqueeze(1))
        theirs.mlp[0].bias.copy_(scheme.hidden[1])
        theirs.mlp[2].weight.copy_(scheme.output)
        theirs.mlp[2].bias.zero_()  # softmax is invariant to it, and ours has none
    return theirs


def check_fire(numbers: tuple[float, float]) -> None:
    scheme = scheme_of("fire")
    theirs = listed(scheme, *numbers)
    close(matrix_of(scheme, full())[0], theirs(LENGTH))


@pytest.mark.parametrize("numbers", [(0.1, 1.0), (0.7, 4 / 512), (-0.3, -6 / 512)])
def test_fire_is_the_paper_s_listing(numbers: tuple[float, float]) -> None:
    """With L within the sentence, too, where the normalizer grows with the query's position."""
    check_fire(numbers)


# --- the papers, in loops --------------------------------------------------------------------


def slopes_by_the_paper(heads: int) -> list[float]:
    """Press et al. (2022), section 3, and for other than powers of 2 the footnote of their code."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return slopes_by_the_paper(lower) + slopes_by_the_paper(2 * lower)[::2][: heads - lower]


def test_slopes_are_the_published_ones() -> None:
    for heads in range(1, 40):
        close(published_slopes(heads), torch.tensor(slopes_by_the_paper(heads)))


def check_across(lengths: dict[str, tuple[int, int]]) -> None:
    masks = {
        side: torch.arange(max(sizes)) < max(sizes) - torch.tensor(sizes).unsqueeze(1)
        for side, sizes in lengths.items()
    }
    target = Layout.of_self_attention(masks["target"], causal=True)
    layout = Layout.of_cross_attention(target, masks["source"])
    score = matrix_of(scheme_of("alibi", cross=True), layout).expand(2, -1, -1, -1)
    for row, (queries, keys) in enumerate(zip(*lengths.values(), strict=True)):
        for head, slope in enumerate(slopes_by_the_paper(4)):
            for i in range(queries):
                for j in range(keys):
                    ours = score[row, head, 5 - queries + i, 7 - keys + j]
                    assert float(ours) == pytest.approx(-slope * abs(i - j))


def test_alibi_in_cross_attention_counts_from_both_beginnings() -> None:
    """Sentences are padded on the left: offsets of positions are not those of slots."""
    check_across(ACROSS)


#: EIFY/fairseq, README: the biases of a slope of 1
SHIFTED = [
    [0, -0.5, -1.5, -2.5, -3.5],
    [-1, 0, -0.5, -1.5, -2.5],
    [-2, -1, 0, -0.5, -1.5],
    [-3, -2, -1, 0, -0.5],
    [-4, -3, -2, -1, 0],
]


def check_shifted(slopes: str) -> None:
    score = matrix_of(scheme_of("alibi", slopes=slopes, alibi="shifted"), full(5))[0]
    expected = torch.tensor(slopes_by_the_paper(4)).view(-1, 1, 1) * torch.tensor(SHIFTED)
    close(score, expected)
    causal = matrix_of(scheme_of("alibi", slopes=slopes, causal=True), full(5))[0]
    close(score.tril(), causal.tril())


@pytest.mark.parametrize("slopes", ["fixed", "learned"])
def test_shifted_alibi_has_the_biases_of_its_source_in_encoders(slopes: str) -> None:
    check_shifted(slopes)


def test_learned_slopes_start_from_the_published_ones() -> None:
    learned, fixed = scheme_of("alibi", slopes="learned"), scheme_of("alibi")
    assert not list(fixed.parameters())
    close(learned.score(full()).line, fixed.score(full()).line)
    learned.zero()
    learned.score(full()).line.sum().backward()
    assert bool((learned.slopes.grad != 0).all())


def check_sandwich(heads: int) -> None:
    """Chi et al. (2023): p of Vaswani et al. (2017), 128 wide, head by head."""
    width, score = 128, matrix_of(scheme_of("sandwich", heads), full())[0]

    def p(position: int) -> list[float]:
        angles = [position / 10000 ** (2 * k / width) for k in range(width // 2)]
        return [f(angle) for angle in angles for f in (math.sin, math.cos)]

    for head in range(heads):
        for i in range(LENGTH):
            for j in range(LENGTH):
                product = sum(x * y for x, y in zip(p(i), p(j), strict=True))
                expected = (product - width / 2) / (8 * (head + 1) / heads)
                assert float(score[head, i, j]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("heads", [4, 12])
def test_sandwich_is_the_product_of_two_sinusoidal_positions(heads: int) -> None:
    check_sandwich(heads)


def test_sandwich_has_nothing_to_share() -> None:
    limit = Limit(512, "--max-positions")
    shared = AttentionShape(1, 2, 8, limit, limit)  # --position-sharing head
    for name in ("sandwich", "alibi"):
        scheme = SCHEMES[name].create(shared)
        close(scheme.score(full()).line, scheme_of(name).score(full()).line)


# --- initial values --------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "largest"), [("log", (2, 1)), ("power", (1, 2))])
def test_kerple_starts_as_the_released_code(kind: str, largest: tuple[float, float]) -> None:
    torch.manual_seed(1)
    scheme = scheme_of("kerple", heads=4000, kerple=kind)
    for values, most in zip((scheme.r1, scheme.r2), largest, strict=True):
        parameter = values.detach()
        assert 0 <= float(parameter.min()) < float(parameter.max()) <= most
        assert float(parameter.mean()) == pytest.approx(most / 2, abs=0.05)


def test_fire_starts_as_the_paper_s_listing() -> None:
    torch.manual_seed(1)
    limit = Limit(512, "--max-positions")
    scheme = SCHEMES["fire"].create(AttentionShape(500, 2, 1000, limit, limit), fire_width=400)
    theirs = FireAsListed(500, 400)
    pairs = [
        (scheme.hidden[0], theirs.mlp[0].weight), (scheme.hidden[1], theirs.mlp[0].bias),
        (scheme.output, theirs.mlp[2].weight),
    ]  # fmt: skip
    for our, their in ((our.detach(), their.detach()) for our, their in pairs):
        assert float(our.abs().max()) == pytest.approx(float(their.abs().max()), rel=0.05)
        assert float(our.std()) == pytest.approx(float(their.std()), rel=0.1)
    assert float(scheme.c) == pytest.approx(float(theirs.c))
    assert float(scheme.threshold) == float(theirs.multiplier)


MUTANTS: mutants.Table = [
    (check_bloom, mutants.slopes_of_a_formula_for_powers_of_two, 12),
    (check_across, mutants.a_cross_score_of_slots, ACROSS),
    (check_shifted, mutants.scores_of_the_other_direction, "fixed"),
    (check_kerple, mutants.kernels_without_bounds, "power"),
    (check_bound, mutants.kernels_that_are_stuck_at_a_bound, "log"),
    (check_sandwich, mutants.ratios_that_multiply, 4),
    (check_fire, mutants.a_normalizer_of_the_key, (0.7, 4 / 512)),
    (check_swin, mutants.offsets_without_a_sign, 9),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
