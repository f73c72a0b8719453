"""``diet-fairseq serve``: a model behind HTTP.

server.py: connections -> app.py: hosts and addresses -> requests.py: fields
-> batching.py: batches -> Translator
"""
