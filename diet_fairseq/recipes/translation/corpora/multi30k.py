"""Multi30k, task 1: a corpus that one machine learns in minutes."""

from pathlib import Path
from shutil import copyfile

from ...common.download import fetch
from .corpus import Corpus, Recipe, Search

REPOSITORY = "https://raw.githubusercontent.com/multi30k/dataset"
COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
FILES = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
}


def download(folder: Path, archives: Path, pair: tuple[str, str]) -> None:
    """The corpus's raw text, task 1, from its public repository."""

    for split in FILES.values():
        for language in pair:
            name = f"{split}.{language}.gz"
            fetch(f"{REPOSITORY}/{COMMIT}/data/task1/raw/{name}", archives / name, SHA256[name])
            copyfile(archives / name, folder / name)


MULTI30K = Corpus(
    name="multi30k",
    download=download,
    files=FILES,
    vocabulary=8000,
    recipe=Recipe(
        size="tiny",
        updates=1000,
        batch=4096,
        peak_rate=0.002,
        warmup=400,
        dropout=None,
        save_every=250,
        keep=1,
    ),
    search=Search(beam=5, alpha=1.0, penalty="fairseq", average=0),
    pairs=(("en", "de"), ("en", "cs"), ("cs", "de")),
)
