"""Old name of `files`."""

from .files import TMP_SUFFIX as ASIDE
from .files import atomic_file
from .files import rename_durably as rename

__all__ = ["ASIDE", "atomic_file", "rename"]
