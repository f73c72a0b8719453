"""fairseq tasks."""

from . import diet_glue, diet_masked_lm_nsp, diet_question_answering

__all__ = ["diet_glue", "diet_masked_lm_nsp", "diet_question_answering"]
