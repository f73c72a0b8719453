"""mBART-25 and mBART-50: ``MBartForConditionalGeneration``."""

from pathlib import Path
from typing import Any, ClassVar

from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

from .family import PIECES, Vocabulary, read_pieces
from .translation import Translation


class MBart(Translation):
    """Learned positions, and LayerNorm before each part and after the embeddings."""

    model_class = "MBartForConditionalGeneration"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (True,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (False,),
    }
    optional = "final_logits_bias"
    options: ClassVar = {
        "arch": "transformer_learned",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "layernorm_embedding": True,
    }

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        tokens = read_pieces(folder, FAIRSEQ_LANGUAGE_CODES)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]

    def subword_models(self, folder: Path) -> list[Path]:
        return [folder / PIECES]


FAMILY = MBart()
