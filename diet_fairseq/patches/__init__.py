"""Every change that importing the plugin makes to fairseq, one subject a file.

`patch.intercepts` decorates a function that is called instead of fairseq's; `patch.replaces`
decorates a function that takes an attribute and returns its replacement. Their arguments are the
target and the reasons of the change. `table` collects all changes.
"""
