"""CTranslate2's specification of a fairseq model, with all parameters."""

from typing import Any

import torch
from ctranslate2.specs import common_spec, transformer_spec
from torch import Tensor, nn

from .positions import Positions, unsupported

#: --activation-fn
ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
}


class Parameters:
    """A model's parameters by name, and the set of those that are not exported yet.

    A call returns a copy, as quantization scales arrays in place.
    """

    def __init__(self, model: nn.Module) -> None:
        self.by_name = dict(model.named_parameters(remove_duplicate=False))
        self.remaining = set(self.by_name)

    def __call__(self, name: str) -> Tensor:
        self.remaining.discard(name)
        return self.by_name[name].detach().float().clone()

    def write_linear(self, spec: Any, *names: str) -> None:
        """Write several linear layers as one, with their outputs joined."""
        spec.weight = torch.cat([self(f"{name}.weight") for name in names])
        if f"{names[0]}.bias" in self.by_name:
            spec.bias = torch.cat([self(f"{name}.bias") for name in names])

    def write_norm(self, spec: Any, name: str) -> None:
        spec.gamma, spec.beta = self(f"{name}.weight"), self(f"{name}.bias")

    def skip(self, *prefixes: str) -> None:
        """Take parameters that are not exported, or were by other means, off the set."""
        self.remaining = {name for name in self.remaining if not name.startswith(prefixes)}


def specification(model: Any) -> Any:
    """The specification of an encoder-decoder.

    Raises:
        UserError: CTranslate2 can't hold the model
    """
    if not hasattr(model, "decoder"):
        raise unsupported("an encoder's heads", "it is exported for translation alone")
    if model.decoder.output_projection is None:
        raise unsupported("--adaptive-softmax-cutoff", "its output is one matrix")
    if not (len(model.encoder.layers) and len(model.decoder.layers)):
        raise unsupported("a model without layers", "it reads sizes from the first one")
    if model.decoder.cfg.cross_self_attention or model.decoder.layers[0].encoder_attn is None:
        raise unsupported("a decoder without cross-attention of its own", "each of its layers has")
    parameters = Parameters(model)
    encoder = write_stack(model.encoder, "encoder", parameters)
    decoder = write_stack(model.decoder, "decoder", parameters)
    parameters.write_linear(decoder.projection, "decoder.output_projection")
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    source, target = model.encoder.dictionary, model.decoder.dictionary
    if any(len(words.indices) < len(words.symbols) for words in (source, target)):
        raise unsupported("a dictionary with #fairseq:overwrite", "a name has one index")
    spec.register_source_vocabulary(source.symbols)
    spec.register_target_vocabulary(target.symbols)
    spec.config.unk_token, spec.config.bos_token = target.unk_word, target.bos_word
    spec.config.eos_token = spec.config.decoder_start_token = target.eos_word
    spec.config.add_source_eos = True
    if names := parameters.remaining:
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise unsupported(f"the parameter {min(names)}{others}", "none of its layers has it")
    return spec


def write_stack(stack: Any, name: str, parameters: Parameters) -> Any:
    """The specification of the encoder or decoder."""
    positions = Positions(stack)
    if name == "encoder":
        spec = transformer_spec.TransformerEncoderSpec(
            embeddings_merge=common_spec.EmbeddingsMerge.ADD, **shape_of(stack), **positions.options
        )
        spec.embeddings[0].weight = parameters("encoder.embed_tokens.weight")
    else:
        spec = transformer_spec.TransformerDecoderSpec(
            alignment_heads=0,  # the mean of all, as fairseq
            **shape_of(stack),
            **positions.options,
        )
        spec.embeddings.weight = parameters("decoder.embed_tokens.weight")
    spec.scale_embeddings = float(stack.embed_scale)
    if stack.layer_norm is not None:
        parameters.write_norm(spec.layer_norm, f"{name}.layer_norm")
    if stack.layernorm_embedding is not None:
        parameters.write_norm(spec.layernorm_embedding, f"{name}.layernorm_embedding")
    positions.write(spec)
    parameters.skip(f"{name}.positions.", f"{name}.embed_positions.")
    for index, layer_spec in enumerate(spec.layer):
        part = f"{name}.layers.{index}"
        attention = [f"{part}.self_attn.{projection}_proj" for projection in ("q", "k", "v", "out")]
        projections, output = layer_spec.self_attention.linear
        parameters.write_linear(projections, *attention[:3])
        for tensor in (projections.weight, projections.bias):
            queries, keys, _ = tensor.chunk(3)
            queries.copy_(positions.ordered(queries) / positions.temperature)
            keys.copy_(positions.ordered(keys))
        parameters.write_linear(output, attention[3])
        parameters.write_norm(layer_spec.self_attention.layer_norm, f"{part}.self_attn_layer_norm")
        parameters.skip(f"{part}.self_attn.positions.")
        if name == "decoder":
            cross = f"{part}.encoder_attn"
            queries, keys_values, output = layer_spec.attention.linear
            parameters.write_linear(queries, f"{cross}.q_proj")
            parameters.write_linear(keys_values, f"{cross}.k_proj", f"{cross}.v_proj")
            parameters.write_linear(output, f"{cross}.out_proj")
            parameters.write_norm(layer_spec.attention.layer_norm, f"{cross}_layer_norm")
        parameters.write_linear(layer_spec.ffn.linear_0, f"{part}.fc1")
        parameters.write_linear(layer_spec.ffn.linear_1, f"{part}.fc2")
        parameters.write_norm(layer_spec.ffn.layer_norm, f"{part}.final_layer_norm")
    return spec


def shape_of(stack: Any) -> dict[str, Any]:
    """The common arguments of the constructors of encoder and decoder specifications."""
    attention, activation = stack.layers[0].self_attn, stack.cfg.activation_fn
    if activation not in ACTIVATIONS:
        raise unsupported(f"--activation-fn {activation}", f"it knows {', '.join(ACTIVATIONS)}")
    return {
        "num_layers": len(stack.layers),
        "num_heads": attention.num_heads,
        "pre_norm": stack.layers[0].normalize_before,
        "no_final_norm": stack.layer_norm is None,
        "activation": ACTIVATIONS[activation],
        "layernorm_embedding": stack.layernorm_embedding is not None,
    }
