"""``diet-fairseq serve``: a model behind HTTP.

request -> app.py: addresses, limits -> asked.py: texts -> batching.py: batches -> Translator
"""
