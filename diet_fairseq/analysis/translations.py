"""A translation model's quality by length: BLEU and chrF of sources of several lengths."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from fairseq.data import data_utils

from ..errors import UserError
from ..inference.model_files import DATA, LEVELS, Pieces
from ..inference.translator import Translator
from ..model_json import ModelDescription
from ..text.lines import read_lines
from ..text.scores import score
from ..text.tokenizer import tokenizers
from .lengths import Point, Reading
from .loaded_model import Trained


def pairs(text: Path, reference: Path) -> list[tuple[str, str]]:
    """Lines and their references, without those of which either is blank.

    Raises:
        UserError: a file can't be read, they don't have as many lines, or none
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
    """How many subwords the source of each pair has."""
    tokenizer, _ = tokenizers(about)
    return [len(tokenizer.encode(source)) for source, _ in lines]


def bins(found: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """First and last length of each bin that some source is in: up to each end, and one beyond."""
    longest = max(found)
    edges = [0, *ends, *([longest] if longest > ends[-1] else [])]
    spans = [(low + 1, high) for low, high in pairwise(edges)]
    return [(low, high) for low, high in spans if any(low <= size <= high for size in found)]


def reading(
    name: str, model: Trained, pieces: Pieces, lines: Sequence[tuple[str, str]],
    lengths: Sequence[int], spans: Sequence[tuple[int, int]], beam: int | None,
) -> Reading:  # fmt: skip
    """One checkpoint at all lengths.

    Args:
        lengths: of the lines' sources, for all checkpoints the same
        spans: first and last length of each bin
    """
    given = {key: value for key, value in vars(pieces).items() if value is not None}
    translator = Translator(model.path, **given)
    limit = min(model.limit, *model.task.max_positions())
    translator.longest = limit - 1  # and </s>; model.json's limit is for use, and may be lower
    mine = sizes(model.about, lines)
    whole, signatures = [], {}
    for first, last in spans:
        inside = [n for n, length in enumerate(lengths) if first <= length <= last]
        values: dict[str, float] = {}
        if max(mine[n] for n in inside) <= translator.longest:
            out = translator.translate([lines[n][0] for n in inside], beam=beam)
            scores = score(out, [lines[n][1] for n in inside], pair=f"-{translator.target_lang}")
            values = {metric: scores[metric] for metric in ("BLEU", "chrF")}
            signatures = {metric: scores[f"{metric} signature"] for metric in values}
        whole.append(Point(last, first, last, len(inside), values))
    more = max(mine) + 1
    flag = f"--max-source-positions {more} --max-target-positions {more}"
    return Reading(
        name, model.scheme, trained_at(model.about), limit, flag, whole, signatures=signatures
    )


def trained_at(about: ModelDescription) -> int | None:
    """The longest source in the training data, without </s>; None: the data is not there."""
    above = (about.checkpoint or about.folder).absolute().parents[:LEVELS]
    for data in (about.data, *(folder / DATA for folder in above)):
        if data is None:
            continue
        pair = f"{about.source_lang}-{about.target_lang}"
        found = data_utils.load_indexed_dataset(str(data / f"train.{pair}.{about.source_lang}"))
        if found is not None and len(found):
            return int(found.sizes.max()) - 1
    return None
