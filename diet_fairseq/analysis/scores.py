"""Scores of every layer and head of a model: of positions alone, and of whole attention on a text.

A hook records the inputs of each attention, and the reference backend computes the scores of them.
Stock fairseq's attention is the same without positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..attention.backends import AttentionCall
from ..attention.backends.reference import attention_scores
from ..attention.context import Schemes, query_scale, scores_of, transformed, without_none
from ..attention.rows import row_scores
from ..positions.layout import Layout
from ..positions.scores import Factors
from ..positions.segments import SegmentScores
from ..stack.attention import LinformerAttention, PositionalAttention
from . import measures
from .loaded_model import LoadedModel

#: kinds of terms that depend on what the tokens are
READING = frozenset({"query_rows", "key_rows", "content_score"})

# Notation: B windows of T tokens, H heads, S keys (T, or k compressed ones), d = H d_h.


@dataclass(frozen=True)
class Scores:
    """The score of positions in one attention, in nats; layers that share it have it once.

    Attributes:
        place: "encoder", "decoder", "cross-attention", or "encoder's input", "decoder's input"
        layer: counted from 1; 0: all layers share it
        matrix: (H, T, S); H is 1 where heads share it. Of Shaw's, which reads queries, the mean
            over the queries of the text
        causal: later keys are not seen
        rank: no rank of ``matrix`` is above it
        compressed: keys are mixtures of tokens
    """

    place: str
    layer: int
    matrix: Tensor
    causal: bool = False
    rank: int | None = None
    compressed: bool = False

    @property
    def square(self) -> bool:
        """Whether queries and keys are the same tokens, so that an offset has a meaning."""
        return self.place != "cross-attention" and not self.compressed

    @property
    def title(self) -> str:
        return f"{self.place}, layer {self.layer}" if self.layer else f"{self.place}, all layers"


@dataclass(frozen=True)
class Whole:
    """The whole scores of one attention on a text, reduced to what is shown of them.

    Attributes:
        place, layer: as of `Scores`, but for the layer, which is never 0
        singular: (H, min(T, S)), singular values, the mean over windows
        rank: (H,), the mean over windows of the rank; ``effective``: of the effective rank
        distance: (H,), how many tokens away queries look; None where that has no meaning
        entropy: (H,), of their weights, in nats
        bound: the rank that theorem 1 allows; None: none below T
    """

    place: str
    layer: int
    singular: Tensor
    rank: Tensor
    effective: Tensor
    distance: Tensor | None
    entropy: Tensor
    bound: int | None


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model.

    Attributes:
        positions: scores of positions
        segments: positions and segments where the window's second half is a second segment
        whole: scores of words and positions
        input: (T, d) by stack, the position embeddings that are added to the input
    """

    positions: list[Scores]
    segments: list[Scores]
    whole: list[Whole]
    input: dict[str, Tensor]


@dataclass(frozen=True)
class Call:
    """The inputs of one attention: its place, and (T, B, d) queries and keys."""

    place: str
    layer: int
    module: Any
    query: Tensor
    key: Tensor
    context: Any
    causal: bool

    @property
    def compressed(self) -> bool:
        return isinstance(self.module, LinformerAttention)


@torch.no_grad()
def look(model: LoadedModel, tokens: Tensor) -> ModelScores:
    """Read windows (B, T) of tokens, and take the scores of every attention that reads them.

    Raises:
        ValueError: some token is padding, whose rows and columns would count as a word's
    """
    if tokens.eq(model.dictionary.pad()).any():
        raise ValueError("look takes windows without padding")
    found = ModelScores([], [], [], {})
    target = None if model.is_encoder else decoded(model, tokens)
    with recorded(model) as calls:
        run(model, tokens, target)
    for call in calls:
        if isinstance(call.module, PositionalAttention):
            own(call, found)
        else:
            stock(call, found)
    for name, stack in model.stacks.items():
        at_input(name, stack, tokens, found)
    return found


