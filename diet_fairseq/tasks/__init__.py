"""fairseq tasks."""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from . import diet_glue, diet_masked_lm_nsp, diet_question_answering

__all__ = ["diet_glue", "diet_masked_lm_nsp", "diet_question_answering"]
