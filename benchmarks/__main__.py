"""The short form of all benchmarks: ``python -m benchmarks``, or ``make bench``."""

import sys

from . import encoders, translation

given = sys.argv[1:]
sys.argv[1:] = ["--rounds", "3", *given]
translation.main()
sys.argv[1:] = ["--rounds", "3", "--sizes", "small", "--lengths", "128", *given]
encoders.main()
