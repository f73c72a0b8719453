"""The demo's report: scores, translations to look at, and a picture of the learned biases."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BIAS = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.self_attn\.positions\.weight")


@dataclass(frozen=True)
class Score:
    """How good the translations of one test are."""

    sentences: int
    bleu: float
    chrf: float
    exact: int  # translations that equal the reference
    bleu_signature: str
    chrf_signature: str


def score(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """sacreBLEU's BLEU and chrF."""
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(), CHRF()
    return Score(
        sentences=len(outputs),
        bleu=bleu.corpus_score(outputs, [references]).score,
        chrf=chrf.corpus_score(outputs, [references]).score,
        exact=sum(a == b for a, b in zip(outputs, references, strict=True)),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def write_scores(path: Path, scores: Mapping[str, Score]) -> None:
    path.write_text(json.dumps({name: asdict(s) for name, s in scores.items()}, indent=2) + "\n")


def read_scores(path: Path) -> dict[str, Score]:
    return {name: Score(**values) for name, values in json.loads(path.read_text()).items()}


def offset_biases(checkpoint: Path) -> dict[tuple[str, int], Any]:
    """The tables of DIET-REL in a checkpoint: (encoder or decoder, layer) -> (2 c + 1, heads)."""
    import torch

    with torch.serialization.safe_globals([argparse.Namespace]):
        model = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    return {
        (match[1], int(match[2])): weight.float().numpy()
        for name, weight in model.items()
        if (match := BIAS.fullmatch(name))
    }


def plot_offsets(checkpoint: Path, image: Path, reach: int) -> bool:
    """Draw R_{i-j} of every layer and head into a PNG; False if the checkpoint has none.

    ``reach`` is the largest offset shown. Query i stands i - j tokens after key j; a table's row
    r holds the bias of j - i = r - c.
    """
    biases = offset_biases(checkpoint)
    if not biases:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    layers = 1 + max(layer for _, layer in biases)
    sides = [side for side in ("encoder", "decoder") if any(s == side for s, _ in biases)]
    figure, axes = pyplot.subplots(
        len(sides),
        layers,
        figsize=(3.2 * layers, 2.6 * len(sides) + 0.6),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat:
        axis.set_visible(False)
    for (side, layer), weight in sorted(biases.items()):
        axis = axes[sides.index(side)][layer]
        axis.set_visible(True)
        clip = (len(weight) - 1) // 2
        shown = min(reach, clip)
        # A decoder never looks ahead: i - j >= 0.
        offsets = range(0 if side == "decoder" else -shown, shown + 1)
        for head, column in enumerate(weight.T):
            values = [column[clip - offset] for offset in offsets]
            axis.plot(offsets, values, linewidth=1, label=f"head {head + 1}")
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.set_title(f"{side}, layer {layer + 1}", fontsize=10)
        if side == sides[-1]:
            axis.set_xlabel("offset i - j")
        if layer == 0:
            axis.set_ylabel("bias $R_{i-j}$")
    axes[0][0].legend(fontsize=7)
    figure.suptitle("Learned offset biases: query i, key j; to the right of 0 the key came before")
    figure.savefig(image, format="png", dpi=120)
    pyplot.close(figure)
    return True


def samples(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str], count: int = 4
) -> list[tuple[str, str, str]]:
    """Some translations, from short to long, and the first wrong one."""
    rows = sorted(zip(sources, references, outputs, strict=True), key=lambda row: len(row[0]))
    chosen = [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(min(count, len(rows)))]
    wrong = [row for row in rows if row[1] != row[2] and row not in chosen]
    return chosen + wrong[:1]


def show(row: tuple[str, str, str]) -> str:
    """One translation; the reference is given only where the output differs."""
    source, reference, output = row
    if output == reference:
        return f"    source      {source}\n    output      {output}  (= reference)\n"
    return f"    source      {source}\n    reference   {reference}\n    output      {output}\n"
