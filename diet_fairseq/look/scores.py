"""Attention scores of every layer and head of a model.

Hooks record the inputs of each attention, and the reference backend computes the scores. Stock
fairseq's attention is treated as attention without position schemes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from ..attention.attend import create_call
from ..attention.backends import AttentionCall
from ..attention.backends.reference import attention_scores
from ..attention.context import Context
from ..attention.moving import move_positions
from ..attention.terms import Schemes, find_moving_scheme, query_scale, transform_queries_and_keys
from ..positions.layout import Layout
from ..positions.scores import Factors
from ..positions.segments import SegmentScores
from ..transformer import PositionalAttention
from ..transformer.stack import Stack
from ..translate.loading import LoadedModel
from . import measures

#: kinds of terms that depend on the words
WORD_KINDS = frozenset({"query_rows", "key_rows", "content_score"})
#: the context of stock fairseq's attention, which has no schemes
STOCK_CONTEXT = Context(cast(Layout, None))

# Notation: B windows of T tokens, H heads, S keys (T, or k compressed ones), d = H d_h.


@dataclass(frozen=True)
class PositionScore:
    """The score of positions in one attention, in nats.

    Attributes:
        place: "encoder", "decoder", "cross-attention", "encoder's input" or "decoder's input"
        layer: counted from 1; 0: all layers share the score. If local and global layers share one
            score each, the first layer of the kind
        matrix: (H, T, S); H is 1 if heads share the score. A score that depends on words, such as
            Shaw's or FoX's, is averaged over the text
        rank: an upper bound of the rank of ``matrix``; None: unknown
        compressed: whether keys are mixtures of tokens
    """

    place: str
    layer: int
    matrix: Tensor
    rank: int | None = None
    compressed: bool = False

    @property
    def causal(self) -> bool:
        """Whether later keys are hidden."""
        return self.place.startswith("decoder")

    @cached_property
    def singular(self) -> Tensor:
        """(H, min(T, S)), singular values."""
        return measures.singular_values(self.matrix)

    @property
    def has_offsets(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.place != "cross-attention" and not self.compressed


@dataclass(frozen=True)
class LogitStatistics:
    """Statistics of the logits of one attention, from words and positions together, on a text.

    Attributes:
        place, layer: as in `PositionScore`; the layer is never 0
        singular: (H, min(T, S)), singular values, averaged over windows
        columns: `measures.head_measures`, (H,) each, averaged over windows
        bound: the largest rank by DIET's theorem 1; None: it does not apply
    """

    place: str
    layer: int
    singular: Tensor
    columns: dict[str, Tensor]
    bound: int | None


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model.

    Attributes:
        segments: scores of positions and segments in a window of two segments
        embeddings: (T, d) by stack, position embeddings at the input
    """

    positions: list[PositionScore] = field(default_factory=list)
    segments: list[PositionScore] = field(default_factory=list)
    logits: list[LogitStatistics] = field(default_factory=list)
    embeddings: dict[str, Tensor] = field(default_factory=dict)


@torch.no_grad()
def look(model: LoadedModel, tokens: Tensor) -> ModelScores:
    """The scores of every attention on windows (B, T) of tokens without padding."""
    scores = ModelScores()
    for place, stack in model.stacks.items():
        if getattr(stack, "embed_positions", None) is not None:
            ours = isinstance(stack, Stack)  # fairseq's own tables read tokens
            places = torch.arange(tokens.size(1)).unsqueeze(0)
            positions = stack.embed_positions(places if ours else tokens[:1])[0].float()  # (T, d)
            if getattr(stack, "project_in", None) is not None:
                positions = positions @ stack.project_in.weight.T
            scores.embeddings[place] = positions
    target = None if model.is_encoder else translate_greedily(model, tokens)
    hooks = [
        module.register_forward_pre_hook(
            partial(add_attention, scores, place, layer, find_sharing_layer(model, place, layer)),
            with_kwargs=True,
        )
        for place, layer, module in attentions(model)
    ]
    try:
        with torch.enable_grad():  # without gradients stock fairseq's layers bypass their attention
            encoded = encode(model, tokens)
            if target is not None:
                model.stacks["decoder"](target, encoder_out=encoded)
    finally:
        for hook in hooks:
            hook.remove()
    return scores