@contextmanager
def recorded(model: LoadedModel) -> Iterator[list[Call]]:
    """The calls of all attentions that have scores to show, in their order."""
    calls: list[Call] = []

    def record(place: str, layer: int, module: Any, _: Any, given: dict[str, Any]) -> None:
        calls.append(
            Call(place, layer, module, given["query"], given["key"], given["key_padding_mask"],
                 place == "decoder")
        )  # fmt: skip

    hooks = []
    for name, stack in model.stacks.items():
        for number, layer in enumerate(stack.layers, 1):
            attentions = {name: layer.self_attn}
            crossing = getattr(layer, "encoder_attn", None)
            if getattr(crossing, "positions", None) or getattr(stack, "cross_positions", None):
                attentions["cross-attention"] = crossing
            hooks += [
                module.register_forward_pre_hook(partial(record, place, number), with_kwargs=True)
                for place, module in attentions.items()
            ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def decoded(model: LoadedModel, tokens: Tensor) -> Tensor:
    """(B, T): what a translation model writes of a source (B, T), word by word, without an end."""
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


def run(model: LoadedModel, tokens: Tensor, target: Tensor | None) -> None:
    """One pass. Gradients are on: without them stock fairseq's layers call no attention."""
    with torch.enable_grad():
        encoded = encode(model, tokens)
        if target is not None:
            model.stacks["decoder"](target, encoder_out=encoded)


def split(x: Tensor, heads: int) -> Tensor:
    """(T, B, d) -> (B, H, T, d_h)."""
    return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3).detach()


