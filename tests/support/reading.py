"""The made-up reading task of examples/roberta/reading.py."""

from tests.support.road import script

write = script("roberta/reading.py").write
