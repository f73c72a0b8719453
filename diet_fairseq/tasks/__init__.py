"""fairseq tasks."""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from . import diet_masked_lm_nsp

__all__ = ["diet_masked_lm_nsp"]
