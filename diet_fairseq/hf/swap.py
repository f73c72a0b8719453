"""Another position scheme for a pretrained model, in memory and without fairseq."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import PreTrainedModel

from ..errors import UserError
from ..positions.description import describe, list_differences
from ..transformer.embedding import SinusoidalPositions
from ..transformer.scheme_change import adapt, attention_kind
from .configuration import DietConfig, DietEncoderConfig
from .encoders import DietEncoderModel, DietForMaskedLM
from .families import (
    BertFamily,
    ElectraFamily,
    EncoderFamily,
    RobertaFamily,
    State,
    XLMRobertaFamily,
    rename_parameter,
)

#: ``model_type`` -> the family
FAMILIES: dict[str, EncoderFamily] = {
    "bert": BertFamily(),
    "roberta": RobertaFamily(),
    "xlm-roberta": XLMRobertaFamily(),
    "electra": ElectraFamily(),
}
#: options of our configurations that transformers' configurations have, too
SHARED_OPTIONS = (
    "vocab_size", "initializer_range", "bos_token_id", "pad_token_id", "eos_token_id",
    "tie_word_embeddings",
)  # fmt: skip
#: options of segments, which stay the model's
SEGMENT_OPTIONS = ("segment_scheme", "num_segments")


def swap_positions(
    model: PreTrainedModel, scheme: str, *, max_positions: int | None = None, **options: Any
) -> Any:
    """A copy of a pretrained model with another position scheme.

    The copy has the model's parameters and token ids, so the model's tokenizer fits it. Its
    attention starts without learned positions, as in a warm start (`PositionScheme.zero`). If the
    model adds vectors of positions to the token embeddings, the copy adds their mean to all of
    them. Segments stay at the input. The copy is a start for further training, such as
    ``examples/encoders/distill.py``: untrained, it computes another function than the model.

    Padding follows from ``attention_mask``, or else from ``pad_token_id`` of the configuration.

    Args:
        model: a BertModel, RobertaModel, XLMRobertaModel or ElectraModel of transformers, one of
            these encoders with a head for masked words, or an encoder of `diet_fairseq.hf`
        scheme: a key of `SCHEMES`
        max_positions: the length limit of schemes with tables of absolute positions, and
            ``max_position_embeddings`` of the copy's configuration (default: the model's)
        options: position options such as ``position_clip=32``

    Returns:
        a `DietEncoderModel`, a `DietForMaskedLM`, or another model of the class of ``model``

    Raises:
        UserError: the model's class, an option of the model, or a position option is not supported
    """
    if fixed := [name for name in SEGMENT_OPTIONS if name in options]:
        raise UserError(
            f"{fixed[0]} must not be given to swap_positions, because the model's segments stay: "
            "leave it out"
        )
    if isinstance(model.config, DietEncoderConfig):
        kind, config, state = change_ours(model, scheme, options, max_positions)
    else:
        kind, config, state = convert_published(model, scheme, options, max_positions)
    swapped = kind(config)
    own = swapped.state_dict()
    for name, tensor in state.items():
        if name in own and own[name].shape != tensor.shape:
            raise UserError(
                f"max_positions must be {model.config.max_position_embeddings} with the position "
                f"scheme {scheme}, which keeps the model's positions: leave max_positions out"
            )
    swapped.load_state_dict(adapt(swapped, state))
    return swapped.to(device=model.device, dtype=model.dtype).train(model.training)


def convert_published(
    model: PreTrainedModel, scheme: str, options: dict[str, Any], max_positions: int | None
) -> tuple[Any, DietEncoderConfig, State]:
    """Our class, configuration and parameters for a model of transformers' own class."""
    name, config = type(model).__name__, model.config
    family = FAMILIES.get(config.model_type)
    classes = [] if family is None else [family.base_class, family.masked_lm_class]
    if family is None or name not in classes:
        known = [f"{part.base_class} and {part.masked_lm_class}" for part in FAMILIES.values()]
        raise UserError(
            f"swap_positions reads {', '.join(known)}, and the encoders of diet_fairseq.hf, but "
            f"the model is a {name}: give one of these, such as the model's encoder"
        )
    values = config.to_dict()
    if option := family.find_unsupported(values):
        raise UserError(
            f"swap_positions needs {option} {' or '.join(map(str, family.allowed[option]))}, but "
            f"the {name} has {values[option]}: its function can't be kept"
        )
    tensors = model.state_dict()
    is_headless = name == family.base_class
    if is_headless:
        tensors = {f"{model.base_model_prefix}.{key}": tensor for key, tensor in tensors.items()}
    state = family.fairseq_state(tensors)
    pad = config.pad_token_id or 0
    for table in family.position_tables:
        rows = state[table][family.first_row :]
        state[table] = torch.cat([rows.new_zeros(pad + 1, rows.size(1)), rows])
    has_segments = "segment_scheme" in family.options
    segments = {"segment_scheme": "input", "num_segments": config.type_vocab_size}
    ours = DietEncoderConfig(
        position_scheme=scheme,
        position_options=options | (segments if has_segments else {}),
        **{option: values[key] for option, key in family.option_names.items()},
        **{option: values[option] for option in SHARED_OPTIONS},
        max_source_positions=max_positions or family.num_positions(config),
        embedding_dim=values.get("embedding_size"),
        pooler="pooler.weight" in state,
    )
    prefix = "model." if is_headless else ""
    state = {
        rename_parameter(key, ours).removeprefix(prefix): tensor for key, tensor in state.items()
    }
    return DietEncoderModel if is_headless else DietForMaskedLM, ours, state


def change_ours(
    model: PreTrainedModel, scheme: str, options: dict[str, Any], max_positions: int | None
) -> tuple[Any, DietConfig, State]:
    """The class, the new configuration and the remaining parameters of one of our models."""
    config = model.config
    old = vars(config.positions)
    names: Iterable[str] = old if scheme == config.position_scheme else SEGMENT_OPTIONS
    if old["segment_scheme"] == "per-head":  # the sharing of segments is the positions'
        names = [*names, "position_sharing"]
    kept = {name: old[name] for name in names if old[name] is not None}
    kept.pop("position_scheme", None)
    values = config.to_dict() | {
        "position_scheme": scheme,
        "position_options": kept | options,
        "max_source_positions": max_positions or config.max_source_positions,
    }
    for name in ("transformers_version", "architectures", "dtype"):
        values.pop(name, None)
    new = type(config)(**values)
    state = model.state_dict()
    for place, module in model.named_modules():
        if isinstance(module, SinusoidalPositions):
            state[f"{place}.weight"] = module.weights
    if list_differences(describe(config.positions), describe(new.positions)):
        state = {name: tensor for name, tensor in state.items() if attention_kind(name) is None}
    return type(model), new, state
