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


def test_offsets_count_tokens_where_a_mask_has_holes():
    layout = Layout.of_self_attention(mask("x..x xxxx"))
    assert layout.offsets[0][0, 3] == 1
    assert layout.offsets[1][0, 3] == 3
    line = torch.arange(-3, 4).unsqueeze(0)
    assert torch.equal(layout.expand_offsets(line)[:, 0], layout.offsets)


def test_without_holes_all_sentences_have_the_same_offsets():
    layout = Layout.of_self_attention(mask("..xx xxxx"))
    assert torch.equal(layout.offsets, layout.slot_offsets.unsqueeze(0))


@pytest.mark.parametrize("queries", [None, 1, 2])
def test_causal_attention_sees_no_later_slot_whatever_the_holes(queries):
    hidden = Layout.of_self_attention(mask("x.xx xxxx"), causal=True, queries=queries).mask
    expected = torch.ones(4, 4).triu(1).bool()[-(queries or 4) :]
    assert torch.equal(hidden[1, 0], expected)
    holes = mask("x.xx")[0].expand(4, 4) & ~torch.eye(4).bool()
    assert torch.equal(hidden[0, 0], expected | holes[-(queries or 4) :])


def test_the_last_keys_have_their_offsets_and_their_padding():
    last = Layout.of_self_attention(mask("xxxx. xxxxx"), queries=1).last_keys(2)
    assert last.offsets.tolist() == [[[-1, 0]]]
    assert last.padding_mask.tolist() == [[False, True], [False, False]]
