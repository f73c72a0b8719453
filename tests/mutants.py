"""Faults to put into the plugin: a property is only proven where its test fails with one of them.

Each is a function of pytest's `monkeypatch`; `assert_caught` applies one and wants the check to
fail. The names say what is wrong.
"""

import copy
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from fairseq.modules import LayerDropModuleList

from diet_fairseq.attention import compressed as linformer
from diet_fairseq.attention import multihead as attention
from diet_fairseq.attention.backends.recomputed import RecomputedAttention
from diet_fairseq.attention.compressed import Compression, LinformerAttention
from diet_fairseq.attention.context import Context, Term
from diet_fairseq.attention.multihead import PositionalAttention
from diet_fairseq.attention.packing import Packing
from diet_fairseq.config import PositionConfig
from diet_fairseq.models import diet_roberta
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches import search as beam_search
from diet_fairseq.patches.search import QuickBeamSearch
from diet_fairseq.positions import base, diet_abs, layout, relative, tupe
from diet_fairseq.positions.diet_abs import DietAbs
from diet_fairseq.positions.gain import ScoreParameters
from diet_fairseq.positions.input import NoPositions
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.linformer import DietAbsLin
from diet_fairseq.positions.relative import OffsetScalars
from diet_fairseq.positions.segments import SegmentScores
from diet_fairseq.positions.shaw import Shaw
from diet_fairseq.positions.tupe import TupeA
from diet_fairseq.stack import decoder, encoder, passes, warm_start
from diet_fairseq.stack.encoder import PositionalEncoder
from diet_fairseq.stack.placement import Placement

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
Check = Callable[..., None]
#: the check, a mutant that it must catch, and the name of the case to see it in
Table = list[tuple[Check, Mutant, str]]


def assert_caught(check: Check, mutant: Mutant, case: str) -> None:
    # what is no case's name is for the check alone to understand
    chosen: Any = next((known for known in tiny.CASES if str(known) == case), case)
    tiny.model_of.cache_clear()
    try:
        with Patch.context() as patch:
            mutant(patch)
            with pytest.raises(AssertionError):
                check(chosen)
    finally:
        tiny.model_of.cache_clear()


def each(table: Table) -> pytest.MarkDecorator:
    """Over a table: the test's id is the mutant's name and where it is seen."""
    ids = [f"{check.__name__}-{mutant.__name__}-{case}" for check, mutant, case in table]
    return pytest.mark.parametrize(("check", "mutant", "case"), table, ids=ids)


def instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], Mutant]:
    """The decorated function, given the original and its arguments, runs in its place."""

    def decorate(change: Callable[..., Any]) -> Mutant:
        @wraps(change)
        def mutant(patch: Patch) -> None:
            original = getattr(owner, name)

            def changed(*args: Any, **kwargs: Any) -> Any:
                return change(original, *args, **kwargs)

            unbound = isinstance(vars(owner).get(name), (staticmethod, classmethod))
            patch.setattr(owner, name, staticmethod(changed) if unbound else changed)

        return mutant

    return decorate


# --- the gain --------------------------------------------------------------------------------


@instead_of(DietAbs, "factors")
def factors_without_the_gain(original, self, layout):
    query, key = original(self, layout)
    return query, key / self.gain


@instead_of(SegmentScores, "factors")
def segments_without_the_gain(original, self, layout):
    query, key = original(self, layout)
    return query / self.gain, key


# --- where tokens stand ----------------------------------------------------------------------


@instead_of(layout, "token_positions")
def positions_from_arange(original, padding_mask, length, device):
    return original(None, length, device)


@instead_of(Layout, "of_self_attention")
def the_new_token_stands_first(original, padding_mask, causal=False, queries=None, segments=None):
    found = original(padding_mask, causal, queries, segments)
    return replace(found, query_positions=found.key_positions[:, : found.query_positions.size(1)])


@instead_of(diet_abs, "take_rows")
def positions_counted_from_the_end(original, table, positions, heads):
    return original(table, positions - positions.max() + len(table) - 1, heads)


@instead_of(OffsetScalars, "score")
def offsets_that_weigh_more_further_on(original, self, layout):
    return original(self, layout) * (1 + layout.key_positions)


