"""Options and parameters of transformers' own classes, and fairseq's names for them.

`hf.swap` reads them without fairseq. `hf.convert` adds vocabularies and text files, which an import
into fairseq needs.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

#: parameters by name
State = dict[str, Tensor]
#: the beginning of fairseq's names of an encoder's parameters, and of the head for masked words
BODY = "encoder.sentence_encoder."
HEAD = "encoder.lm_head."
#: the beginning of the names of a layer's parameters in transformers
LAYER = r"\w+\.encoder\.layer\.(\d+)\."
DISTIL_LAYER = r"distilbert\.transformer\.layer\.(\d+)\."
#: names of activations: fairseq's -> transformers'
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "tanh": "tanh",
    "linear": "linear",
    "swish": "silu",
}
#: transformers' -> fairseq's
FAIRSEQ_ACTIVATIONS = {target: name for name, target in ACTIVATIONS.items() if name != "gelu_fast"}
#: names of activations: transformers' -> fairseq's
ACTIVATION_NAMES = FAIRSEQ_ACTIVATIONS | {"swish": "swish", "gelu_pytorch_tanh": "gelu_accurate"}
#: fairseq's name of the bias of a decoder's logits
BIAS = "decoder.output_projection.bias"
#: the classification head of version 0.2 for question answering, which reads every token
SPAN = "span"
#: prefix in fairseq -> prefix in our classes of transformers; the first match counts
ENCODER_NAMES = {
    "encoder.sentence_encoder.": "model.",
    "encoder.lm_head.weight": "lm_head.decoder.weight",
    "encoder.lm_head.bias": "lm_head.decoder.bias",
    "encoder.lm_head.": "lm_head.",
    "pooler.": "model.pooler.",
}
TRANSFORMER_NAMES = {
    "decoder.output_projection.": "lm_head.",
    "encoder.": "model.encoder.",
    "decoder.": "model.decoder.",
}


def rename_parameter(name: str, config: Any, head: str | None = None) -> str:
    """The name in our class of transformers of a parameter of fairseq's model.

    Args:
        config: the model's configuration in transformers
        head: the name of the classification head in fairseq; None: there is none
    """
    names = TRANSFORMER_NAMES if config.is_encoder_decoder else ENCODER_NAMES
    if head and not config.is_encoder_decoder:
        prefix = "qa_outputs." if head == SPAN else "classifier."
        names = names | {f"classification_heads.{head}.": prefix}
    for before, after in names.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


class ModelFamily:
    """Base class of the families, which a class of transformers and its base class are in."""

    model_class: ClassVar[str]  # the name of the class with a head
    base_class: ClassVar[str | None] = None  # the name of an encoder's class without any head
    masked_lm_class: ClassVar[str]  # the name of an encoder's class with a head for masked words
    #: pattern of the parameters of all heads, which an encoder's folder may lack together
    all_heads: ClassVar[str] = r"(?!)"
    #: option of the configuration -> the values that fairseq's model and ours support
    allowed: ClassVar[dict[str, tuple[Any, ...]]]
    options: ClassVar[dict[str, Any]]  # fairseq's options with one value for the whole family
    #: patterns of parameter names in transformers -> names in fairseq; the first match counts, and
    #: None leaves a parameter out
    names: ClassVar[dict[str, str | None]]
    #: option of fairseq and of our configuration -> name in the configuration
    option_names: ClassVar[dict[str, str]]
    position_tables: ClassVar[tuple[str, ...]] = ()  # fairseq's, with a row for each position
    first_row: ClassVar[int]  # of position 0 in transformers' position tables

    @property
    def swappable_classes(self) -> tuple[str, ...]:
        """The names of the classes that `swap_positions` reads."""
        return (self.model_class,)

    def rename_to_fairseq(self, tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Pairs of fairseq's name and the tensor, or other value."""
        for name, tensor in tensors.items():
            for pattern, new in self.names.items():
                if match := re.fullmatch(pattern, name):
                    if new is not None:
                        yield match.expand(new), tensor
                    break
            else:
                yield name, tensor  # which the model refuses

    def fairseq_state(self, tensors: State) -> State:
        """The parameters under fairseq's names, with transformers' rows."""
        return dict(self.rename_to_fairseq(tensors))

    def find_unsupported(self, values: Mapping[str, Any]) -> str | None:
        """The first option of a configuration that has a value outside `allowed`, or None."""
        for name, allowed in self.allowed.items():
            if name in values and values[name] not in allowed:
                return name
        return None


