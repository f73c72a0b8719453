"""fairseq tasks."""

from . import diet_masked_lm_nsp

__all__ = ["diet_masked_lm_nsp"]
