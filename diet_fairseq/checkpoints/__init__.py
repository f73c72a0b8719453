"""Checkpoints as data: their content is never executed, and can't make fairseq open other files.

A hostile checkpoint can act in three ways. Its pickle can name any function, and set any attribute
of an object: PyTorch's ``weights_only`` takes the names in `pickled_objects` alone, and `plain`
copies what was loaded, with the exact types that each place may hold. fairseq calls ``eval`` on
strings of the configuration, and the configuration names what fairseq would look up, open or
download: `configuration` refuses both before fairseq sees them.
"""

from .file import read, report_faults

__all__ = ["read", "report_faults"]
