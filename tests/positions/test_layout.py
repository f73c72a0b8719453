"""The layout of one attention call: where padding stands, and what offsets count."""

import pytest
import torch

from diet_fairseq.positions.layout import Layout, padding_flags

#: sentences of one batch, x a token and . padding -> padded, padded before a token, with a hole
MASKS = {
    "xxx": (False, False, False),
    "xx.": (True, False, False),
    ".xx": (True, True, False),
    ".x.": (True, True, False),
    "...": (True, False, False),
    "x.x": (True, True, True),
    ".x.x": (True, True, True),
    "x.x.x.": (True, True, True),
    "xxx .xx ...": (True, True, False),
    "... x.x": (True, True, True),
}


def mask(text):
    return torch.tensor([[slot == "." for slot in sentence] for sentence in text.split()])


@pytest.mark.parametrize("text", MASKS)
def test_holes_are_told_from_padding_at_the_ends(text):
    assert padding_flags(mask(text)) == MASKS[text]
    with pytest.MonkeyPatch.context() as patch:  # all at once, as on a GPU
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert padding_flags(mask(text)) == MASKS[text]


def test_without_holes_all_sentences_have_the_same_offsets():
    layout = Layout.of_self_attention(mask("..xx xxxx"))
    assert torch.equal(layout.offsets, layout.slot_offsets.unsqueeze(0))
