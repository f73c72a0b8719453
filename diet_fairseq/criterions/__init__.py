"""fairseq criterions."""

from . import (
    diet_electra,
    diet_fused_label_smoothing,
    diet_masked_lm_nsp,
)

__all__ = [
    "diet_electra",
    "diet_fused_label_smoothing",
    "diet_masked_lm_nsp",
]
