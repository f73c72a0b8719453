"""The HTTP service of ``diet-fairseq serve``.

A request passes through `server` (connections), `app` (host names and routes), `requests` (fields)
and `batching` (batches of lines) to the `Translator`.
"""
