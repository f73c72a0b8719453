"""Export of trained models to other libraries.

`checkpoint` reads the model, `folder` writes the export. `ctranslate2` and `hf.convert` use them.
"""
