"""Parameters of a model with one position scheme as parameters of a model with another scheme.

A warm start (`models.warm_start`) and `diet_fairseq.hf.swap_positions` use them.
"""

import logging
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..attention.terms import drop_none, score_terms
from ..positions import PositionScheme
from ..positions.description import Description, is_global, select_kind
from ..positions.gain import ScoreParameters
from .attention import PositionalAttention
from .decoder import Decoder
from .encoder import Encoder
from .stack import Stack

logger = logging.getLogger(__name__)

POSITIONS = {"positions", "global_positions", "cross_positions"}
#: modules of cross-attention, which has another scheme than self-attention
CROSS = {"cross_positions", "encoder_attn"}
COMPRESSION = {"compress_k", "compress_v", "compress_layer"}
#: the end of the name of a scheme's `PositionScheme.score_terms`
TERMS = "positions.terms"
#: parts in which a model may differ from the checkpoint that it starts from
MAY_DIFFER = {"segments", "embed_positions", "embed_segments", "pooler", "nsp_head", "lm_head"}
MAY_DIFFER |= POSITIONS | COMPRESSION


def adapt(
    model: nn.Module,
    checkpoint: Mapping[str, Tensor],
    description: Description | None = None,
    keeps_mean: bool = False,
) -> dict[str, Tensor]:
    """The checkpoint's parameters, converted to parameters of ``model``.

    Missing parameters of positions and segments start at zero (`PositionScheme.zero`). Queries, of
    words and of TUPE's positions, are rescaled where another number of terms shares their scale
    (`PositionScheme.score_terms`): the new model computes the old model's function, except
    for positions that are dropped. With ``keeps_mean``, the tokens keep the mean of dropped
    positions at an encoder's input (`find_position_means`).

    The checkpoint is returned unchanged if nothing differs, if a shape differs, or if parts other
    than positions, segments and their readers differ; PyTorch's strict load then decides.
    """
    model_state = model.state_dict()
    # the number of terms is the model's own
    parameters = {name: x for name, x in checkpoint.items() if not name.endswith(TERMS)}
    parameters = add_gains(model, parameters)
    loaded = {name: tensor for name, tensor in parameters.items() if name in model_state}
    patterns = find_layer_pattern(model), None if description is None else description.get("layers")

    def find_attention(name: str) -> tuple[str | bool | None, ...]:
        """The attention of a parameter, and whether its layers are global, now and before."""
        return attention_kind(name), *(is_global(name, pattern) for pattern in patterns)

    # another scheme's gain is left out with its parameters
    kinds = {
        find_attention(name)
        for name in loaded
        if attention_kind(name) and not name.endswith(".gain")
    }
    loaded = {
        name: tensor
        for name, tensor in loaded.items()
        if attention_kind(name) is None or find_attention(name) in kinds
    }
    missing = [name for name in model_state if name not in loaded and not name.endswith(TERMS)]
    unexpected = [name for name in parameters if name not in loaded]
    differing = [_parts(name) for name in missing + unexpected]
    scales = find_query_scales(model, checkpoint, description)
    missing_kinds = {find_attention(name) for name in missing if attention_kind(name)}
    has_partial_scheme = bool(missing_kinds & {find_attention(name) for name in loaded})
    compresses = any(_parts(name) & COMPRESSION for name in loaded)
    if (
        not (differing or any(scale != 1 for scale in scales.values()))
        or has_partial_scheme
        or any(model_state[name].shape != tensor.shape for name, tensor in loaded.items())
        or not all(parts & MAY_DIFFER for parts in differing)
        or (compresses and any(parts & COMPRESSION for parts in differing))
    ):
        return dict(checkpoint)

    not_zero: set[str] = set()
    for name, module in model.named_modules():
        if not any(parameter.startswith(f"{name}.") for parameter in missing):
            continue
        if isinstance(module, PositionScheme):
            module.zero()
            if not module.can_be_zero:
                not_zero.add(type(module).__name__)
        elif name.endswith(("embed_segments", "embed_positions")):
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    for scheme in sorted(not_zero):
        logger.warning(
            "the position term of %s can't be zero and learn: before training, the model computes"
            " another function than the checkpoint", scheme,
        )  # fmt: skip
    adapted, means = {**model.state_dict(), **loaded}, {}
    if keeps_mean:
        means = find_position_means(model, {name: parameters[name] for name in unexpected})
    for name, mean in means.items():
        adapted[name] = adapted[name] + mean.to(adapted[name].dtype)
    for name, scale in scales.items():
        if name in loaded:
            adapted[name] = adapted[name] * scale
    logger.info("warm start: %d parameters are loaded from the checkpoint", len(loaded))
    for label, names in (("not in the checkpoint", missing), ("not loaded", unexpected)):
        if names:
            without_layers = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)
            logger.info("%s: %s", label, ", ".join(without_layers))
    return adapted


