"""Our beam search gives the hypotheses of fairseq's, which does all other searches."""

from types import SimpleNamespace

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.fairseq_task import FairseqTask

from diet_fairseq.errors import UserError
from diet_fairseq.models.adapters import PositionalDecoder
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches import beam_search
from diet_fairseq.patches.beam_search import QuickBeamSearch
from tests.support import mutants, tiny
from tests.support.tiny import EOS, SOURCES, WORDS, Case

FIRST = tiny.first_of_each_scheme(tiny.TRANSLATION)
OPTIONS = [
    {},
    {"beam_size": 1},
    {"beam_size": (len(WORDS) - 1) // 2},
    {"min_len": 4, "max_len_b": 6},
    {"max_len_a": 0.5, "max_len_b": 1},
    {"len_penalty": 0.3},
    {"normalize_scores": False},
    {"unk_penalty": 2.0, "temperature": 1.7},
]


def sample_of(sources=SOURCES):
    source = tiny.padded(sources, left_pad=True)
    lengths = torch.tensor([len(source) for source in sources])
    return {"net_input": {"src_tokens": source, "src_lengths": lengths}}


def assert_same_hypotheses(ours, theirs):
    assert [len(beam) for beam in ours] == [len(beam) for beam in theirs]
    for our_beam, their_beam in zip(ours, theirs, strict=True):
        for our, their in zip(our_beam, their_beam, strict=True):
            assert our.keys() == their.keys()
            assert our["tokens"].tolist() == their["tokens"].tolist()
            for name in ("score", "positional_scores", "attention", "alignment"):
                # fairseq's scores are float32 whatever the model's type is
                torch.testing.assert_close(
                    our[name], their[name], **tiny.TOLERANCE, check_dtype=False
                )


def generated(kind, model, sample=None, bos_token=None, **options):
    options = {"beam_size": 3, "max_len_b": 8, **options}
    generator = kind([model], WORDS, **options)
    return generator.generate([model], sample or sample_of(), bos_token=bos_token)


def quickly_generated(model, **options):
    """Hypotheses of our own search; a call of fairseq's fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequenceGenerator, "_generate", None)
        return generated(QuickBeamSearch, model, **options)


def check_translations(case: Case) -> None:
    model = tiny.model_of(case)
    for options in OPTIONS if case == FIRST[0] else OPTIONS[:1]:
        ours = quickly_generated(model, **options)
        assert_same_hypotheses(ours, generated(SequenceGenerator, model, **options))


@tiny.each(FIRST)
def test_translations_and_their_scores_are_fairseq_s(case):
    check_translations(case)


@tiny.each(FIRST)
def test_scores_in_bfloat16_are_close_to_those_in_float32(case):
    exact, rounded = tiny.model_of(case), tiny.model_to_change(case).bfloat16()
    for [best, *_], [best_rounded, *_] in zip(
        quickly_generated(exact), quickly_generated(rounded), strict=True
    ):
        score, expected = best_rounded["score"], best["score"]
        assert score != expected
        torch.testing.assert_close(score.float(), expected, rtol=0, atol=0.1)


class NormalisedDecoder(PositionalDecoder):
    """A decoder whose output has been through a softmax, as a pointer-generator's has."""

    def output_layer(self, features):
        return super().output_layer(features).softmax(dim=-1)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        return net_output[0].log()


class NormalisedScriptably(NormalisedDecoder):
    get_normalized_probs = PositionalDecoder.get_normalized_probs

    def get_normalized_probs_scriptable(self, net_output, log_probs, sample=None):
        return net_output[0].log()


class SharpModel(DietTransformerModel):
    def get_normalized_probs_scriptable(self, net_output, log_probs, sample=None):
        return super().get_normalized_probs_scriptable((3 * net_output[0],), log_probs, sample)


def with_a_method_of_its_own(model):
    usual = model.get_normalized_probs
    model.get_normalized_probs = lambda out, *rest, **options: usual(
        (3 * out[0],), *rest, **options
    )


def with_a_hook_on_its_decoder(model):
    """fairseq does not call the hook when it generates."""
    model.decoder.register_forward_hook(lambda module, inputs, out: (-out[0], out[1]))


def as_another(kind, part):
    def change(model):
        getattr(model, part, model).__class__ = kind

    return change


CHANGES = {
    "decoder": as_another(NormalisedDecoder, "decoder"),
    "decoder, scriptable": as_another(NormalisedScriptably, "decoder"),
    "model": as_another(SharpModel, "itself"),
    "object": with_a_method_of_its_own,
    "hook": with_a_hook_on_its_decoder,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_translations_of_models_with_other_methods_are_fairseq_s(change):
    model = tiny.model_to_change(FIRST[0])
    change(model)
    assert_same_hypotheses(generated(QuickBeamSearch, model), generated(SequenceGenerator, model))


def test_a_translation_may_begin_with_another_token():
    model = tiny.model_of(FIRST[0])
    ours, theirs = (
        generated(kind, model, bos_token=tiny.FIRST_WORD)
        for kind in (QuickBeamSearch, SequenceGenerator)
    )
    assert_same_hypotheses(ours, theirs)
    assert ours[0][0]["tokens"].tolist() != generated(QuickBeamSearch, model)[0][0]["tokens"]


def check_early_ends(case):
    """With words that are likely to end, sentences do so at different steps."""
    model = tiny.model_to_change(case)
    with torch.no_grad():
        model.decoder.output_projection.weight[EOS] += 0.4
    sources = tiny.sentences(9, 5, 1, 7, 3, 8, 2, seed=5)
    ours, theirs = (
        generated(kind, model, sample_of(sources), max_len_b=12)
        for kind in (QuickBeamSearch, SequenceGenerator)
    )
    assert_same_hypotheses(ours, theirs)
    assert len({len(beam[0]["tokens"]) for beam in ours}) > 1


def test_sentences_that_end_early_leave_the_batch():
    check_early_ends(FIRST[-1])


@pytest.mark.parametrize("columns", [5, 16, 160, 161, 1000, 1007])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_largest_sums_are_found_in_order(rows, columns):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(50, rows, columns, generator=draw)
    past = torch.randn(50, rows, generator=draw)
    x[1] = -torch.inf
    x[2, :, 1:] = -torch.inf
    x[3, -1, -1], x[4, 0, -columns // 2] = 9, torch.nan
    sums = (x + past.unsqueeze(2)).flatten(1)
    for number in (1, 4, 5):
        values, places = beam_search.find_largest(x, past, number)
        expected = sums.topk(number).values
        torch.testing.assert_close(values, expected, equal_nan=True, rtol=0, atol=0)
        gathered = sums.gather(1, places)
        torch.testing.assert_close(gathered, values, equal_nan=True, rtol=0, atol=0)


OTHERS = {
    "sampling": {"search_strategy": search.Sampling(WORDS, sampling_topk=1)},
    "diverse": {"search_strategy": search.DiverseBeamSearch(WORDS, 3, 0.5)},
    "n-grams": {"no_repeat_ngram_size": 2},
    "lengths": {"match_source_len": True},
    "suppressed": {"tokens_to_suppress": ("word3",)},
    # a hypothesis that has ended may then go on, for want of others
    "most of the vocabulary": {"beam_size": len(WORDS) - 1, "min_len": 0},
}


@pytest.mark.parametrize("kind", [QuickBeamSearch, SequenceGenerator])
def test_a_least_length_above_the_largest_is_refused_as_by_fairseq(kind):
    with pytest.raises(AssertionError, match="min_len cannot be larger than max_len"):
        generated(kind, tiny.model_of(FIRST[0]), min_len=10, max_len_a=0, max_len_b=3)


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_other_searches_are_left_to_fairseq(options):
    model = tiny.model_of(FIRST[0])
    ours, theirs = (
        generated(kind, model, **options) for kind in (QuickBeamSearch, SequenceGenerator)
    )
    assert_same_hypotheses(ours, theirs)


def test_prefixes_and_ensembles_are_searched_as_in_fairseq():
    models = [tiny.model_of(case) for case in FIRST[:2]]
    prefix = torch.full((len(SOURCES), 1), tiny.FIRST_WORD + 1)
    for options in ({"prefix_tokens": prefix}, {}):
        ours, theirs = (
            kind(models, WORDS, beam_size=3, max_len_b=8).generate(models, sample_of(), **options)
            for kind in (QuickBeamSearch, SequenceGenerator)
        )
        assert_same_hypotheses(ours, theirs)


@pytest.mark.parametrize("case", ["diet_abs", "tupe_a"])
def test_schemes_in_cross_attention_are_searched_as_in_fairseq(case):
    model = tiny.model_of(Case(case, (("position_cross_attention", True),)))
    assert_same_hypotheses(generated(QuickBeamSearch, model), generated(SequenceGenerator, model))


@pytest.mark.parametrize("arch", ["transformer", "bart_base"])
def test_fairseq_s_own_models_are_searched_by_fairseq(arch):
    task, model = SimpleNamespace(target_dictionary=WORDS), tiny.stock(arch)
    for models in ([model], [tiny.model_of(FIRST[0]), model]):
        built = FairseqTask.build_generator(task, models, SimpleNamespace())
        assert type(built) is SequenceGenerator


@pytest.mark.parametrize("scheme", ["sinusoidal", "diet_rel", "t5"])
def test_scores_of_a_float64_model_are_exact(scheme):
    model = tiny.model_to_change(Case(scheme)).double()
    for beam in quickly_generated(model):
        for hypothesis in beam:
            assert hypothesis["score"].dtype is torch.float64
            assert hypothesis["positional_scores"].dtype is torch.float64
    [best] = quickly_generated(model, sample=sample_of(SOURCES[:1]), beam_size=1)
    tokens = best[0]["tokens"]  # (T,)
    before = torch.cat([tokens.new_tensor([EOS]), tokens[:-1]])[None]
    sample = sample_of(SOURCES[:1])["net_input"]
    # step by step as in the search: fairseq's cross-attention rounds softmax to float32, which
    # makes another order of additions visible
    state: dict = {}
    with torch.no_grad():
        encoded = model.encoder(**sample)
        steps = [
            model.decoder(before[:, : step + 1], encoder_out=encoded, incremental_state=state)[0]
            for step in range(len(tokens))
        ]
    logits = torch.cat(steps, dim=1)  # (1, T, V)
    exact = logits[0].log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(best[0]["positional_scores"], exact, rtol=0, atol=1e-12)


def test_every_task_builds_it_unless_alignments_are_printed():
    task, models = SimpleNamespace(target_dictionary=WORDS), [tiny.model_of(FIRST[0])]
    for options, kind in (
        ({}, QuickBeamSearch),
        ({"print_alignment": "hard"}, SequenceGeneratorWithAlignment),
    ):
        built = FairseqTask.build_generator(task, models, SimpleNamespace(**options))
        assert type(built) is kind
    generator = FairseqTask.build_generator(task, models, SimpleNamespace(), SequenceGenerator)
    assert type(generator) is SequenceGenerator


def test_a_model_of_nan_is_refused():
    model = tiny.model_to_change(FIRST[0])
    with torch.no_grad():
        model.decoder.output_projection.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="gives no finite score to any translation"):
        generated(QuickBeamSearch, model)


MUTANTS: mutants.Table = [
    (check_early_ends, mutants.a_source_that_stays_when_sentences_end, str(FIRST[-1])),
    (check_translations, mutants.scores_that_forget_the_past, "none"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
