"""fairseq tasks."""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from . import diet_fine_tuned, diet_masked_lm_nsp

__all__ = ["diet_fine_tuned", "diet_masked_lm_nsp"]
