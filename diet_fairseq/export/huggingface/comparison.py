"""Comparison of a converted model's outputs with those of fairseq's model."""

from typing import Any

import torch
from torch import Tensor

from ...errors import UserError
from .parameters import SPAN

#: largest difference of logits, which comes from the order of sums
TOLERANCE = 1e-3


@torch.no_grad()
def check_same(model: Any, other: Any, head: str | None = None) -> None:
    """Compare the two on random sentences.

    Raises:
        UserError: their outputs differ by more than `TOLERANCE`
    """
    model.eval()
    config = other.config
    draw = torch.Generator().manual_seed(1)
    longest = min(config.max_source_positions, 24)

    def sentences(vocabulary: int, longest: int) -> Tensor:
        tokens = torch.randint(4, max(vocabulary, 5), (2, longest), generator=draw) % vocabulary
        tokens[:, -1] = config.eos_token_id
        tokens[1, longest // 2 :] = config.pad_token_id
        return tokens

    sources = sentences(other.get_input_embeddings().num_embeddings, longest)
    real = sources != config.pad_token_id
    if config.is_encoder_decoder:
        targets = sentences(config.vocab_size, min(config.max_target_positions, 17))
        real = targets != config.pad_token_id
        expected = model(sources, real.sum(1), targets)[0]
        actual = other(input_ids=sources, decoder_input_ids=targets).logits
    else:
        segments = (torch.arange(longest) >= longest // 3).long().expand_as(sources)
        segments = segments.clamp(max=max(config.type_vocab_size - 1, 0))
        out = other(sources, token_type_ids=segments)
        if head == SPAN:  # which reads every token
            features = model(sources, features_only=True, segments=segments)[0]  # (B, T, d)
            span = model.classification_heads[head]
            expected = span.out_proj(span.activation_fn(span.dense(features)))  # (B, T, 2)
            out["logits"] = torch.stack([out.start_logits, out.end_logits], -1)
        elif head is not None:
            expected = model(sources, segments=segments, classification_head_name=head)[0]
            real = torch.ones(2, dtype=torch.bool)
        else:
            features_only = "logits" not in out
            expected = model(sources, features_only=features_only, segments=segments)[0]
        actual = out.last_hidden_state if "logits" not in out else out.logits
    difference = float((actual[real] - expected[real]).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected[real].abs().max())):
        raise UserError(
            f"the model has an option that its form in transformers lacks: their outputs lie "
            f"{difference:.2g} apart; keep it in fairseq"
        )
