"""Downloads, checked by SHA-256 (pooch), and single files out of archives."""

import hashlib
import logging
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import IO

from ..atomic import written
from ..errors import UserError, rephrased

TIMEOUT = 60  # seconds without an answer


def fetch(url: str, path: Path, sha256: str | None = None) -> Path:
    """Download a file unless it is there; it gets its name when all of it has arrived.

    Args:
        sha256: hexadecimal digest of the file; None: unknown, and printed for the next time

    Raises:
        UserError: no connection, a cut transfer, or another digest
    """
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)

    def say(error: Exception) -> str:
        reason = " ".join(str(error).split())
        return f"{url} can't be downloaded ({reason}): run the same command again"

    with rephrased(say):
        pooch.retrieve(
            url,
            known_hash=None if sha256 is None else f"sha256:{sha256}",
            fname=path.name,
            path=path.parent,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
        )
    if sha256 is None:
        print(f"{path}: unchecked, as its digest was not given; sha256: {sha256_of(path)}")
    return path


def extract(archive: Path, member: str, path: Path) -> None:
    """Write one file of a tar or zip archive to ``path``; its folders in the archive don't count.

    Raises:
        UserError: the archive is damaged, or has no regular file of this name
    """

    def say(error: Exception) -> str:  # damage shows as errors of any kind
        reason = " ".join(str(error).split())
        return f"{archive} can't be unpacked ({reason}): remove it, and run this again"

    with rephrased(say):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for item in zipped.infolist():
                    if not item.is_dir() and Path(item.filename).name == member:
                        return _copy(zipped.open(item), path)
        else:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    if entry.isreg() and Path(entry.name).name == member:
                        content = tar.extractfile(entry)
                        assert content  # a regular file has content
                        return _copy(content, path)
    raise UserError(f"{archive} holds no file {member}: correct its name")


def _copy(content: IO[bytes], path: Path) -> None:
    with content, written(path, "wb") as file:
        shutil.copyfileobj(content, file)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
