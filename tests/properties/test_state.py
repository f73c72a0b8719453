"""Models stay the same when they are saved, loaded, copied, pruned or recomputed."""

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from fairseq.checkpoint_utils import prune_state_dict
from torch.autograd.graph import saved_tensors_hooks

from diet_fairseq.attention import attend, backends
from diet_fairseq.attention.backends import CallShape
from diet_fairseq.config import PositionConfig
from diet_fairseq.positions.tupe import TupeA
from diet_fairseq.transformer import attention, layer
from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.tiny import LAYERS, TOLERANCE, Case

close = torch.testing.assert_close


# --- saving ----------------------------------------------------------------------------------


def saved(model):
    """The state dict, through a file."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@torch.no_grad()
def check_saving(case: Case) -> None:
    model = tiny.model_of(case)
    loaded = tiny.fresh(case, seed=2)
    assert tiny.difference(tiny.logits(loaded), tiny.logits(model)) > tiny.VISIBLE
    once = saved(model)
    loaded.load_state_dict(once)
    assert torch.equal(tiny.logits(loaded), tiny.logits(model))
    twice = saved(loaded)
    assert all(torch.equal(twice[name], value) for name, value in once.items())


@tiny.each(tiny.NO_BACKEND)
def test_a_model_saved_and_loaded_is_the_same_bit_for_bit(case):
    check_saving(case)


def check_arguments(case: Case) -> None:
    """A checkpoint's arguments name the scheme and are enough to build the model."""
    args = tiny.arguments(case)
    model = tiny.from_arguments(args)
    restored = pickle.loads(pickle.dumps(args))
    assert restored.position_scheme == case.scheme
    in_force = PositionConfig.from_args(restored)
    for name, value in vars(in_force).items():
        assert vars(restored).get(name, "absent") == value, name
        # a gain that is not given stands in the state dict alone
        expected = dict(case.options) if name == "position_gain" else {name: case.option(name)}
        assert expected.get(name) in (None, value), name
    tiny.from_arguments(restored).load_state_dict(model.state_dict())


@tiny.each(tiny.NO_BACKEND)
def test_a_checkpoint_s_arguments_name_the_scheme_and_every_option(case):
    check_arguments(case)


# --- sharing ---------------------------------------------------------------------------------

IN_HEADS = [
    case
    for case in tiny.NO_BACKEND
    if not case.is_hybrid
    and (case.kind.in_attention or case.option("segment_scheme") == "per-head")
]


def check_sharing(case: Case) -> None:
    """Layers share one module or have one each, once in the checkpoint, also after a copy."""
    model = tiny.model_of(case)
    deep = copy.deepcopy(model)
    loaded = tiny.copy_of(model, case)
    sharing = case.option("position_sharing")
    stacks = ["encoder"] + ["decoder"] * (case.family == "transformer")
    stacks += ["cross"] * bool(case.option("position_cross_attention"))
    kinds = ["positions"] * case.kind.in_attention
    kinds += ["segments"] * (case.option("segment_scheme") == "per-head")
    for variant in (model, deep, loaded):
        schemes = tiny.schemes_in(variant)
        assert len(schemes) == len(stacks) * len(kinds) * (1 if sharing == "layer" else LAYERS)
        for scheme in schemes.values():
            assert scheme.shape.heads == (1 if sharing == "head" else tiny.HEADS)
        in_file = [name for name in variant.state_dict() if name.startswith(tuple(schemes))]
        assert len(in_file) == sum(len(scheme.state_dict()) for scheme in schemes.values())
        parameters = tiny.position_parameters(variant).values()
        assert len({parameter.data_ptr() for parameter in parameters}) == len(parameters)
        acting = {scheme for attention in attentions(variant) for scheme in attention.schemes}
        assert acting == set(schemes.values())
    ours = {p.data_ptr() for p in model.parameters()}
    assert ours.isdisjoint(p.data_ptr() for p in deep.parameters())


