"""``export hf --original`` for RoBERTa and BART that were trained in fairseq, not imported."""

import json
from pathlib import Path
from typing import Any

from ...text.subwords import Gpt2
from ..tokenizer import gpt2_tokenizer
from .configuration import encoder_config, transformer_config
from .family import Family
from .masked_lm import Roberta
from .translation import Bart

#: fairseq's four special symbols in the configurations of transformers
SPECIAL_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def write_original(loaded: Any, folder: Path) -> bool:
    """Write the configuration and the tokenizer of the transformers class for the model.

    Returns:
        whether there is a class: RoBERTa and BART need GPT-2's subwords (``vocab.bpe``)
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
    config = encoder_config(model)
    return equal_values(config, Roberta()) | {
        "model_type": "roberta",
        "max_position_embeddings": len(model.encoder.sentence_encoder.embed_positions.weight),
        "type_vocab_size": 1,
        "tie_word_embeddings": config.tie_word_embeddings,
    }


def bart_values(loaded: Any) -> dict[str, Any]:
    """The configuration of ``BartForConditionalGeneration``."""
    config = transformer_config(loaded.model)
    begins = loaded.description.all_directions.marks.target_prefix == ("<s>",)
    return equal_values(config, Bart()) | {
        "model_type": "bart",
        "scale_embedding": config.scale_embedding,
        "decoder_start_token_id": 2,
        "forced_bos_token_id": 0 if begins else None,
        "tie_word_embeddings": config.share_all_embeddings,
    }


def equal_values(config: Any, family: Family) -> dict[str, Any]:
    """The values of our configuration under the family's names of options."""
    names = {"vocab_size": "vocab_size", **family.option_names}
    return {key: getattr(config, name) for name, key in names.items() if hasattr(config, name)}
