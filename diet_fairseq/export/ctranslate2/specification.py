"""CTranslate2's specification of a fairseq model, with all parameters."""

import copy
import re
from typing import Any

import torch
from ctranslate2.converters import fairseq as converter
from ctranslate2.specs import common_spec, transformer_spec

from .positions import Positions, refusal

#: --activation-fn
ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "tanh": common_spec.Activation.Tanh,
    "swish": common_spec.Activation.SWISH,
}
#: names of the parameters that the specification holds
PARAMETERS = re.compile(
    r"(encoder|decoder)\.(embed_tokens|embed_positions|positions|layer_norm|layernorm_embedding"
    r"|output_projection|layers\.\d+\.(self_attn\.positions|(self|encoder)_attn\.[qkv]_proj"
    r"|(self|encoder)_attn\.out_proj|fc1|fc2|(self_attn|encoder_attn|final)_layer_norm))\..+"
)


@torch.no_grad()
def build_specification(model: Any) -> Any:
    """The specification of an encoder-decoder.

    Raises:
        UserError: CTranslate2 can't represent the model
    """
    if not hasattr(model, "decoder"):
        raise refusal("a model without a decoder", "only translation models are exported to it")
    if model.decoder.output_projection is None:
        raise refusal("--adaptive-softmax-cutoff", "its output layer is one matrix")
    source, target = model.encoder.dictionary, model.decoder.dictionary
    if any(len(words.indices) < len(words.symbols) for words in (source, target)):
        raise refusal("a dictionary with #fairseq:overwrite", "each of its tokens has one index")
    # the export and its quantization change parameters in place
    model = copy.deepcopy(model).requires_grad_(False).float()
    encoder, decoder = write_stack(model.encoder), write_stack(model.decoder)
    names = [name for name, _ in model.named_parameters() if not PARAMETERS.fullmatch(name)]
    if names:
        others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise refusal(
            f"the parameter {min(names)}{others}", "none of its layers has this parameter"
        )
    converter.set_linear(decoder.projection, model.decoder.output_projection)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(source.symbols)
    spec.register_target_vocabulary(target.symbols)
    spec.config.unk_token, spec.config.bos_token = target.unk_word, target.bos_word
    spec.config.eos_token = spec.config.decoder_start_token = target.eos_word
    spec.config.add_source_eos = True
    return spec


def write_stack(stack: Any) -> Any:
    """The specification of an encoder or decoder; changes its query and key weights in place."""
    positions = Positions(stack)
    attention, activation = stack.layers[0].self_attn, stack.cfg.activation_fn
    if activation not in ACTIVATIONS:
        raise refusal(f"--activation-fn {activation}", f"it has {', '.join(ACTIVATIONS)}")
    options = {
        "num_layers": len(stack.layers),
        "num_heads": attention.num_heads,
        "pre_norm": stack.layers[0].normalize_before,
        "no_final_norm": stack.layer_norm is None,
        "activation": ACTIVATIONS[activation],
        "layernorm_embedding": stack.layernorm_embedding is not None,
        **positions.options,
    }
    if hasattr(stack, "output_projection"):
        # 0: the alignment is the mean of all heads, as in fairseq
        spec = transformer_spec.TransformerDecoderSpec(alignment_heads=0, **options)
        embeddings, set_layer = spec.embeddings, converter.set_transformer_decoder_layer
    else:
        merge = common_spec.EmbeddingsMerge.ADD
        spec = transformer_spec.TransformerEncoderSpec(embeddings_merge=merge, **options)
        embeddings, set_layer = spec.embeddings[0], converter.set_transformer_encoder_layer
    converter.set_embeddings(embeddings, stack.embed_tokens)
    spec.scale_embeddings = float(stack.embed_scale)
    for name in ("layer_norm", "layernorm_embedding"):
        if (norm := getattr(stack, name)) is not None:
            converter.set_layer_norm(getattr(spec, name), norm)
    positions.write(spec)
    for layer, layer_spec in zip(stack.layers, spec.layer, strict=True):
        queries, keys = layer.self_attn.q_proj, layer.self_attn.k_proj
        for parameter in (*queries.parameters(), *keys.parameters()):
            parameter.copy_(positions.ordered(parameter))
        for parameter in queries.parameters():
            parameter /= positions.temperature
        set_layer(layer_spec, layer)
    return spec
