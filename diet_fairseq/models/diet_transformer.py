"""Encoder-decoder models: `transformer_<scheme>` and its sizes."""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerModel,
    base_architecture,
    transformer_iwslt_de_en,
    transformer_wmt_en_de_big,
)
from torch import nn

from ..config import PositionConfig
from ..errors import UserError
from ..positions import SCHEMES
from ..stack import PositionalDecoder, PositionalEncoder
from ..version import __version__

logger = logging.getLogger(__name__)

#: options of fairseq's transformer that would go round our attention
UNSUPPORTED = (
    "cross_self_attention",
    "base_layers",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
)


@register_model("diet_transformer")
class DietTransformerModel(TransformerModel):
    """fairseq's transformer whose attention has a position scheme.

    Parameter names are fairseq's; ``transformer_sinusoidal`` and ``transformer_none`` load stock
    state dicts strictly.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        PositionConfig.add_args(parser)

    @classmethod
    def build_model(cls, args: Namespace, task: Any) -> "DietTransformerModel":
        for name in UNSUPPORTED:
            if getattr(args, name, None):
                raise UserError(
                    f"--{name.replace('_', '-')} {getattr(args, name)} does not go together with "
                    "position schemes: leave it out, or use fairseq's own transformer"
                )
        config = PositionConfig.of(args)
        if config.segment_scheme not in (None, "none"):
            raise UserError(
                f"--segment-scheme {config.segment_scheme}: a translation model has no segments: "
                "leave it out"
            )
        config.write_to(args)
        logger.info("%s|version:%s", config, __version__)
        args.no_token_positional_embeddings = config.position_input == "none"
        args.encoder_learned_pos = args.decoder_learned_pos = config.position_input == "learned"
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        return PositionalEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding) -> nn.Module:
        return PositionalDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def __prepare_scriptable__(self) -> None:
        raise UserError(
            "TorchScript can't compile models with position schemes: use the model as it is, or "
            "torch.compile"
        )


def tiny_architecture(args: Namespace) -> None:
    """4 + 4 layers, 128 / 256, 4 heads, dropout 0.3: a size for a CPU. Not fairseq's tiny."""
    defaults = {"embed_dim": 128, "ffn_embed_dim": 256, "layers": 4, "attention_heads": 4}
    for name, value in defaults.items():
        for side in ("encoder", "decoder"):
            setattr(args, f"{side}_{name}", getattr(args, f"{side}_{name}", value))
    args.dropout = getattr(args, "dropout", 0.3)
    base_architecture(args)


SIZES: dict[str, Callable[[Namespace], None]] = {
    "": base_architecture,
    "_tiny": tiny_architecture,
    "_iwslt_de_en": transformer_iwslt_de_en,
    "_wmt_en_de": base_architecture,
    "_wmt_en_de_big": transformer_wmt_en_de_big,
}


def architecture(arch: str, scheme: str, size: Callable[[Namespace], None]) -> Any:
    """A fairseq architecture function: fills in what the command line left out."""

    def fill(args: Namespace) -> None:
        chosen = getattr(args, "position_scheme", None)
        if chosen not in (None, scheme):
            raise UserError(
                f"--position-scheme {chosen} contradicts --arch {arch}, whose scheme is {scheme}: "
                f"leave it out, or take --arch {arch.replace(scheme, chosen)}"
            )
        args.position_scheme = scheme
        for flag in (
            "no_token_positional_embeddings",
            "encoder_learned_pos",
            "decoder_learned_pos",
        ):
            if getattr(args, flag, False) and not hasattr(args, "position_input"):
                raise UserError(
                    f"--{flag.replace('_', '-')} does not go together with --arch {arch}: say "
                    "what is added to the input by --position-input"
                )
        if getattr(args, "bf16", False) and find_spec("torch_xla") is None:
            args.tpu = False  # fairseq takes bf16 for a TPU's, and stops where there is none
        size(args)

    return fill


for _scheme in SCHEMES:
    for _suffix, _size in SIZES.items():
        _arch = f"transformer_{_scheme}{_suffix}"
        register_model_architecture("diet_transformer", _arch)(architecture(_arch, _scheme, _size))
