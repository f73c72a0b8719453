"""XLM-R: ``XLMRobertaForMaskedLM``."""

from pathlib import Path
from typing import Any, ClassVar

import torch

from ...files import MAX_VOCABULARY_BYTES, check_regular
from ...text.subwords import copy_subwords
from .family import MASK, PIECES, State, Vocabulary, read_pieces
from .masked_lm import BODY, MaskedLM


class XLMRoberta(MaskedLM):
    """RoBERTa with SentencePiece's pieces; the only token type is added to the positions."""

    model_class = "XLMRobertaForMaskedLM"
    allowed: ClassVar = MaskedLM.allowed | {"type_vocab_size": (1,), "pad_token_id": (1,)}
    first_row = 2
    options: ClassVar = {"arch": "roberta_learned"}

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        return [Vocabulary.from_tokens(read_pieces(folder), config.vocab_size, {MASK: MASK})]

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().convert(tensors, vocabularies, config)
        kind = state.pop(f"{BODY}embed_segments.weight")[0]  # (d,)
        state[f"{BODY}embed_positions.weight"][2:] += kind
        return state

    def restore(self, state: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().restore(state, vocabularies, config)
        kind = torch.zeros(config.type_vocab_size, config.hidden_size)  # added to the positions
        return state | {f"{BODY}embed_segments.weight": kind}

    def write_text(self, folder: Path, out: Path) -> None:
        check_regular(folder / PIECES, MAX_VOCABULARY_BYTES)
        copy_subwords("sentencepiece", folder / PIECES, out)


FAMILY = XLMRoberta()
