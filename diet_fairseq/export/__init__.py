"""Export of trained models to other libraries, and import from transformers.

`checkpoint` reads the model, `folder` writes the export; each target has a ``run``.
"""
