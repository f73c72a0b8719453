"""Segments, heads and sizes of encoders, and the numbers of TUPE's own code."""

import logging

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.dataclass.configs import EMAConfig
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.ema import EMA

from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from tests.support import mutants, tiny
from tests.support.tiny import PAD, SOURCES, TOLERANCE, Case, padded

close = torch.testing.assert_close
BERTS = [case for case in tiny.ENCODERS if case.family == "bert"]
FIRST = tiny.first_of_each_scheme(tiny.ENCODERS)
FIRST_BERTS = tiny.first_of_each_scheme(BERTS)


# --- segments --------------------------------------------------------------------------------


@torch.no_grad()
def check_segments(case: Case) -> None:
    """Which token belongs to which segment matters; that there is only one does not, in heads."""
    model = tiny.model_of(case)
    (words,) = tiny.sentences(8)
    halves = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    outs = {
        name: model(words[None], segments=segments)[0]
        for name, segments in {
            "not given": None,
            "all first": torch.zeros_like(halves),
            "all second": torch.ones_like(halves),
            "halves": halves,
            "the other half": 1 - halves,
        }.items()
    }
    assert torch.equal(outs["not given"], outs["all first"])
    told_apart = case.option("segment_scheme") != "none"
    for name in ("halves", "the other half"):
        assert (tiny.difference(outs[name], outs["all first"]) > tiny.VISIBLE) == told_apart
    if case.option("segment_scheme") == "input":
        assert tiny.difference(outs["all second"], outs["all first"]) > tiny.VISIBLE
    else:
        close(outs["all second"], outs["all first"], **TOLERANCE)


@tiny.each(BERTS)
def test_segments_matter_where_the_model_has_them(case):
    check_segments(case)


def test_segment_scores_start_at_zero_one_matrix_per_head():
    args = tiny.arguments(Case("diet_rel", family="bert"), num_segments=3)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, tiny.Task)
    weights = [module.weight for name, module in tiny.schemes_in(model).items() if "segm" in name]
    assert [tuple(weight.shape) for weight in weights] == [(tiny.HEADS, 3, 3)] * tiny.LAYERS
    assert not any(weight.count_nonzero() for weight in weights)


@pytest.mark.parametrize("scheme", ["input", "per-head"])
@pytest.mark.parametrize("segment", [2, -1])
def test_a_segment_id_out_of_range_is_refused(scheme, segment):
    model = tiny.model_of(Case("diet_rel", (("segment_scheme", scheme),), "bert"))
    tokens = padded(SOURCES, left_pad=False)
    segments = torch.zeros_like(tokens)
    segments[0, 3] = segment
    with pytest.raises(UserError) as refused:
        model(tokens, segments=segments)
    assert str(refused.value) == (
        f"a batch has segment id {segment}, but with --num-segments 2 ids are 0 to 1: correct the "
        "data, or train with more segments"
    )


@pytest.mark.parametrize("scheme", ["input", "per-head"])
def test_segments_are_one_id_a_token_of_any_integer_type(scheme):
    model = tiny.model_of(Case("diet_rel", (("segment_scheme", scheme),), "bert"))
    tokens = padded(SOURCES, left_pad=False)
    segments = torch.ones_like(tokens)
    close(model(tokens, segments=segments.int())[0], model(tokens, segments=segments)[0])
    assert model(tokens[:0], segments=segments[:0])[0].shape[0] == 0
    with pytest.raises(UserError) as refused:
        model(tokens, segments=segments[:1])
    assert str(refused.value) == (
        "segments must have the shape of tokens, (3, 9), but have (1, 9): give one segment id for "
        "each token"
    )


# --- what reads the first token --------------------------------------------------------------


@torch.no_grad()
def check_heads(case: Case) -> None:
    """A classification head and the next-sentence head read the first real token of a sentence."""
    options = {"nsp": True} if case.family == "bert" else {}
    model = tiny.fresh(case, **options)
    model.register_classification_head("task", num_classes=3)
    model.eval()

    def read(sources, left_pad):
        tokens = padded(sources, left_pad)
        segments = tiny.segments_of(model, sources, left_pad)
        classes, extra = model(tokens, segments=segments, classification_head_name="task")
        return torch.cat([classes, *([extra["nsp_logits"]] if options else [])], dim=1)

    alone = torch.cat([read([source], left_pad=True) for source in SOURCES])
    for left_pad in (True, False):
        close(read(SOURCES, left_pad), alone, **TOLERANCE)
    changed = [torch.cat([tiny.sentences(2, seed=9)[0][:1], source[1:]]) for source in SOURCES[:2]]
    assert tiny.difference(read(changed, left_pad=True), alone[:2]) > tiny.VISIBLE


