"""Marian's models, such as OPUS-MT's: ``MarianMTModel``."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from ...translate.directions import TARGET, Directions, Marks
from .family import State, Texts, Vocabulary, read_tokens
from .translation import Translation


class Marian(Translation):
    """Sinusoids from position 0, a bias of the logits, and a decoder that starts with ``<pad>``.

    Marian's sinusoids have other frequencies than fairseq's, so they become a learned table.
    fairseq's decoder starts with ``</s>``: the decoder's row of position 0 also contains the
    difference between Marian's start token and ``</s>``.
    """

    model_class = "MarianMTModel"
    allowed: ClassVar = Translation.allowed | {
        "normalize_before": (False,),
        "normalize_embedding": (False,),
        "add_final_layer_norm": (False,),
        "add_bias_logits": (False,),
        "static_position_embeddings": (True,),
    }
    position_tables = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
    first_row = 0
    optional = r"final_logits_bias|.*embed_positions\.weight"
    options: ClassVar = {"arch": "transformer_learned", "decoder_output_bias": True}

    tag = ">>(.+)<<"

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        files = [(folder / "vocab.json", config.vocab_size)]
        if not config.share_encoder_decoder_embeddings:
            target = folder / "target_vocab.json"
            files.append((target if target.exists() else files[0][0], config.decoder_vocab_size))
        return [Vocabulary.from_tokens(read_tokens(file), size, {}) for file, size in files]

    def directions(self, texts: Texts, vocabularies: list[Vocabulary]) -> Directions | None:
        """Directions to the languages whose tags the vocabulary has; None without tags."""
        known = super().directions(texts, vocabularies)
        if known is None or len(vocabularies) > 1:
            return None
        source = texts.source_lang or "source"
        return replace(known, pairs=tuple((source, target) for target in known.tags))

    def marks(self, texts: Texts) -> Marks:
        return Marks(source_prefix=(TARGET,))

    def subword_models(self, folder: Path) -> list[Path]:
        return [folder / "source.spm", folder / "target.spm"]

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().convert(tensors, vocabularies, config)
        embeddings = tensors["model.decoder.embed_tokens.weight"]
        state["decoder.embed_positions.weight"][2] += start_difference(embeddings, config)
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().restore(state, vocabularies, config)
        table = state["decoder.embed_positions.weight"].clone()
        table[0] -= start_difference(state["decoder.embed_tokens.weight"], config)
        return state | {"decoder.embed_positions.weight": table}


def start_difference(embeddings: Tensor, config: Any) -> Tensor:
    """(d,): the decoder's input for Marian's start token minus its input for ``</s>``."""
    start = embeddings[config.decoder_start_token_id] - embeddings[config.eos_token_id]
    scale: float = config.d_model**0.5 if config.scale_embedding else 1.0
    return scale * start


FAMILY = Marian()
