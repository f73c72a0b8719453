"""``--position-sampling``: random positions in training, the same for all that is computed."""

import pytest
import torch

from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.models.adapters import PositionalDecoder
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.distances import Fire
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.sampling import PositionSampling
from tests.support import mutants, tiny
from tests.support.commands import TINY, corpus, run
from tests.support.tiny import PAD, TOLERANCE, Case, padded

close = torch.testing.assert_close
KINDS = ("shifted", "randomised")
#: schemes that read sampled positions
CASES = [
    case
    for case in tiny.first_of_each_scheme(tiny.TRANSLATION) + tiny.first_of_each_scheme(
        [case for case in tiny.ENCODERS if not case.kind.compressed]
    )
    if case.scheme not in ("none", "cope", "fox")
]  # fmt: skip


def layouts(padding, kind, length=16, seed=1):
    torch.default_generator.manual_seed(seed)
    return PositionSampling(kind, length).draw(Layout.of_self_attention(padding), len(padding))


def draws(kind, padding, times=2000, length=7):
    """(times * B, T) positions."""
    return torch.cat([layouts(padding, kind, length, seed).key_positions for seed in range(times)])


def check_shifts(kind):
    padding = torch.tensor([[False] * 4, [True, True, False, False], [False, False, True, True]])
    positions = draws(kind, padding, 600).view(-1, 3, 4)
    assert (positions[:, 0].diff() == 1).all()
    for row, real in ((0, slice(4)), (1, slice(2, 4)), (2, slice(2))):
        first = positions[:, row, real][:, 0]
        size = real.stop - (real.start or 0)
        counts = first.bincount(minlength=8 - size)
        assert len(counts) == 8 - size
        assert (counts - 600 / len(counts)).abs().max() < 60
    assert positions.max() == 6


def test_shifted_positions_begin_anywhere_that_leaves_room():
    check_shifts("shifted")


def check_choices(kind):
    padding = torch.tensor([[False, False, True], [True, False, False], [False, False, False]])
    positions = draws(kind, padding, 1000, 4).view(-1, 3, 3)
    for row, real in ((0, slice(2)), (1, slice(1, 3)), (2, slice(3))):
        places = positions[:, row, real]
        assert (places.diff() > 0).all()
        subsets, counts = places.unique(dim=0, return_counts=True)
        assert len(subsets) == (4 if row == 2 else 6)
        assert (counts - 1000 / len(subsets)).abs().max() < 80
    assert positions.max() == 3


def test_randomised_positions_are_every_choice_in_its_order():
    check_choices("randomised")


def check_layout(kind):
    padding = padded(tiny.SOURCES, left_pad=True).eq(PAD)
    layout, plain = layouts(padding, kind), Layout.of_self_attention(padding, causal=True)
    assert layout.bounds == (16, 16)
    assert not layout.is_toeplitz
    assert layout.length is None
    assert torch.equal(layout.key_indices, plain.key_positions)
    expected = layout.key_positions.unsqueeze(1) - layout.query_positions.unsqueeze(2)
    assert torch.equal(layout.offsets, expected)
    line = torch.arange(31.0).unsqueeze(0)
    assert torch.equal(layout.expand_offsets(line)[:, 0], expected + 15.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_of_sampled_positions_keeps_the_rest(kind):
    check_layout(kind)


def check_pair(kind):
    source, target = (torch.zeros(64, n).bool() for n in (5, 9))
    drawn = layouts(source, kind, 12)
    following = PositionSampling(kind, 12).draw(
        Layout.of_self_attention(target, causal=True), 64, drawn.key_positions
    )
    first = drawn.key_positions[:, 0]
    assert first.max() == 7
    assert torch.equal(following.key_positions[:, 0], first.clamp(max=3))
    crossing = Layout.of_cross_attention(following, source, (drawn.key_positions, 12))
    assert crossing.bounds == (12, 12)
    assert torch.equal(crossing.key_positions, drawn.key_positions)
    assert torch.equal(crossing.query_positions, following.query_positions)


def test_source_and_target_of_a_pair_have_one_shift():
    check_pair("shifted")


def outputs(model, seed=1):
    torch.default_generator.manual_seed(seed)
    return tiny.logits(model)


def check_training(case, kind="randomised"):
    model, plain = tiny.fresh(case, position_sampling=kind), tiny.model_of(case)
    close(outputs(model), outputs(plain), rtol=0, atol=0)
    model.train()
    assert torch.equal(outputs(model), outputs(model))  # by the seed
    offsets_alone = not (case.kind.absolute or case.option("position_input") != "none")
    if kind == "randomised":
        assert tiny.difference(outputs(model), outputs(plain)) > tiny.VISIBLE
    elif case.scheme == "fire":
        pass  # it notices a shift in the decoder alone
    elif offsets_alone:
        close(outputs(model), outputs(plain), **TOLERANCE)
    else:
        assert tiny.difference(outputs(model), outputs(plain)) > tiny.VISIBLE


def kind_of(case):
    """Each scheme has one kind in translation models and the other one in encoders."""
    return KINDS[(list(SCHEMES).index(case.scheme) + (case.family == "transformer")) % 2]


@tiny.each(CASES)
def test_training_draws_positions_and_evaluation_does_not(case):
    check_training(case, kind_of(case))


def check_recomputed_layers(case, kind="randomised"):
    plain = tiny.fresh(case, position_sampling=kind).train()
    saving = tiny.copy_of(plain, case, position_sampling=kind, checkpoint_activations=True).train()
    gradients = [tiny.gradients(model, tiny.some_loss(outputs(model))) for model in (saving, plain)]
    tiny.assert_same_gradients(*gradients)


@tiny.each(CASES)
def test_all_layers_and_a_recomputed_one_have_the_same_positions(case):
    check_recomputed_layers(case, kind_of(case))


def check_plain_draw(case):
    """With 0, 1, ... drawn, training computes what it does without sampling, padding included."""

    def unshifted(self, layout, batch, source=None):
        return layout.with_positions(layout.key_positions.expand(batch, -1), self.length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PositionSampling, "draw", unshifted)
        model = tiny.fresh(case, position_sampling="shifted").train()
        for left_source, left_target in tiny.SIDES:
            sides = {"left_source": left_source, "left_target": left_target}
            expected = tiny.logits(tiny.model_of(case), **sides)
            close(tiny.logits(model, **sides), expected, **TOLERANCE)


@tiny.each([case for case in CASES if case.kind.in_attention or case.scheme == "sinusoidal"])
def test_sampling_plain_positions_changes_nothing(case):
    check_plain_draw(case)


def check_crossing(case):
    model = tiny.fresh(case, position_sampling="randomised").train()
    seen = []
    original = PositionalDecoder._create_cross_context
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PositionalDecoder, "_create_cross_context",
                      lambda *x: seen.append(original(*x)) or seen[-1])  # fmt: skip
        drawn = model.encoder(padded(tiny.SOURCES, True))
        target = padded(tiny.TARGETS, False)
        model.decoder(target, encoder_out=drawn)
    assert torch.equal(seen[0].layout.key_positions, drawn["positions"][0])
    assert seen[0].layout.query_positions.shape == target.shape


