"""ELECTRA: ``ElectraForMaskedLM``, and the encoder of ``ElectraForPreTraining``."""

from typing import Any, ClassVar

import torch

from .bert import Bert
from .family import State, Vocabulary
from .masked_lm import BODY, HEAD, MaskedLM


class Electra(Bert):
    """BERT with narrower embeddings and no pooler; only the generator has a language-model head.

    A discriminator gets a new head, because the models of diet_electra also have a generator.
    """

    model_class = "ElectraForMaskedLM"
    allowed: ClassVar = MaskedLM.allowed
    names: ClassVar = MaskedLM.names | {
        r"electra\.embeddings_project\.(.*)": rf"{BODY}project_in.\1",
        r"generator_predictions\.dense\.(.*)": rf"{HEAD}dense.\1",
        r"generator_predictions\.LayerNorm\.(.*)": rf"{HEAD}layer_norm.\1",
        r"generator_lm_head\.(.*)": rf"{HEAD}\1",
    }
    optional = r"generator_.*"
    heads = r"(?!)"
    untrained = r"pooler\..*"

    def fairseq_options(self, config: Any, tensors: State) -> dict[str, Any]:
        options = super().fairseq_options(config, tensors)
        if config.embedding_size != config.hidden_size:
            options["embedding_size"] = config.embedding_size
        return options

    def convert(self, tensors: State, vocabularies: list[Vocabulary], config: Any) -> State:
        state = super().convert(tensors, vocabularies, config)
        width, draw = config.hidden_size, torch.Generator().manual_seed(1)
        pooler = torch.randn(width, width, generator=draw) * config.initializer_range
        return state | {"pooler.weight": pooler, "pooler.bias": torch.zeros(width)}


FAMILY = Electra()
