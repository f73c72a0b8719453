"""The table of corpora. A new one is one file here, and one line below."""

from .corpus import Corpus
from .multi30k import MULTI30K
from .wmt18 import WMT18

CORPORA: dict[str, Corpus] = {corpus.name: corpus for corpus in (WMT18, MULTI30K)}
