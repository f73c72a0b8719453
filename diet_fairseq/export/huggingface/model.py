"""Conversion of a fairseq model to transformers."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...errors import UserError
from ...hf import (
    DietEncoderModel,
    DietForConditionalGeneration,
    DietForMaskedLM,
    DietForQuestionAnswering,
    DietForSequenceClassification,
)
from .comparison import check_same
from .configuration import encoder_config, transformer_config
from .parameters import SPAN, VERSION, names_of, renamed


@dataclass(frozen=True)
class ConvertedModel:
    """A model in transformers.

    Attributes:
        model: the model in eval mode
        others: parameters of further heads, which the model doesn't read
    """

    model: Any
    others: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The content of the folder's file of weights."""
        copies = self.model.all_tied_weights_keys
        state = {**self.model.state_dict(), **self.others}
        return {name: tensor.contiguous() for name, tensor in state.items() if name not in copies}


def convert(model: Any, head: str | None = None) -> ConvertedModel:
    """Convert fairseq's model with the classification head called ``head``.

    Raises:
        UserError: transformers' form of the model lacks one of its options
    """
    is_encoder = not hasattr(model, "decoder")
    config = encoder_config(model, head) if is_encoder else transformer_config(model)
    names = names_of(config, head)
    state = {
        renamed(name, names): tensor
        for name, tensor in model.state_dict().items()
        if name.rpartition(".")[2] not in (VERSION, "gain")
    }
    kind: Any = DietForMaskedLM
    if not is_encoder:
        kind = DietForConditionalGeneration
    elif head:
        kind = DietForQuestionAnswering if head == SPAN else DietForSequenceClassification
    elif "lm_head.decoder.bias" not in state:  # an ELECTRA
        kind = DietEncoderModel
        state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    converted = kind(config).eval()
    names_read = converted.state_dict().keys()
    unread = [name for name in state if name not in names_read]
    unmatched = [name for name in unread if not is_encoder or name.startswith("model.")]
    unmatched += [name for name in names_read if name not in state]
    if unmatched:
        rest = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
        raise UserError(
            f"the model has options that its form in transformers lacks ({unmatched[0]}{rest}): "
            "keep it in fairseq"
        )
    converted.load_state_dict({name: state[name] for name in names_read})
    places = {state[name].data_ptr() for name in names_read}
    others: dict[str, Tensor] = {}
    for name in unread:
        if state[name].data_ptr() not in places:  # loading ties tied copies again
            places.add(state[name].data_ptr())
            others[name] = state[name]
    check_same(model, converted, head)
    return ConvertedModel(converted, others)
