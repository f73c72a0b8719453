"""Attention scores of every layer and head of a model.

Hooks record the inputs of each attention, and the reference backend computes the scores. Stock
fairseq's attention is the same without positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..attention.backends import AttentionCall
from ..attention.backends.reference import attention_scores
from ..attention.context import Schemes, query_scale, scores_of, transformed
from ..attention.rows import row_scores
from ..positions.scores import Factors
from ..positions.segments import SegmentScores
from . import measures
from .loaded_model import LoadedModel

#: kinds of terms that depend on the words
WORD_KINDS = frozenset({"query_rows", "key_rows", "content_score"})

# Notation: B windows of T tokens, H heads, S keys (T, or k compressed ones), d = H d_h.


@dataclass(frozen=True)
class PositionScore:
    """The score of positions in one attention, in nats.

    Attributes:
        place: "encoder", "decoder", "cross-attention", "encoder's input" or "decoder's input"
        layer: counted from 1; 0: all layers share the score
        matrix: (H, T, S); H is 1 if heads share the score. Shaw's score depends on the query: its
            mean over the text
        rank: a bound of the rank of ``matrix``, if there is one
        compressed: keys are mixtures of tokens
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
    """Statistics of one attention's logits on a text, which words and positions make up.

    All are means over windows, (H,), but for ``singular``, (H, min(T, S)).

    Attributes:
        place, layer: as in `PositionScore`; the layer is never 0
        distance: in tokens, of the weights; None without offsets
        entropy: of the weights, in nats
        bound: the rank that theorem 1 allows; None: all ranks
    """

    place: str
    layer: int
    singular: Tensor
    rank: Tensor
    effective_rank: Tensor
    distance: Tensor | None
    entropy: Tensor
    bound: int | None

    @property
    def columns(self) -> dict[str, Tensor]:
        """The statistics of heads, by the names of their columns in tables."""
        distance = {} if self.distance is None else {"distance": self.distance}
        ranks = {"rank": self.rank, "effective rank": self.effective_rank}
        return distance | {"entropy": self.entropy} | ranks


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


@dataclass(frozen=True)
class Call:
    """The inputs of one attention at a place and layer: queries and keys (T, B, d), and a context.

    The context is that of our attention, and a mask in fairseq's own.
    """

    place: str
    layer: int
    module: Any
    query: Tensor
    key: Tensor
    context: Any

    @property
    def layer_schemes(self) -> Schemes:
        """The schemes of this layer alone; none in stock attention."""
        return getattr(self.module, "layer_schemes", tuple)()

    @property
    def schemes(self) -> Schemes:
        """The schemes that act."""
        return self.layer_schemes or getattr(self.context, "shared", ())

    @property
    def compression(self) -> Any:
        """The compression of keys, (T, B, d) -> (k, B, d); None: they are not compressed."""
        return getattr(self.module, "compress_k", None) or getattr(self.context, "compress", None)

    def split_heads(self, x: Tensor) -> Tensor:
        """(T, B, d) -> (B, H, T, d_h)."""
        return x.unflatten(-1, (self.module.num_heads, -1)).permute(1, 2, 0, 3)


@torch.no_grad()
def look(model: LoadedModel, tokens: Tensor) -> ModelScores:
    """The scores of every attention that reads windows (B, T) of tokens, without padding."""
    calls = record_calls(model, tokens)
    scores = ModelScores()
    for call in calls:
        add_attention(call, scores)
    for place, stack in model.stacks.items():
        if getattr(stack, "embed_positions", None) is not None:
            scores.embeddings[place] = stack.embed_positions(tokens[:1])[0].float()  # (T, d)
            first = next(call for call in calls if call.place == place)
            add_input(first, stack, scores)
    return scores


def record_calls(model: LoadedModel, tokens: Tensor) -> list[Call]:
    """The calls of all attentions with scores to show, in the order of one forward pass."""
    target = None if model.is_encoder else translate_greedily(model, tokens)
    calls: list[Call] = []

    def record(place: str, layer: int, module: Any, _: Any, inputs: dict[str, Any]) -> None:
        query, key, context = (inputs[name] for name in ("query", "key", "key_padding_mask"))
        calls.append(Call(place, layer, module, query, key, context))

    hooks = [
        module.register_forward_pre_hook(partial(record, place, layer), with_kwargs=True)
        for place, layer, module in attentions(model)
    ]
    try:
        with torch.enable_grad():  # without gradients stock fairseq's layers call no attention
            encoded = encode(model, tokens)
            if target is not None:
                model.stacks["decoder"](target, encoder_out=encoded)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def attentions(model: LoadedModel) -> Iterator[tuple[str, int, Any]]:
    """Place, layer and module of each self-attention, and of cross-attention with positions."""
    for place, stack in model.stacks.items():
        for number, layer in enumerate(stack.layers, 1):
            yield place, number, layer.self_attn
            cross = getattr(layer, "encoder_attn", None)
            if getattr(cross, "positions", None) or getattr(stack, "cross_positions", None):
                yield "cross-attention", number, cross


def translate_greedily(model: LoadedModel, tokens: Tensor) -> Tensor:
    """(B, T): translations of (B, T) tokens by greedy search, without their ends."""
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


