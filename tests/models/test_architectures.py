"""Architectures of every scheme, in the sizes that their names say."""

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.config import translation_schemes
from diet_fairseq.positions import SCHEMES
from tests.support import tiny

#: layers, width, inner width, heads
TRANSLATION = {
    "": (6, 512, 2048, 8),
    "_tiny": (4, 128, 256, 4),
    "_iwslt_de_en": (6, 512, 1024, 4),
    "_wmt_en_de": (6, 512, 2048, 8),
    "_wmt_en_de_big": (6, 1024, 4096, 16),
}
ENCODERS = {
    "": (12, 768, 3072, 12),
    "_tiny": (4, 128, 512, 4),
    "_small": (4, 512, 2048, 8),
    "_base": (12, 768, 3072, 12),
    "_large": (24, 1024, 4096, 16),
}
ALL = [
    *(("transformer", scheme, TRANSLATION) for scheme in translation_schemes()),
    *((family, scheme, ENCODERS) for family in ("roberta", "bert") for scheme in SCHEMES),
]


@pytest.mark.parametrize(
    ("family", "scheme", "sizes"), ALL, ids=[f"{family}_{scheme}" for family, scheme, _ in ALL]
)
def test_every_scheme_has_an_architecture_of_every_size(family, scheme, sizes):
    for suffix, size in sizes.items():
        args = tiny.Namespace()
        ARCH_CONFIG_REGISTRY[f"{family}_{scheme}{suffix}"](args)
        assert args.position_scheme == scheme
        assert family == "transformer" or args.dropout == 0.1
        for side in ("encoder", "decoder") if family == "transformer" else ("encoder",):
            names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
            assert tuple(getattr(args, f"{side}_{name}") for name in names) == size


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - set(translation_schemes())))
def test_schemes_of_encoders_have_no_translation_architecture(scheme):
    assert f"roberta_{scheme}_tiny" in ARCH_CONFIG_REGISTRY
    assert not [arch for arch in ARCH_CONFIG_REGISTRY if arch.startswith(f"transformer_{scheme}")]
