"""``export ctranslate2``: export of translation models to CTranslate2.

CTranslate2 has T5's score for each offset and head; `positions` writes our schemes in this form.
`specification` assigns all parameters.
"""

import re
from argparse import Namespace
from typing import Any

import ctranslate2
import torch
from fairseq.data.data_utils import collate_tokens

from ...errors import UserError
from ...files import atomic_folder, refuse_existing
from ...translate.directions import PLAIN, Framing
from ...translate.loading import load_transformer
from ...translate.model_files import ModelOptions, resolve_model
from ..comparison import compare, random_sentences
from .positions import exact_length
from .specification import build_specification

#: versions 4.6.0, 4.8.1 and 4.8.2 use the first layer's position table in all layers
MIN_VERSION = (4, 8, 3)
#: largest difference of log-probabilities in float32
TOLERANCE = 1e-3
#: numbers of words in the sentences that are compared
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)


def run(args: Namespace) -> None:
    check_version(ctranslate2.__version__)
    refuse_existing(args.out)
    options = ModelOptions.from_args(args)
    loaded = load_transformer(resolve_model(args.checkpoint, options, translates=False))
    with atomic_folder(args.out) as folder:
        framing = loaded.description.all_directions.framing
        save_model(loaded.model, str(folder), args.quantization, framing)
        loaded.write_model_json("ctranslate2", folder)
        largest = measure_difference(loaded.model, str(folder), framing)
        if args.quantization == "float32" and not largest <= TOLERANCE:
            raise UserError(
                f"CTranslate2 does not reproduce {args.checkpoint}: outputs differ by "
                f"{largest:.1g}; nothing was written; please report the model's --arch and options"
            )
    print(
        f"wrote {args.out}: log-probabilities of random sentences differ by at most {largest:.1g}"
    )


def check_version(version: str) -> None:
    """Refuse a version of CTranslate2 that silently computes other scores."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:3]) < MIN_VERSION:
        raise UserError(
            f"CTranslate2 must be 4.8.3 or newer, but is {version}, which may use the first "
            "layer's position table in every layer: pip install 'ctranslate2>=4.8.3' here and "
            "where the model is used"
        )


def save_model(model: Any, folder: str, quantization: str, framing: Framing = PLAIN) -> None:
    """Write fairseq's model in CTranslate2's format to ``folder``."""
    spec: Any = build_specification(model)
    if framing.has_own_ends:  # the translator adds both to every sentence
        spec.config.add_source_eos, spec.config.decoder_start_token = False, None
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(folder)


@torch.inference_mode()
def measure_difference(model: Any, folder: str, framing: Framing = PLAIN) -> float:
    """The largest difference between the two models' log-probabilities, on random sentences."""
    source, target = model.encoder.dictionary, model.decoder.dictionary
    sources, targets = [
        random_sentences(
            torch.arange(words.nspecial, len(words)),
            [min(length, exact_length(stack) - 1) for length in LENGTHS],
            torch.Generator().manual_seed(seed),
            [words.eos()],
        )
        for words, stack, seed in ((source, model.encoder, 1), (target, model.decoder, 2))
    ]
    targets.reverse()
    previous = collate_tokens([sentence.roll(1) for sentence in targets], target.pad())  # (B, T)
    lengths = torch.tensor([len(sentence) for sentence in sources])
    out, _ = model(collate_tokens(sources, source.pad()), lengths, previous)  # (B, T, V)
    scores = out.log_softmax(dim=-1)

    translator = ctranslate2.Translator(folder, device="cpu", intra_threads=torch.get_num_threads())
    end, start = ([source.eos_word], [target.eos_word]) if framing.has_own_ends else ([], [])
    results = translator.score_batch(
        [[source[word] for word in sentence[:-1]] + end for sentence in sources],
        [start + [target[word] for word in sentence[:-1]] for sentence in targets],
        max_input_length=0,
    )
    actual = [number for result in results for number in result.log_probs]
    rows = zip(scores, targets, strict=True)
    expected = torch.cat([row[range(len(words)), words] for row, words in rows])
    return compare([(torch.tensor(actual), expected)])[0]
