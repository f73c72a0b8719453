"""fairseq datasets of texts and pairs of texts, and metrics."""
