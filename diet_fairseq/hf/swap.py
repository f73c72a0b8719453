"""Another position scheme for a pretrained model, in memory and without fairseq."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..config import find_scheme
from ..errors import UserError
from ..positions import SCHEMES
from ..positions.description import describe, list_differences, select_kind
from ..transformer.embedding import SinusoidalPositions
from ..transformer.scheme_change import adapt, attention_kind
from .configuration import DietConfig
from .encoders import DietEncoderModel, DietForMaskedLM
from .families import (
    BIAS,
    BartFamily,
    BertFamily,
    DistilBertFamily,
    ElectraFamily,
    EncoderFamily,
    M2M100Family,
    MarianFamily,
    MBartFamily,
    RobertaFamily,
    State,
    TranslationFamily,
    XLMRobertaFamily,
    rename_parameter,
)
from .transformer import DietForConditionalGeneration

#: ``model_type`` -> the family
FAMILIES: dict[str, EncoderFamily | TranslationFamily] = {
    "bert": BertFamily(),
    "roberta": RobertaFamily(),
    "xlm-roberta": XLMRobertaFamily(),
    "electra": ElectraFamily(),
    "distilbert": DistilBertFamily(),
    "bart": BartFamily(),
    "mbart": MBartFamily(),
    "m2m_100": M2M100Family(),
    "marian": MarianFamily(),
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
    attention starts without learned positions, as in a warm start (`PositionScheme.zero`). If an
    encoder adds vectors of positions to the token embeddings, the token embeddings of the copy
    contain their mean. Segments stay at the input.

    The copy is a start for further training, such as ``examples/encoders/distill.py``: untrained,
    it computes another function than the model.

    Padding follows from ``attention_mask``, or else from ``pad_token_id`` of the configuration.

    Args:
        model: a BertModel, RobertaModel, XLMRobertaModel, ElectraModel or DistilBertModel of
            transformers, one of these encoders with a head for masked words, a MarianMTModel, or a
            BART, mBART or M2M-100 for conditional generation, or a model of `diet_fairseq.hf`
        scheme: a key of `SCHEMES`
        max_positions: the length limit of schemes with tables of absolute positions, and
            ``max_position_embeddings`` of the copy's configuration (default: the model's). The
            copy warns of inputs that are longer than the model's, until training on longer inputs
            raises ``trained_length`` of the configuration.
        options: position options such as ``position_clip=32``

    Returns:
        a `DietEncoderModel`, `DietForMaskedLM` or `DietForConditionalGeneration`, or a model of the
        same class if ``model`` is one of ours

    Raises:
        UserError: the model's class, an option of the model, or a position option is not supported
    """
    if fixed := [name for name in SEGMENT_OPTIONS if name in options]:
        raise UserError(
            f"{fixed[0]} must not be given to swap_positions, because the model's segments stay: "
            "leave it out"
        )
    description = None
    if isinstance(model.config, DietConfig):
        description = describe(model.config.positions)
        kind, config, state = change_ours(model, scheme, options, max_positions)
    else:
        kind, config, state = convert_published(model, scheme, options, max_positions)
    swapped = kind(config)
    own = swapped.state_dict()
    for name, tensor in state.items():
        if name in own and own[name].shape != tensor.shape:
            raise UserError(
                f"{name} is {tuple(tensor.shape)} in the model, but {tuple(own[name].shape)} with "
                f"the new options, although the scheme {scheme} keeps it: leave out max_positions "
                "and the options that change this shape"
            )
    swapped.load_state_dict(adapt(swapped, state, description, keeps_mean=True))
    if model.can_generate():
        swapped.generation_config = deepcopy(model.generation_config)
    return swapped.to(device=model.device, dtype=model.dtype).train(model.training)


def convert_published(
    model: PreTrainedModel, scheme: str, options: dict[str, Any], max_positions: int | None
) -> tuple[Any, DietConfig, State]:
    """Our class, configuration and parameters for a model of transformers' own class."""
    name, config = type(model).__name__, model.config
    family = FAMILIES.get(config.model_type)
    if family is None or name not in family.swappable_classes:
        known = [" and ".join(part.swappable_classes) for part in FAMILIES.values()]
        raise UserError(
            f"swap_positions reads {', '.join(known)}, and the models of diet_fairseq.hf, but "
            f"the model is a {name}: give one of these, such as the model's encoder"
        )
    values = config.to_dict()
    if option := family.find_unsupported(values):
        raise UserError(
            f"swap_positions needs {option} {' or '.join(map(str, family.allowed[option]))}, but "
            f"the {name} has {values[option]}: its function can't be kept"
        )
    convert = convert_encoder if isinstance(family, EncoderFamily) else convert_translation
    kind, own, state = convert(family, model, values)
    positions = {"max_source_positions": max_positions, "max_target_positions": max_positions}
    if max_positions and isinstance(family, EncoderFamily):
        own["trained_length"] = own["max_source_positions"]
    own |= {name: value for name, value in positions.items() if value and name in own}
    segments = {name: own.pop(name) for name in SEGMENT_OPTIONS if name in own}
    ours = kind.config_class(
        position_scheme=scheme,
        position_options=options | segments,
        **own,
        **{option: values[option] for option in SHARED_OPTIONS if option in values},
    )
    prefix = "model." if kind is DietEncoderModel else ""
    renamed = {rename_parameter(key, ours).removeprefix(prefix): x for key, x in state.items()}
    return kind, ours, renamed


