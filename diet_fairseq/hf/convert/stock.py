"""The folder that `original` would have kept, of fairseq's own RoBERTa and BART."""

import json
from pathlib import Path
from typing import Any

from ...text.subwords import Gpt2
from ..tokenizer import gpt2_tokenizer
from .configuration import encoder_config, transformer_config

#: fairseq's four special symbols in the configurations of transformers
SPECIAL_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def write_original(loaded: Any, folder: Path) -> bool:
    """Write the configuration and the tokenizer of the class that has the model's layout.

    Returns:
        whether there is such a class: RoBERTa's and BART's need ``--subwords vocab.bpe``
    """
    subwords = loaded.description.tokenizers[0].subwords
    if not isinstance(subwords, Gpt2):
        return False
    values = roberta_values(loaded.model) if loaded.is_encoder else bart_values(loaded)
    (folder / "config.json").write_text(json.dumps(SPECIAL_IDS | values), encoding="utf-8")
    length = values["max_position_embeddings"] - 2 * loaded.is_encoder
    indices = loaded.task.source_dictionary.indices
    gpt2_tokenizer(indices, subwords, model_max_length=length).save_pretrained(folder)
    return True


def roberta_values(model: Any) -> dict[str, Any]:
    """The configuration of ``RobertaForMaskedLM``."""
    config = encoder_config(model, None)
    return {
        "model_type": "roberta",
        "vocab_size": config.vocab_size,
        "hidden_size": config.encoder_embed_dim,
        "num_hidden_layers": config.encoder_layers,
        "num_attention_heads": config.encoder_attention_heads,
        "intermediate_size": config.encoder_ffn_embed_dim,
        "hidden_act": config.activation_fn,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.layer_norm_eps,
        "max_position_embeddings": len(model.encoder.sentence_encoder.embed_positions.weight),
        "type_vocab_size": 1,
        "tie_word_embeddings": config.tie_word_embeddings,
    }


def bart_values(loaded: Any) -> dict[str, Any]:
    """The configuration of ``BartForConditionalGeneration``."""
    config = transformer_config(loaded.model)
    sizes = {
        f"{side}_{name}": getattr(config, f"{side}_{size}")
        for side in ("encoder", "decoder")
        for name, size in (
            ("layers", "layers"),
            ("ffn_dim", "ffn_embed_dim"),
            ("attention_heads", "attention_heads"),
        )
    }
    begins = loaded.description.all_directions.marks.target_prefix == ("<s>",)
    return {
        "model_type": "bart",
        **sizes,
        "vocab_size": config.vocab_size,
        "d_model": config.encoder_embed_dim,
        "max_position_embeddings": config.max_source_positions,
        "activation_function": config.activation_fn,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embedding,
        "decoder_start_token_id": 2,
        "forced_bos_token_id": 0 if begins else None,
        "tie_word_embeddings": config.share_all_embeddings,
    }