def attentions(model: LoadedModel) -> Iterator[tuple[str, int, Any]]:
    """Place, layer and module of each self-attention, and of cross-attention with positions."""
    for place, stack in model.stacks.items():
        for number, layer in enumerate(stack.layers, 1):
            yield place, number, layer.self_attn
            cross = getattr(layer, "encoder_attn", None)
            if getattr(cross, "positions", None) or getattr(stack, "cross_positions", None):
                yield "cross-attention", number, cross


def find_sharing_layer(model: LoadedModel, place: str, layer: int) -> int:
    """The first layer, from 1, with which a layer may share a score; 0: all layers may share it."""
    stack = model.stacks.get(place)
    config = stack.stack_config.positions if isinstance(stack, Stack) else None
    if config is None or not config.has_global_scheme:
        return 0
    kinds = [config.is_global(number) for number in range(layer)]
    return kinds.index(kinds[-1]) + 1


def translate_greedily(model: LoadedModel, tokens: Tensor) -> Tensor:
    """(B, T): translations of (B, T) tokens by greedy search, without </s>."""
    words, decoder = model.task.target_dictionary, model.stacks["decoder"]
    encoded = encode(model, tokens)
    state: dict[str, Any] = {}
    out = tokens.new_full((len(tokens), 1), words.eos())
    for _ in range(tokens.size(1) - 1):
        logits = decoder(out, encoder_out=encoded, incremental_state=state)[0][:, -1]  # (B, V)
        logits[:, [words.bos(), words.pad(), words.eos()]] = float("-inf")
        out = torch.cat([out, logits.argmax(-1, keepdim=True)], 1)
    return out


def encode(model: LoadedModel, tokens: Tensor) -> Any:
    lengths = torch.full((len(tokens),), tokens.size(1))
    return model.stacks["encoder"](tokens, src_lengths=lengths)


