"""Our models in Hugging Face transformers; the import registers them with the Auto classes.

    import diet_fairseq.hf
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)

The folder is the output of `diet-fairseq export hf`. The classes do not need fairseq, because the
encoder and the decoder come from `diet_fairseq.transformer`. Only `convert`, which converts
models between fairseq and transformers, needs fairseq.
"""

from typing import Any

import transformers
from transformers.utils import import_utils

from .. import hide_broken_torchaudio

# If transformers was imported first, it may have cached that torchaudio is available. These lines
# must come before the imports below.
hide_broken_torchaudio()
import_utils.is_torchaudio_available.cache_clear()
from .configuration import DietEncoderConfig, DietTransformerConfig  # noqa: E402
from .encoders import (  # noqa: E402
    DietEncoderModel,
    DietForMaskedLM,
    DietForQuestionAnswering,
    DietForSequenceClassification,
)
from .swap import swap_positions  # noqa: E402
from .tokenizer import DietEncoderTokenizer, DietTokenizer  # noqa: E402
from .transformer import DietForConditionalGeneration, DietTransformerModel  # noqa: E402

#: Auto class -> our classes
MODELS: dict[Any, list[Any]] = {
    transformers.AutoModel: [DietEncoderModel, DietTransformerModel],
    transformers.AutoModelForMaskedLM: [DietForMaskedLM],
    transformers.AutoModelForSequenceClassification: [DietForSequenceClassification],
    transformers.AutoModelForQuestionAnswering: [DietForQuestionAnswering],
    transformers.AutoModelForSeq2SeqLM: [DietForConditionalGeneration],
}

_TOKENIZERS: dict[Any, Any] = {
    DietEncoderConfig: DietEncoderTokenizer,
    DietTransformerConfig: DietTokenizer,
}
for _config, _tokenizer in _TOKENIZERS.items():
    transformers.AutoConfig.register(_config.model_type, _config, exist_ok=True)
    transformers.AutoTokenizer.register(_config, tokenizer_class=_tokenizer, exist_ok=True)
for _auto, _models in MODELS.items():
    for _model in _models:
        _auto.register(_model.config_class, _model, exist_ok=True)

__all__ = [
    "MODELS",
    "DietEncoderConfig",
    "DietEncoderModel",
    "DietEncoderTokenizer",
    "DietForConditionalGeneration",
    "DietForMaskedLM",
    "DietForQuestionAnswering",
    "DietForSequenceClassification",
    "DietTokenizer",
    "DietTransformerConfig",
    "DietTransformerModel",
    "swap_positions",
]
