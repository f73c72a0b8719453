"""The attention modules of a tiny model, one by one, with the layouts that they meet there."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diet_fairseq.attention.moving import sum_steps
from diet_fairseq.attention.terms import Schemes, drop_none
from diet_fairseq.positions import PositionScheme
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.segments import SegmentScores
from diet_fairseq.transformer import PositionalAttention
from tests.support.tiny import Model, is_encoder, vectors


@dataclass(frozen=True)
class Attention:
    """One attention module of a model that a scheme may act in, and the layouts it meets there."""

    name: str
    module: PositionalAttention
    shared: Schemes
    stack: Any
    compress: Any = None

    @property
    def schemes(self) -> Schemes:
        return drop_none(self.module.positions, self.module.segments) or self.shared

    @property
    def scheme(self) -> PositionScheme | None:
        """The position scheme."""
        return next((s for s in self.schemes if not isinstance(s, SegmentScores)), None)

    @property
    def segments(self) -> SegmentScores | None:
        return next((s for s in self.schemes if isinstance(s, SegmentScores)), None)

    @property
    def is_cross(self) -> bool:
        return self.module.is_cross

    @property
    def causal(self) -> bool:
        return self.name.startswith("decoder") and not self.is_cross

    @property
    def matrices(self) -> tuple[Tensor, Tensor]:
        """Linformer's E and F, (k, n)."""
        e: Any = self.module.compress_k or self.compress
        return e.weight, (self.module.compress_v or e).weight

    def seen(self, padding: Tensor) -> Tensor:
        """(B, Tq, Tk): which keys a query may see; compressed ones all."""
        if (self.module.compress_k or self.compress) is not None:
            return torch.ones(*padding.shape, len(self.matrices[0])).bool()
        seen = ~padding.unsqueeze(1).expand(-1, padding.size(1), -1)
        return seen.tril() if self.causal else seen

    def layout(
        self, padding: Tensor, full_context: bool = False, segments: Tensor | None = None
    ) -> Layout:
        """The layout for this (B, T) padding; in cross-attention that of both sides.

        For schemes with steps, positions are moved by random tokens.
        """
        causal = self.causal and not full_context
        layout = Layout.of_self_attention(padding, causal=causal, segments=segments)
        if self.is_cross:
            return Layout.of_cross_attention(layout, padding)
        if self.scheme is not None and self.scheme.moves:
            x = vectors(*padding.shape, self.module.embed_dim, seed=6)
            with torch.no_grad():
                moved = sum_steps(self.scheme, x, layout)
            return layout.move(moved, moved)
        return layout

    def __call__(self, x: Tensor, layout: Layout, weights: bool = False) -> Tensor:
        """Queries and keys x (B, T, d) -> (B, T, d), or the weights (B, H, T, T)."""
        x = x.transpose(0, 1)
        context = self.module.create_context(
            layout,
            x.size(1),
            self.shared,
            backend=self.stack.stack_config.positions.attention_backend,
            compress=self.compress,
            temperature=self.stack.stack_config.positions.temperature,
        )
        source = x if self.is_cross else None
        out, per_head = self.module(x, context, source, need_weights=weights)
        return per_head if weights else out.transpose(0, 1)


def attentions(model: Model) -> list[Attention]:
    wrappers = []
    for name, module in model.named_modules():
        if isinstance(module, PositionalAttention):
            side = model.encoder if name.startswith("encoder") else model.decoder
            side = side.sentence_encoder if is_encoder(model) else side
            cross = module.is_cross
            if cross and side.stack_config.positions.scheme_in(cross=True) is None:
                continue
            shared = side.cross_positions if cross else side.positions
            segments = getattr(side, "segments", None)
            compress = getattr(side, "compress_layer", None)
            wrappers.append(Attention(name, module, drop_none(shared, segments), side, compress))
    return wrappers
