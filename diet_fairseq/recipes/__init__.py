"""Recipes: everything from raw text to a table of results.

translation/ and encoders/ are what ``diet-fairseq translation`` and ``diet-fairseq encoder`` run;
common/ is what they share. fairseq's own programs do the work in between.
"""
