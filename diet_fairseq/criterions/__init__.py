"""fairseq criterions."""
