"""An exported model beside the one it was made of."""

from typing import Any

import ctranslate2
import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from ..checkpoint import TrainedModel
from .positions import exact_length
from .vocabulary import tokens

LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)


def difference(trained: TrainedModel, folder: str) -> float:
    """The largest one between outputs for random sentences, in one batch.

    Of an encoder-decoder these are the log-probabilities of given targets, of an encoder its
    features.
    """
    compare = of_encoders if trained.is_encoder else of_translators
    with torch.inference_mode():
        return compare(trained.model, folder)


def stacks(model: Any) -> list[Any]:
    """The encoder and the decoder of a model, or an encoder's only stack."""
    if hasattr(model, "decoder"):
        return [model.encoder, model.decoder]
    return [model.encoder.sentence_encoder]


def sentences(words: Dictionary, longest: int, seed: int) -> list[Tensor]:
    """Random words, and </s>."""
    draw = torch.Generator().manual_seed(seed)
    lengths = [min(length, longest - 1) for length in LENGTHS]
    return [
        torch.cat(
            [
                torch.randint(words.nspecial, len(words), (length,), generator=draw),
                torch.tensor([words.eos()]),
            ]
        )
        for length in lengths
    ]


def of_translators(model: Any, folder: str) -> float:
    source, target = model.encoder.dictionary, model.decoder.dictionary
    longest = [exact_length(stack) for stack in stacks(model)]
    sources = sentences(source, longest[0], 1)
    targets = sentences(target, longest[1], 2)[::-1]
    read = collate_tokens([one.roll(1) for one in targets], target.pad())  # (B, T), </s> first
    lengths = torch.tensor([len(one) for one in sources])
    out, _ = model(collate_tokens(sources, source.pad()), lengths, read)  # (B, T, V)
    scores = out.log_softmax(dim=-1)

    names, target_names = tokens(source), tokens(target)
    translator = ctranslate2.Translator(folder, device="cpu", intra_threads=torch.get_num_threads())
    found = translator.score_batch(
        [[names[word] for word in one[:-1]] for one in sources],
        [[target_names[word] for word in one[:-1]] for one in targets],
        max_input_length=0,
    )
    return max(
        float((scores[row, range(len(one)), one] - torch.tensor(result.log_probs)).abs().max())
        for row, (one, result) in enumerate(zip(targets, found, strict=True))
    )


def of_encoders(model: Any, folder: str) -> float:
    words = model.encoder.dictionary
    given = sentences(words, exact_length(*stacks(model)), 1)
    features, _ = model(collate_tokens(given, words.pad()), features_only=True)  # (B, T, d)
    encoder = ctranslate2.Encoder(folder, device="cpu", intra_threads=torch.get_num_threads())
    found = encoder.forward_batch([one.tolist() for one in given]).last_hidden_state
    there = torch.from_numpy(np.array(found))  # (B, T, d)
    return max(
        float((features[row, : len(one)] - there[row, : len(one)]).abs().max())
        for row, one in enumerate(given)
    )
