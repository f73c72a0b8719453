"""The base class of the encoder and the decoder: embeddings, layers, and shared schemes."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..attention.backends import Backend
from ..attention.context import Context
from ..attention.dropout import Dropout
from ..attention.packing import Packing
from ..attention.terms import drop_none
from ..positions import PositionScheme
from ..positions.layout import Layout
from .config import StackConfig
from .embedding import INPUT_POSITIONS
from .layer import TransformerLayer


class Stack(nn.Module):
    """The embeddings, the layers, and the schemes that layers share.

    A subclass that also inherits from a class of a library calls only this constructor.

    Args:
        config: the sizes and options
        embed_tokens: a module (B, T) -> (B, T, e), such as an `nn.Embedding`
    """

    def __init__(self, config: StackConfig, embed_tokens: nn.Module) -> None:
        nn.Module.__init__(self)
        self.stack_config, self.padding_idx = config, config.padding
        self.embed_tokens = embed_tokens
        self.dropout_module = Dropout(config.dropout)
        self.build_embedding(embedding_width(embed_tokens))
        self.layers = nn.ModuleList(TransformerLayer(config, n) for n in range(config.layers))
        self.num_layers = config.layers
        eps = config.layer_norm_eps
        self.layer_norm = nn.LayerNorm(config.embed_dim, eps) if config.final_norm else None
        self.build_output()
        shared = config.build_schemes() if config.shares_schemes else {}
        self.positions, self.segments = shared.get("positions"), shared.get("segments")
        self.global_positions = self._build_global_positions()
        self.limit = config.length_limit
        self.sampling = config.build_sampling()

    def _build_global_positions(self) -> PositionScheme | None:
        """The scheme that global layers share; None: they have the scheme of local layers."""
        config = self.stack_config
        if not (config.shares_schemes and config.positions.has_global_scheme):
            return None
        layer = next(n for n in range(config.layers) if config.positions.is_global(n))
        return config.at_layer(layer).build_schemes().get("positions")

    def build_embedding(self, width: int) -> None:
        """Build the parts between token embeddings of this width and the layers."""
        raise NotImplementedError

    def build_output(self) -> None:
        """Build the parts after the layers."""

    def build_input_parts(self, width: int) -> None:
        """Build the positions at the input and their LayerNorm, both of this width."""
        config = self.stack_config
        self.embed_scale = math.sqrt(width) if config.scale_embedding else 1.0
        kind = INPUT_POSITIONS.get(config.positions.position_input)
        positions = config.limit.positions
        self.embed_positions = None if kind is None else kind(positions, width, config.padding)
        eps = config.layer_norm_eps
        self.layernorm_embedding = nn.LayerNorm(width, eps) if config.layernorm_embedding else None

    def add_positions(self, x: Tensor, layout: Layout) -> Tensor:
        """Embeddings (B, T, d) with positions at the input, after LayerNorm and dropout."""
        if self.embed_positions is not None:
            # a table that is computed may have another dtype
            x = x + self.embed_positions(layout.query_positions).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def backend_setting(self) -> str | Backend:
        """The value of ``--attention-backend``, or a backend that is not in the table."""
        return self.stack_config.positions.attention_backend

    def create_contexts(
        self,
        layout: Layout,
        batch: int,
        packing: Packing | None = None,
        dtype: torch.dtype | None = None,
    ) -> list[Context]:
        """The context of every layer in one forward pass: layers of one kind have the same.

        The arguments are as in `create_context`.
        """
        kinds = [self.stack_config.positions.is_global(n) for n in range(len(self.layers))]
        contexts = {
            kind: self.create_context(layout, batch, packing, dtype, kinds.index(kind))
            for kind in dict.fromkeys(kinds)
        }
        return [contexts[kind] for kind in kinds]

    def create_context(
        self,
        layout: Layout,
        batch: int,
        packing: Packing | None = None,
        dtype: torch.dtype | None = None,
        layer: int = 0,
    ) -> Context:
        """The context of self-attention in layers of one kind, in one forward pass.

        Args:
            layout: the positions of queries and keys, and the mask
            batch: B
            packing: the packing of the layers' tokens
            dtype: the dtype of the layers' input (default: the dtype of the weights)
            layer: the number of a layer of this kind
        """
        first: TransformerLayer = self.layers[layer]  # type: ignore[assignment]
        config = self.stack_config.positions
        positions = config.at_layer(layer)
        is_replaced = config.has_global_scheme and config.is_global(layer)
        shared = self.global_positions if is_replaced else self.positions
        return first.self_attn.create_context(
            layout.with_window(positions.position_window),
            batch,
            drop_none(shared, self.segments),
            backend=self.backend_setting(),
            dtype=dtype,
            compress=getattr(self, "compress_layer", None),
            packing=packing,
            temperature=1.0 if self.training else positions.temperature,
        )

    def active_layers(self) -> Iterator[tuple[int, nn.Module]]:
        """The layers of one forward pass with their numbers; in training LayerDrop skips layers."""
        probability = self.stack_config.layerdrop if self.training else 0.0
        if not probability:
            yield from enumerate(self.layers)
            return
        is_kept = torch.empty(len(self.layers)).uniform_() > probability  # as fairseq draws
        yield from ((n, layer) for n, layer in enumerate(self.layers) if is_kept[n])


def embedding_width(embed_tokens: nn.Module) -> int:
    """The width of token embeddings."""
    width: int = embed_tokens.embedding_dim  # type: ignore[assignment]
    return width
