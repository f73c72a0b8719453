"""All benchmarks in short, and their floors: ``python -m benchmarks``, or ``make bench``."""

import sys
import tempfile

from . import encoders, guard, translation

given = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    short = ["--rounds", "3", "--out", folder]
    sys.argv[1:] = [*short, *given]
    translation.main()
    sys.argv[1:] = [*short, "--sizes", "small", "--lengths", "128", *given]
    encoders.main()
    sys.argv[1:] = [folder]
    guard.main()
