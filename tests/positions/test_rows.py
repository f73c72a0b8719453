"""Schemes of rows and of logits beside models that others wrote, with their weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from diet_fairseq.attention.backends.call import CallShape
from diet_fairseq.attention.backends.choice import select_backend
from diet_fairseq.attention.context import Context
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.positions.deberta import log_bucket_rows
from diet_fairseq.positions.layout import Layout
from diet_fairseq.transformer import PositionalAttention
from tests.support import tiny
from tests.support.modeling import import_modeling

HEADS, WIDTH, LENGTH = 3, 4, 40
DIM = HEADS * WIDTH

close = torch.testing.assert_close


def attention_of(name: str, causal: bool = False, **options: Any) -> PositionalAttention:
    """An attention whose scheme has random parameters, and whose W^O changes nothing."""
    limit = Limit(LENGTH, "--max-positions")
    shape = AttentionShape(HEADS, WIDTH, DIM, limit, limit, causal=causal)
    scheme = SCHEMES[name].create(shape, **options)
    module = PositionalAttention(DIM, HEADS, positions=scheme).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
        module.out_proj.weight.copy_(torch.eye(DIM))
        module.out_proj.bias.zero_()
    return module


def output(module: PositionalAttention, x: Tensor, causal: bool = False, **where: Any) -> Tensor:
    """(B, T, d) -> (B, T, d), without padding."""
    layout = Layout.of_self_attention(torch.zeros(x.shape[:2]).bool(), causal)
    x = x.transpose(0, 1)
    out, _ = module(x, Context(layout, **where))
    return out.transpose(0, 1)


def split(x: Tensor) -> Tensor:
    """(B, T, d) -> (T, B, H, d_h), as XLNet has it."""
    return x.transpose(0, 1).unflatten(-1, (HEADS, WIDTH))


# --- Transformer-XL --------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
def test_transformer_xl_is_the_relative_attention_of_xlnet(causal):
    xlnet = import_modeling("xlnet")
    config = xlnet.XLNetConfig(
        vocab_size=4, d_model=DIM, n_head=HEADS, n_layer=1, d_inner=4, dropout=0.0
    )
    model = xlnet.XLNetModel(config).eval()
    module, x = attention_of("transformer_xl", causal), tiny.vectors(2, LENGTH, DIM)
    scheme: Any = module.positions
    core = model.layer[0].rel_attn
    core.r_w_bias.copy_(scheme.u[:, 0])
    core.r_r_bias.copy_(scheme.v[:, 0])
    r = model.relative_positional_encoding(LENGTH, LENGTH, bsz=2)  # (2 T, B, d)
    q, k, v = (split(project(x)) for project in (module.q_proj, module.k_proj, module.v_proj))
    rows = scheme.r_proj(r).unflatten(-1, (HEADS, WIDTH))
    mask = torch.ones(LENGTH, LENGTH).triu(1)[:, :, None, None] if causal else None
    expected = core.rel_attn_core(q, k, v, rows, attn_mask=mask)  # (T, B, H, d_h)
    close(output(module, x, causal), expected.flatten(2).transpose(0, 1), **tiny.TOLERANCE)


# --- DeBERTa ---------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("share", [True, False], ids=["share_att_key", "own_projections"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(16, 24), (8, 6), (256, 512), (5, 4)])
def test_deberta_is_the_disentangled_attention_of_v2(share, buckets, max_distance):
    """v2's biases of W_Q and W_K for P are zero here, as ours are left out."""
    v2 = import_modeling("deberta_v2")
    config = v2.DebertaV2Config(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        share_att_key=share,
        position_buckets=buckets,
        max_relative_positions=max_distance,
    )
    core = v2.DisentangledSelfAttention(config).eval()
    module = attention_of("deberta", buckets=buckets, max_distance=max_distance)
    scheme, x = module.positions, tiny.vectors(2, LENGTH, DIM)
    if share:
        module.q_proj.bias.zero_()
        module.k_proj.bias.zero_()
    else:
        for name, projection in (("pos_key", module.k_proj), ("pos_query", module.q_proj)):
            getattr(core, f"{name}_proj").weight.copy_(projection.weight)
            getattr(core, f"{name}_proj").bias.zero_()
    for name in ("query", "key", "value"):
        getattr(core, f"{name}_proj").load_state_dict(
            getattr(module, f"{name[0]}_proj").state_dict()
        )
    mask = torch.ones(2, 1, LENGTH, LENGTH)
    expected, _ = core(x, mask, rel_embeddings=scheme.norm(scheme.table))
    close(output(module, x), expected, **tiny.TOLERANCE)


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(256, 512), (32, 128), (8, 6), (4, 5), (50, 300), (5, 4), (7, 30), (33, 512)],
)
def test_deberta_s_rows_are_those_of_v2_s_log_buckets(buckets, max_distance):
    v2 = import_modeling("deberta_v2")
    rows = log_bucket_rows(buckets, max_distance)
    farthest = len(rows) // 2
    assert farthest == max_distance or buckets % 2
    offsets = torch.arange(-farthest, farthest + 1)
    positions = v2.make_log_bucket_position(-offsets, buckets, max_distance).long()
    expected = (positions + buckets).clamp(0, 2 * buckets - 1)
    assert rows == expected.tolist()
    further = v2.make_log_bucket_position(torch.tensor([10**5, -(10**5)]), buckets, max_distance)
    ends = (further.long() + buckets).clamp(0, 2 * buckets - 1)
    assert ends.tolist() == [expected[0], expected[-1]]


# --- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [64, 128, 512])
@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta", "cope"])
def test_auto_fuses_rows_at_inference_where_keys_are_many(name, keys):
    module = attention_of(name)
    layout = Layout.of_self_attention(torch.zeros(1, keys).bool())
    request = CallShape(module.layer_schemes(), layout, (1, HEADS, WIDTH), torch.float32, 0.0)
    with torch.no_grad():
        fused = keys >= 128 and name != "cope"
        assert select_backend("auto", request) == ("sdpa" if fused else "reference")
    assert select_backend("auto", request) == "reference"  # in training


def test_values_keep_shaw_s_rows_from_fused_attention():
    limit = Limit(LENGTH, "--max-positions")
    shape = AttentionShape(HEADS, WIDTH, DIM, limit, limit)
    layout = Layout.of_self_attention(torch.zeros(1, 512).bool())
    scheme = SCHEMES["shaw"].create(shape, values=True)
    with torch.no_grad():
        request = CallShape((scheme,), layout, (1, HEADS, WIDTH), torch.float32, 0.0)
        assert select_backend("auto", request) == "reference"


@pytest.mark.parametrize("name", ["transformer_xl", "deberta", "shaw"])
def test_a_decoder_has_no_rows_for_keys_that_it_never_sees(name):
    module = attention_of(name, causal=True)
    layout = Layout.of_self_attention(torch.zeros(1, 9).bool(), causal=True)
    rows: Any = module.positions.query_rows(layout, module.projections())  # type: ignore[union-attr]
    assert rows.rows.size(1) == 9
    assert rows.index.max() == 8
