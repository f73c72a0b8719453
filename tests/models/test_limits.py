"""How long inputs may be, and which widths and limits cross-attention has."""

from tests.support import tiny
from tests.support.tiny import Case


def test_cross_attention_has_the_limits_of_target_and_source():
    case = Case("diet_abs").but(position_cross_attention=True)
    model = tiny.fresh(case, max_source_positions=5, max_target_positions=9)
    [scheme] = [s for s in tiny.schemes_in(model).values() if s.shape.cross]
    assert (scheme.query.size(1), scheme.key.size(1)) == (9, 5)


def test_cross_attention_takes_an_encoder_of_another_width():
    case = Case("diet_abs").but(position_cross_attention=True)
    model = tiny.fresh(case, encoder_embed_dim=8, decoder_embed_dim=16, share_all_embeddings=False)
    assert tiny.logits(model).isfinite().all()
