"""What is seen in a model as rows of numbers: of the page's table, and of the files beside it."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..atomic import written
from . import measures
from .scores import Found

Row = dict[str, Any]


def heads(found: Found) -> list[Row]:
    """A row for every head that adds a score of positions; sorted by name, then by distance."""
    rows: list[Row] = []
    for one in found.positions:
        singular = measures.singular_values(one.matrix)
        ranks, effective = measures.rank(singular), measures.effective_rank(singular)
        weights = measures.attention(one.matrix, one.causal)
        explained = measures.shares(one.matrix, one.causal) if one.square else None
        for head in range(len(one.matrix)):
            row: Row = {"place": one.place, "layer": one.layer or "all", "head": head + 1}
            if len(one.matrix) == 1:
                row["head"] = "all"
            row["looks at"] = measures.name(weights[head], one.causal) if one.square else ""
            if one.square:
                row["distance"] = float(measures.mean_distance(weights[head]))
            row["entropy"] = float(measures.entropy(weights[head]))
            if explained is not None:
                row["offset share"] = float(explained.offset[head])
                row["first token share"] = float(explained.first[head])
                row["weight on first token"] = float(measures.first_share(weights[head]))
            row["rank"], row["rank at most"] = int(ranks[head]), one.rank
            row["effective rank"] = float(effective[head])
            rows.append(row)
    return sorted(rows, key=lambda row: (row["place"], row["looks at"], row.get("distance", 0.0)))


def whole(found: Found) -> list[Row]:
    """A row for every head's whole scores on the text."""
    return [
        {
            "place": one.place,
            "layer": one.layer,
            "head": head + 1,
            "distance": None if one.distance is None else float(one.distance[head]),
            "entropy": float(one.entropy[head]),
            "rank": float(one.rank[head]),
            "rank at most": one.bound,
            "effective rank": float(one.effective[head]),
        }
        for one in found.whole
        for head in range(len(one.rank))
    ]


def offsets(found: Found) -> Iterator[Row]:
    """The mean score at every offset j - i."""
    for one in found.positions:
        if not one.square:
            continue
        lines = measures.mean_of_offset(one.matrix)  # (H, 2 T - 1)
        tokens = one.matrix.size(-1)
        for head, line in enumerate(lines, 1):
            for place, score in enumerate(line.tolist(), 1 - tokens):
                if place <= 0 or not one.causal:
                    yield {"place": one.place, "layer": one.layer or "all", "head": head,
                           "offset": place, "score": score}  # fmt: skip


def singular(found: Found) -> Iterator[Row]:
    """Singular values, of positions' scores and of whole ones."""
    kinds: list[tuple[str, list[Any]]] = [
        ("positions", [(one, measures.singular_values(one.matrix)) for one in found.positions]),
        ("whole", [(one, one.singular) for one in found.whole]),
    ]
    for kind, items in kinds:
        for one, values in items:
            for head, line in enumerate(values, 1):
                for number, value in enumerate(line.tolist(), 1):
                    yield {"scores": kind, "place": one.place, "layer": one.layer or "all",
                           "head": head, "number": number, "value": value}  # fmt: skip


def matrices(found: Found) -> Iterator[Row]:
    """The scores of positions themselves: a row for every query, a column for every key."""
    for kind, items in (("positions", found.positions), ("two segments", found.segments)):
        for one in items:
            for head, matrix in enumerate(one.matrix, 1):
                for query, line in enumerate(matrix.tolist()):
                    row: Row = {"scores": kind, "place": one.place, "layer": one.layer or "all",
                                "head": head, "query": query}  # fmt: skip
                    yield row | {f"key {key}": score for key, score in enumerate(line)}


def cosines(found: Found) -> Iterator[Row]:
    """The cosine similarity of position embeddings at the input."""
    for name, rows in found.input.items():
        for position, line in enumerate(measures.cosines(rows).tolist()):
            row: Row = {"place": name, "position": position}
            yield row | {f"position {other}": cosine for other, cosine in enumerate(line)}


def median_cosine(rows: torch.Tensor) -> float:
    """Of all pairs of different positions."""
    found = measures.cosines(rows)
    above = torch.ones_like(found, dtype=torch.bool).triu(1)
    return float(found[above].median())


def write_all(found: Found, rows_of_heads: list[Row], folder: Path, prefix: str) -> list[str]:
    """The tables as CSV files; their names."""
    names = []
    for name, rows in (
        ("heads", rows_of_heads),
        ("text", whole(found)),
        ("offsets", list(offsets(found))),
        ("singular", list(singular(found))),
        ("scores", list(matrices(found))),
        ("cosines", list(cosines(found))),
    ):
        if not rows:
            continue
        columns = list(dict.fromkeys(column for row in rows for column in row))
        with written(folder / f"{prefix}{name}.csv") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({key: _short(value) for key, value in row.items()})
        names.append(f"{prefix}{name}.csv")
    return names


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value
