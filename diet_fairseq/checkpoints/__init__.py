"""Checkpoints as data: their content is never executed, and can't make fairseq open other files.

A hostile checkpoint can act in four ways. Its pickle can name any function, and set any attribute
of an object: PyTorch's ``weights_only`` accepts only the names in `pickled_objects`, and
`copy_plain_data` copies the loaded values and checks the type of each. Its archive or its pickle
can take all memory or time: `archive` and `dry_run` check both before PyTorch loads them. Its
configuration can contain programs, which fairseq runs by ``eval``, and names that fairseq looks up,
opens or downloads: `configuration` refuses both before fairseq reads the configuration.
"""

from .file import read, report_faults

__all__ = ["read", "report_faults"]
