"""mBART-25 and mBART-50: ``MBartForConditionalGeneration``."""

from pathlib import Path
from typing import Any, ClassVar

from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

from ...translate.directions import EOS, SOURCE, TARGET, Marks
from .family import Texts, Vocabulary, read_pieces
from .translation import TAGGED, Translation


class MBart(Translation):
    """Learned positions, and LayerNorm before each part and after the embeddings."""

    model_class = "MBartForConditionalGeneration"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (True,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (True,),
        "static_position_embeddings": (False,),
    }
    options: ClassVar = {
        "arch": "transformer_learned",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "layernorm_embedding": True,
    }

    tag = r"([a-z]{2}_[A-Z]{2})"

    def marks(self, texts: Texts) -> Marks:
        """mBART-50 has M2M-100's marks; mBART-25 ends a source and starts a target with a tag."""
        if (texts.tokenizer_class or "").startswith("MBart50"):
            return TAGGED
        return Marks(source_end=(EOS, SOURCE), target_start=TARGET)

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        tokens = read_pieces(folder, FAIRSEQ_LANGUAGE_CODES)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


FAMILY = MBart()
