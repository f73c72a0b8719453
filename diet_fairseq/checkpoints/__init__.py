"""Checkpoints as data: nothing in them is executed, and none makes fairseq open another file.

A hostile checkpoint can act in three ways. Its pickle can name any function: PyTorch's
``weights_only`` refuses all types but those of `file.CHECKPOINT_TYPES`. fairseq calls ``eval`` on
strings of the configuration, and the configuration names what fairseq would look up, open or
download: `configuration` refuses both before fairseq sees them.
"""

import fairseq  # noqa: F401  # first of all: it imports the plugin

from .file import read, report_faults

__all__ = ["read", "report_faults"]