def positions_parked_from_one_pass_to_the_next(patch: Patch) -> None:
    parked: dict[bool, Context] = {}
    build, forward = passes.context_of, PositionalAttention.forward

    def park(of, layout, *rest, **options):
        parked[layout.causal] = build(of, layout, *rest, **options)
        return parked[layout.causal]

    def read(self, query, key, value, key_padding_mask, *rest, **options):
        context = parked[key_padding_mask.layout.causal]
        return forward(self, query, key, value, context, *rest, **options)

    patch.setattr(passes, "context_of", park)
    patch.setattr(PositionalAttention, "forward", read)


# --- what may be seen ------------------------------------------------------------------------


def masked_by(change: Callable[[Layout], Layout]) -> Mutant:
    """`Layout.mask` is that of a changed layout."""
    original = Layout.mask.func  # type: ignore[attr-defined]

    def mutant(patch: Patch) -> None:
        patch.setattr(Layout, "mask", property(lambda self: original(change(self))))

    return mutant


def padding_is_seen(patch: Patch) -> None:
    masked_by(lambda found: replace(found, padding_mask=None))(patch)


def the_future_is_seen(patch: Patch) -> None:
    masked_by(lambda found: replace(found, causal=False))(patch)


@instead_of(Layout, "of_self_attention")
def the_future_is_never_seen(original, padding_mask, causal=False, queries=None, segments=None):
    return original(padding_mask, True, queries, segments)


def padding_sees_nothing(patch: Patch) -> None:
    def mask(self: Layout) -> torch.Tensor | None:
        later = (self.offsets > 0).expand(1, 1, -1, -1) if self.causal else None
        if self.padding_mask is None:
            return later
        padding = self.padding_mask[:, None, None, :]
        return padding if later is None else padding | later

    patch.setattr(Layout, "mask", property(mask))


def a_finite_mask(patch: Patch) -> None:
    patch.setattr(attention, "float", lambda text: -1e4, raising=False)


@instead_of(F, "softmax")
def weights_that_sum_to_less(original, *args, **kwargs):
    return 0.9 * original(*args, **kwargs)


@instead_of(F, "scaled_dot_product_attention")
def a_mask_the_wrong_way_round(original, q, k, v, mask, *rest, **options):
    return original(
        q, k, v, ~mask if mask is not None and mask.dtype is torch.bool else mask, *rest, **options
    )


# --- what is added ---------------------------------------------------------------------------


@instead_of(Term, "of")
def no_layer_has_positions(original, schemes, layout, factored=False):
    return Term()


@instead_of(Term, "of")
def the_decoder_has_no_positions(original, schemes, layout, factored=False):
    return original(tuple(s for s in schemes if not s.shape.causal), layout, factored)


@instead_of(Term, "of")
def decoding_forgets_positions(original, schemes, layout, factored=False):
    return original(() if layout.query_positions.size(1) == 1 else schemes, layout, factored)


@instead_of(Shaw, "query_score")
def decoding_forgets_what_queries_ask(original, self, query, layout):
    return None if query.size(2) == 1 else original(self, query, layout)


@instead_of(Term, "of")
def scores_without_gradient(original, *args):
    with torch.no_grad():
        return original(*args)


@instead_of(Term, "of")
def fast_scores_without_gradient(original, schemes, layout, factored=False):
    with torch.set_grad_enabled(not factored):
        return original(schemes, layout, factored)


@instead_of(Term, "of")
def factors_that_lose_a_column(original, *args):
    term = original(*args)
    return Term(term.score, tuple((query[..., 1:], key[..., 1:]) for query, key in term.factors))


@instead_of(OffsetScalars, "score")
def offsets_with_the_other_sign(original, self, layout):
    return original(self, layout).mT


@instead_of(Shaw, "_rows")
def offsets_with_the_other_sign_in_shaw(original, self, layout):
    rows, row_of_pair = original(self, layout)
    return rows, row_of_pair.mT


@instead_of(OffsetScalars, "score")
def scalars_scaled_like_content(original, self, layout):
    return original(self, layout) * self.shape.head_dim**-0.5


@instead_of(Shaw, "query_score")
def a_query_score_without_its_scale(original, self, query, layout):
    return original(self, query, layout) * self.shape.head_dim**0.5


@instead_of(Shaw, "value_term")
def values_without_positions(original, self, weights, layout):
    return None


@instead_of(relative, "bucket")
def the_encoder_s_buckets_in_the_decoder(original, offset, causal, *rest):
    return min(original(offset, False, *rest), rest[0] - 1)


