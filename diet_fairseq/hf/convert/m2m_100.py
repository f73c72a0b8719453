"""M2M-100 and NLLB-200: ``M2M100ForConditionalGeneration``."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from ...translate.directions import EOS, SOURCE, Marks
from .family import Texts, Vocabulary, read_pieces, read_texts, read_tokens
from .translation import TAGGED, Translation


class M2M100(Translation):
    """The model of fairseq's ``translation_multi_simple_epoch``, with fairseq's sinusoids."""

    model_class = "M2M100ForConditionalGeneration"
    positions = "sinusoidal"
    options: ClassVar = {
        "arch": "transformer_sinusoidal",
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
    }

    tag = r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})"  # M2M-100's, NLLB's

    def marks(self, texts: Texts) -> Marks:
        if texts.legacy_behaviour:
            return replace(TAGGED, source_prefix=(), source_end=(EOS, SOURCE))
        return TAGGED

    def vocabularies(self, folder: Path, config: Any) -> list[Vocabulary]:
        """NLLB's tokens are in ``tokenizer.json``; M2M-100's languages follow ``vocab.json``."""
        if (folder / "vocab.json").exists():
            tokens = read_tokens(folder / "vocab.json")
            is_wmt21 = read_texts(folder).language_codes == "wmt21"
            codes = FAIRSEQ_LANGUAGE_CODES["wmt21" if is_wmt21 else "m2m100"]
            languages = (f"__{code}__" for code in codes)
            tokens |= {token: n for n, token in enumerate(languages, len(tokens))}
            tokens = {token: n for token, n in tokens.items() if n < config.vocab_size}
        else:
            tokens = read_pieces(folder, NLLB_CODES)
        return [Vocabulary.from_tokens(tokens, config.vocab_size, {})]


FAMILY = M2M100()
