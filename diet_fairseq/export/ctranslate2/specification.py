"""CTranslate2's specification of a fairseq model, with all parameters."""

from collections.abc import Iterable
from typing import Any

import torch
from ctranslate2.specs import common_spec, transformer_spec
from torch import Tensor, nn

from .positions import Positions, unsupported

#: --activation-fn and --pooler-activation-fn
ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
}
#: prefixes of an encoder's heads, which are not exported
HEADS = ("encoder.lm_head.", "classification_heads.", "nsp_head.")


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

    def join(self, names: Iterable[str]) -> Tensor:
        return torch.cat([self(name) for name in names])

    def write_linear(self, spec: Any, *names: str) -> None:
        """Write several linear layers as one, with their outputs joined."""
        spec.weight = self.join(f"{name}.weight" for name in names)
        if f"{names[0]}.bias" in self.by_name:
            spec.bias = self.join(f"{name}.bias" for name in names)

    def write_norm(self, spec: Any, name: str) -> None:
        spec.gamma, spec.beta = self(f"{name}.weight"), self(f"{name}.bias")

    def skip(self, *prefixes: str) -> None:
        """Take parameters that are not exported, or were by other means, off the set."""
        self.remaining = {name for name in self.remaining if not name.startswith(prefixes)}

    def check(self) -> None:
        if self.remaining:
            others = f" (and {len(self.remaining) - 1} more)" if len(self.remaining) > 1 else ""
            raise unsupported(
                f"the parameter {min(self.remaining)}{others}", "no layer of its has such a one"
            )


def specification(model: Any) -> Any:
    """The specification of an encoder-decoder, or of an encoder without its heads.

    Raises:
        UserError: CTranslate2 can't hold the model
    """
    parameters = Parameters(model)
    spec = (translator if hasattr(model, "decoder") else encoder)(model, parameters)
    parameters.check()
    return spec


def translator(model: Any, parameters: Parameters) -> Any:
    spec = transformer_spec.TransformerSpec(
        encoder_stack(model.encoder, "encoder", parameters),
        decoder_stack(model.decoder, parameters),
    )
    source, target = model.encoder.dictionary, model.decoder.dictionary
    spec.register_source_vocabulary(tokens(source))
    spec.register_target_vocabulary(tokens(target))
    spec.config.decoder_start_token = special(spec, target)
    spec.config.add_source_eos = True
    return spec


def encoder(model: Any, parameters: Parameters) -> Any:
    stack = model.encoder.sentence_encoder
    built = encoder_stack(stack, "encoder.sentence_encoder", parameters)
    pooler = getattr(model, "pooler", None)
    activation = activation_of(getattr(model.args, "pooler_activation_fn", "tanh"), "pooler-")
    spec = transformer_spec.TransformerEncoderModelSpec(built, pooler is not None, activation)
    if pooler is not None:
        parameters.write_linear(spec.pooler_dense, "pooler")
    parameters.skip(*HEADS)
    spec.register_vocabulary(tokens(model.encoder.dictionary))
    special(spec, model.encoder.dictionary)
    return spec


def tokens(words: Any) -> list[str]:
    """Unique names of the dictionary's entries, in order.

    Of two entries with one name (from ``#fairseq:overwrite``) CTranslate2 reads the first, fairseq
    the last. So an entry that fairseq never reads is called ``NAME#INDEX``.
    """
    all_names, names = set(words.indices), []
    for index, name in enumerate(words.symbols):
        if words.indices[name] != index:
            name = f"{name}#{index}"
            while name in all_names:
                name += "#"
            all_names.add(name)
        names.append(name)
    return names


def special(spec: Any, words: Any) -> str:
    """Set the specification's special tokens, and return </s>."""
    names = tokens(words)
    spec.config.unk_token = names[words.unk()]
    spec.config.bos_token = names[words.bos()]
    spec.config.eos_token = names[words.eos()]
    return names[words.eos()]


def encoder_stack(stack: Any, name: str, parameters: Parameters) -> Any:
    segments = getattr(stack, "embed_segments", None)
    positions = Positions(stack)
    spec = transformer_spec.TransformerEncoderSpec(
        num_source_embeddings=1 if segments is None else 2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
        **shape_of(stack, positions),
    )
    spec.embeddings[0].weight = parameters(f"{name}.embed_tokens.weight")
    if segments is not None:
        # both are scaled, but fairseq adds segments afterwards
        spec.embeddings[1].weight = parameters(f"{name}.embed_segments.weight") / stack.embed_scale
    write_stack(spec, stack, name, positions, parameters)
    return spec