class EncoderFamily(ModelFamily):
    """An encoder with BERT's names."""

    allowed: ClassVar = {
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute",),
        "hidden_act": ("gelu",),
    }
    names: ClassVar = {
        r"\w+\.embeddings\.word_embeddings\.(.*)": rf"{BODY}embed_tokens.\1",
        r"\w+\.embeddings\.position_embeddings\.(.*)": rf"{BODY}embed_positions.\1",
        r"\w+\.embeddings\.token_type_embeddings\.(.*)": rf"{BODY}embed_segments.\1",
        r"\w+\.embeddings\.LayerNorm\.(.*)": rf"{BODY}layernorm_embedding.\1",
        rf"{LAYER}attention\.self\.([qkv])\w+\.(.*)": rf"{BODY}layers.\1.self_attn.\2_proj.\3",
        rf"{LAYER}attention\.output\.dense\.(.*)": rf"{BODY}layers.\1.self_attn.out_proj.\2",
        rf"{LAYER}attention\.output\.LayerNorm\.(.*)": rf"{BODY}layers.\1.self_attn_layer_norm.\2",
        rf"{LAYER}intermediate\.dense\.(.*)": rf"{BODY}layers.\1.fc1.\2",
        rf"{LAYER}output\.dense\.(.*)": rf"{BODY}layers.\1.fc2.\2",
        rf"{LAYER}output\.LayerNorm\.(.*)": rf"{BODY}layers.\1.final_layer_norm.\2",
        r"\w+\.pooler\.dense\.(.*)": r"pooler.\1",
        r"(?:lm_head|cls\.predictions)\.decoder\.weight": f"{HEAD}weight",
        r"(?:lm_head|cls\.predictions)\.decoder\.bias": f"{HEAD}bias",
        r"(?:lm_head|cls\.predictions)\.bias": None,  # transformers ties it to decoder.bias
        r"(?:lm_head|cls\.predictions\.transform)\.dense\.(.*)": rf"{HEAD}dense.\1",
        r"lm_head\.layer_norm\.(.*)": rf"{HEAD}layer_norm.\1",
        r"cls\.predictions\.transform\.LayerNorm\.(.*)": rf"{HEAD}layer_norm.\1",
    }
    option_names: ClassVar = {
        "encoder_layers": "num_hidden_layers",
        "encoder_embed_dim": "hidden_size",
        "encoder_ffn_embed_dim": "intermediate_size",
        "encoder_attention_heads": "num_attention_heads",
        "activation_fn": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "layer_norm_eps": "layer_norm_eps",
    }
    position_tables = (f"{BODY}embed_positions.weight",)
    all_heads = r"lm_head\..*"

    @property
    def swappable_classes(self) -> tuple[str, ...]:
        return (str(self.base_class), self.masked_lm_class)

    def num_positions(self, config: Any) -> int:
        """The length limit in tokens."""
        return int(config.max_position_embeddings) - self.first_row


class BertFamily(EncoderFamily):
    """Segments at the input, and a pooler."""

    model_class = "BertForPreTraining"
    base_class = "BertModel"
    masked_lm_class = "BertForMaskedLM"
    all_heads = r"cls\..*"
    allowed: ClassVar = EncoderFamily.allowed | {
        "hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh"),
    }
    names: ClassVar = EncoderFamily.names | {r"cls\.seq_relationship\.(.*)": r"nsp_head.\1"}
    first_row = 0
    options: ClassVar = {"arch": "bert_learned", "segment_scheme": "input"}


class ElectraFamily(BertFamily):
    """BERT with narrower embeddings and no pooler; only the generator has a language-model head."""

    model_class = "ElectraForMaskedLM"
    base_class = "ElectraModel"
    masked_lm_class = "ElectraForMaskedLM"
    all_heads = r"generator_.*"
    allowed: ClassVar = EncoderFamily.allowed
    names: ClassVar = EncoderFamily.names | {
        r"electra\.embeddings_project\.(.*)": rf"{BODY}project_in.\1",
        r"generator_predictions\.dense\.(.*)": rf"{HEAD}dense.\1",
        r"generator_predictions\.LayerNorm\.(.*)": rf"{HEAD}layer_norm.\1",
        r"generator_lm_head\.(.*)": rf"{HEAD}\1",
    }


