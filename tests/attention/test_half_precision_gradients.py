"""Thousands of gradients meet in a row of a table: half precision loses none of them."""

import copy
from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from diet_fairseq.attention.moving import sum_steps
from diet_fairseq.attention.rows import row_scores, value_sums
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Factors
from tests.support import mutants, tiny
from tests.support.attentions import Attention, attentions
from tests.support.tiny import Case

LENGTHS = (512, 301, 400)
LIMITS = dict.fromkeys(["max_positions", "max_source_positions", "max_target_positions"], 512)
#: of single gradients to bfloat16's 8 bits, not of their sums
ROUNDING = 0.01


def half_and_full(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The module in bfloat16, and the same numbers in float32."""
    half = copy.deepcopy(module).bfloat16()
    return half, copy.deepcopy(half).float()


def weighted(out: Tensor) -> Tensor:
    """A loss whose gradients, the same for every precision, have one sign: sums grow long."""
    draw = torch.Generator().manual_seed(3)
    return (out.bfloat16() * torch.rand(out.shape, generator=draw).bfloat16()).float().sum()


def errors(half: nn.Module, expected: nn.Module) -> Iterator[tuple[str, float]]:
    """The error of every parameter's gradient, relative to the expected one."""
    for (name, actual), exact in zip(half.named_parameters(), expected.parameters(), strict=True):
        if exact.grad is not None:
            yield name, float((actual.grad.float() - exact.grad).norm() / exact.grad.norm())


def terms(attention: Attention, scheme: nn.Module, left_pad: bool) -> Iterator[Tensor]:
    """All that a scheme adds in bfloat16's attention, to sentences with this padding."""
    tokens = tiny.padded(tiny.sentences(*LENGTHS), left_pad)
    padding = tokens.eq(tiny.PAD)
    segments = torch.arange(tokens.size(1)).expand_as(tokens) // 171 % 2
    layout = attention.layout(padding, segments=segments)
    if scheme.moves:  # by the parameters of this scheme, which get gradients
        moved = sum_steps(scheme, tiny.vectors(*padding.shape, tiny.DIM, seed=6), layout)
        layout = layout.move(moved, moved)
    score = scheme.score(layout)
    if score is not None:
        yield score.dense(layout)
    if isinstance(score, Factors):
        yield from (part for part in (score.query, score.key) if part.requires_grad)
    heads = attention.module.num_heads
    dtype = next(scheme.parameters()).dtype
    q = tiny.vectors(len(tokens), heads, tokens.size(1), tiny.DIM // heads).to(dtype)
    weights = tiny.vectors(len(tokens), heads, *layout.slot_offsets.shape).softmax(dim=-1).to(dtype)
    project = copy.deepcopy(attention.module).bfloat16().to(dtype).projections()
    yield from (rows.dense(layout) for rows in row_scores((scheme,), q, q, layout, project, 1.0))
    of_values = scheme.value_rows(layout)
    if of_values is not None:
        yield value_sums(weights, of_values)
    if "transform" in scheme.kinds:
        yield from (x for x in scheme.transform(q, q, layout) if x.requires_grad)


def check_gradients(case: Case) -> None:
    attention = attentions(tiny.fresh(case, **LIMITS))[-1]
    for scheme in attention.schemes:
        if not any(True for _ in scheme.parameters()):
            continue
        for left_pad in (False, True):
            half, full = half_and_full(scheme)
            for number in range(len(list(terms(attention, full, left_pad)))):
                for module in (half, full):
                    module.zero_grad()
                    term = next(islice(terms(attention, module, left_pad), number, None))
                    weighted(term).backward()
                for name, error in errors(half, full):
                    # LayerNorm's own sums are PyTorch's
                    assert error < ROUNDING or "pos_ln" in name, (name, number, left_pad)


def check_compression(case: Case) -> None:
    encoder = tiny.fresh(case, **LIMITS).encoder.sentence_encoder
    for left_pad in (False, True):
        tokens = tiny.padded(tiny.sentences(*LENGTHS), left_pad)
        layout = Layout.of_self_attention(tokens.eq(tiny.PAD))
        x = tiny.vectors(tokens.size(1), len(tokens), tiny.DIM).abs()
        half, full = half_and_full(encoder.layers[0].self_attn.compress_k)
        for module, dtype in ((half, torch.bfloat16), (full, torch.float32)):
            weighted(module(x.bfloat16().to(dtype), layout)).backward()
        assert dict(errors(half, full))["weight"] < ROUNDING


def check_segments_at_the_input(case: Case) -> None:
    tokens = tiny.padded(tiny.sentences(*LENGTHS), left_pad=False)
    segments = torch.arange(tokens.size(1)).expand_as(tokens) // 171 % 2
    half, full = half_and_full(tiny.fresh(case, **LIMITS))
    for model in (half, full):
        encoder_out = model.encoder.sentence_encoder(tokens, segments=segments)
        weighted(encoder_out["encoder_embedding"][0]).backward()
    relative_errors = dict(errors(half.encoder, full.encoder))
    assert relative_errors["sentence_encoder.embed_segments.weight"] < ROUNDING


@pytest.mark.few(3)
@tiny.each(
    [
        *tiny.first_of_each_scheme(tiny.IN_ATTENTION),
        *(Case(scheme, family="roberta") for scheme in ("shaw", "tupe_a", "tupe_r")),
        Case("shaw").but(position_values=True),
        Case("diet_rel", family="bert"),
    ]
)
def test_scores_have_the_gradients_of_single_precision(case):
    check_gradients(case)


def test_linformer_s_compression_has_the_gradients_of_single_precision():
    check_compression(Case("linformer", family="roberta"))


def test_segments_at_the_input_have_the_gradients_of_single_precision():
    check_segments_at_the_input(Case("t5", family="bert"))


MUTANTS: mutants.Table = [
    (check_gradients, mutants.sums_in_half_precision, "t5"),
    (check_compression, mutants.sums_in_half_precision, "linformer-roberta"),
    (check_segments_at_the_input, mutants.sums_in_half_precision, "t5-bert"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
