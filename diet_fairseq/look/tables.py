"""A model's scores as table rows, for the HTML page and the CSV files."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import measures
from .scores import LogitStatistics, ModelScores, PositionScore

Row = dict[str, Any]


def place_columns(item: PositionScore | LogitStatistics, **cells: Any) -> Row:
    """A row with the place and the layer of an attention, and further cells."""
    return {"place": item.place, "layer": item.layer or "all", **cells}


def head_rows(scores: ModelScores) -> list[Row]:
    """A row for every head with a position score, sorted by place, name and mean distance."""
    rows: list[Row] = []
    for score in scores.positions:
        weights = measures.attention_weights(score.matrix, score.causal)  # (H, T, S)
        columns = measures.head_measures(weights, score.singular, score.has_offsets)
        names = [""] * len(weights)
        if score.has_offsets:
            names = [measures.name_head(weight, score.causal) for weight in weights]
            columns["offset share"] = measures.offset_share(score.matrix, score.causal)
            columns["weight on first token"] = measures.first_token_weight(weights)
        for head, name in enumerate(names):
            row = place_columns(score, head="all" if len(weights) == 1 else head + 1)
            row |= {"looks at": name, "rank at most": score.rank}
            rows.append(row | {column: values[head].item() for column, values in columns.items()})
    return sorted(rows, key=lambda row: (row["place"], row["looks at"], row.get("distance", 0.0)))


def logit_rows(scores: ModelScores) -> Iterator[Row]:
    """Statistics of every head's logits on the text."""
    for item in scores.logits:
        for head in range(len(item.singular)):
            values = {name: value[head].item() for name, value in item.columns.items()}
            yield place_columns(item, head=head + 1) | values | {"rank at most": item.bound}


def offset_rows(scores: ModelScores) -> Iterator[Row]:
    """The mean score at every offset j - i."""
    for score in scores.positions:
        if not score.has_offsets:
            continue
        tokens = score.matrix.size(-1)
        for head, line in enumerate(measures.mean_by_offset(score.matrix).tolist(), 1):
            for offset, value in enumerate(line, 1 - tokens):
                if offset <= 0 or not score.causal:
                    yield place_columns(score, head=head, offset=offset, score=value)


def matrix_rows(scores: ModelScores) -> Iterator[Row]:
    """Position scores: a row for every query, a column for every key."""
    for kind, items in (("positions", scores.positions), ("two segments", scores.segments)):
        for score in items:
            for head, matrix in enumerate(score.matrix.tolist(), 1):
                for query, line in enumerate(matrix):
                    keys = {f"key {key}": value for key, value in enumerate(line)}
                    yield {"scores": kind, **place_columns(score, head=head, query=query), **keys}


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write rows with the union of their columns; floats have five significant digits."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value
                             for key, value in row.items()})  # fmt: skip
