"""``python -m diet_fairseq`` is the command ``diet-fairseq``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
