"""A trained model at work: text in, text out, from the command line, from Python and over HTTP.

model.json -> Found -> Translator: lines -> parts (text.py, sentences.py) -> engine -> lines
(found.py)             (translator.py)                                       (fairseq, CTranslate2)
                       service/: requests -> batches -> Translator -> answers
"""
