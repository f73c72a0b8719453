"""Recipes: everything from raw text to a table of results.

translation/, encoders/ and grid/ are the commands ``diet-fairseq translation``, ``encoder`` and
``grid``; common/ is what they share. fairseq's own programs do the work in between.
"""
