"""Conversion of options and names of parameters between fairseq's models and ours in transformers.

fairseq stores gains in the state dict, transformers in the configuration. Only the prefixes of the
parameters' names differ, and tied parameters are stored once in transformers.
"""

from argparse import Namespace
from typing import Any

from ...config import PositionConfig
from ...errors import UserError
from ...models.adapters import PositionalEncoder, layer_norm_eps
from ...positions.description import is_global
from ...positions.gain import ScoreParameters
from ...positions.segments import SegmentScores
from ...transformer.stack import Stack
from ...translate.training_options import stock_scheme
from ..configuration import SIZES, DietEncoderConfig, DietTransformerConfig
from ..families import ACTIVATIONS, FAIRSEQ_ACTIVATIONS, SPAN

#: suffix of the names of entries in fairseq's state that are not parameters
VERSION = ".version"


def transformer_config(model: Any) -> DietTransformerConfig:
    encoder, decoder = model.encoder, model.decoder
    cfg, embeddings = decoder.cfg, decoder.embed_tokens.weight
    shares_all = embeddings is encoder.embed_tokens.weight
    shares_output = embeddings is getattr(decoder.output_projection, "weight", None)
    return DietTransformerConfig(
        **position_options(getattr(model, "args", None), encoder, decoder),
        **common_options(encoder),
        **stack_options("encoder", encoder),
        **stack_options("decoder", decoder),
        vocab_size=len(decoder.dictionary),
        source_vocab_size=None if shares_all else len(encoder.dictionary),
        max_source_positions=cfg.max_source_positions,
        max_target_positions=cfg.max_target_positions,
        share_all_embeddings=shares_all,
        share_decoder_input_output_embed=shares_output,
        decoder_output_bias=getattr(decoder.output_projection, "bias", None) is not None,
        tie_word_embeddings=shares_all or shares_output,
        decoder_start_token_id=decoder.dictionary.eos(),
    )


def encoder_config(model: Any, head: str | None = None) -> DietEncoderConfig:
    stack, args = model.encoder.sentence_encoder, model.args
    lm_head = getattr(model.encoder, "lm_head", None)
    labels = {}
    if head not in (None, SPAN):
        labels["num_labels"] = model.classification_heads[head].out_proj.out_features
    return DietEncoderConfig(
        **position_options(args, stack),
        **common_options(stack),
        **stack_options("encoder", stack),
        vocab_size=len(stack.dictionary),
        embedding_dim=stack.embed_tokens.embedding_dim,
        max_source_positions=stack.cfg.max_source_positions,
        pooler=hasattr(model, "pooler"),
        pooler_activation_fn=activation(args.pooler_activation_fn),
        pooler_dropout=float(args.pooler_dropout),
        tie_word_embeddings=lm_head is None or lm_head.weight is stack.embed_tokens.weight,
        **labels,
    )


def fairseq_args(config: Any) -> Namespace:
    """fairseq's options of a model with this configuration; ``arch`` determines all others."""
    if config.activation_fn not in FAIRSEQ_ACTIVATIONS:
        raise UserError(f"the activation {config.activation_fn} has no counterpart in fairseq")
    sides = ("encoder", "decoder") if config.is_encoder_decoder else ("encoder",)
    same = [f"{side}_{size}" for side in sides for size in SIZES]
    same += ["layernorm_embedding", "dropout", "attention_dropout", "activation_dropout"]
    family = "transformer"
    options = {
        "activation_fn": FAIRSEQ_ACTIVATIONS[config.activation_fn],
        "no_scale_embedding": not config.scale_embedding,
        **{name: value for name, value in vars(config.positions).items() if value is not None},
    }
    if config.is_encoder_decoder:
        same += ["max_source_positions", "max_target_positions"]
        same += ["share_all_embeddings", "share_decoder_input_output_embed", "decoder_output_bias"]
        options["no_decoder_final_norm"] = not config.decoder_final_norm
    else:
        same.append("pooler_dropout")
        family = "bert" if config.pooler or config.type_vocab_size else "roberta"
        if config.embedding_dim not in (None, config.encoder_embed_dim):
            options["embedding_size"] = config.embedding_dim
        options |= {
            "max_positions": config.max_source_positions,
            "tokens_per_sample": config.max_source_positions,
            "layer_norm_eps": config.layer_norm_eps,
            "pooler_activation_fn": FAIRSEQ_ACTIVATIONS[config.pooler_activation_fn],
            "untie_weights_roberta": not config.tie_word_embeddings,
        }
    options |= {name: getattr(config, name) for name in same}
    return Namespace(arch=f"{family}_{config.position_scheme}", **options)


