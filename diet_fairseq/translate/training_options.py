"""The checkpoint of a model for a warm start, and fairseq-train's options that fit the model."""

import warnings
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from omegaconf import OmegaConf
from torch import Tensor

from ..config import PositionConfig
from ..errors import UserError, one_line
from ..models.architectures import OFF
from ..models.diet_transformer import DietTransformerModel
from ..patches import saving
from ..transformer.stack import Stack

#: options that belong to a machine, to a run or to the name of the architecture
OMITTED = {
    "help", "encoder_embed_path", "decoder_embed_path", "checkpoint_activations",
    "offload_activations", "min_params_to_wrap", "encoder_layers_to_keep", "decoder_layers_to_keep",
    "encoder_learned_pos", "decoder_learned_pos", "no_token_positional_embeddings", "export",
    "new_rows_from",
}  # fmt: skip
#: option that fairseq's parser sets, without an architecture -> its default
PARSER_DEFAULTS = {"max_source_positions": 1024, "max_target_positions": 1024}


def stock_scheme(*stacks: Any) -> str:
    """The scheme that equals the positions of fairseq's own encoder and decoder.

    Our models with this scheme have fairseq's parameters under the same names.

    Raises:
        UserError: the encoder and the decoder have different positions
    """
    kinds = {
        type(None): "none",
        LearnedPositionalEmbedding: "learned",
        SinusoidalPositionalEmbedding: "sinusoidal",
    }
    schemes = [kinds[type(stack.embed_positions)] for stack in stacks]
    if len(set(schemes)) > 1:
        raise UserError(
            f"the encoder and the decoder have different positions ({' and '.join(schemes)}), "
            "which models of this package lack: keep the model in fairseq"
        )
    return schemes[0]


def shape_flags(options: Mapping[str, Any]) -> list[str]:
    """The flags that give ``transformer_SCHEME`` the shape and the dropout of a translation model.

    The flags fit every scheme, because they contain no option of positions.

    Args:
        options: the model's options in its checkpoint

    Raises:
        UserError: no flag can give the value of an option
    """
    defaults = Namespace()
    ARCH_CONFIG_REGISTRY["transformer_none"](defaults)
    positions = vars(PositionConfig.from_options("none", {}))
    words: list[str] = []
    for action in _actions():
        name = action.dest
        if name in OMITTED or name in positions or name not in options:
            continue
        value = options[name]
        default = getattr(defaults, name, PARSER_DEFAULTS.get(name))
        if value != default and not (value in OFF and default in OFF):
            words += option_words(action, value)
    return words


def position_flags(options: Mapping[str, Any], *stacks: Any) -> list[str]:
    """``--arch`` and the position options with which fairseq-train keeps a model's positions.

    Args:
        options: the model's options in its checkpoint
        stacks: the encoder and the decoder, fairseq's or ours
    """
    if not isinstance(stacks[0], Stack):
        return ["--arch", f"transformer_{stock_scheme(*stacks)}"]
    given = vars(PositionConfig.from_args(Namespace(**options)))
    defaults = vars(PositionConfig.from_options(given["position_scheme"], {}))
    words = ["--arch", f"transformer_{given['position_scheme']}"]
    for action in _actions():
        name = action.dest
        is_other = name in given and given[name] != defaults[name] and name != "attention_backend"
        if is_other and given[name] is not None:
            words += option_words(action, given[name])
    return words


def write_checkpoint(path: Path, args: Namespace, state: dict[str, Tensor]) -> None:
    """Write a checkpoint with 0 updates in fairseq-train's format, for a warm start.

    Args:
        args: all options of fairseq-train
        state: the parameters of the model that the options build
    """
    # fairseq calls Hydra by names and options that Hydra deprecates, which no user can change
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        cfg = convert_namespace_to_omegaconf(args)
    history = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}}
    checkpoint = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": state,
        "optimizer_history": [history | {"num_updates": 0}],
        "task_state": {},
        "extra_state": {"epoch": 1, "train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    saving.save(checkpoint, str(path))


def _actions() -> list[Any]:
    """The options of our translation models, as fairseq-train's parser knows them."""
    parser = ArgumentParser(allow_abbrev=False, argument_default=SUPPRESS)
    DietTransformerModel.add_args(parser)
    return parser._actions


def option_words(action: Any, value: Any) -> list[str]:
    """The words of a command line that set an option."""
    flag = action.option_strings[0]
    if action.nargs == 0:  # a flag without a value
        if value is not action.const:
            raise UserError(
                f"the checkpoint has {action.dest} {one_line(str(value))}, which no flag of "
                "fairseq-train gives a model with a position scheme: use another model"
            )
        return [flag]
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return [flag, str(value)]
