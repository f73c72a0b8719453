"""Translation by source length: BLEU and chrF of sentences in bins of several lengths."""

from collections.abc import Sequence
from itertools import pairwise

from tqdm import tqdm

from ..model_json import ModelDescription
from ..text.scores import score
from ..text.tokenizer import tokenizers
from ..translate.model_files import Pieces
from ..translate.translator import Translator
from .lengths import Curve
from .loaded_model import LoadedModel

METRICS = {"BLEU": "BLEU", "chrF": "chrF"}


def source_lengths(about: ModelDescription, lines: Sequence[tuple[str, str]]) -> list[int]:
    """The number of subwords in the source of each pair."""
    tokenizer, _ = tokenizers(about)
    return [len(tokenizer.encode(source)) for source, _ in lines]


def bins(lengths: Sequence[int], ends: Sequence[int]) -> dict[str, list[int]]:
    """Bins of lengths, such as "11-20" -> indices of their sources; one lies beyond all ends."""
    members = {}
    for low, high in pairwise([0, *ends, max([*lengths, ends[-1]])]):
        sources = [n for n, length in enumerate(lengths) if low < length <= high]
        if sources:
            members[f"{low + 1}-{high}"] = sources
    return members


def measure(
    model: LoadedModel, pieces: Pieces, lines: Sequence[tuple[str, str]],
    bins: dict[str, list[int]], beam: int | None,
) -> Curve:  # fmt: skip
    """The quality of a checkpoint at all lengths; all checkpoints have the same `bins`."""
    files = {key: value for key, value in vars(pieces).items() if value is not None}
    translator = Translator(model.path, **files)
    limit = min(model.limit, *model.task.max_positions())
    translator.longest = limit - 1  # without </s>; model.json's limit may be lower
    lengths = source_lengths(model.about, lines)
    curve = Curve(str(model.path), model.scheme, limit, {})
    for label, members in tqdm(bins.items(), desc=curve.name, unit=" lengths", disable=None):
        curve.points[label] = {}
        if max(lengths[n] for n in members) <= translator.longest:
            out = translator.translate([lines[n][0] for n in members], beam=beam)
            references = [lines[n][1] for n in members]
            curve.points[label] = score(out, references, pair=("", translator.target_lang))
    return curve
