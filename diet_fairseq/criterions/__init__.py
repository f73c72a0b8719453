"""fairseq criterions."""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from . import diet_electra, diet_fused_label_smoothing, diet_masked_lm_nsp

__all__ = ["diet_electra", "diet_fused_label_smoothing", "diet_masked_lm_nsp"]