@tiny.each(IN_HEADS)
def test_sharing_is_what_it_says_after_a_load_and_a_deepcopy_too(case):
    check_sharing(case)


def check_computed_once(case: Case) -> None:
    """Scores are computed per stack of layers and forward pass, not per layer."""
    model, times, original = tiny.model_of(case), [], attend.compute_scores

    def counted(schemes, *rest):
        times.extend(schemes)
        return original(schemes, *rest)

    with pytest.MonkeyPatch.context() as patch:
        for module in (attend, attention):
            patch.setattr(module, "compute_scores", counted)
        tiny.logits(model)
    assert len(times) == len(set(times)) == len(tiny.schemes_in(model))


SHARED = [case for case in IN_HEADS if case.option("position_sharing") == "layer"]


@tiny.each(SHARED)
def test_shared_scores_are_computed_once(case):
    check_computed_once(case)


@torch.no_grad()
def check_projected_once(case: Case) -> None:
    """Positions are projected once in a pass over sentences, and once in a decoding step."""
    model, projected, original = tiny.model_of(case), [], TupeA._factors

    def counted(self, layout):
        projected.append(self)
        return original(self, layout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TupeA, "_factors", counted)
        tiny.logits(model)
        assert len(projected) == len(set(projected)) == len(tiny.schemes_in(model))
        state: dict = {}
        encoder_out = model.encoder(tiny.padded(tiny.SOURCES, left_pad=True))
        targets = tiny.padded(tiny.TARGETS, left_pad=False)
        for step in (1, 2, 3):
            projected.clear()
            model.decoder(targets[:, :step], encoder_out=encoder_out, incremental_state=state)
            assert projected == [model.decoder.positions]


@pytest.mark.parametrize("scheme", ["tupe_a", "bert_ad"])
def test_positions_are_projected_once_in_decoding_too(scheme):
    check_projected_once(Case(scheme))


# --- activation checkpointing ----------------------------------------------------------------


def check_checkpointing(case: Case, **options: float) -> None:
    """Gradients are the same with it, of two batches padded differently before one backward."""
    plain = tiny.fresh(case, **options).train()
    saving = tiny.copy_of(plain, case, checkpoint_activations=True, **options).train()
    results = []
    for model in (saving, plain):  # the first is the one that may compare backends
        torch.default_generator.manual_seed(5)
        outs = [tiny.logits(model, left_source=s, left_target=t) for s, t in tiny.SIDES]
        results.append(
            tiny.gradients(model, torch.stack([tiny.some_loss(out) for out in outs]).sum())
        )
    tiny.assert_same_gradients(*results)


@tiny.each(tiny.CASES)
def test_activation_checkpointing_gives_the_same_gradients(case):
    check_checkpointing(case)


def test_offloading_activations_moves_the_input_of_every_layer(monkeypatch):
    moved = []

    def recorded() -> saved_tensors_hooks:
        return saved_tensors_hooks(lambda x: moved.append(x) or x.clone(), lambda x: x)

    monkeypatch.setattr(layer, "save_on_cpu", recorded)
    case = tiny.named("t5")
    plain = tiny.fresh(case).train()
    offloading = tiny.copy_of(plain, case, offload_activations=True, checkpoint_activations=True)
    results = [
        tiny.gradients(model, tiny.some_loss(tiny.logits(model)))
        for model in (offloading.train(), plain)
    ]
    shapes = [tuple(tensor.shape) for tensor in moved]
    packed = (sum(map(len, tiny.SOURCES)), 1, tiny.DIM)  # the encoder leaves padding out
    target = (len(max(tiny.TARGETS, key=len)), len(tiny.TARGETS), tiny.DIM)
    assert shapes.count(packed) == LAYERS
    assert shapes.count(target) == 2 * LAYERS  # which is the shape of the encoder's output, too
    assert {len(shape) for shape in shapes} <= {0, 1, 2, 3}  # and no attention weights
    tiny.assert_same(*results)


