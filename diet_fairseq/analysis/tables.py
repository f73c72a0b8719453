"""A model's scores as rows of numbers, for the page's tables and the CSV files beside it."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..atomic import atomic_file
from . import measures
from .scores import ModelScores, Scores, Whole

Row = dict[str, Any]


def heads(scores: ModelScores) -> list[Row]:
    """A row for every head that adds a score of positions, sorted by name, then by distance."""
    rows: list[Row] = []
    for item in scores.positions:
        singular = measures.singular_values(item.matrix)
        ranks, effective = measures.rank(singular), measures.effective_rank(singular)
        weights = measures.attention(item.matrix, item.causal)
        shares = measures.shares(item.matrix, item.causal) if item.square else None
        for head, weight in enumerate(weights):
            row: Row = {"place": item.place, "layer": item.layer or "all"}
            row |= {"head": "all" if len(weights) == 1 else head + 1, "looks at": ""}
            if shares is not None:
                row["looks at"] = measures.name(weight, item.causal)
                row["distance"] = float(measures.mean_distance(weight))
            row["entropy"] = float(measures.entropy(weight))
            if shares is not None:
                row["offset share"] = float(shares.offset[head])
                row["first token share"] = float(shares.first[head])
                row["weight on first token"] = float(measures.first_share(weight))
            row["rank"], row["rank at most"] = int(ranks[head]), item.rank
            row["effective rank"] = float(effective[head])
            rows.append(row)
    return sorted(rows, key=lambda row: (row["place"], row["looks at"], row.get("distance", 0.0)))


def whole(scores: ModelScores) -> list[Row]:
    """A row for every head's whole scores on the text."""
    return [
        {
            "place": item.place,
            "layer": item.layer,
            "head": head + 1,
            "distance": None if item.distance is None else float(item.distance[head]),
            "entropy": float(item.entropy[head]),
            "rank": float(item.rank[head]),
            "rank at most": item.bound,
            "effective rank": float(item.effective[head]),
        }
        for item in scores.whole
        for head in range(len(item.rank))
    ]


def offsets(scores: ModelScores) -> Iterator[Row]:
    """The mean score at every offset j - i."""
    for item in scores.positions:
        if not item.square:
            continue
        lines = measures.mean_of_offset(item.matrix)  # (H, 2 T - 1)
        tokens = item.matrix.size(-1)
        for head, line in enumerate(lines, 1):
            for offset, score in enumerate(line.tolist(), 1 - tokens):
                if offset <= 0 or not item.causal:
                    yield {"place": item.place, "layer": item.layer or "all", "head": head,
                           "offset": offset, "score": score}  # fmt: skip


def singular(scores: ModelScores) -> Iterator[Row]:
    """Singular values of position scores and of whole scores."""
    items: list[Scores | Whole] = [*scores.positions, *scores.whole]
    for item in items:
        if isinstance(item, Whole):
            kind, values = "whole", item.singular
        else:
            kind, values = "positions", measures.singular_values(item.matrix)
        for head, line in enumerate(values, 1):
            for number, value in enumerate(line.tolist(), 1):
                yield {"scores": kind, "place": item.place, "layer": item.layer or "all",
                       "head": head, "number": number, "value": value}  # fmt: skip


def matrices(scores: ModelScores) -> Iterator[Row]:
    """Position scores: a row for every query, a column for every key."""
    for kind, items in (("positions", scores.positions), ("two segments", scores.segments)):
        for item in items:
            for head, matrix in enumerate(item.matrix, 1):
                for query, line in enumerate(matrix.tolist()):
                    row: Row = {"scores": kind, "place": item.place, "layer": item.layer or "all",
                                "head": head, "query": query}  # fmt: skip
                    yield row | {f"key {key}": score for key, score in enumerate(line)}


def cosines(scores: ModelScores) -> Iterator[Row]:
    """Cosine similarities of position embeddings at the input."""
    for place, embeddings in scores.input.items():
        for position, line in enumerate(measures.cosines(embeddings).tolist()):
            row: Row = {"place": place, "position": position}
            yield row | {f"position {other}": cosine for other, cosine in enumerate(line)}


def median_cosine(embeddings: torch.Tensor) -> float:
    """The median cosine similarity of embeddings (T, d) of different positions."""
    return float(measures.pairs(measures.cosines(embeddings)).median())


def write_all(scores: ModelScores, head_rows: list[Row], folder: Path, prefix: str) -> None:
    """Write every table that has rows as ``PREFIXNAME.csv``."""
    for name, rows in (
        ("heads", head_rows),
        ("text", whole(scores)),
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
