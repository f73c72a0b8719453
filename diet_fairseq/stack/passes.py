"""What encoders and decoders have in common: how layers are wrapped, and what one pass shares."""

from dataclasses import replace
from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn

from ..attention.context import Context, Schemes, Term
from ..attention.packing import Packing
from ..positions.layout import Layout


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """What fairseq does to every layer: activation checkpointing and FSDP, where asked for."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


def context_of(
    stack: Any,
    layout: Layout,
    shared: Schemes,
    batch: int,
    packing: Packing | None = None,
    attention: str = "self_attn",
) -> Context:
    """The `Context` of one forward pass of ``batch`` sentences, for this attention of a stack.

    What the layers share is computed for the backend that the first of them chooses, and all take
    that backend: the form of the term and what reads it can't differ.
    """
    context = Context(
        layout, shared, compress=getattr(stack, "compress_layer", None), packing=packing
    )
    if not shared or not len(stack.layers) or stack.cfg.checkpoint_activations:
        return context
    first, layers = getattr(stack.layers[0], attention), len(stack.layers)
    backend = first.backend_for(shared, layout, batch, layers)
    return replace(context, term=Term.of(shared, layout, backend), backend=backend)
