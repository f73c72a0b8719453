"""Translation of text with trained models, from the command line, Python and HTTP.

model_files.py -> ModelDescription -> Translator: lines -> sentences -> engine -> lines
loading.py: ModelDescription of a fairseq checkpoint -> LoadedModel
service/: requests -> batches -> Translator -> answers
"""
