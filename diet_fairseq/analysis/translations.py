"""Translation by source length: BLEU and chrF of sentences in bins of several lengths."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fairseq.data import data_utils
from tqdm import tqdm

from ..errors import UserError
from ..inference.model_files import DATA, LEVELS, Pieces
from ..inference.translator import Translator
from ..model_json import ModelDescription
from ..text.lines import read_pairs
from ..text.scores import score
from ..text.tokenizer import tokenizers
from .lengths import Curve, Point
from .loaded_model import LoadedModel


def pairs_to_translate(text: Path, reference: Path) -> list[tuple[str, str]]:
    """Pairs of source and reference, without those of which either is blank."""
    lines = [pair for pair in read_pairs(text, reference) if all(map(str.strip, pair))]
    if not lines:
        raise UserError(f"{text} has no line to translate: give another text")
    return lines


def source_lengths(about: ModelDescription, lines: Sequence[tuple[str, str]]) -> list[int]:
    """The number of subwords in the source of each pair."""
    tokenizer, _ = tokenizers(about)
    return [len(tokenizer.encode(source)) for source, _ in lines]


def bins(lengths: Sequence[int], ends: Sequence[int]) -> dict[tuple[int, int], list[int]]:
    """First and last length of each bin -> indices of its sources; one bin lies beyond all ends."""
    members: dict[tuple[int, int], list[int]] = {}
    for low, high in pairwise([0, *ends, max(*lengths, ends[-1])]):
        sources = [n for n, length in enumerate(lengths) if low < length <= high]
        if sources:
            members[low + 1, high] = sources
    return members


def measure(
    name: str, model: LoadedModel, pieces: Pieces, lines: Sequence[tuple[str, str]],
    bins: dict[tuple[int, int], list[int]], beam: int | None,
) -> Curve:  # fmt: skip
    """The quality of a checkpoint at all lengths; all checkpoints have the same `bins`."""
    files = {key: value for key, value in vars(pieces).items() if value is not None}
    translator = Translator(model.path, **files)
    limit = min(model.limit, *model.task.max_positions())
    translator.longest = limit - 1  # without </s>; model.json's limit may be lower
    model_lengths = source_lengths(model.about, lines)
    points, signatures = [], {}
    for (first, last), members in tqdm(bins.items(), desc=name, unit=" lengths", disable=None):
        values: dict[str, float] = {}
        if max(model_lengths[n] for n in members) <= translator.longest:
            out = translator.translate([lines[n][0] for n in members], beam=beam)
            scores = score(out, [lines[n][1] for n in members], pair=f"-{translator.target_lang}")
            values = {metric: scores[metric] for metric in ("BLEU", "chrF")}
            signatures = {metric: scores[f"{metric} signature"] for metric in values}
        points.append(Point(last, first, last, len(members), values))
    positions = max(model_lengths) + 1
    flag = f"--max-source-positions {positions} --max-target-positions {positions}"
    length = trained_length(model.about)
    return Curve(name, model.scheme, length, limit, flag, points, signatures=signatures)


def trained_length(about: ModelDescription) -> int | None:
    """The longest source in the training data, without </s>; None if the data is missing."""
    parents = (about.checkpoint or about.folder).absolute().parents[:LEVELS]
    name = f"train.{about.source_lang}-{about.target_lang}.{about.source_lang}"
    for folder in (about.data, *(parent / DATA for parent in parents)):
        dataset = folder and data_utils.load_indexed_dataset(str(folder / name))
        if dataset:
            return int(dataset.sizes.max()) - 1
    return None
