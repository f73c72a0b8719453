"""``--finetune-from-model`` with two processes starts both from the same parameters."""

import json
import re

import pytest

from tests.support.commands import TINY, run, together

pytestmark = pytest.mark.slow

RUN = (
    *("--max-update", 3, "--dropout", 0, "--batch-size", 4, "--required-batch-size-multiple", 1),
    *("--seed", 1, "--clip-norm", 0.5, "--disable-validation"),
)
#: architectures with options, before and after
STARTS = {
    "stock to tupe_r": (
        ("transformer",),
        ("transformer_tupe_r_tiny", "--position-input", "sinusoidal"),
    ),
    "diet_rel to more offsets": (
        ("transformer_diet_rel_tiny", "--position-clip", 4),
        ("transformer_diet_rel_tiny", "--position-clip", 6),
    ),
}


def losses(done):
    """Losses and norms of gradients of all updates, as printed."""
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    return [(line["num_updates"], line["loss"], line["gnorm"]) for line in lines if "loss" in line]


def report(done):
    """The log's lines about the start."""
    lines = re.findall(
        r"(?:warm start|position parameters are not|position tables|offset tables).*", done.text
    )
    return sorted(set(lines))


@pytest.mark.parametrize("name", STARTS)
def test_two_processes_start_as_one_that_accumulates_two_batches(data, tmp_path, name):
    before, after = STARTS[name]
    done = run("train", data, *TINY, *RUN, "--arch", *before, "--save-dir", tmp_path / "before")
    assert done.status == 0, done.err
    start = ("--finetune-from-model", tmp_path / "before" / "checkpoint_last.pt")
    words = (data, *TINY, *RUN, "--arch", *after, *start)
    alone = run("train", *words, "--update-freq", 2, "--save-dir", tmp_path / "alone")
    assert alone.status == 0, alone.err
    both = together(*words, "--save-dir", tmp_path / "both")
    assert [process.status for process in both] == [0, 0], both[0].err + both[1].err
    printed = next(process for process in both if losses(process))  # the first process prints
    assert losses(printed) == losses(alone)
    assert len(losses(alone)) == 3
    assert report(printed) == report(alone)
    assert report(alone)
