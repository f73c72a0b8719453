"""Translation of text with trained models, from the command line, Python and HTTP.

model_files.py -> ModelDescription -> Translator: lines -> sentences -> engine -> lines
loading.py: ModelDescription -> LoadedModel, of fairseq's checkpoints
service/: requests -> batches -> Translator -> answers
"""
