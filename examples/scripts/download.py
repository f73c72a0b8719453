"""Download a file or a pair of parallel text, or take a pair from sacreBLEU's test sets."""

import gzip
import json
import shutil
import socket
import tarfile
import zipfile
import zlib
from argparse import ArgumentParser
from pathlib import Path
from typing import IO, Any

import pooch
from sacrebleu.dataset import DATASETS

from diet_fairseq.atomic import atomic_file
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import write_lines


def member_of(archive: Path, name: str) -> IO[bytes]:
    """The regular file called ``name`` in any folder of a tar or zip archive."""
    if zipfile.is_zipfile(archive):
        zipped = zipfile.ZipFile(archive)
        paths = [path for path in zipped.namelist() if Path(path).name == name]
        content = zipped.open(paths[0]) if paths else None
    else:
        tar = tarfile.open(archive)  # noqa: SIM115
        entries = (entry for entry in tar if entry.isreg() and Path(entry.name).name == name)
        entry = next(entries, None)
        content = tar.extractfile(entry) if entry else None
    if content is None:
        raise UserError(f"{archive} holds no file {name}: correct its name")
    return content


def download(source: dict[str, Any], language: str, output: Path, archives: Path) -> None:
    """One language's file; ``{lang}`` in the source stands for the language."""
    url = source["url"].replace("{lang}", language)
    sha256 = source.get("sha256")
    if isinstance(sha256, dict):
        if language not in sha256:
            raise UserError(f"sha256 must have a value for {language}, but has {', '.join(sha256)}")
        sha256 = sha256[language]
    try:
        path = pooch.retrieve(
            url,
            known_hash=sha256 and f"sha256:{sha256}",  # without one, pooch prints the file's
            path=archives,
            downloader=pooch.HTTPDownloader(timeout=60),
        )
    except (ValueError, OSError) as error:
        raise UserError(f"{url} can't be downloaded ({error}): run this again") from error
    archive = Path(path)
    try:
        if member := source.get("member"):
            content: Any = member_of(archive, member.replace("{lang}", language))
        else:
            content = (gzip.open if archive.suffix == ".gz" else open)(archive, "rb")
        with content, atomic_file(output, "wb") as file:
            shutil.copyfileobj(content, file)
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{archive} is damaged ({error}): remove it, and run this again") from error


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("source", type=json.loads, help="source of a config, as JSON")
    parser.add_argument("outputs", nargs="+", type=Path)
    parser.add_argument("--languages", nargs="+", default=[""], help="one for each output")
    parser.add_argument("--archives", type=Path, required=True, help="folder of downloaded files")
    args = parser.parse_args()
    if name := args.source.get("sacrebleu"):
        pair = "-".join(args.languages)
        if name not in DATASETS or pair not in DATASETS[name].langpairs:
            raise UserError(f"sacreBLEU has no test set {name} for {pair}: see sacrebleu --list")
        socket.setdefaulttimeout(60)  # sacreBLEU's own downloads have none
        try:
            references = (line[0] for line in DATASETS[name].references(pair))
            write_lines(args.outputs[0], map(str.strip, DATASETS[name].source(pair)))
            write_lines(args.outputs[1], map(str.strip, references))
        except OSError as error:
            raise UserError(
                f"sacreBLEU's {name} can't be downloaded ({error}): run this again"
            ) from error
        return
    for language, output in zip(args.languages, args.outputs, strict=True):
        download(args.source, language, output, args.archives)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