class DistilBertFamily(EncoderFamily):
    """BERT without segments and pooler, and with its own names of parameters and options."""

    model_class = "DistilBertForMaskedLM"
    base_class = "DistilBertModel"
    masked_lm_class = "DistilBertForMaskedLM"
    all_heads = r"vocab_.*"
    allowed: ClassVar = {"activation": ("gelu", "relu")}
    names: ClassVar = EncoderFamily.names | {
        rf"{DISTIL_LAYER}attention\.([qkv])_lin\.(.*)": rf"{BODY}layers.\1.self_attn.\2_proj.\3",
        rf"{DISTIL_LAYER}attention\.out_lin\.(.*)": rf"{BODY}layers.\1.self_attn.out_proj.\2",
        rf"{DISTIL_LAYER}sa_layer_norm\.(.*)": rf"{BODY}layers.\1.self_attn_layer_norm.\2",
        rf"{DISTIL_LAYER}ffn\.lin([12])\.(.*)": rf"{BODY}layers.\1.fc\2.\3",
        rf"{DISTIL_LAYER}output_layer_norm\.(.*)": rf"{BODY}layers.\1.final_layer_norm.\2",
        r"vocab_transform\.(.*)": rf"{HEAD}dense.\1",
        r"vocab_layer_norm\.(.*)": rf"{HEAD}layer_norm.\1",
        r"vocab_projector\.(.*)": rf"{HEAD}\1",
    }
    option_names: ClassVar = {
        "encoder_layers": "n_layers",
        "encoder_embed_dim": "dim",
        "encoder_ffn_embed_dim": "hidden_dim",
        "encoder_attention_heads": "n_heads",
        "activation_fn": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    }
    first_row = 0
    # the class has this epsilon in its code
    options: ClassVar = {"arch": "roberta_learned", "layer_norm_eps": 1e-12}


class XLMRobertaFamily(EncoderFamily):
    """An encoder whose only token type is added to the positions."""

    model_class = "XLMRobertaForMaskedLM"
    base_class = "XLMRobertaModel"
    masked_lm_class = "XLMRobertaForMaskedLM"
    allowed: ClassVar = EncoderFamily.allowed | {"type_vocab_size": (1,), "pad_token_id": (1,)}
    first_row = 2
    options: ClassVar = {"arch": "roberta_learned"}

    def fairseq_state(self, tensors: State) -> State:
        state = super().fairseq_state(tensors)
        kind = state.pop(f"{BODY}embed_segments.weight")[0]  # (d,)
        return state | {name: state[name] + kind for name in self.position_tables}


class RobertaFamily(XLMRobertaFamily):
    """XLM-R's model with GPT-2's subwords."""

    model_class = "RobertaForMaskedLM"
    base_class = "RobertaModel"
    masked_lm_class = "RobertaForMaskedLM"


class TranslationFamily(ModelFamily):
    """An encoder and a decoder with BART's names."""

    allowed: ClassVar = {
        "is_encoder_decoder": (True,),
        "is_decoder": (False,),
        "activation_function": tuple(ACTIVATION_NAMES),
    }
    names: ClassVar = {
        r"model\.shared\..*": None,
        r"model\.((?:en|de)coder\..*)": r"\1",
        r"lm_head\.weight": "decoder.output_projection.weight",
        r"final_logits_bias": BIAS,
    }
    option_names: ClassVar = {
        **{
            f"{side}_{name}": f"{side}_{key}"
            for side in ("encoder", "decoder")
            for name, key in {
                "layers": "layers",
                "ffn_embed_dim": "ffn_dim",
                "attention_heads": "attention_heads",
                "layerdrop": "layerdrop",
            }.items()
        },
        "encoder_embed_dim": "d_model",
        "decoder_embed_dim": "d_model",
        "activation_fn": "activation_function",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation_dropout": "activation_dropout",
        "max_source_positions": "max_position_embeddings",
        "max_target_positions": "max_position_embeddings",
    }


class BartFamily(TranslationFamily):
    """Learned positions, post-norm, and LayerNorm after the embeddings."""

    model_class = "BartForConditionalGeneration"
    allowed: ClassVar = TranslationFamily.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (False,),
        "decoder_start_token_id": (2,),
    }
    first_row = 2
    options: ClassVar = {"arch": "transformer_learned", "layernorm_embedding": True}


class MBartFamily(TranslationFamily):
    """Learned positions, and LayerNorm before each part and after the embeddings."""

    model_class = "MBartForConditionalGeneration"
    allowed: ClassVar = TranslationFamily.allowed | {
        "normalize_before": (True,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (False,),
    }
    first_row = 2
    options: ClassVar = {
        "arch": "transformer_learned",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "layernorm_embedding": True,
    }


class M2M100Family(TranslationFamily):
    """fairseq's sinusoids, and LayerNorm before each part."""

    model_class = "M2M100ForConditionalGeneration"
    options: ClassVar = {
        "arch": "transformer_sinusoidal",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
    }


class MarianFamily(TranslationFamily):
    """Sinusoids from position 0 with other frequencies than fairseq's, and a bias of the logits."""

    model_class = "MarianMTModel"
    allowed: ClassVar = TranslationFamily.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (True,),
    }
    position_tables = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
    first_row = 0
    options: ClassVar = {"arch": "transformer_learned", "decoder_output_bias": True}
