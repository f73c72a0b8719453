"""Trained models in the formats of other libraries, and back: one target a module.

A target is a line of ``EXPORT`` in ``diet_fairseq_cli.py`` and a module with ``add_arguments`` and
``run``, as every command. `checkpoint` reads the model, `folder` writes what is made of it.
"""