def own(call: Call, found: ModelScores) -> None:
    """An attention of ours: the terms of its schemes, and its whole score."""
    module, context = call.module, call.context
    layout, key = context.layout, call.key
    if call.compressed:
        key = (module.compress_k or context.compress)(key, layout)
        layout = layout.compressed(len(key))
    of_layer = module.layer_schemes()
    schemes, shared = of_layer or context.shared, not of_layer
    q = split(module.q_proj(call.query), module.num_heads) * query_scale(schemes, module.head_dim)
    k = split(module.k_proj(key), module.num_heads)
    positions = tuple(scheme for scheme in schemes if not isinstance(scheme, SegmentScores))
    matrix, rank = added(module, positions, layout, q, k)
    called = reference_call(module, schemes, layout, q, k)
    scores = attention_scores(called, masked=False)  # (B, H, T, S)
    bounded = rank is not None or matrix is None
    bound = measures.theorem_1(q.size(2), module.head_dim, rank) if bounded else None
    if any("transform" in scheme.kinds for scheme in schemes):
        bound = measures.theorem_1(q.size(2), module.head_dim)  # words and positions meet
    reads_queries = any(scheme.kinds & READING for scheme in schemes)
    found.whole.append(reduced(call, scores, None if reads_queries else bound))
    if shared and call.layer > 1 and not reads_queries:
        return
    layer = 0 if shared and not reads_queries else call.layer
    if matrix is not None:
        found.positions.append(
            Scores(call.place, layer, matrix, call.causal, rank, call.compressed)
        )
    segments = tuple(scheme for scheme in schemes if isinstance(scheme, SegmentScores))
    if segments:
        half = torch.arange(q.size(2)).ge(q.size(2) // 2).long().unsqueeze(0)  # (1, T)
        both, _ = added(module, (*positions, *segments), replace(layout, segments=half), q, k)
        if both is not None:
            found.segments.append(Scores(call.place, layer, both, compressed=call.compressed))


def reference_call(
    module: Any, schemes: Schemes, layout: Layout, q: Tensor, k: Tensor
) -> AttentionCall:
    """The attention call of queries (B, H, T, d_h), scaled, and keys, not transformed yet."""
    scores = scores_of(schemes, layout)
    turned, k = transformed(schemes, q, k, layout)
    scale = query_scale(schemes, module.head_dim)
    scores += row_scores(schemes, q, k, layout, module.projections(), scale)
    return AttentionCall(turned, k, k, scores, schemes, layout, dropout=0.0)


def added(
    module: Any, schemes: Schemes, layout: Layout, q: Tensor, k: Tensor
) -> tuple[Tensor | None, int | None]:
    """The mean score of schemes apart from words', (H|1, T, S), and a bound of its rank."""
    typed = [score for scheme in schemes if (score := scheme.score(layout)) is not None]
    scale = query_scale(schemes, module.head_dim)
    rows = row_scores(schemes, q, k, layout, module.projections(), scale)
    parts = [score.dense().mean(0) for score in (*typed, *rows)]
    ranks = [score.query.size(-1) for score in typed if isinstance(score, Factors)]
    nothing = torch.zeros_like(q), torch.zeros_like(k)
    query, key = transformed(schemes, *nothing, layout)
    if query.any() or key.any():  # what is added to queries and keys
        parts.append((query.float() @ key.float().mT)[0])
        ranks.append(query.size(-1))
    if not parts:
        return None, None
    rank = sum(ranks) if len(ranks) == len(parts) else None
    return torch.stack(torch.broadcast_tensors(*parts)).sum(0), rank


def stock(call: Call, found: ModelScores) -> None:
    """An attention of fairseq's own: words alone, which have positions in them."""
    module = call.module
    q = split(module.q_proj(call.query), module.num_heads) * module.head_dim**-0.5
    k = split(module.k_proj(call.key), module.num_heads)
    bound = measures.theorem_1(q.size(2), module.head_dim)
    found.whole.append(reduced(call, q @ k.mT, bound))


def reduced(call: Call, scores: Tensor, bound: int | None) -> Whole:
    """(B, H, T, S) -> `Whole`."""
    singular = measures.singular_values(scores)  # (B, H, r)
    weights = measures.attention(scores, call.causal)
    square = call.place != "cross-attention" and not call.compressed
    return Whole(
        call.place,
        call.layer,
        singular.mean(0).float(),
        measures.rank(singular).float().mean(0),
        measures.effective_rank(singular).mean(0).float(),
        measures.mean_distance(weights).mean(0) if square else None,
        measures.entropy(weights).mean(0),
        bound,
    )


def at_input(name: str, stack: Any, tokens: Tensor, found: ModelScores) -> None:
    """Positions at the input P (T, d): P W_Q W_K^T P^T / sqrt(d_h) of every head of layer 1.

    As in DIET's figure 8: biases, words and the LayerNorm between input and layer are left out.
    """
    embed = getattr(stack, "embed_positions", None)
    if embed is None:
        return
    rows = embed(tokens[:1])[0].detach().float()  # (T, d)
    found.input[name] = rows
    project_in = getattr(stack, "project_in", None)
    if project_in is not None:
        rows = rows @ project_in.weight.T
    attention = stack.layers[0].self_attn
    keys = rows
    if isinstance(attention, LinformerAttention):
        compress = attention.compress_k or stack.compress_layer
        keys = compress.weight[:, : len(rows)] @ rows  # (k, d)
    scale = attention.head_dim**-0.5
    if isinstance(attention, PositionalAttention):
        scale = query_scale(
            attention.layer_schemes() or without_none(stack.positions), attention.head_dim
        )
    query = (rows @ attention.q_proj.weight.T).unflatten(-1, (attention.num_heads, -1))
    key = (keys @ attention.k_proj.weight.T).unflatten(-1, (attention.num_heads, -1))
    matrix = torch.einsum("thd,shd->hts", query, key) * scale
    found.positions.append(
        Scores(
            f"{name}'s input",
            1,
            matrix.detach(),
            name == "decoder",
            attention.head_dim,
            isinstance(attention, LinformerAttention),
        )
    )
