"""fairseq models."""
