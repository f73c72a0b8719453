"""The context of a forward pass, and wrappers that encoders' and decoders' layers share."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.modules import FairseqDropout, LearnedPositionalEmbedding
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from ..attention.backends import BACKENDS, CallShape, select_backend
from ..attention.context import Context, Schemes, prepare, scores_of
from ..attention.dropout import dropout
from ..attention.packing import Packing
from ..positions.layout import Layout


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """The layer with activation checkpointing and FSDP, where the options ask for them."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    # no closure, which a copy of the model would share with it
    layer.forward = partial(_recomputed, layer.forward, cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


def _recomputed(forward: Callable, offload: bool, x: Tensor, *args: Any, **options: Any) -> Any:
    """Run a layer that keeps only its input ``x`` for the backward pass, on the CPU if offloaded.

    fairseq's `checkpoint_wrapper` runs a backward pass of its own for every layer, in which what
    the layers share has several gradients (DistributedDataParallel accepts one), and its first
    forward pass without gradients, for which attention may choose another backend.
    """
    if not torch.is_grad_enabled():
        return forward(x, *args, **options)
    with save_on_cpu() if offload else nullcontext():
        return checkpoint(forward, x, *args, use_reentrant=False, **options)


def create_context(
    stack: Any,
    layout: Layout,
    shared: Schemes,
    batch: int,
    packing: Packing | None = None,
    attention: str = "self_attn",
) -> Context:
    """The `Context` of one forward pass of ``batch`` sentences, for this attention of a stack.

    One backend is selected for all layers, as all have schemes and sizes of one kind, and the
    scores that they share are computed for it. Recomputed layers therefore take the same backend.
    """
    config = stack.placement.config
    first = getattr(stack.layers[0], attention)
    call = CallShape(
        shared or first.layer_schemes(),
        layout,
        (batch, first.num_heads, first.head_dim),
        compute_dtype(first.q_proj.weight),
        first.active_dropout,
    )
    backend = select_backend(config.attention_backend, call)
    scores = scores_of(shared, layout, BACKENDS[backend].native_score) if shared else None
    prepare(shared, layout)
    compress = getattr(stack, "compress_layer", None)
    temperature = 1.0 if stack.training else config.temperature
    return Context(layout, shared, scores, backend, compress, packing, temperature)


def compute_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of products with a weight: autocast's where it is enabled."""
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return weight.dtype


def input_positions(table: Any, positions: Tensor) -> Tensor:
    """(B|1, T) positions in fairseq's learned or sinusoidal table -> (B|1, T, d).

    fairseq's own lookup counts padding in decoding.
    """
    weight = table.weight if isinstance(table, LearnedPositionalEmbedding) else table.weights
    rows = positions + table.padding_idx + 1
    return F.embedding(rows.clamp(max=len(weight) - 1), weight)  # padding's may exceed the table


class QuickDropout(FairseqDropout):
    """fairseq's dropout module with the quicker `attention.dropout.dropout`."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        acts = self.p > 0 and (self.training or self.apply_during_inference)
        return dropout(x, self.p) if acts else x


def replace_dropout(module: nn.Module) -> None:
    """Replace every `FairseqDropout` in a module by `QuickDropout`."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is FairseqDropout:
                setattr(parent, name, QuickDropout(child.p, child.module_name))
