"""fairseq criterions."""

from . import diet_fused_label_smoothing, diet_glue, diet_masked_lm_nsp

__all__ = ["diet_fused_label_smoothing", "diet_glue", "diet_masked_lm_nsp"]