def decoder_stack(stack: Any, parameters: Parameters) -> Any:
    if stack.output_projection is None:
        raise unsupported("--adaptive-softmax-cutoff", "its output is one matrix")
    positions = Positions(stack)
    spec = transformer_spec.TransformerDecoderSpec(
        alignment_heads=0,  # the mean of all, as fairseq
        **shape_of(stack, positions),
    )
    spec.embeddings.weight = parameters("decoder.embed_tokens.weight")
    parameters.write_linear(spec.projection, "decoder.output_projection")
    write_stack(spec, stack, "decoder", positions, parameters)
    for index, (layer, layer_spec) in enumerate(zip(stack.layers, spec.layer, strict=True)):
        if layer.encoder_attn is None or stack.cfg.cross_self_attention:
            raise unsupported(
                "a decoder without cross-attention of its own", "every layer of its has one"
            )
        part = f"decoder.layers.{index}.encoder_attn"
        linear = layer_spec.attention.linear
        parameters.write_linear(linear[0], f"{part}.q_proj")
        parameters.write_linear(linear[1], f"{part}.k_proj", f"{part}.v_proj")
        parameters.write_linear(linear[2], f"{part}.out_proj")
        parameters.write_norm(layer_spec.attention.layer_norm, f"{part}_layer_norm")
    return spec


def shape_of(stack: Any, positions: Positions) -> dict[str, Any]:
    """The common arguments of the constructors of encoder and decoder specifications."""
    if not len(stack.layers):
        raise unsupported(
            "a model without layers", "it reads what it has to know from the first one"
        )
    attention = stack.layers[0].self_attn
    if attention.head_dim * attention.num_heads != attention.q_proj.out_features:
        raise unsupported(
            "attention whose heads were pruned", "it derives their width from the model's"
        )
    return {
        "num_layers": len(stack.layers),
        "num_heads": attention.num_heads,
        "pre_norm": stack.layers[0].normalize_before,
        "no_final_norm": stack.layer_norm is None,
        "activation": activation_of(stack.cfg.activation_fn),
        "layernorm_embedding": stack.layernorm_embedding is not None,
        **positions.options,
    }


def activation_of(name: str, of: str = "") -> Any:
    if name not in ACTIVATIONS:
        raise unsupported(f"--{of}activation-fn {name}", f"it knows {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def write_stack(
    spec: Any, stack: Any, name: str, positions: Positions, parameters: Parameters
) -> None:
    """Write the parameters that encoders and decoders share."""
    spec.scale_embeddings = float(stack.embed_scale)
    if stack.layer_norm is not None:
        parameters.write_norm(spec.layer_norm, f"{name}.layer_norm")
    if stack.layernorm_embedding is not None:
        parameters.write_norm(spec.layernorm_embedding, f"{name}.layernorm_embedding")
    positions.write(spec)
    parameters.skip(f"{name}.positions.", f"{name}.embed_positions.")
    for index, layer_spec in enumerate(spec.layer):
        layer = f"{name}.layers.{index}"
        attention = [f"{layer}.self_attn.{part}_proj" for part in ("q", "k", "v", "out")]
        projections = layer_spec.self_attention.linear[0]
        parameters.write_linear(projections, *attention[:3])
        for part in (projections.weight, projections.bias):
            queries, keys, _ = part.chunk(3)
            queries.copy_(positions.ordered(queries) / positions.temperature)
            keys.copy_(positions.ordered(keys))
        parameters.write_linear(layer_spec.self_attention.linear[1], attention[3])
        parameters.write_norm(layer_spec.self_attention.layer_norm, f"{layer}.self_attn_layer_norm")
        parameters.write_linear(layer_spec.ffn.linear_0, f"{layer}.fc1")
        parameters.write_linear(layer_spec.ffn.linear_1, f"{layer}.fc2")
        parameters.write_norm(layer_spec.ffn.layer_norm, f"{layer}.final_layer_norm")
        parameters.skip(f"{layer}.self_attn.positions.")
