"""A model's scores as rows of numbers, for the page's tables and the CSV files beside it."""

import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from ..atomic import atomic_file
from . import measures
from .scores import LogitStatistics, ModelScores, PositionScore

Row = dict[str, Any]


def place_of(item: PositionScore | LogitStatistics, **cells: Any) -> Row:
    return {"place": item.place, "layer": item.layer or "all", **cells}


def heads(scores: ModelScores) -> list[Row]:
    """A row for every head that adds a position score, sorted by name, then by distance."""
    rows: list[Row] = []
    for score in scores.positions:
        weights = measures.attention_weights(score.matrix, score.causal)
        shares = [
            share(score.matrix, score.causal)
            for share in (measures.offset_share, measures.first_token_share)
            if score.has_offsets
        ]
        for head, weight in enumerate(weights):
            row = place_of(score, head="all" if len(weights) == 1 else head + 1)
            row["looks at"] = ""
            if score.has_offsets:
                row["looks at"] = measures.name_head(weight, score.causal)
                row["distance"] = float(measures.mean_distance(weight))
            row["entropy"] = float(measures.entropy(weight))
            if score.has_offsets:
                row["offset share"], row["first token share"] = (float(s[head]) for s in shares)
                row["weight on first token"] = float(measures.first_token_weight(weight))
            row["rank"] = int(measures.rank(score.singular[head]))
            row["rank at most"] = score.rank
            row["effective rank"] = float(measures.effective_rank(score.singular[head]))
            rows.append(row)
    return sorted(rows, key=lambda row: (row["place"], row["looks at"], row.get("distance", 0.0)))


def logits(scores: ModelScores) -> list[Row]:
    """A row for every head's logits on the text."""
    return [
        place_of(
            item,
            head=head + 1,
            distance=None if item.distance is None else float(item.distance[head]),
            entropy=float(item.entropy[head]),
            rank=float(item.rank[head]),
        )
        | {"rank at most": item.bound, "effective rank": float(item.effective_rank[head])}
        for item in scores.logits
        for head in range(len(item.rank))
    ]


def logits_by_layer(scores: ModelScores) -> list[Row]:
    """The means of `logits` over the heads of each layer."""
    layers = []
    for (place, layer), group in groupby(logits(scores), lambda row: (row["place"], row["layer"])):
        rows = list(group)
        means = {
            name: sum(row[name] for row in rows) / len(rows)
            for name in ("distance", "entropy", "rank", "effective rank")
            if rows[0][name] is not None
        }
        layers.append(
            {"place": place, "layer": layer, "rank at most": rows[0]["rank at most"]} | means
        )
    return layers


def offsets(scores: ModelScores) -> Iterator[Row]:
    """The mean score at every offset j - i."""
    for score in scores.positions:
        if not score.has_offsets:
            continue
        tokens = score.matrix.size(-1)
        for head, line in enumerate(measures.mean_by_offset(score.matrix).tolist(), 1):
            for offset, value in enumerate(line, 1 - tokens):
                if offset <= 0 or not score.causal:
                    yield place_of(score, head=head, offset=offset, score=value)


def singular(scores: ModelScores) -> Iterator[Row]:
    """Singular values of position scores and of logits."""
    items: list[PositionScore | LogitStatistics] = [*scores.positions, *scores.logits]
    for item in items:
        kind = "positions" if isinstance(item, PositionScore) else "whole"
        for head, line in enumerate(item.singular.tolist(), 1):
            for number, value in enumerate(line, 1):
                yield {"scores": kind, **place_of(item, head=head, number=number, value=value)}


def matrices(scores: ModelScores) -> Iterator[Row]:
    """Position scores: a row for every query, a column for every key."""
    for kind, items in (("positions", scores.positions), ("two segments", scores.segments)):
        for score in items:
            for head, matrix in enumerate(score.matrix.tolist(), 1):
                for query, line in enumerate(matrix):
                    keys = {f"key {key}": value for key, value in enumerate(line)}
                    yield {"scores": kind, **place_of(score, head=head, query=query), **keys}


def cosines(scores: ModelScores) -> Iterator[Row]:
    """Cosine similarities of position embeddings at the input."""
    for place, embeddings in scores.embeddings.items():
        for position, line in enumerate(measures.cosines(embeddings).tolist()):
            columns = {f"position {number}": cosine for number, cosine in enumerate(line)}
            yield {"place": place, "position": position, **columns}


def median_cosine(embeddings: torch.Tensor) -> float:
    """The median cosine similarity of embeddings (T, d) of different positions."""
    return float(measures.upper_triangle(measures.cosines(embeddings)).median())


def write_all(scores: ModelScores, head_rows: list[Row], folder: Path, prefix: str) -> None:
    """Write every table that has rows as ``PREFIXNAME.csv``."""
    for name, rows in (
        ("heads", head_rows),
        ("text", logits(scores)),
        ("offsets", list(offsets(scores))),
        ("singular", list(singular(scores))),
        ("scores", list(matrices(scores))),
        ("cosines", list(cosines(scores))),
    ):
        if rows:
            write_csv(folder / f"{prefix}{name}.csv", rows)


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write rows with the union of their columns; floats have five digits."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with atomic_file(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value
                             for key, value in row.items()})  # fmt: skip
