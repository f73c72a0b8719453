"""T5's bias beside the one of Hugging Face's port, with its weights."""

import pytest
import torch

from diet_fairseq.positions import AttentionShape, Limit
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.relative import T5
from tests.support.modeling import import_modeling

modeling_t5 = import_modeling("t5")


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20)])
@pytest.mark.parametrize("queries", [1, 7, 300])
def test_t5_gives_the_bias_of_hugging_face_s_t5(
    causal: bool, buckets: int, max_distance: int, queries: int
) -> None:
    config = modeling_t5.T5Config(
        d_model=8,
        num_heads=4,
        d_kv=2,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=causal,
    )
    theirs = modeling_t5.T5Attention(config, has_relative_attention_bias=True)
    theirs.relative_attention_bias.weight.data.normal_()
    limit = Limit(512, "--max-positions")
    shape = AttentionShape(4, 2, 8, limit, limit, causal=causal)
    ours = T5.create(shape, buckets=buckets, max_distance=max_distance)
    ours.load_state_dict(theirs.relative_attention_bias.state_dict())

    keys = 300
    layout = Layout.of_self_attention(torch.zeros(1, keys, dtype=torch.bool), causal, queries)
    expected = theirs.compute_bias(keys, keys)[:, :, -queries:]  # (1, H, Tq, Tk)
    torch.testing.assert_close(ours.score(layout).dense(layout), expected)
