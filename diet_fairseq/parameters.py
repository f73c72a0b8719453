"""The old name of `commands.parameters`."""

from .commands.parameters import count, main

__all__ = ["count", "main"]

if __name__ == "__main__":
    main()
