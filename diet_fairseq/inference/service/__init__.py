"""``diet-fairseq serve``: a model behind HTTP.

server.py: connections -> headers.py: hosts -> app.py: addresses -> requests.py: fields
-> batching.py: batches -> Translator
"""
