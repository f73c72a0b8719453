"""Translation quality by source length: BLEU and chrF in bins of source lengths."""

from collections.abc import Sequence
from itertools import pairwise

from tqdm import tqdm

from ..text.scores import score
from ..translate.loading import LoadedModel
from ..translate.model_files import ModelOptions
from ..translate.model_json import ModelDescription
from ..translate.translator import Translator
from .lengths import Curve

METRICS = {"BLEU": "BLEU", "chrF": "chrF"}


def source_lengths(description: ModelDescription, lines: Sequence[tuple[str, str]]) -> list[int]:
    """The number of subwords in the source of each pair."""
    tokenizer, _ = description.tokenizers
    return [len(tokenizer.encode(source)) for source, _ in lines]


def length_bins(lengths: Sequence[int], ends: Sequence[int]) -> dict[str, list[int]]:
    """Bins of lengths, such as "11-20" -> indices of their sources.

    Args:
        lengths: length of each source
        ends: largest length of each bin, ascending; a further bin has all longer sources
    """
    members = {}
    for low, high in pairwise([0, *ends, max([*lengths, ends[-1]])]):
        sources = [n for n, length in enumerate(lengths) if low < length <= high]
        if sources:
            members[f"{low + 1}-{high}"] = sources
    return members


def measure_translations(
    model: LoadedModel, options: ModelOptions, lines: Sequence[tuple[str, str]],
    bins: dict[str, list[int]], beam: int | None,
) -> Curve:  # fmt: skip
    """The quality of a checkpoint in each of the `length_bins`, which all checkpoints share."""
    translator = Translator(model.path, **vars(options), split_sentences=False)
    limit = min(model.max_positions, *model.task.max_positions())
    translator.max_source_length = limit - 1  # without </s>; model.json's limit may be lower
    lengths = source_lengths(model.description, lines)
    curve = Curve(str(model.path), model.scheme, limit, {})
    for label, members in tqdm(bins.items(), desc=curve.name, unit=" lengths", disable=None):
        curve.points[label] = {}
        if max(lengths[n] for n in members) <= translator.max_source_length:
            out = translator.translate([lines[n][0] for n in members], beam=beam)
            references = [lines[n][1] for n in members]
            curve.points[label] = score(out, references, pair=("", translator.target_lang))
    return curve