def find_position_means(model: nn.Module, dropped: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the dropped positions at an encoder's input have in common, for its token embeddings.

    Every token had a position, so later layers expect the mean position in their input. The rows of
    tied output weights shift by the same vector, which adds one number to the logits of all words:
    the softmax does not change.

    Args:
        dropped: parameters that the model lacks

    Returns:
        name of a table with a row for each token -> the mean (d,) to add to all rows
    """
    means: dict[str, Tensor] = {}
    if any(isinstance(module, Decoder) for module in model.modules()):
        return means
    tables = dict(model.named_parameters(remove_duplicate=False))
    for place, stack in model.named_modules():
        prefix = f"{place}." if place else ""
        positions = dropped.get(f"{prefix}embed_positions.weight")
        if positions is None or not isinstance(stack, Encoder) or stack.embed_positions is not None:
            continue
        mean = positions[stack.padding_idx + 1 :].float().mean(0) / stack.embed_scale
        tokens = tables[f"{prefix}embed_tokens.weight"]
        means |= {name: mean for name, table in tables.items() if table is tokens}
    return means


def find_query_scales(
    model: nn.Module, checkpoint: Mapping[str, Tensor], description: Description | None
) -> dict[str, float]:
    """The factors of the query parameters of a checkpoint that keep the scores unchanged.

    A score is divided by the root of the number of terms that share its scale, and this number may
    differ between the checkpoint and the model.

    Returns:
        name of a parameter -> factor
    """
    crosses = any(attention_kind(name) == "cross" for name in checkpoint)
    scales: dict[str, float] = {}
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if not isinstance(module, PositionalAttention):
            continue
        cross = module.is_cross
        place = name.partition("layers.")[0]
        old = (
            infer_score_terms(checkpoint)
            if description is None
            else select_kind(description, f"{name}.q_proj")["score_terms"]
        )
        shared = modules.get(f"{place}{shared_scheme_name(modules, name)}")
        shared = shared if isinstance(shared, PositionScheme) else None
        schemes = drop_none(getattr(module, "positions", None) or shared)
        scale = (score_terms(schemes) / (old if crosses or not cross else 1)) ** 0.5
        queries = [f"{name}.q_proj"]
        for place, part in modules.items():
            if part in schemes:
                queries += [f"{place}.{child}" for child in part.scaled_projections]
        scales |= {f"{query}.{end}": scale for query in queries for end in ("weight", "bias")}
    return scales


def shared_scheme_name(modules: Mapping[str, nn.Module], name: str) -> str:
    """The name, in its encoder or decoder, of the scheme that an attention may share."""
    if "encoder_attn" in name.split("."):
        return "cross_positions"
    stack = modules.get(name.partition(".layers.")[0] if ".layers." in name else "")
    config = stack.stack_config.positions if isinstance(stack, Stack) else None
    if config is None or not config.has_global_scheme:
        return "positions"
    is_other = is_global(f"{name}.", config.position_layers)
    return "global_positions" if is_other else "positions"


def find_layer_pattern(model: nn.Module) -> str | None:
    """``--position-layers`` of a model; None: all layers are of one kind."""
    stacks = (module for module in model.modules() if isinstance(module, Stack))
    return next((stack.stack_config.positions.position_layers for stack in stacks), None)


def infer_score_terms(checkpoint: Mapping[str, Tensor]) -> int:
    """Infer `PositionScheme.score_terms` of a checkpoint's scheme from the parameters."""
    for name, tensor in checkpoint.items():
        if name.endswith(TERMS):
            return round(float(tensor))  # also of an average of checkpoints
    return 2 if any("pos_q_linear" in name for name in checkpoint) else 1  # TUPE has 2


def add_gains(model: nn.Module, checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The checkpoint with a gain of 1 for every scheme that has parameters but no gain."""
    gains = {
        f"{name}.gain": torch.ones((), dtype=torch.float64)
        for name, module in model.named_modules()
        if isinstance(module, ScoreParameters)
        and any(f"{name}.{parameter}" in checkpoint for parameter, _ in module.named_parameters())
    }
    return {**gains, **checkpoint}


def attention_kind(name: str) -> str | None:
    """The kind of attention whose positions a parameter belongs to: "self" or "cross"."""
    parts = _parts(name)
    return None if not parts & POSITIONS else "cross" if parts & CROSS else "self"


def _parts(name: str) -> set[str]:
    return set(name.split("."))
