"""A model in transformers that has the parameters of fairseq's."""

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
class Converted:
    """A model in transformers.

    Attributes:
        model: in eval mode
        others: parameters that it doesn't read but others of the same encoder do: further heads
    """

    model: Any
    others: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the folder's file of weights holds."""
        copies = self.model.all_tied_weights_keys
        state = {**self.model.state_dict(), **self.others}
        return {name: tensor.contiguous() for name, tensor in state.items() if name not in copies}


def converted(model: Any, head: str | None = None) -> Converted:
    """fairseq's model in transformers, with the one of its heads that is called ``head``.

    Raises:
        UserError: the model has something that the other can't hold
    """
    is_encoder = not hasattr(model, "decoder")
    config = encoder_config(model, head) if is_encoder else transformer_config(model)
    names = names_of(config, head)
    state = {
        renamed(name, names): tensor
        for name, tensor in model.state_dict().items()
        if name.rpartition(".")[2] not in (VERSION, "gain")
    }
    kind: Any = DietForConditionalGeneration
    if is_encoder:
        kind = DietForMaskedLM
        if head:
            kind = DietForQuestionAnswering if head == SPAN else DietForSequenceClassification
        if not head and "lm_head.decoder.bias" not in state:  # an ELECTRA
            kind = DietEncoderModel
            state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    other = kind(config).eval()
    own = other.state_dict()
    more = [name for name in state if name not in own]
    strange = [name for name in more if not is_encoder or name.startswith("model.")]
    strange += [name for name in own if name not in state]
    if strange:
        raise UserError(
            f"the model has options that its form in transformers lacks ({strange[0]}"
            f"{f' and {len(strange) - 1} more' if len(strange) > 1 else ''}): keep it in fairseq"
        )
    other.load_state_dict({name: state[name] for name in own})
    places = {state[name].data_ptr() for name in own}
    others = {}
    for name in more:
        if state[name].data_ptr() not in places:  # a tied copy is tied again when it is loaded
            places.add(state[name].data_ptr())
            others[name] = state[name]
    found = Converted(other, others)
    check_same(model, other, head)
    return found