@instead_of(PositionalAttention, "__init__")
def content_that_keeps_the_whole_scale(original, self, *args, **options):
    original(self, *args, **options | {"score_terms": 1})


def a_column_that_is_not_reset(patch: Patch) -> None:
    untied = tupe.untied
    patch.setattr(
        tupe,
        "untied",
        lambda query, key, layout, *thetas: (
            untied(query, key, layout, *thetas)[0],
            untied(query, key, replace(layout, key_positions=layout.key_positions + 1), *thetas)[1],
        ),
    )


def a_row_that_is_not_reset(patch: Patch) -> None:
    untied = tupe.untied
    patch.setattr(
        tupe,
        "untied",
        lambda query, key, layout, *thetas: (
            untied(
                query, key, replace(layout, query_positions=layout.query_positions + 1), *thetas
            )[0],
            untied(query, key, layout, *thetas)[1],
        ),
    )


@instead_of(tupe, "stands_first")
def a_reset_of_the_first_slot(original, positions):
    return original(torch.arange(positions.size(1)).expand_as(positions))


@instead_of(TupeA, "_factors")
def factors_of_another_scale(original, self, layout):
    query, key = original(self, layout)
    return 2 * query, key


def a_promise_of_factors(patch: Patch) -> None:
    patch.setattr(relative.T5, "factored", True)


@instead_of(DietAbs, "_of")
def factors_of_another_rank(original, self, *args):
    return original(self, *args).relu()[..., 1:]


def the_control_has_positions(patch: Patch) -> None:
    patch.setattr(NoPositions, "input", "sinusoidal")


def no_length_is_refused(patch: Patch) -> None:
    for module in (encoder, decoder, base):
        patch.setattr(module, "check_length", lambda layout, limit: None)


def sums_in_half_precision(patch: Patch) -> None:
    for module in (base, relative, linformer, encoder):
        patch.setattr(module, "look_up", F.embedding)
    patch.setattr(ScoreParameters, "gained", lambda self, parameter: parameter * self.gain)


# --- where parameters live -------------------------------------------------------------------


def one_table_for_all_layers_by_accident(patch: Patch) -> None:
    made: dict[Any, Any] = {}
    build = Placement.for_layer

    def for_layer(self: Placement) -> Any:
        return made.setdefault(self.shape, build(self))

    patch.setattr(Placement, "for_layer", for_layer)


def a_table_for_every_layer_by_accident(patch: Patch) -> None:
    patch.setattr(Placement, "for_stack", lambda self: {})
    patch.setattr(Placement, "for_layer", Placement._build)


@instead_of(passes, "context_of")
def every_layer_computes_what_all_share(original, *given, **options):
    return replace(original(*given, **options), term=None)


@instead_of(OffsetScalars, "_save_to_state_dict")
def a_table_that_is_not_saved(original, self, destination, prefix, keep_vars):
    destination[prefix + "weight"] = torch.zeros_like(self.weight)


@instead_of(PositionConfig, "write_to")
def options_that_are_not_written_down(original, self, args):
    pass


@instead_of(PositionalAttention, "reorder_incremental_state")
def keys_that_are_not_reordered(original, self, incremental_state, new_order):
    pass


@instead_of(LayerDropModuleList, "__iter__")
def tables_numbered_by_the_layers_that_are_kept(original, self):
    tables = [self[index].self_attn.positions for index in range(len(self))]
    for table, layer in zip(tables, original(self), strict=False):
        moved = copy.copy(layer)
        moved._modules = {**layer._modules, "self_attn": copy.copy(layer.self_attn)}
        moved.self_attn._modules = {**layer.self_attn._modules, "positions": table}
        yield moved


@instead_of(DietTransformerModel, "build_model")
def embeddings_that_are_not_tied(original, args, task):
    args.share_all_embeddings = False
    return original(args, task)


# --- what is remembered ----------------------------------------------------------------------


@instead_of(Layout, "of_self_attention")
def a_length_that_counts_padding(original, padding_mask, causal=False, queries=None, segments=None):
    found = original(padding_mask, causal, queries, segments)
    return found if queries else replace(found, length=padding_mask.size(1))