def position_options(args: Any, *stacks: Any) -> dict[str, Any]:
    """The options of positions in `DietConfig`, with the gains of the parameters."""
    if not isinstance(stacks[0], PositionalEncoder):
        args = Namespace(position_scheme=stock_scheme(*stacks))
    options = {
        name: value
        for name, value in vars(PositionConfig.from_args(args)).items()
        if value is not None
    }
    # in transformers users set attn_implementation, and fine-tune without random positions
    for name in ("attention_backend", "position_sampling", "position_sampling_length"):
        options.pop(name, None)
    segments = {
        part.gain for stack in stacks for part in stack.modules() if isinstance(part, SegmentScores)
    }
    gains = [kind for stack in stacks for kind in find_gains(stack)]
    if len(segments) > 1 or any(len(gains_of_kind) > 1 for gains_of_kind in gains):
        raise UserError(
            "the exported model has one gain for all layers, but layers of the checkpoint have "
            "different gains: keep the model in fairseq"
        )
    # default gains differ among schemes, and depend on the heads' width, which may differ between
    # encoder and decoder
    if len(set().union(*gains)) == 1:
        [options["position_gain"]] = set().union(*gains)
    return {
        "position_scheme": options.pop("position_scheme"),
        "position_options": options,
        "segment_gain": next(iter(segments), None),
    }


def find_gains(stack: Any) -> list[set[float]]:
    """The gains of the position parameters of local layers, and of global layers."""
    pattern = stack.stack_config.positions.position_layers if isinstance(stack, Stack) else None
    gains: list[set[float]] = [set(), set()]
    for name, part in stack.named_modules():
        if isinstance(part, ScoreParameters) and not isinstance(part, SegmentScores):
            gains[is_global(f"{name}.", pattern)].add(part.gain)
    return gains


def activation(name: str) -> str:
    if name not in ACTIVATIONS:
        raise UserError(
            f"--activation-fn {name} has no counterpart in transformers: keep the model in fairseq"
        )
    return ACTIVATIONS[name]


def stack_options(side: str, stack: Any) -> dict[str, Any]:
    """The sizes of fairseq's encoder or decoder."""
    sizes = {name: getattr(getattr(stack.cfg, side), name) for name in SIZES}
    sizes |= {"layers": len(stack.layers), "final_norm": stack.layer_norm is not None}
    return {f"{side}_{name}": value for name, value in sizes.items()}


def common_options(stack: Any) -> dict[str, Any]:
    """The options that encoder and decoder share."""
    cfg, dictionary = stack.cfg, stack.dictionary
    return {
        "activation_fn": activation(cfg.activation_fn),
        "layernorm_embedding": stack.layernorm_embedding is not None,
        "layer_norm_eps": layer_norm_eps(cfg),
        "scale_embedding": not cfg.no_scale_embedding,
        "dropout": float(cfg.dropout),
        "attention_dropout": float(cfg.attention_dropout),
        "activation_dropout": float(cfg.activation_dropout or cfg.relu_dropout or 0.0),
        "bos_token_id": dictionary.bos(),
        "pad_token_id": dictionary.pad(),
        "eos_token_id": dictionary.eos(),
        "dtype": "float32",
    }