def convert_encoder(
    family: Any, model: PreTrainedModel, values: dict[str, Any]
) -> tuple[Any, dict[str, Any], State]:
    """The class, its options and fairseq's parameters of an encoder with options ``values``."""
    is_headless = type(model).__name__ == family.base_class
    prefix = f"{model.base_model_prefix}." if is_headless else ""
    state = family.fairseq_state({f"{prefix}{x}": y for x, y in model.state_dict().items()})
    for table in family.position_tables:
        state[table] = move_rows(state[table], family.first_row, model.config)
    options = {option: values[key] for option, key in family.option_names.items()} | {
        "max_source_positions": family.num_positions(model.config),
        "embedding_dim": values.get("embedding_size"),
        "pooler": "pooler.weight" in state,
    }
    if epsilon := family.options.get("layer_norm_eps"):  # the class has no such option
        options["layer_norm_eps"] = epsilon
    if scheme := family.options.get("segment_scheme"):
        options |= {"segment_scheme": scheme, "num_segments": values["type_vocab_size"]}
    kind: Any = DietEncoderModel if is_headless else DietForMaskedLM
    return kind, options, state


def convert_translation(
    family: Any, model: PreTrainedModel, values: dict[str, Any]
) -> tuple[Any, dict[str, Any], State]:
    """The class, its options and fairseq's parameters of a model with options ``values``."""
    state = family.fairseq_state(model.state_dict())
    bias = state.pop(BIAS, None)
    if has_bias := bias is not None and bool(bias.any()):
        state[BIAS] = bias.flatten()
    for name in [name for name in state if name.endswith("embed_positions.weight")]:
        state[name] = move_rows(state[name], family.first_row, model.config)
    shares_all = values.get("share_encoder_decoder_embeddings", True)
    is_pre_norm = family.options.get("encoder_normalize_before", False)
    options = {
        option: values[key]
        for option, key in family.option_names.items()
        if not option.endswith("layerdrop")
    } | {
        "source_vocab_size": None if shares_all else values["vocab_size"],
        "share_all_embeddings": shares_all and values["tie_word_embeddings"],
        "share_decoder_input_output_embed": values["tie_word_embeddings"],
        "decoder_output_bias": has_bias,
        "scale_embedding": values["scale_embedding"],
        "layernorm_embedding": family.options.get("layernorm_embedding", False),
        "decoder_start_token_id": values["decoder_start_token_id"],
    }
    for side in ("encoder", "decoder"):
        options |= {f"{side}_normalize_before": is_pre_norm, f"{side}_final_norm": is_pre_norm}
    return DietForConditionalGeneration, options, state


def move_rows(table: Tensor, first: int, config: Any) -> Tensor:
    """A table whose position 0 has the row ``first`` as a table of `transformer.embedding`."""
    rows = table[first:]
    unused = rows.new_zeros((config.pad_token_id or 0) + 1, rows.size(1))
    return torch.cat([unused, rows])


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
    # global layers may lose the scheme that has an option
    global_scheme = (kept | options).get("position_global_scheme")
    schemes = [find_scheme(name) for name in (scheme, global_scheme) if name is not None]
    remaining = {option.name for kind in schemes for option in kind.options}
    declared = {option.name for kind in SCHEMES.values() for option in kind.options}
    if old["segment_scheme"] != "per-head" and not any(kind.in_attention for kind in schemes):
        declared.add("position_sharing")
    kept = {name: value for name, value in kept.items() if name not in declared - remaining}
    values = config.to_dict() | {
        "position_scheme": scheme,
        "position_options": kept | options,
        "max_source_positions": max_positions or config.max_source_positions,
    }
    if max_positions and not config.is_encoder_decoder:
        values["trained_length"] = config.trained_length or config.max_source_positions
    for name in ("transformers_version", "architectures", "dtype"):
        values.pop(name, None)
    new: Any = type(config)(**values)
    state = model.state_dict()
    for place, module in model.named_modules():
        if isinstance(module, SinusoidalPositions):
            state[f"{place}.weight"] = module.weights
    before, now = describe(config.positions), describe(new.positions)
    state = {
        name: tensor
        for name, tensor in state.items()
        if attention_kind(name) is None
        or not list_differences(select_kind(before, name), select_kind(now, name))
    }
    return type(model), new, state
