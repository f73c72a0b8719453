"""The short form of all benchmarks: ``python -m benchmarks``, or ``make bench``."""

import sys

from . import translation

sys.argv[1:] = ["--rounds", "3", *sys.argv[1:]]
translation.main()
