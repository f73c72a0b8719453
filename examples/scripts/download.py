"""Download a file or a pair of parallel text, or take a pair from sacreBLEU's test sets."""

import gzip
import hashlib
import json
import shutil
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.download import extract, fetch
from diet_fairseq.text.lines import write_lines
from diet_fairseq.text.scores import read_test_set


def download(source: dict[str, Any], language: str, output: Path, archives: Path) -> None:
    """One language's file; ``{lang}`` in the source stands for the language."""
    url = source["url"].replace("{lang}", language)
    sha256 = source.get("sha256")
    if isinstance(sha256, dict):
        sha256 = sha256[language]
    # Archives of two servers may have one name.
    name = f"{hashlib.sha256(url.encode()).hexdigest()[:8]}-{Path(urlsplit(url).path).name}"
    archive = fetch(url, archives / name, sha256)
    if member := source.get("member"):
        extract(archive, member.replace("{lang}", language), output)
        return
    with (
        gzip.open(archive) if archive.suffix == ".gz" else open(archive, "rb") as content,
        atomic_file(output, "wb") as file,
    ):
        shutil.copyfileobj(content, file)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("source", type=json.loads, help="source of a config, as JSON")
    parser.add_argument("outputs", nargs="+", type=Path)
    parser.add_argument("--languages", nargs="+", default=[""], help="one for each output")
    parser.add_argument("--archives", type=Path, required=True, help="folder of downloaded files")
    args = parser.parse_args()
    if "sacrebleu" in args.source:
        sides = read_test_set(args.source["sacrebleu"], "-".join(args.languages))
        for output, lines in zip(args.outputs, sides, strict=True):
            write_lines(output, lines)
        return
    for language, output in zip(args.languages, args.outputs, strict=True):
        download(args.source, language, output, args.archives)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
