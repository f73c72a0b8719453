"""The encoder, the decoder and the attention without fairseq and transformers."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from diet_fairseq.config import translation_schemes
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit
from diet_fairseq.transformer import (
    DecodingCache,
    Encoder,
    PositionalAttention,
    StackConfig,
    Transformer,
)
from diet_fairseq.transformer.cache import KeysAndValues
from tests.support.pages import text_of

close = torch.testing.assert_close
#: libraries that the core must not import
HIDDEN = ("fairseq", "transformers", "omegaconf", "hydra", "sacrebleu", "sentencepiece", "pydantic")
HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in {HIDDEN}:
            raise ImportError(name + " is hidden")
sys.meta_path.insert(0, Hidden())
"""


def blocks(page: str) -> list[str]:
    return [part.partition("```")[0] for part in text_of(page).split("```python\n")[1:]]


@pytest.mark.slow
def test_the_examples_of_the_documentation_run_without_fairseq_and_transformers():
    checks = """
assert logits.shape == (8, 14, 1000) and words.shape == (8, 11)
assert features.shape == (8, 20, 64) and out.shape == (20, 8, 64)
assert weights.shape == (8, 4, 20, 20) and not weights.triu(1).any()
"""
    program = HIDE + "\n".join(blocks("docs/pytorch.md")) + checks
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_every_scheme_has_its_properties_without_fairseq_and_transformers():
    program = f"""{HIDE}
from diet_fairseq.positions import SCHEMES
from diet_fairseq.testing import check_scheme
for scheme in SCHEMES.values():
    check_scheme(scheme)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def model_of(scheme: str, **options) -> Transformer:
    torch.manual_seed(1)
    sizes = {"layers": 2, "embed_dim": 16, "heads": 2, "max_positions": 12, "dropout": 0.0}
    model = Transformer(StackConfig.for_scheme(scheme, **sizes | options), vocabulary=30)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


SOURCE = torch.tensor([[1, 1, 5, 6, 7], [8, 9, 10, 11, 12], [4, 5, 1, 1, 1]])
TARGET = torch.tensor([[2, 5, 6, 7, 8, 9], [2, 9, 8, 7, 6, 5], [2, 4, 4, 4, 4, 4]])


@pytest.mark.parametrize("scheme", translation_schemes())
@torch.no_grad()
def test_incremental_decoding_gives_the_logits_of_all_tokens_at_once(scheme):
    model = model_of(scheme).eval()
    expected = model(SOURCE, TARGET)
    encoded, cache = model.encoder(SOURCE), DecodingCache()
    steps = [model.decode(TARGET[:, :n], encoded, cache) for n in (2, 3, 4, 5, 6)]
    close(torch.cat(steps, dim=1), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_cache_reorders_itself():
    model = model_of("shaw").eval()
    encoded, cache, order = model.encoder(SOURCE), DecodingCache(), torch.tensor([2, 0])
    model.decode(TARGET[:, :4], encoded, cache)
    cache.reorder(order)
    actual = model.decode(TARGET[order, :5], encoded, cache)
    close(actual[:, -1], model(SOURCE[order], TARGET[order, :5])[:, -1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_rows_of_a_sentence_share_its_source():
    model = model_of("rope").eval()
    encoded, cache = model.encoder(SOURCE), DecodingCache()
    model.decode(TARGET[:, :2], encoded, cache)
    cache.share_source(sentences=3, beams=2)
    rows = torch.tensor([3, 2, 5, 5])  # of the second and the third sentence
    sentences = rows // 2
    model.decode(TARGET.repeat_interleave(2, dim=0)[:, :3], encoded, cache)
    cache.reorder(rows)
    assert {len(store.keys) for store in cache.source.values()} == {2}
    actual = model.decode(TARGET[sentences, :4], encoded, cache)[:, -1]
    close(actual, model(SOURCE[sentences], TARGET[sentences, :4])[:, -1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_sentences_that_share_sources_can_change_places():
    model = model_of("rope").eval()
    encoded, cache = model.encoder(SOURCE), DecodingCache()
    model.decode(TARGET[:, :2], encoded, cache)
    cache.share_source(sentences=3, beams=2)
    rows = torch.tensor([4, 5, 1, 0, 3, 3])
    cache.reorder(rows)
    actual = model.decode(TARGET[rows // 2, :3], encoded, cache)[:, -1]
    expected = model(SOURCE[rows // 2], TARGET[rows // 2, :3])[:, -1]
    close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", [[0, 2, 1, 3, 4, 5], [0, 1, 2], [0]])
@torch.no_grad()
def test_rows_that_share_a_source_stay_together(order):
    model, cache = model_of("rope").eval(), DecodingCache()
    model.decode(TARGET[:, :2], model.encoder(SOURCE), cache)
    cache.share_source(sentences=3, beams=2)
    keys = cache.target[0].keys
    text = r"the 2 rows of a sentence, which share its source, must stay together, but the order is"
    with pytest.raises(UserError, match=text):
        cache.reorder(torch.tensor(order))
    assert cache.target[0].keys is keys


@pytest.mark.parametrize(
    ("scheme", "options", "tokens", "text"),
    [
        ("rope", {}, 2, "this call has 2 new tokens"),
        ("alibi", {"position_cross_attention": True}, 1, "a position scheme in cross-attention"),
        ("rope", {}, 0, "decoding needs at least one new token, but there are 0: give tokens"),
    ],
)
@torch.no_grad()
def test_tokens_that_can_t_be_decoded_are_refused(scheme, options, tokens, text):
    model, cache = model_of(scheme, position_options=options).eval(), DecodingCache()
    encoded = model.encoder(SOURCE)
    model.decode(TARGET[:, :2], encoded, cache)
    cache.share_source(sentences=3, beams=2)
    rows = TARGET.repeat_interleave(2, dim=0)[:, : 2 + tokens]
    with pytest.raises(UserError, match=text):
        model.decode(rows, encoded, cache)
    assert cache.length == 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_an_encoder(scheme):
    torch.manual_seed(1)
    sizes = {"layers": 2, "embed_dim": 16, "heads": 2, "max_positions": 12, "dropout": 0.0}
    encoder = Encoder(StackConfig.for_scheme(scheme, **sizes), nn.Embedding(30, 16, padding_idx=1))
    readout = nn.Linear(16, 30)
    optimizer = torch.optim.Adam([*encoder.parameters(), *readout.parameters()], lr=0.01)
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(readout(encoder(SOURCE).features).mT, SOURCE)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_attention_without_a_scheme_is_pytorch_s():
    theirs = nn.MultiheadAttention(16, 4)
    ours = PositionalAttention(16, 4)
    state = theirs.state_dict()
    for kind in ("weight", "bias"):
        parts = state.pop(f"in_proj_{kind}").chunk(3)
        state |= {f"{name}_proj.{kind}": part for name, part in zip("qkv", parts, strict=True)}
    ours.load_state_dict(state)
    x = torch.randn(5, 3, 16)
    expected, expected_weights = theirs(x, x, x, average_attn_weights=False)
    actual, weights = ours(x, need_weights=True)
    close(actual, expected, rtol=1e-5, atol=1e-5)
    close(weights, expected_weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "scheme", [name for name, kind in SCHEMES.items() if kind.in_attention and not kind.compressed]
)
@torch.no_grad()
def test_attention_without_a_context_sees_the_future_unless_its_scheme_is_causal(scheme):
    x = torch.randn(6, 2, 16)
    changed = torch.cat([x[:4], x[4:] + 1])
    limit = Limit(8, "max_positions")
    for is_causal in (False, True):
        shape = AttentionShape(2, 8, 16, limit, limit, causal=is_causal)
        attention = PositionalAttention(16, 2, positions=SCHEMES[scheme].create(shape)).eval()
        (first, weights), (second, _) = attention(x, need_weights=True), attention(changed)
        assert torch.allclose(first[:4], second[:4], atol=1e-6) == is_causal
        assert (weights.triu(1).abs().max() == 0) == is_causal


def test_cross_attention_and_decoding_need_a_context():
    x, source = torch.randn(4, 2, 16), torch.randn(3, 2, 16)
    for attention, options in (
        (PositionalAttention(16, 2, source_dim=16), {"source": source}),
        (PositionalAttention(16, 2), {"store": KeysAndValues()}),
    ):
        with pytest.raises(UserError, match="need a context, which has the positions of the keys"):
            attention(x, **options)
