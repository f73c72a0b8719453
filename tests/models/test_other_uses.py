"""Recordings of our models, and tasks that need a decoder, are refused."""

import pytest
import torch

from diet_fairseq.errors import UserError
from tests.support import tiny
from tests.support.commands import TINY, run
from tests.support.tiny import Case

RECORDERS = {
    "trace": lambda model, inputs: torch.jit.trace(model, inputs, strict=False),
    "export": lambda model, inputs: torch.export.export(model, inputs, strict=False),
    "strict export": lambda model, inputs: torch.export.export(model, inputs, strict=True),
}
RECORDED = "torch.export, torch.jit.trace and ONNX record the operations of one batch, but models "


def inputs_of(model):
    source, target = tiny.padded(tiny.SOURCES, True), tiny.padded(tiny.TARGETS, False)
    lengths = torch.tensor([len(source) for source in tiny.SOURCES])
    return (source,) if tiny.is_encoder(model) else (source, lengths, target)


@pytest.mark.parametrize(
    ("case", "recorder"),
    [
        (Case("none"), "trace"),
        (Case("diet_rel"), "export"),
        (Case("none", family="roberta"), "strict export"),
    ],
    ids=str,
)
def test_recordings_are_refused(case, recorder):
    """The scheme `none` is refused, too: its computation depends on the padding."""
    model = tiny.model_of(case)
    # before 2.7 a model isn't told, and PyTorch refuses in words of its own
    told = recorder == "trace" or hasattr(torch.compiler, "is_exporting")
    with pytest.raises(Exception, match=RECORDED if told else "") as error:
        RECORDERS[recorder](model, inputs_of(model))
    assert isinstance(error.value, UserError) or recorder == "strict export" or not told


class Logits(torch.nn.Module):
    """A model whose output is one tensor, as recorders want it."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens):
        return self.decoder(tokens)[0]


def test_recordings_of_a_decoder_are_refused():
    decoder = tiny.model_of(Case("none")).decoder
    with pytest.raises(UserError, match=RECORDED):
        torch.jit.trace(Logits(decoder), (tiny.padded(tiny.TARGETS, False),))


@pytest.mark.slow
def test_an_encoder_refuses_to_translate(data):
    small = [flag for flag in TINY if not flag.startswith("--decoder")]
    end = ("--no-save", "--max-update", "1")
    done = run("train", data, *small, "--arch", "roberta_t5", *end)
    assert done.status == 1
    assert done.last == (
        "error: this task needs a decoder, which an encoder lacks: use --arch transformer_..."
    )
