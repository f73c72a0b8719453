"""Export of trained models to other libraries, and import from transformers.

A target is a line of ``EXPORT`` in ``diet_fairseq_cli.py``, its arguments in
``commands/exports.py``, and a module here with ``run``. `checkpoint` reads the model, `folder`
writes the export.
"""
