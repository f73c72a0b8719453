"""A translation model's quality by length: BLEU and chrF of sources of several lengths."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fairseq.data import data_utils
from tqdm import tqdm

from ..errors import UserError
from ..inference.model_files import DATA, LEVELS, Pieces
from ..inference.translator import Translator
from ..model_json import ModelDescription
from ..text.lines import read_lines
from ..text.scores import score
from ..text.tokenizer import tokenizers
from .lengths import Point, Reading
from .loaded_model import LoadedModel


def pairs(text: Path, reference: Path) -> list[tuple[str, str]]:
    """Pairs of source and reference, without those of which either is blank.

    Raises:
        UserError: a file can't be read, the numbers of lines differ, or no pair is left
    """
    sources, references = list(read_lines(text)), list(read_lines(reference))
    if len(sources) != len(references):
        raise UserError(
            f"{text} has {len(sources):,} lines, but {reference} has {len(references):,}: give the "
            "translations of its lines"
        )
    lines = [
        (source, target)
        for source, target in zip(sources, references, strict=True)
        if source.strip() and target.strip()
    ]
    if not lines:
        raise UserError(f"{text} has no line to translate: give another text")
    return lines


def sizes(about: ModelDescription, lines: Sequence[tuple[str, str]]) -> list[int]:
    """The number of subwords in the source of each pair."""
    tokenizer, _ = tokenizers(about)
    return [len(tokenizer.encode(source)) for source, _ in lines]


def bins(sizes: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """First and last length of each bin with sources: up to each end, and one beyond."""
    longest = max(sizes)
    edges = [0, *ends, *([longest] if longest > ends[-1] else [])]
    spans = [(low + 1, high) for low, high in pairwise(edges)]
    return [(low, high) for low, high in spans if any(low <= size <= high for size in sizes)]


def reading(
    name: str, model: LoadedModel, pieces: Pieces, lines: Sequence[tuple[str, str]],
    lengths: Sequence[int], spans: Sequence[tuple[int, int]], beam: int | None,
) -> Reading:  # fmt: skip
    """One checkpoint at all lengths.

    Args:
        lengths: subwords in the source of each line, the same for all checkpoints
        spans: first and last length of each bin
    """
    files = {key: value for key, value in vars(pieces).items() if value is not None}
    translator = Translator(model.path, **files)
    limit = min(model.limit, *model.task.max_positions())
    translator.longest = limit - 1  # without </s>; model.json's limit may be lower
    model_sizes = sizes(model.about, lines)
    whole, signatures = [], {}
    for first, last in tqdm(spans, desc=name, unit=" lengths", disable=None):
        inside = [n for n, length in enumerate(lengths) if first <= length <= last]
        values: dict[str, float] = {}
        if max(model_sizes[n] for n in inside) <= translator.longest:
            out = translator.translate([lines[n][0] for n in inside], beam=beam)
            scores = score(out, [lines[n][1] for n in inside], pair=f"-{translator.target_lang}")
            values = {metric: scores[metric] for metric in ("BLEU", "chrF")}
            signatures = {metric: scores[f"{metric} signature"] for metric in values}
        whole.append(Point(last, first, last, len(inside), values))
    positions = max(model_sizes) + 1
    flag = f"--max-source-positions {positions} --max-target-positions {positions}"
    return Reading(
        name, model.scheme, trained_at(model.about), limit, flag, whole, signatures=signatures
    )


def trained_at(about: ModelDescription) -> int | None:
    """The longest source in the training data, without </s>; None if the data is missing."""
    parents = (about.checkpoint or about.folder).absolute().parents[:LEVELS]
    name = f"train.{about.source_lang}-{about.target_lang}.{about.source_lang}"
    for folder in (about.data, *(parent / DATA for parent in parents)):
        dataset = folder and data_utils.load_indexed_dataset(str(folder / name))
        if dataset:
            return int(dataset.sizes.max()) - 1
    return None
