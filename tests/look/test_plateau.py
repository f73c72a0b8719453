"""The warning about encoders that predict masked words by their frequencies alone."""

import math

import pytest
import torch

from diet_fairseq.look import report
from diet_fairseq.look.plateau import can_show_plateau, describe_plateau, word_entropy
from diet_fairseq.look.scores import look
from diet_fairseq.look.windows import read_windows
from diet_fairseq.translate.loading import load_transformer
from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions, resolve_model
from tests.support import hugging


@pytest.fixture
def dictionary(tmp_path):
    """A function that writes a dictionary and returns its path."""

    def write(*lines):
        (tmp_path / "dict.txt").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "dict.txt"

    return write


def test_the_entropy_is_of_the_counts(dictionary):
    lines = ("a 4", "b 2", "c 1", "<s> 1 #fairseq:overwrite", "madeupword0000 0")
    # -(1/2 log 1/2 + 1/4 log 1/4 + 2 * 1/8 log 1/8) = 1.75 log 2
    assert word_entropy(dictionary(*lines)) == pytest.approx(1.75 * math.log(2))


@pytest.mark.parametrize(
    "lines", [[], ["a 1", "b 1", "madeupword0000 0"], ["a 5", "b"], ["a 0", "b 0"], ["a 2", "b x"]]
)
def test_counts_that_are_not_frequencies_have_no_entropy(dictionary, lines):
    assert word_entropy(dictionary(*lines)) is None


@pytest.mark.parametrize(
    ("update", "updates", "expected"), [(79, 400, False), (80, 400, True), (80, 0, False)]
)
def test_a_plateau_shows_after_a_fifth_of_the_updates(update, updates, expected):
    assert can_show_plateau(update, updates) == expected


@pytest.mark.parametrize(
    ("positions", "advice"),
    [
        (
            {"scheme": "t5", "start": "local", "peak": 6.0},
            "raise --position-peak above 6, lower the learning rate or lengthen the warm-up",
        ),
        (
            {"scheme": "t5", "start": "blind", "peak": 3.0},
            "use --position-start local, lower the learning rate or lengthen the warm-up",
        ),
        (
            {"scheme": "rope", "start": None, "peak": None},
            "lower the learning rate or lengthen the warm-up",
        ),
        ({}, "lower the learning rate or lengthen the warm-up"),  # stock fairseq
    ],
)
def test_the_advice_fits_the_scheme(positions, advice):
    text = describe_plateau(6.9, 6.76, 800, 4000, positions)
    assert text == (
        "positions have not been learned: after 800 of 4,000 updates the held-out loss must be at "
        f"least 0.4 nats below the entropy of the words' frequencies, 6.76 nats, but is 6.90: "
        f"{advice}"
    )


@pytest.mark.parametrize(
    ("loss", "scheme", "expected"),
    [
        (6.4, "rope", True),
        (6.3, "rope", False),
        (math.nan, "rope", False),
        (6.9, "none", False),  # has no positions to learn
    ],
)
def test_a_loss_near_the_entropy_is_a_plateau(loss, scheme, expected):
    assert bool(describe_plateau(loss, 6.76, 800, 4000, {"scheme": scheme})) == expected


# --- look ---------------------------------------------------------------------------------------


@pytest.fixture
def facts(tmp_path):
    """A function that returns the facts of the page about an encoder with this held-out loss."""
    path = hugging.checkpoint(tmp_path, "roberta_t5", "masked_lm", tokens_per_sample=16)
    file = tmp_path / "data-bin" / "dict.txt"
    words = [line.partition(" ")[0] for line in file.read_text().splitlines()]
    state = torch.load(path, weights_only=False)  # this test wrote it

    def page_facts(bits, updates=100, criterion="masked_lm", counts=lambda rank: 1000 // rank):
        lines = (f"{word} {counts(rank)}\n" for rank, word in enumerate(words, 1))
        file.write_text("".join(lines))
        state["cfg"]["criterion"] = {"_name": criterion, "tpu": False}
        state["cfg"]["optimization"]["max_update"] = 400
        state["optimizer_history"][-1]["num_updates"] = updates
        state["extra_state"]["val_loss"] = bits
        torch.save(state, path)
        options = ModelOptions(subwords=NO_SUBWORDS)
        model = load_transformer(resolve_model(path, options, translates=False))
        scores = look(model, read_windows(model, 12))
        return report.list_facts(report.Analysis(model, "random words", scores))

    return page_facts


def test_look_names_a_plateau(facts):
    page = facts(5.6)
    assert page["held-out loss"] == "3.88 nats"
    assert page["warning"] == (
        "positions have not been learned: after 100 of 400 updates the held-out loss must be at "
        "least 0.4 nats below the entropy of the words' frequencies, 3.57 nats, but is 3.88: "
        "raise --position-peak above 6, lower the learning rate or lengthen the warm-up"
    )


def test_look_has_no_warning_about_a_model_that_has_learned(facts):
    page = facts(4.0)
    assert page["held-out loss"] == "2.77 nats"
    assert "warning" not in page


@pytest.mark.parametrize(
    ("bits", "others", "shown"),
    [
        (None, {}, False),
        (5.6, {"criterion": "electra"}, False),
        (5.6, {"counts": lambda rank: 1}, True),
        (5.6, {"updates": 79}, True),
    ],
    ids=["without validation", "another criterion", "equal counts", "early"],
)
def test_look_has_no_warning_without_a_loss_that_can_be_compared(facts, bits, others, shown):
    page = facts(bits, **others)
    assert ("held-out loss" in page) == shown
    assert "warning" not in page
