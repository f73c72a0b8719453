"""Comparison of an exported model's outputs with those of its checkpoint."""

from typing import Any

import ctranslate2
import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from ..checkpoint import TrainedModel
from .positions import exact_length
from .specification import tokens

LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)


def difference(trained: TrainedModel, folder: str) -> float:
    """The largest difference of outputs for a batch of random sentences.

    Outputs of an encoder-decoder are log-probabilities of random targets, those of an encoder its
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
    """Sentences of random words and </s>."""
    draw = torch.Generator().manual_seed(seed)
    lengths = [min(length, longest - 1) for length in LENGTHS]
    end = torch.tensor([words.eos()])
    size = len(words)
    return [
        torch.cat([torch.randint(words.nspecial, size, (length,), generator=draw), end])
        for length in lengths
    ]


def of_translators(model: Any, folder: str) -> float:
    source, target = model.encoder.dictionary, model.decoder.dictionary
    longest = [exact_length(stack) for stack in stacks(model)]
    sources = sentences(source, longest[0], 1)
    targets = sentences(target, longest[1], 2)[::-1]
    read = collate_tokens([sentence.roll(1) for sentence in targets], target.pad())  # (B, T)
    lengths = torch.tensor([len(sentence) for sentence in sources])
    out, _ = model(collate_tokens(sources, source.pad()), lengths, read)  # (B, T, V)
    scores = out.log_softmax(dim=-1)

    names, target_names = tokens(source), tokens(target)
    translator = ctranslate2.Translator(folder, device="cpu", intra_threads=torch.get_num_threads())
    results = translator.score_batch(
        [[names[word] for word in sentence[:-1]] for sentence in sources],
        [[target_names[word] for word in sentence[:-1]] for sentence in targets],
        max_input_length=0,
    )
    differences = [
        torch.tensor(result.log_probs) - row[range(len(sentence)), sentence]
        for row, sentence, result in zip(scores, targets, results, strict=True)
    ]
    return float(torch.cat(differences).abs().max())


def of_encoders(model: Any, folder: str) -> float:
    words = model.encoder.dictionary
    sources = sentences(words, exact_length(*stacks(model)), 1)
    features, _ = model(collate_tokens(sources, words.pad()), features_only=True)  # (B, T, d)
    encoder = ctranslate2.Encoder(folder, device="cpu", intra_threads=torch.get_num_threads())
    output = encoder.forward_batch([sentence.tolist() for sentence in sources])
    differences = features - torch.from_numpy(np.array(output.last_hidden_state))  # (B, T, d)
    return max(
        float(difference[: len(sentence)].abs().max())
        for difference, sentence in zip(differences, sources, strict=True)
    )
