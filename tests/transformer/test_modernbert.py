"""Layers of two kinds beside transformers' ModernBERT, with its default options."""

import torch
from torch import nn

from diet_fairseq.positions.layout import Layout
from diet_fairseq.transformer import Encoder, StackConfig
from tests.support import mutants
from tests.support.modeling import import_modeling

modernbert = import_modeling("modernbert")
LAYERS, LENGTH, PAD = 7, 200, 1
#: the options of docs/schemes.md
OPTIONS = {"position_layers": "gll", "position_window": 64, "position_global_base": 160000.0}


def build():
    """transformers' model with ModernBERT's positions and windows, and our encoder."""
    torch.manual_seed(1)
    config = modernbert.ModernBertConfig(
        vocab_size=20, hidden_size=16, intermediate_size=16, num_hidden_layers=LAYERS,
        num_attention_heads=2, pad_token_id=PAD, bos_token_id=0, cls_token_id=0, eos_token_id=2,
        sep_token_id=2, attn_implementation="eager",
    )  # fmt: skip
    sizes = {"layers": LAYERS, "embed_dim": 16, "heads": 2}
    ours = StackConfig.for_encoder("rope", position_options=OPTIONS, **sizes)
    return modernbert.ModernBertModel(config).eval(), Encoder(ours, nn.Embedding(20, 16)).eval()


@torch.no_grad()
def check_visibility(_=None):
    theirs, ours = build()
    tokens = torch.randint(4, 20, (2, LENGTH))
    tokens[1, 150:] = PAD
    real = tokens.ne(PAD)
    expected = theirs(tokens, attention_mask=real.long(), output_attentions=True).attentions
    weights = ours.encode(tokens, need_weights=range(LAYERS)).weights
    assert len(weights) == len(expected) == LAYERS
    for computed, theirs_of_layer in zip(weights.values(), expected, strict=True):
        for b in range(2):
            seen, visible = (x[b].gt(0)[:, real[b]] for x in (computed, theirs_of_layer))
            assert torch.equal(seen, visible)


def test_every_layer_sees_the_tokens_that_modernbert_s_layer_sees():
    check_visibility()


def check_bases(_=None):
    theirs, ours = build()
    contexts = ours.create_contexts(Layout.without_padding(9, torch.device("cpu")), 1)
    for layer, kind, context in zip(ours.layers, theirs.config.layer_types, contexts, strict=True):
        [scheme] = layer.self_attn.layer_schemes() or context.shared
        expected = getattr(theirs.rotary_emb, f"{kind}_inv_freq")
        torch.testing.assert_close(torch.tensor(scheme.frequencies), expected)


def test_every_layer_rotates_as_modernbert_s_layer():
    check_bases()


MUTANTS: mutants.Table = [
    (check_visibility, mutants.a_window_one_token_wider, None),
    (check_visibility, mutants.a_pattern_that_begins_one_layer_later, None),
    (check_bases, mutants.layers_of_both_kinds_share_one_scheme, None),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
