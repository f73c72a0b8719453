"""WMT18 news translation: what DIET's Table 4 was trained and tested on."""

from pathlib import Path

from ...common.download import extract, fetch
from .. import test_sets
from .corpus import Corpus

#: what DIET trained on; Europarl has an archive for each pair
ARCHIVES = (
    "http://www.statmt.org/europarl/v7/{other}-en.tgz",
    "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
    "http://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz",
)


def download(folder: Path, archives: Path, pair: tuple[str, str]) -> None:
    """Europarl v7, Common Crawl and News Commentary v13; newstest2013 and newstest2018."""
    english, other = pair
    for template in ARCHIVES:
        url = template.format(other=other)
        archive = archives / url.rpartition("/")[2]
        fetch(url, archive)
        extract(archive, rf".+\.{other}-{english}\.({other}|{english})", folder, "train.")
    test_sets.write("wmt13", folder, "valid", english, other)
    test_sets.write("wmt18", folder, "test", english, other)


WMT18 = Corpus(
    name="wmt18",
    download=download,
    files={"train": "train*", "valid": "valid", "test": "test"},
    vocabulary=32_000,
    test_set="wmt18",
    pairs=(("en", "de"), ("en", "cs")),
)
