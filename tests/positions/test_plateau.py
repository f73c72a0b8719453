"""Encoders learn more than the frequency of words from their start on."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from diet_fairseq.look.plateau import MARGIN, word_entropy
from diet_fairseq.positions import diet_abs
from tests.support.commands import log_lines, run

pytestmark = pytest.mark.slow

TEXT = Path(__file__).parents[2] / "examples" / "demo" / "data" / "train.en.gz"
#: 120 updates of two samples of 512 characters
TRAINING = (
    "--encoder-layers", 2, "--task", "masked_lm", "--criterion", "masked_lm",
    "--sample-break-mode", "complete", "--tokens-per-sample", 512, "--max-positions", 512,
    "--batch-size", 2, "--optimizer", "fused_adamw", "--adam-betas", "(0.9, 0.98)",
    "--lr", 0.003, "--lr-scheduler", "linear_ratio", "--warmup-ratio", 0.1, "--max-update", 120,
    "--num-workers", 0, "--no-save", "--log-format", "json", "--seed", 1,
)  # fmt: skip


@pytest.fixture(scope="module")
def characters(tmp_path_factory) -> Path:
    """English sentences as fairseq's data, each character a token."""
    folder = tmp_path_factory.mktemp("characters")
    with gzip.open(TEXT, "rt", encoding="utf-8") as lines:
        text = [" ".join(line.strip().lower().replace(" ", "_")) for line in lines]
    (folder / "train").write_text("\n".join(text[:-200]) + "\n")
    (folder / "valid").write_text("\n".join(text[-200:]) + "\n")
    done = run(
        "preprocess", "--only-source", "--trainpref", folder / "train",
        "--validpref", folder / "valid", "--destdir", folder / "data",
    )  # fmt: skip
    assert done.status == 0, done.err
    return folder / "data"


def space_frequencies_equally() -> None:
    diet_abs.wave_frequencies = lambda count: torch.pi * (torch.arange(count) + 0.5) / count


def lead_over_frequencies(
    data: Path, scheme: str, *options: object, first: Callable[[], None] | None = None
) -> float:
    """Nats by which the held-out loss is below the entropy of the characters' frequencies."""
    done = run("train", data, "--arch", f"roberta_{scheme}_tiny", *TRAINING, *options, first=first)
    assert done.status == 0, done.err
    [bits] = [float(line["valid_loss"]) for line in log_lines(done) if "valid_loss" in line]
    entropy = word_entropy(data / "dict.txt")
    assert entropy is not None
    return entropy - bits * torch.log(torch.tensor(2.0)).item()


@pytest.mark.parametrize("scheme", ["diet_abs", "tupe_a", "tupe_r"])
def test_an_encoder_learns_more_than_frequencies_in_120_updates(characters, scheme):
    assert lead_over_frequencies(characters, scheme) > MARGIN


@pytest.mark.parametrize(
    ("scheme", "options", "first"),
    [
        ("diet_abs", ("--position-peak", 3), space_frequencies_equally),
        ("tupe_a", ("--position-start", "blind"), None),
        ("tupe_r", ("--position-start", "blind", "--position-gain", 10), None),
    ],
)
def test_the_start_of_version_0_4_stays_at_frequencies(characters, scheme, options, first):
    assert lead_over_frequencies(characters, scheme, *options, first=first) < MARGIN
