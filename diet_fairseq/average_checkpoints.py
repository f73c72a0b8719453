"""The old name of `commands.average`."""

from .commands.average import average, find, main

__all__ = ["average", "find", "main"]

if __name__ == "__main__":
    main()
