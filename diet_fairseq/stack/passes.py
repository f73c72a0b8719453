"""What encoders and decoders have in common: how layers are wrapped, and what one pass shares."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from ..attention.context import Context, Schemes, Term
from ..attention.packing import Packing
from ..positions.layout import Layout


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """What fairseq does to every layer: activation checkpointing and FSDP, where asked for."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    # no closure, which a copy of the model would share with it
    layer.forward = partial(_recomputed, layer.forward, cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


def _recomputed(forward: Callable, offload: bool, x: Tensor, *args: Any, **options: Any) -> Any:
    """A layer that keeps its input ``x`` alone, on the CPU if so wanted, for the backward pass.

    fairseq's `checkpoint_wrapper` runs a backward pass of its own for every layer, in which what
    the layers share has several gradients (DistributedDataParallel accepts one), and its first
    forward pass without gradients, for which attention may choose another backend.
    """
    if not torch.is_grad_enabled():
        return forward(x, *args, **options)
    with save_on_cpu() if offload else nullcontext():
        return checkpoint(forward, x, *args, use_reentrant=False, **options)


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
    if not shared or not len(stack.layers):
        return context
    first, layers = getattr(stack.layers[0], attention), len(stack.layers)
    backend = first.backend_for(shared, layout, batch, layers)
    return replace(context, term=Term.of(shared, layout, backend), backend=backend)
