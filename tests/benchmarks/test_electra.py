"""ELECTRA's step is measured against one of the same encoder."""

from benchmarks import electra
from benchmarks.harness import Timing


def test_both_steps_have_the_same_encoder():
    masked, pretrained = electra.trainers("tupe_r", "small", 16).values()
    ours, theirs = (
        {
            name: value.shape
            for name, value in trainer.model.encoder.sentence_encoder.state_dict().items()
        }
        for trainer in (masked, pretrained)
    )
    assert ours == theirs
    assert pretrained.model.generator is not None


def test_a_line_has_the_medians_of_the_rounds_and_their_spread():
    seconds = {
        "masked LM": [1.0, 2.0, 1.0],
        "ELECTRA": [1.5, 2.5, 2.0],
        "its generator": [0.3, 1.0, 0.2],
    }
    timings = [
        Timing(name, rounds, [b / s for b, s in zip(seconds["masked LM"], rounds, strict=True)])
        for name, rounds in seconds.items()
    ]
    assert electra.line("tiny, n = 128", timings) == (
        "| tiny, n = 128 | 1.00 s | 2.00 s | 1.50 (1.25 to 2.00) | 0.20 (0.10 to 0.40) |"
    )