@contextmanager
def choosing(choose: Callable[[CallShape], str]) -> Iterator[None]:
    """Have a function choose what "auto" takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "choose_backend", choose)
        yield


def check_dropout(case: Case) -> None:
    """Another backend draws other elements: the one of training is taken in both passes."""
    with choosing(lambda request: "reference" if request.training else "sdpa"):
        check_checkpointing(case, attention_dropout=0.3)


@tiny.each(tiny.first_of_each_scheme(tiny.CASES))
def test_activation_checkpointing_drops_the_same_elements_twice(case):
    check_dropout(case)


# --- layers dropped and pruned ---------------------------------------------------------------


def check_layers(case: Case) -> None:
    """A layer left alone keeps its own table: dropped in training, or pruned from the file."""
    model = tiny.fresh(case, encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    layer = "1"
    only_layer_1(model)
    dropped = tiny.logits(model)

    pruning = {"encoder_layers_to_keep": layer, "decoder_layers_to_keep": layer}
    args = tiny.arguments(case, **pruning)
    small = tiny.from_arguments(args, seed=2)
    assert all(len(stack.layers) == 1 for stack in stacks_of(small))
    small.load_state_dict(prune_state_dict(model.state_dict(), args))
    close(tiny.logits(small), dropped, **TOLERANCE)


def stacks_of(model) -> list:
    if tiny.is_encoder(model):
        return [model.encoder.sentence_encoder]
    return [model.encoder, model.decoder]


def only_layer_1(model) -> None:
    """Seed torch so that LayerDrop's next draws keep layer 1 of the encoder and of the decoder."""
    assert all(stack.stack_config.layerdrop == 0.5 for stack in stacks_of(model))
    torch.default_generator.manual_seed(seed_that_keeps_layer_1())


@cache
def seed_that_keeps_layer_1() -> int:
    def keeps(seed: int) -> bool:
        draw = torch.Generator().manual_seed(seed)
        draws = [torch.empty(LAYERS).uniform_(generator=draw) > 0.5 for _ in range(2)]
        return all(draw.tolist() == [False, True] for draw in draws)

    return next(filter(keeps, range(1000)))


@tiny.each([case for case in tiny.NO_BACKEND if not case.is_hybrid])
def test_a_layer_keeps_its_own_positions_when_others_are_dropped_or_pruned(case):
    check_layers(case)


# --- embeddings ------------------------------------------------------------------------------


def check_tied(case: Case) -> None:
    """Source, target and output share one matrix, and there are no more parameters."""
    model = tiny.fresh(case, share_all_embeddings=True)
    untied = tiny.model_of(case)
    assert model.encoder.embed_tokens is model.decoder.embed_tokens
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight
    tied_count, untied_count = (sum(p.numel() for p in m.parameters()) for m in (model, untied))
    assert untied_count - tied_count == 2 * tiny.VOCABULARY * tiny.DIM
    loaded = tiny.copy_of(model, case, share_all_embeddings=True)
    assert torch.equal(tiny.logits(loaded), tiny.logits(model))


@tiny.each(tiny.first_of_each_scheme(tiny.TRANSLATION))
def test_tied_embeddings_stay_tied(case):
    check_tied(case)


MUTANTS: mutants.Table = [
    (check_saving, mutants.a_table_that_is_not_saved, "diet_rel"),
    (check_arguments, mutants.options_that_are_not_written_down, "diet_rel"),
    (check_sharing, mutants.a_table_for_every_layer_by_accident, "t5"),
    (check_computed_once, mutants.every_layer_computes_what_all_share, "tupe_r"),
    (check_projected_once, mutants.nothing_that_layers_share, "bert_ad"),
    (check_checkpointing, mutants.positions_parked_from_one_pass_to_the_next, "diet_abs"),
    (check_dropout, mutants.dropout_drawn_anew, "diet_rel"),
    (check_layers, mutants.tables_numbered_by_the_layers_that_are_kept, "diet_rel"),
    (check_tied, mutants.embeddings_that_are_not_tied, "t5"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
