"""Optimizers and a learning-rate schedule; importing them registers them with fairseq."""
