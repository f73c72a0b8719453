"""Texts and pairs of them as samples of fairseq's."""
