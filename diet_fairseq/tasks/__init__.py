"""fairseq tasks."""

from . import diet_fine_tuned, diet_masked_lm_nsp

__all__ = ["diet_fine_tuned", "diet_masked_lm_nsp"]
