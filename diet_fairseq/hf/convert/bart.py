"""BART: ``BartForConditionalGeneration``."""

from pathlib import Path
from typing import Any, ClassVar

from ...translate.directions import Directions, Marks
from .family import Texts, Vocabulary
from .roberta import gpt2_vocabulary, write_gpt2
from .translation import Translation, default_direction


class Bart(Translation):
    """Learned positions, post-norm, LayerNorm after the embeddings, and RoBERTa's dictionary."""

    model_class = "BartForConditionalGeneration"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (True,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (False,),
        "decoder_start_token_id": (2,),
    }
    options: ClassVar = {"arch": "transformer_learned", "layernorm_embedding": True}

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """The only direction, in which source and target begin with ``<s>``."""
        pair = default_direction(texts, None)
        return Directions({}, (pair,), Marks(source_prefix=("<s>",), target_prefix=("<s>",)))

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        return [gpt2_vocabulary(folder, config.vocab_size)]

    def write_text(self, folder: Path, out: Path) -> dict[str, Any]:
        """Write the files of ``--bpe gpt2``."""
        return {"subwords": "gpt2", "subword_model": write_gpt2(folder, out)}


FAMILY = Bart()
