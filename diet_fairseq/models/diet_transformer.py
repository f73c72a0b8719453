"""Encoder-decoder models: `transformer_<scheme>` and its sizes."""

from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerModel,
    base_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de_big,
)
from torch import nn

from ..config import PositionConfig
from ..errors import UserError
from . import growing
from .adapters import SWISH, PositionalDecoder, PositionalEncoder
from .architectures import (
    register_architectures,
    set_defaults,
    to_namespace,
    validate_options,
)
from .warm_start import WarmStart

#: options of fairseq's transformer that would bypass our attention
UNSUPPORTED = (
    "cross_self_attention",
    "base_layers",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
)
#: fairseq's flags for positions at the input -> the ``--position-input`` that replaces each
INPUT_FLAGS = {
    "no_token_positional_embeddings": "none",
    "encoder_learned_pos": "learned",
    "decoder_learned_pos": "learned",
}


@register_model("diet_transformer")
class DietTransformerModel(WarmStart, TransformerModel):
    """fairseq's transformer whose attention has a position scheme.

    Parameter names are fairseq's; ``transformer_sinusoidal`` and ``transformer_none`` load stock
    state dicts strictly.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        for action in parser._actions:
            if action.dest == "activation_fn" and action.choices:
                action.choices = [*action.choices, SWISH]
        parser.add_argument(
            "--decoder-output-bias", action="store_true", help="add a bias to the decoder's logits"
        )
        PositionConfig.add_args(parser)
        growing.add_arguments(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "DietTransformerModel":
        for flag, value in INPUT_FLAGS.items():
            if getattr(args, flag, False) and getattr(args, "position_input", None) != value:
                arch = getattr(args, "arch", None) or args._name  # of fairseq-hydra-train
                raise UserError(
                    f"--{flag.replace('_', '-')} can't be combined with --arch {arch}: "
                    f"use --position-input {value} instead"
                )
        config = validate_options(args, UNSUPPORTED)
        config.check_no_segments("a translation model", "leave it out")
        if args.no_cross_attention and config.position_cross_attention:
            raise UserError(
                "--position-cross-attention has no effect with --no-cross-attention: leave one of "
                "them out"
            )
        return super().build_model(to_namespace(args), task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        return PositionalEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        return PositionalDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )


def tiny_architecture(args: Namespace) -> None:
    """4 + 4 layers, 128 / 256, 4 heads, dropout 0.3: a size for a CPU. Not fairseq's tiny."""
    sizes = {"embed_dim": 128, "ffn_embed_dim": 256, "layers": 4, "attention_heads": 4}
    for side in ("encoder", "decoder"):
        set_defaults(args, {f"{side}_{name}": value for name, value in sizes.items()})
    set_defaults(args, {"dropout": 0.3})
    base_architecture(args)


register_architectures(
    "diet_transformer",
    "transformer",
    sizes={
        "": base_architecture,
        "_tiny": tiny_architecture,
        "_iwslt_de_en": transformer_iwslt_de_en,
        "_wmt_en_de": base_architecture,
        "_wmt_en_de_big": transformer_wmt_en_de_big,
    },
)