@torch.no_grad()
def add_attention(
    scores: ModelScores,
    place: str,
    layer: int,
    sharing_layer: int,
    module: Any,
    args: Any,
    inputs: dict[str, Any],
) -> None:
    """A forward hook that adds an attention's position score, and the statistics of its logits.

    ``sharing_layer`` is the result of `find_sharing_layer`.
    """
    layer_schemes: Schemes = ()
    if isinstance(module, PositionalAttention):
        query, context, source = args[:3]
        key = query if source is None else source
        layer_schemes = module.layer_schemes()
    else:  # stock fairseq's attention has a mask instead of a context
        query, key, context = inputs["query"], inputs["key"], STOCK_CONTEXT
    schemes = layer_schemes or context.shared
    moving = find_moving_scheme(schemes)
    if moving is not None:
        context, _ = move_positions(moving, query, context)
    layout = context.layout
    scale = query_scale(schemes, module.head_dim)
    compress = getattr(module, "compress_k", None) or context.compress  # (T, B, d) -> (k, B, d)
    compressed = compress is not None
    if layer == 1 and place in scores.embeddings:
        rows = scores.embeddings[place].unsqueeze(1)  # (T, 1, d)
        keys = compress(rows, layout) if compressed else rows
        matrix = input_score(module, rows, keys, scale / context.temperature)
        at_input = PositionScore(f"{place}'s input", 1, matrix, module.head_dim, compressed)
        scores.positions.append(at_input)
    if compressed:
        key = compress(key, layout)
        layout = layout.compressed(len(key))
    q = split_heads(module, module.q_proj(query)) * scale
    k = split_heads(module, module.k_proj(key))
    positions = tuple(scheme for scheme in schemes if not isinstance(scheme, SegmentScores))
    term, rank = position_term(attention_call(module, positions, layout, q, k, context.temperature))
    whole = attention_call(module, schemes, layout, q, k, context.temperature)
    logits = attention_scores(whole, masked=False)  # (B, H, T, S)
    bound = None  # the largest rank of the logits by DIET's theorem 1
    reads_words = any(scheme.kinds & WORD_KINDS for scheme in schemes)
    widening = math.prod(scheme.widening for scheme in schemes)
    if not reads_words and (term is None or rank is not None):
        # a transformation mixes words and positions, and adds no rank
        transforms = any("transform" in scheme.kinds for scheme in schemes)
        bound = min(logits.size(-2), module.head_dim * widening + (0 if transforms else rank or 0))
    scores.logits.append(statistics(place, layer, logits, bound, compressed))
    is_shared = not layer_schemes and not reads_words and moving is None
    if is_shared and layer > max(1, sharing_layer):
        return
    number = sharing_layer if is_shared else layer
    score = partial(PositionScore, place, number, compressed=compressed)
    if term is not None:
        scores.positions.append(score(term, rank))
    if len(positions) < len(schemes):
        half = torch.arange(q.size(2)).ge(q.size(2) // 2).long().unsqueeze(0)  # (1, T)
        layout = replace(layout, segments=half)
        both, _ = position_term(attention_call(module, schemes, layout, q, k, context.temperature))
        if both is not None:
            scores.segments.append(score(both))


def split_heads(module: Any, x: Tensor) -> Tensor:
    """(T, B, d) -> (B, H, T, d_h)."""
    return x.unflatten(-1, (module.num_heads, -1)).permute(1, 2, 0, 3)


def input_score(module: Any, rows: Tensor, keys: Tensor, scale: float) -> Tensor:
    """P W_Q W_K^T P^T / sqrt(d_h), (H, T, S), the score of positions P (T, 1, d) at the input.

    As in DIET's figure 8, biases, words and the LayerNorm between input and layer are left out.
    """
    q = split_heads(module, rows @ module.q_proj.weight.T) * scale
    k = split_heads(module, keys @ module.k_proj.weight.T)
    return (q @ k.mT)[0]


def attention_call(
    module: Any, schemes: Schemes, layout: Any, q: Tensor, k: Tensor, temperature: float = 1.0
) -> AttentionCall:
    """The call for scaled, untransformed queries (B, H, T, d_h) and keys (B, H, S, d_h)."""
    if not schemes:
        return AttentionCall(q, k, k, (), (), layout, 0.0, temperature)
    turned, k = transform_queries_and_keys(schemes, q, k, layout)
    context = Context(layout, temperature=temperature)
    project = module.projections()
    return create_call(q, turned, k, k, context, schemes, project, Factors)


def position_term(call: AttentionCall) -> tuple[Tensor | None, int | None]:
    """The position score, averaged over windows, (H|1, T, S), and an upper bound of its rank.

    Vectors that a scheme adds to queries and keys count only by their product with each other.
    """
    terms = list(call.scores)
    width = call.q.size(-1) // math.prod(scheme.widening for scheme in call.schemes)
    zeros = [torch.zeros_like(x[..., :width]) for x in (call.q, call.k)]
    query, key = transform_queries_and_keys(call.schemes, zeros[0], zeros[1], call.layout)
    if query.any() or key.any():
        terms.append(Factors(query, key))
    if not terms:
        return None, None
    matrices = torch.broadcast_tensors(*(term.dense(call.layout).mean(0) for term in terms))
    ranks = [term.rank for term in terms if isinstance(term, Factors)]
    total = torch.stack(matrices).sum(0) / call.temperature
    return total, sum(ranks) if len(ranks) == len(terms) else None


def statistics(
    place: str, layer: int, logits: Tensor, bound: int | None, compressed: bool = False
) -> LogitStatistics:
    """Statistics of logits (B, H, T, S)."""
    singular = measures.singular_values(logits)  # (B, H, r)
    weights = measures.attention_weights(logits, place == "decoder")
    has_offsets = place != "cross-attention" and not compressed
    columns = measures.head_measures(weights, singular, has_offsets)
    means = {name: values.float().mean(0) for name, values in columns.items()}
    return LogitStatistics(place, layer, singular.float().mean(0), means, bound)
