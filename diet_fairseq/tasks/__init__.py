"""fairseq tasks."""

from . import diet_glue, diet_masked_lm_nsp

__all__ = ["diet_glue", "diet_masked_lm_nsp"]
