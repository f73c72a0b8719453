"""fairseq's interface to the encoder and decoder of `transformer`, and its old checkpoints."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from fairseq import utils
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn
from torch.nn.functional import silu

from ..attention.dropout import Dropout
from ..config import PositionConfig
from ..errors import UserError
from ..positions import Limit
from ..transformer import Decoder, DecodingCache, Encoder, PositionalAttention, StackConfig
from ..transformer.config import LAYER_NORM_EPS
from ..transformer.layer import TransformerLayer
from ..transformer.stack import Stack

# Notation: B sentences, S source tokens, T target tokens, d model dimension, V words.

#: the entry of fairseq's decoding state that has our `DecodingCache`
CACHE = "diet_fairseq"
#: activation that fairseq names without a working function: its ``swish`` is a class
SWISH = "swish"
#: methods of fairseq's encoder and decoder that our encoder and decoder don't call
HOOKS = ("build_encoder_layer", "build_decoder_layer", "build_self_attention", "forward_embedding")
#: names of a layer's norms, which have numbers in checkpoints of early versions of fairseq
ENCODER_NORMS = ("self_attn_layer_norm", "final_layer_norm")
DECODER_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")


def stack_config(cfg: Any, side: str) -> StackConfig:
    """The sizes and options of a side, "encoder" or "decoder", in fairseq's configuration."""
    sizes = getattr(cfg, side)
    name = "source" if side == "encoder" else "target"
    is_masked_lm = side == "encoder" and hasattr(cfg, "max_positions")
    flag = "--max-positions" if is_masked_lm else f"--max-{name}-positions"
    is_decoder = side == "decoder"
    crosses = is_decoder and not cfg.no_cross_attention
    return StackConfig(
        PositionConfig.from_args(cfg),
        layers=sizes.layers,
        embed_dim=sizes.embed_dim,
        ffn_embed_dim=sizes.ffn_embed_dim,
        heads=sizes.attention_heads,
        limit=Limit(getattr(cfg, f"max_{name}_positions"), flag),
        is_decoder=is_decoder,
        source=stack_config(cfg, "encoder") if crosses else None,
        normalize_before=sizes.normalize_before,
        final_norm=sizes.normalize_before and not (is_decoder and cfg.no_decoder_final_norm),
        layernorm_embedding=cfg.layernorm_embedding,
        layer_norm_eps=layer_norm_eps(cfg),
        scale_embedding=not cfg.no_scale_embedding,
        activation=activation_function(cfg.activation_fn),
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout or 0.0,
        layerdrop=sizes.layerdrop,
        output_dim=sizes.output_dim if is_decoder and not cfg.tie_adaptive_weights else None,
        has_embedding_map=cfg.quant_noise.pq > 0 and not cfg.adaptive_input,
        checkpoint_activations=cfg.checkpoint_activations,
        offload_activations=cfg.offload_activations,
    )


def layer_norm_eps(options: Any) -> float:
    """The value of ``--layer-norm-eps``, or the default in models without this option."""
    return float(getattr(options, "layer_norm_eps", None) or LAYER_NORM_EPS)


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """The function that ``--activation-fn`` names."""
    function: Callable[[Tensor], Tensor] = silu if name == SWISH else utils.get_activation_fn(name)
    return function