def terms_remembered_until_a_change_is_counted(patch: Patch) -> None:
    """At inference, as long as PyTorch says that a scheme's parameters are what they were."""
    known: dict[Any, Any] = {}
    compute = base.PositionScheme.term

    def term(self: Any, layout: Layout, factored: bool) -> Any:
        versions = tuple((p.data_ptr(), p._version, p.dtype) for p in self.parameters())
        key = id(self), layout.query_positions.size(1), layout.key_positions.size(1), versions
        if torch.is_grad_enabled() or key not in known:
            known[key] = self, compute(self, layout, factored)
        return known[key][1]

    patch.setattr(base.PositionScheme, "term", term)


# --- translating -----------------------------------------------------------------------------


@instead_of(QuickBeamSearch, "_finish")
def scores_that_forget_the_past(original, self, tokens, scores, totals, attention):
    return original(self, tokens, scores, totals - scores.sum(dim=1), attention)


@instead_of(PositionalAttention, "reorder_incremental_state")
def keys_of_other_hypotheses(original, self, incremental_state, new_order):
    return original(self, incremental_state, new_order.flip(0))


@instead_of(beam_search, "largest")
def hypotheses_without_a_past(original, gains, past, number):
    return original(gains, torch.zeros_like(past), number)


@instead_of(beam_search, "has_standard_output")
def every_model_has_standard_output(original, model):
    return True


@instead_of(beam_search, "_keys_of_sentences")
@contextmanager
def beams_from_the_first_step_on(original, decoder):
    with original(decoder) as serve:
        serve(3)
        yield serve


@instead_of(beam_search, "_keys_of_sentences")
@contextmanager
def beams_that_are_not_given_back(original, decoder):
    with original(decoder) as serve:
        yield serve
    serve(1)


# --- attention -------------------------------------------------------------------------------


@instead_of(passes, "context_of")
def a_second_decision(original, of, layout, shared, *rest, **options):
    """What layers share goes by the dropout of training, what they do by that of the moment."""
    training = of.training
    found = original(of.train(), layout, shared, *rest, **options)
    now = of.train(training).layers[0].self_attn.backend_for(shared, layout)
    return replace(found, backend=now)


def weights_computed_again_without_their_mask(patch: Patch) -> None:
    forward = RecomputedAttention.forward

    def forget(ctx, *given):
        out = forward(ctx, *given)
        ctx.save_for_backward(*given[:4], None)
        return out

    patch.setattr(RecomputedAttention, "forward", staticmethod(forget))


# --- packed tokens ---------------------------------------------------------------------------


@instead_of(Packing, "unpack")
def tokens_unpacked_to_the_front(original, self, x):
    return original(replace(self, slots=torch.arange(len(self.slots))), x)


@instead_of(Packing, "pack")
def tokens_packed_without_gradient(original, self, x):
    return original(self, x).detach()


# --- compressed keys -------------------------------------------------------------------------


@instead_of(linformer, "without_padding")
def padding_is_compressed(original, x, layout):
    return x


@instead_of(Compression, "forward")
def tokens_are_compressed_by_their_slots(original, self, x, layout):
    slots = torch.arange(len(x)).unsqueeze(0)
    return original(self, x, replace(layout, key_positions=slots))


@instead_of(Compression, "forward")
def an_average_of_all_tokens(original, self, x, layout):
    found = original(self, x, layout)
    return found + x.mean(dim=0)


@instead_of(Compression, "forward")
def compression_without_gradient(original, self, x, layout):
    with torch.no_grad():
        return original(self, x, layout)


@instead_of(Placement, "_compressions")
def values_are_compressed_as_keys(original, self):
    found = original(self)
    return found | {"compress_v": found["compress_k"]}


@instead_of(LinformerAttention, "forward")
def keys_that_are_not_compressed(original, self, *args, **options):
    return PositionalAttention.forward(self, *args, **options)


@instead_of(DietAbsLin, "factors")
def positions_of_the_token_before(original, self, layout):
    query, key = original(self, layout)
    return query.roll(1, dims=2), key


@instead_of(DietAbs, "zero")
def a_start_with_random_products(original, self):
    pass


# --- encoders --------------------------------------------------------------------------------


@instead_of(PositionalEncoder, "forward")
def segments_that_get_lost(original, self, *args, segments=None, **options):
    return original(self, *args, **options)


@instead_of(diet_roberta, "first_tokens")
def heads_that_read_column_0(original, features, padding_mask):
    return features[:, 0]


@instead_of(TupeA, "zero")
def a_start_with_random_positions(original, self):
    pass


def content_that_keeps_its_scale(patch: Patch) -> None:
    patch.setattr(warm_start, "PositionalAttention", NoPositions)
