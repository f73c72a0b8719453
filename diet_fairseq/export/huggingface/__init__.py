"""Conversion of fairseq's models to Hugging Face transformers, and back.

`configuration` converts options, `parameters` names and tensors, each in both directions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import UserError
from ...hf import (
    DietEncoderModel,
    DietForConditionalGeneration,
    DietForMaskedLM,
    DietForQuestionAnswering,
    DietForSequenceClassification,
)
from .configuration import arguments, encoder_config, transformer_config
from .parameters import SPAN, VERSION, load, names_of, renamed

__all__ = ["ConvertedModel", "arguments", "check_same", "convert", "load"]

#: largest difference of outputs, which comes from the order of sums
TOLERANCE = 1e-3


class ConvertedModel(NamedTuple):
    """A model in transformers, in eval mode, and the content of its file of weights.

    The file also has the parameters of further heads, which the model doesn't read.
    """

    model: Any
    tensors: dict[str, Tensor]


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
        if not name.endswith((VERSION, ".gain"))
    }
    kind: Any = DietForMaskedLM
    if not is_encoder:
        kind = DietForConditionalGeneration
    elif head:
        kind = DietForQuestionAnswering if head == SPAN else DietForSequenceClassification
    elif "lm_head.decoder.bias" not in state:  # an ELECTRA
        kind = DietEncoderModel
        state = {
            name.removeprefix("model."): tensor
            for name, tensor in state.items()
            if not name.startswith(("generator.", "discriminator_head."))
        }
    converted = kind(config).eval()
    names_read = converted.state_dict().keys()
    unused_names = [name for name in state if name not in names_read]
    unmatched = [name for name in unused_names if not is_encoder or name.startswith("model.")]
    unmatched += [name for name in names_read if name not in state]
    if unmatched:
        rest = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
        raise UserError(
            f"the model has options that its form in transformers lacks ({unmatched[0]}{rest}): "
            "keep it in fairseq"
        )
    converted.load_state_dict({name: state[name] for name in names_read})
    check_same(model, converted, head)
    tied = state.get("model.embed_tokens.weight", torch.empty(0)).data_ptr()
    heads = {name: state[name] for name in unused_names if state[name].data_ptr() != tied}
    copies = converted.all_tied_weights_keys
    tensors = {**converted.state_dict(), **heads}
    return ConvertedModel(
        converted, {name: x.contiguous() for name, x in tensors.items() if name not in copies}
    )


@torch.no_grad()
def check_same(model: Any, converted: Any, head: str | None = None) -> None:
    """Compare the outputs on random sentences: logits, or the features of a model without a head.

    Raises:
        UserError: their outputs differ by more than `TOLERANCE`
    """
    model.eval()
    config = converted.config
    draw = torch.Generator().manual_seed(1)
    longest = min(config.max_source_positions, 24)

    def sentences(vocabulary: int, longest: int) -> Tensor:
        tokens = torch.randint(4, max(vocabulary, 5), (2, longest), generator=draw) % vocabulary
        tokens[:, -1] = config.eos_token_id
        tokens[1, longest // 2 :] = config.pad_token_id
        return tokens

    sources = sentences(converted.get_input_embeddings().num_embeddings, longest)
    real = sources != config.pad_token_id
    if config.is_encoder_decoder:
        targets = sentences(config.vocab_size, min(config.max_target_positions, 17))
        expected = model(sources, real.sum(1), targets)[0]
        actual = converted(input_ids=sources, decoder_input_ids=targets).logits
        real = targets != config.pad_token_id
    else:
        segments = (torch.arange(longest) >= longest // 3).long().expand_as(sources)
        segments = segments.clamp(max=max(config.type_vocab_size - 1, 0))
        out = converted(sources, token_type_ids=segments)
        if head == SPAN:  # which reads every token
            features = model(sources, features_only=True, segments=segments)[0]  # (B, T, d)
            span = model.classification_heads[head]
            expected = span.out_proj(span.activation_fn(span.dense(features)))  # (B, T, 2)
            actual = torch.stack([out.start_logits, out.end_logits], -1)
        elif head is not None:
            expected = model(sources, segments=segments, classification_head_name=head)[0]
            actual, real = out.logits, torch.ones(2, dtype=torch.bool)
        else:
            is_headless = isinstance(converted, DietEncoderModel)
            expected = model(sources, features_only=is_headless, segments=segments)[0]
            actual = out.last_hidden_state if is_headless else out.logits
    difference = float((actual[real] - expected[real]).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected[real].abs().max())):
        raise UserError(
            f"the exported model does not reproduce the checkpoint (outputs differ by "
            f"{difference:.2g}): it uses an option that the transformers version lacks; keep it in "
            "fairseq"
        )
