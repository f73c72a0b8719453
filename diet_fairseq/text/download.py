"""Downloads with a check of SHA-256 (pooch), and extraction of single files."""

import hashlib
import logging
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import IO

from ..atomic import atomic_file
from ..errors import UserError, rephrased

TIMEOUT = 60  # seconds without an answer


def fetch(url: str, path: Path, sha256: str | None = None) -> Path:
    """Download a file unless it exists; a partial download never has its name.

    Args:
        sha256: hexadecimal digest of the file; None: the digest is printed instead of checked

    Raises:
        UserError: no connection, a cut transfer, or another digest
    """
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rephrased(
        lambda error: f"{url} can't be downloaded ({_reason(error)}): run the same command again"
    ):
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
    """Write the file called ``member``, in any folder of a tar or zip archive, to ``path``.

    Raises:
        UserError: the archive is damaged, or has no regular file of this name
    """

    def copy(content: IO[bytes]) -> None:
        with content, atomic_file(path, "wb") as file:
            shutil.copyfileobj(content, file)

    # damaged archives raise errors of many types
    advice = "remove it, and run this again"
    with rephrased(lambda error: f"{archive} can't be unpacked ({_reason(error)}): {advice}"):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for item in zipped.infolist():
                    if not item.is_dir() and Path(item.filename).name == member:
                        return copy(zipped.open(item))
        else:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    if entry.isreg() and Path(entry.name).name == member:
                        content = tar.extractfile(entry)
                        assert content  # a regular file has content
                        return copy(content)
    raise UserError(f"{archive} holds no file {member}: correct its name")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from error
