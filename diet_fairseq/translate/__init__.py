"""Inference with a trained model: text in, text out, from the command line, Python and HTTP.

model_files.py -> ModelDescription -> Translator: lines -> sentences -> engine -> lines
service/: requests -> batches -> Translator -> answers
"""
