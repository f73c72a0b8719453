"""Old name of `errors`."""

from .errors import interruptible

__all__ = ["interruptible"]
