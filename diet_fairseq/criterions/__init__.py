"""fairseq criterions."""

from . import (
    diet_electra,
    diet_fused_label_smoothing,
    diet_glue,
    diet_masked_lm_nsp,
    diet_question_answering,
)

__all__ = [
    "diet_electra",
    "diet_fused_label_smoothing",
    "diet_glue",
    "diet_masked_lm_nsp",
    "diet_question_answering",
]