CROSSING = Case("diet_abs", (("position_cross_attention", True),))


def test_cross_attention_sees_the_positions_of_both_sides():
    check_crossing(CROSSING)


REFUSED = {
    ("diet_abs", "shifted", 17): "--position-sampling-length 17 must not exceed "
    "--max-source-positions 16: lower it, or train with a larger --max-source-positions",
    ("t5", "shifted", 0): "--position-sampling-length must be at least 1, but is 0",
}


@pytest.mark.parametrize(("scheme", "kind", "length"), REFUSED)
def test_invalid_sampling_is_refused(scheme, kind, length):
    with pytest.raises(UserError) as refused:
        tiny.fresh(Case(scheme), position_sampling=kind, position_sampling_length=length)
    assert str(refused.value) == REFUSED[scheme, kind, length]


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["linformer", "diet_abs_lin"])
def test_compressed_keys_mix_tokens_by_their_sampled_positions(scheme):
    case = Case(scheme, family="roberta").but(position_input="none")
    model = tiny.fresh(case, position_sampling="randomised")
    plain = tiny.logits(model.eval())
    sampled = [tiny.logits(model.train()) for _ in range(2)]
    assert all(tiny.difference(plain, logits) > tiny.VISIBLE for logits in sampled)
    assert tiny.difference(*sampled) > tiny.VISIBLE


def test_a_sentence_longer_than_the_length_is_refused():
    model = tiny.fresh(
        Case("t5"), position_sampling="randomised", position_sampling_length=8
    ).train()
    with pytest.raises(UserError) as refused:
        tiny.logits(model)
    assert str(refused.value) == (
        "a sentence of 9 tokens is longer than --position-sampling-length 8: shorten it, or raise "
        "this option"
    )
    tiny.logits(model.eval())


def test_a_relative_scheme_may_draw_from_more_than_its_limit():
    args = tiny.arguments(Case("t5"), position_sampling="randomised", position_sampling_length=900)
    model = tiny.from_arguments(args).train()
    assert outputs(model).isfinite().all()
    assert PositionConfig.from_args(args).position_sampling_length == 900


def test_fire_reads_no_more_pairs_than_a_batch_has(monkeypatch):
    numbers_read = []
    monkeypatch.setattr(
        Fire, "score_distances", lambda self, x: numbers_read.append(x.numel()) or x.unsqueeze(-1)
    )
    layout = layouts(torch.zeros(3, 4, dtype=torch.bool), "randomised", length=1024)
    limit = Limit(1024, "--max-positions")
    Fire.create(AttentionShape(1, 2, 2, limit, limit)).score(layout)
    assert numbers_read == [3 * 4 * 4]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_draws_what_an_uninterrupted_one_does(kind, tmp_path):
    data = corpus(tmp_path)
    options = [*TINY[2:], "--arch", "transformer_sinusoidal", "--position-sampling", kind]
    models = []
    for name, stops in (("whole", [4]), ("parts", [2, 4])):
        for stop in stops:
            folder = tmp_path / name
            done = run("train", data, *options, "--max-update", stop, "--save-dir", folder)
            assert done.status == 0, done.err
        state = torch.load(folder / "checkpoint_last.pt", weights_only=False)
        models.append(state["model"])
    for key, value in models[0].items():
        assert torch.equal(value, models[1][key]), key
    done = run("generate", data, "--source-lang", "de", "--target-lang", "en", "--cpu",
               "--max-len-b", 5, "--path", folder / "checkpoint_last.pt")  # fmt: skip
    assert done.status == 0, done.err


MUTANTS: mutants.Table = [
    (check_shifts, mutants.a_shift_of_the_longest_sentence, "shifted"),
    (check_choices, mutants.random_positions_without_gaps, "randomised"),
    (check_layout, mutants.random_offsets_read_as_slots, "randomised"),
    (check_pair, mutants.a_target_with_a_shift_of_its_own, "shifted"),
    (check_training, mutants.positions_that_are_never_drawn, "rope"),
    (check_recomputed_layers, mutants.positions_drawn_anew_in_every_layer, "diet_rel"),
    (check_plain_draw, mutants.positions_one_further_on, "diet_abs"),
    (check_crossing, mutants.sources_at_plain_positions, str(CROSSING)),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