class FairseqStack(Stack):
    """The interface of an encoder or decoder to fairseq's models, generators and checkpoints."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in HOOKS:
            if name in vars(cls):
                raise UserError(
                    f"{cls.__name__}.{name} would never be called: encoders and decoders with "
                    "position schemes build their layers themselves; change "
                    "diet_fairseq.transformer.TransformerLayer, or use fairseq's own model"
                )

    def add_quant_noise(self, cfg: Any) -> None:
        """Add quantization noise to the linear maps to which fairseq adds it."""
        for module in self.modules():
            maps = {PositionalAttention: ("k_proj", "v_proj", "q_proj", "out_proj"),
                    TransformerLayer: ("fc1", "fc2")}.get(type(module), ())  # fmt: skip
            for name in maps:
                quant_noise(getattr(module, name), cfg.pq, cfg.pq_block_size)
        if self.quant_noise is not None:
            quant_noise(self.quant_noise, cfg.pq, cfg.pq_block_size)

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: Any = None,
        **_: Any,
    ) -> None:
        """``--retain-dropout``: dropout at inference, in the modules of these names or in all."""
        side = "Decoder" if self.stack_config.is_decoder else "Encoder"
        for module in self.modules():
            names = {
                PositionalAttention: "MultiheadAttention",
                TransformerLayer: f"Transformer{side}Layer",
                type(self): f"Transformer{side}",
            }
            is_listed = (
                retain_dropout_modules is None or names.get(type(module)) in retain_dropout_modules
            )
            if retain_dropout and is_listed:
                for child in module.children():
                    if isinstance(child, Dropout):
                        child.is_retained = True

    def upgrade_layers(self, state: dict[str, Tensor], name: str, norms: tuple[str, ...]) -> None:
        """Rename, in place, the parameters of layers in checkpoints of early fairseq versions."""
        for key in [key for key in state if key.startswith(f"{name}.layers.")]:
            if match := re.fullmatch(r"(.*\.)layer_norms\.(\d)(\.\w+)", key):
                state[match[1] + norms[int(match[2])] + match[3]] = state.pop(key)
            elif match := re.fullmatch(r"(.*\.)in_proj_(weight|bias)", key):
                parts = state.pop(key).chunk(3)
                for part, tensor in zip("qkv", parts, strict=True):
                    state[f"{match[1]}{part}_proj.{match[2]}"] = tensor

    def max_positions(self) -> int:
        """The length limit in tokens; `transformer.config.UNLIMITED` without absolute positions."""
        return self.limit.positions


class PositionalEncoder(FairseqStack, Encoder, FairseqEncoder):
    """fairseq's encoder and its parameters, with positions and segments in every layer."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Module) -> None:
        self.cfg, self.dictionary = cfg, dictionary
        super().__init__(stack_config(cfg, "encoder"), embed_tokens)
        self.register_buffer("version", torch.Tensor([3]))
        if cfg.quant_noise.pq > 0:
            self.add_quant_noise(cfg.quant_noise)

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode src_tokens (B, T) into the dict of fairseq's encoders, with encoder_out (T, B, d).

        ``segments`` (B, T) int64 are the tokens' segments (default: all tokens in segment 0).
        """
        out = self.encode(
            src_tokens, segments, embeddings=token_embeddings, need_states=return_all_hiddens
        )
        # random positions, for cross-attention
        positions = {} if out.positions is None else {"positions": [out.positions]}
        return {
            "encoder_out": [out.features.transpose(0, 1)],  # (T, B, d)
            "encoder_padding_mask": [out.padding_mask],  # (B, T)
            "encoder_embedding": [out.embedded],  # (B, T, d)
            "encoder_states": [state.transpose(0, 1) for state in out.states],  # of (T, B, d)
            "fc_results": [],
            "src_tokens": [],
            **positions,  # (B, T)
            "src_lengths": [(~out.padding_mask).sum(dim=1, dtype=torch.int32).unsqueeze(1)],
        }

    reorder_encoder_out = TransformerEncoderBase.reorder_encoder_out

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        self.upgrade_layers(state_dict, name, ENCODER_NORMS)
        if state_dict.get(f"{name}.version", torch.ones(1)) < 2:
            self.layer_norm = None  # early versions had no LayerNorm after the layers
            state_dict[f"{name}.version"] = torch.ones(1)
        return state_dict


class PositionalDecoder(FairseqStack, Decoder, FairseqIncrementalDecoder):
    """fairseq's decoder and its parameters, with positions in every layer."""

    def __init__(
        self,
        cfg: Any,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
        output_projection: nn.Module | None = None,
    ) -> None:
        self.cfg, self.dictionary, self.onnx_trace = cfg, dictionary, False
        self.share_input_output_embed = cfg.share_decoder_input_output_embed
        self.output_embed_dim = cfg.decoder.output_dim
        config = stack_config(cfg, "decoder")
        super().__init__(
            config if not no_encoder_attn else replace(config, source=None), embed_tokens
        )
        if output_projection is not None:
            self.output_projection = output_projection  # instead of the projection that was built
        self.register_buffer("version", torch.Tensor([3]))
        if cfg.quant_noise.pq > 0:
            self.add_quant_noise(cfg.quant_noise)

    def build_output(self) -> None:
        super().build_output()
        self.adaptive_softmax: Any = None
        self.output_projection = None  # type: ignore[assignment]
        self.build_output_projection(self.cfg, self.dictionary, self.embed_tokens)

    def forward(  # type: ignore[override]
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        src_lengths: Any = None,
        return_all_hiddens: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Decode (B, T) into logits (B, T, V) or features (B, T, d), and attention (B, T, S)."""
        x, extra = self.extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )
        return (x if features_only else self.output_layer(x)), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, Any] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The features (B, T, d); with ``incremental_state`` only the new tokens are queries."""
        cache = None
        if incremental_state is not None:
            cache = incremental_state.setdefault(CACHE, DecodingCache())
        source = source_padding_mask = source_positions = None
        if encoder_out is not None and encoder_out["encoder_out"]:
            source = encoder_out["encoder_out"][0].transpose(0, 1)  # (B, S, d)
            source_padding_mask = next(iter(encoder_out["encoder_padding_mask"]), None)  # (B, S)
            source_positions = next(iter(encoder_out.get("positions", ())), None)  # (B, S)
        aligned = self.num_layers - 1 if alignment_layer is None else alignment_layer
        out = self.decode(
            prev_output_tokens[:, 0 if cache is None else cache.length :],
            source,
            source_padding_mask,
            cache,
            padding_mask=prev_output_tokens.eq(self.padding_idx),
            is_causal=not full_context_alignment,
            source_positions=source_positions,
            need_cross_weights=(aligned,),
        )
        weights = out.cross_weights.get(aligned)  # (B, H, T, S)
        attention = None if weights is None else weights[:, :alignment_heads].mean(dim=1)
        states = [state.transpose(0, 1) for state in out.states]  # of (T, B, d)
        return out.features, {"attn": [attention], "inner_states": states}

    extract_features_scriptable = extract_features
    output_layer = TransformerDecoderBase.output_layer

    def build_output_projection(self, cfg: Any, dictionary: Any, embed_tokens: Any) -> None:
        """Build fairseq's projection; ``--decoder-output-bias`` adds a bias (V,), zero at first."""
        if cfg.tie_adaptive_weights and cfg.adaptive_softmax_cutoff is not None:
            raise UserError(
                "--tie-adaptive-weights needs adaptive input embeddings, which translation models "
                "of fairseq lack: leave it out"
            )
        TransformerDecoderBase.build_output_projection(self, cfg, dictionary, embed_tokens)
        if getattr(cfg, "decoder_output_bias", False):
            if self.output_projection is None:
                raise UserError(
                    "--decoder-output-bias can't be combined with --adaptive-softmax-cutoff: leave "
                    "one of them out"
                )
            self.output_projection.bias = nn.Parameter(torch.zeros(len(dictionary)))

    def reorder_incremental_state(
        self, incremental_state: dict[str, Any], new_order: Tensor
    ) -> None:
        """Reorder the decoding state once, for all layers."""
        if CACHE in incremental_state:
            incremental_state[CACHE].reorder(new_order)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        output = f"{name}.output_projection.weight"
        # an adaptive softmax has no such projection
        if self.output_projection is not None and output not in state_dict:
            old = "embed_tokens.weight" if self.share_input_output_embed else "embed_out"
            if f"{name}.{old}" in state_dict:
                state_dict[output] = state_dict[f"{name}.{old}"]
                if not self.share_input_output_embed:
                    del state_dict[f"{name}.{old}"]
        self.upgrade_layers(state_dict, name, DECODER_NORMS)
        if state_dict.get(f"{name}.version", torch.ones(1)) <= 2:
            self.layer_norm = None  # early versions had no LayerNorm after the layers
            state_dict[f"{name}.version"] = torch.ones(1)
        return state_dict