@tiny.each(FIRST + FIRST_BERTS)
def test_heads_read_the_first_real_token_on_whichever_side_the_padding_is(case):
    check_heads(case)


def test_a_pooler_that_nothing_reads_is_not_trained():
    case = Case("diet_rel", family="bert")
    assert not tiny.fresh(case).pooler.weight.requires_grad
    assert tiny.fresh(case, nsp=True).pooler.weight.requires_grad


def test_without_nsp_the_next_sentence_head_is_dropped_with_a_warning(caplog):
    case = Case("diet_rel", family="bert")
    pretrained = tiny.fresh(case, nsp=True)
    model = tiny.fresh(case, seed=2)
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(pretrained.state_dict())
    assert "dropping the checkpoint's next-sentence head: this model has no --nsp" in caplog.text
    close(tiny.logits(model), tiny.logits(pretrained), **TOLERANCE)


@tiny.each(
    [
        Case("tupe_free", family="roberta"),
        Case("bert_ad", family="roberta"),
        Case("tupe_a", family="roberta").but(position_no_rescale=True),
    ]
)
def test_fairseq_keeps_a_moving_average_of_the_parameters(case):
    model = tiny.model_to_change(case)
    average = EMA(model, EMAConfig(store_ema=True))
    average.step(model)
    averaged, expected = average.get_model().state_dict(), model.state_dict()
    for name in {*expected} - {"encoder.sentence_encoder.version"}:  # fairseq's own begins anew
        close(averaged[name], expected[name], msg=name)


# --- TUPE's released code --------------------------------------------------------------------


@pytest.fixture(params=["tupe_a", "tupe_r"])
def released(request, shared_data):
    """(our model, a checkpoint as TUPE's code writes it, its numbers); see SOURCE.md there."""
    path = shared_data / "tupe_reference" / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the shared data")
    numbers = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    words = Dictionary()
    for number in range(40 - len(words)):
        words.add_symbol(str(number))
    args = tiny.Namespace(
        arch=f"bert_{request.param}",
        segment_scheme="none",
        max_positions=32,
        encoder_layers=3,
        encoder_embed_dim=24,
        encoder_ffn_embed_dim=48,
        encoder_attention_heads=4,
    )
    ARCH_CONFIG_REGISTRY[args.arch](args)
    task = tiny.Namespace(source_dictionary=words)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).eval()
    checkpoint = {
        f"decoder.sentence_encoder.{name.removeprefix('weight/')}": value
        for name, value in numbers.items()
        if name.startswith("weight/")
    }
    for name, value in model.encoder.lm_head.state_dict().items():
        checkpoint[f"decoder.lm_head.{name}"] = value.clone()
    tied = checkpoint["decoder.sentence_encoder.embed_tokens.weight"]
    checkpoint["decoder.lm_head.weight"] = tied
    return model, checkpoint, numbers


def test_a_checkpoint_of_tupe_s_code_gives_its_numbers_after_every_layer(released, caplog):
    model, checkpoint, numbers = released
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(checkpoint)
    assert "the checkpoint of TUPE's code has no pooler: a new one is initialised" in caplog.text
    _, extra = model(numbers["tokens"], features_only=True, return_all_hiddens=True)
    real = numbers["tokens"].ne(PAD)
    assert len(extra["inner_states"]) == 4
    for layer, state in enumerate(extra["inner_states"]):
        close(state.transpose(0, 1)[real], numbers[f"state_{layer}"][real], **TOLERANCE)


def test_segments_are_by_default_where_diet_has_them():
    segment_schemes = {case.scheme: case.option("segment_scheme") for case in FIRST_BERTS}
    per_head = {"diet_rel", "diet_abs"}
    assert segment_schemes == {
        name: "per-head" if name in per_head else "input" for name in SCHEMES
    }


MUTANTS: mutants.Table = [
    (check_segments, mutants.segments_that_get_lost, "diet_rel-bert"),
    (check_heads, mutants.heads_that_read_column_0, "t5-roberta"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)


@pytest.mark.parametrize("family", ["roberta", "bert", "electra"])
def test_every_layer_norm_has_its_epsilon(family):
    model = tiny.fresh(Case("none", family=family), layer_norm_eps=1e-3)
    norms = [part for part in model.modules() if isinstance(part, torch.nn.LayerNorm)]
    assert norms
    assert {norm.eps for norm in norms} == {1e-3}