def add_attention(call: Call, scores: ModelScores) -> None:
    """Add the position score of an attention, and the statistics of its logits."""
    module, schemes, key = call.module, call.schemes, call.key
    layout: Any = getattr(call.context, "layout", None)
    compressed = call.compression is not None
    if compressed:
        key = call.compression(key, layout)
        layout = layout.compressed(len(key))
    q = call.split_heads(module.q_proj(call.query)) * query_scale(schemes, module.head_dim)
    k = call.split_heads(module.k_proj(key))
    positions = tuple(scheme for scheme in schemes if not isinstance(scheme, SegmentScores))
    matrix, rank = position_term(attention_call(module, positions, layout, q, k))
    reads_words = any(scheme.kinds & WORD_KINDS for scheme in schemes)
    bound = None
    if any("transform" in scheme.kinds for scheme in schemes):  # words and positions meet
        bound = measures.theorem_1(q.size(2), module.head_dim)
    elif matrix is None or rank is not None:
        bound = measures.theorem_1(q.size(2), module.head_dim, rank or 0)
    temperature = getattr(call.context, "temperature", 1.0)
    whole = attention_call(module, schemes, layout, q, k, temperature)
    logits = attention_scores(whole, masked=False)  # (B, H, T, S)
    scores.logits.append(statistics(call, logits, None if reads_words else bound))
    is_shared = not call.layer_schemes and not reads_words
    if is_shared and call.layer > 1:
        return
    score = partial(PositionScore, call.place, 0 if is_shared else call.layer)
    if matrix is not None:
        scores.positions.append(score(matrix, rank, compressed))
    if len(positions) < len(schemes):
        half = torch.arange(q.size(2)).ge(q.size(2) // 2).long().unsqueeze(0)  # (1, T)
        layout = replace(layout, segments=half)
        both, _ = position_term(attention_call(module, schemes, layout, q, k))
        if both is not None:
            scores.segments.append(score(both, compressed=compressed))


def attention_call(
    module: Any, schemes: Schemes, layout: Any, q: Tensor, k: Tensor, temperature: float = 1.0
) -> AttentionCall:
    """The call of queries (B, H, T, d_h), scaled, and keys (B, H, S, d_h), not transformed yet."""
    if not schemes:
        return AttentionCall(q, k, k, (), (), layout, 0.0, temperature)
    turned, k = transformed(schemes, q, k, layout)
    scale = query_scale(schemes, module.head_dim)
    rows = row_scores(schemes, q, k, layout, module.projections(), scale)
    scores = scores_of(schemes, layout, Factors) + rows
    return AttentionCall(turned, k, k, scores, schemes, layout, 0.0, temperature)


def position_term(call: AttentionCall) -> tuple[Tensor | None, int | None]:
    """The mean over windows of the score that positions add, (H|1, T, S), and a bound of its rank.

    Vectors that a scheme adds to queries and keys count, without their products with words.
    """
    terms = list(call.scores)
    zeros = torch.zeros_like(call.q), torch.zeros_like(call.k)
    query, key = transformed(call.schemes, *zeros, call.layout)
    if query.any() or key.any():
        terms.append(Factors(query, key))
    if not terms:
        return None, None
    matrices = torch.broadcast_tensors(*(term.dense().mean(0) for term in terms))
    ranks = [term.query.size(-1) for term in terms if isinstance(term, Factors)]
    return torch.stack(matrices).sum(0), sum(ranks) if len(ranks) == len(terms) else None


def statistics(call: Call, logits: Tensor, bound: int | None) -> LogitStatistics:
    """Statistics of logits (B, H, T, S)."""
    singular = measures.singular_values(logits)  # (B, H, r)
    weights = measures.attention_weights(logits, call.place == "decoder")
    has_offsets = call.place != "cross-attention" and call.compression is None
    return LogitStatistics(
        call.place,
        call.layer,
        singular.mean(0).float(),
        measures.rank(singular).float().mean(0),
        measures.effective_rank(singular).mean(0).float(),
        measures.mean_distance(weights).mean(0) if has_offsets else None,
        measures.entropy(weights).mean(0),
        bound,
    )


def add_input(call: Call, stack: Any, scores: ModelScores) -> None:
    """Add P W_Q W_K^T P^T / sqrt(d_h), the score of positions P (T, d) at the input, in layer 1.

    As in DIET's figure 8, biases, words and the LayerNorm between input and layer are left out.
    """
    module, rows = call.module, scores.embeddings[call.place].unsqueeze(1)  # (T, 1, d)
    if getattr(stack, "project_in", None) is not None:
        rows = rows @ stack.project_in.weight.T
    compressed = call.compression is not None
    keys = call.compression(rows, call.context.layout) if compressed else rows
    q = call.split_heads(rows @ module.q_proj.weight.T) * query_scale(call.schemes, module.head_dim)
    k = call.split_heads(keys @ module.k_proj.weight.T)
    matrix = attention_scores(attention_call(module, (), None, q, k), masked=False)[0]
    place = f"{call.place}'s input"
    scores.positions.append(PositionScore(place, 1, matrix, module.head_dim, compressed))
