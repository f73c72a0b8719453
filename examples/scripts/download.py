"""Download a file or a pair of parallel text, or take a pair from sacreBLEU's test sets."""

import gzip
import json
import lzma
import shutil
import socket
import stat
import tarfile
import zipfile
import zlib
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pooch
from sacrebleu.dataset import DATASETS

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.lines import write_lines

DAMAGE = (EOFError, OSError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@contextmanager
def open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """The regular file called ``name`` in any folder of a tar or zip archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                is_file = not (entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16))
                if is_file and Path(entry.filename).name == name:
                    yield zipped.open(entry)
                    return
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isreg() and Path(member.name).name == name:
                    yield cast(IO[bytes], tar.extractfile(member))
                    while cast(IO[bytes], tar.fileobj).read(1 << 20):
                        pass  # the checksums of gzip and xz stand at the end
                    return
    raise UserError(f"{archive} holds no regular file {name}: correct its name")


def fill(text: str, names: dict[str, str]) -> str:
    """A text with placeholders replaced."""
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text


def download(
    source: dict[str, Any], language: str, output: Path, archives: Path, pair: str = ""
) -> None:
    """One language's file.

    ``{lang}`` in the source stands for the language, and ``{pair}`` for the two languages.
    """
    names = {"{lang}": language, "{pair}": pair}
    url = fill(source["url"], names)
    sha256 = source.get("sha256")
    if isinstance(sha256, dict):
        key = next((k for k in (f"{pair}.{language}", pair, language) if k in sha256), None)
        if key is None:
            raise UserError(f"sha256 must have a value for {language}, but has {', '.join(sha256)}")
        sha256 = sha256[key]
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
    if member := source.get("member"):
        opened: Any = open_member(archive, fill(member, names))
    else:
        opened = (gzip.open if archive.suffix == ".gz" else open)(archive, "rb")
    try:
        with atomic_file(output, "wb") as file, opened as content:
            shutil.copyfileobj(content, file)
    except (*DAMAGE, RuntimeError) as error:  # RuntimeError: zipfile can't read this kind
        reason = str(error).partition("\n")[0].rstrip(":")
        raise UserError(
            f"{archive} can't be unpacked ({reason}): remove it, and run this again, or unpack it "
            "yourself and name its files in the config"
        ) from error


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
            text = f"sacreBLEU's {name} can't be downloaded ({error}): run this again"
            raise UserError(text) from error
        return
    for language, output in zip(args.languages, args.outputs, strict=True):
        download(args.source, language, output, args.archives, "-".join(args.languages))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
