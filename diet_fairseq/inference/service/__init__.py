"""``diet-fairseq serve``: a model behind HTTP.

request -> app.py, asked.py: what may be asked -> batching.py: batches of waiting lines -> Translator
"""
