"""Files and archives from the network, which are complete once they have their name.

A server may send what it likes, as long and as slowly as it likes: there is a limit to each.
"""

import hashlib
import re
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any

from tqdm import tqdm

from ...atomic import rename
from ...errors import UserError, rephrased
from ...text.whitespace import normalise
from . import transfer

BLOCK = 1 << 20
LARGEST = 2 * 10**9  # bytes; the largest file that is downloaded here has 0.9


def fetch(url: str, path: Path, sha256: str | None = None) -> None:
    """Download, unless it is there.

    What has arrived is kept in ``.partial``, and a second call continues from there. The file gets
    its name when it has the size that the server stated and, where one is known, the digest.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    there = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    try:
        with transfer.begin(request) as answer:
            there = begins_at(url, answer, partial) if answer.status == 206 else 0
            size = size_of(answer, there)
            if (size or 0) > LARGEST:
                raise UserError(
                    f"{url}: the server announces {size:,} bytes, more than {LARGEST:,}"
                )
            with (
                open(partial, "ab" if there else "wb") as file,
                tqdm(
                    desc=path.name,
                    initial=there,
                    total=size,
                    unit="B",
                    unit_scale=True,
                    disable=None,
                ) as bar,
            ):
                while file.tell() <= LARGEST and (block := answer.read1(BLOCK)):
                    file.write(block)
                    bar.update(len(block))
    except UserError:
        raise
    except urllib.error.HTTPError as error:
        if error.code != 416 or not there:  # the file is complete already
            reason = normalise(str(error.reason))
            raise UserError(f"{url}: the server answers {error.code} {reason}") from error
        size = size_of(error, there)
    # No network, a broken connection, or an answer that can't be read.
    except (OSError, HTTPException, ValueError) as error:
        reason = normalise(str(getattr(error, "reason", error)))
        raise UserError(
            f"{url}: {reason}; run this again to go on, or use --from-dir with files you have"
        ) from error
    check(url, partial, size, sha256)
    if sha256 is None:
        print(f"{path}: {size:,} bytes, as announced; no digest is known, so it is unchecked")
    rename(partial, path)


def begins_at(url: str, answer: Any, partial: Path) -> int:
    """Where in the file the part begins that the server sends: it must be where ours ends."""
    found = re.match(r"bytes (\d{1,15})-", answer.headers.get("Content-Range", ""), re.ASCII)
    there = partial.stat().st_size if partial.exists() else 0
    if not found or int(found[1]) != there:
        partial.unlink(missing_ok=True)
        raise UserError(
            f"{url}: the server sent another part of the file than requested: run this again"
        )
    return there


def size_of(answer: Any, there: int) -> int | None:
    """Of the whole file, where the server tells."""
    whole = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if whole:
        return _number(whole)
    length = _number(answer.headers.get("Content-Length", ""))
    return None if length is None else there + length


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,15}", text, re.ASCII) else None


def check(url: str, partial: Path, size: int | None, sha256: str | None) -> None:
    """Refuse a file that is not what was announced."""
    got = partial.stat().st_size
    if got > LARGEST:
        partial.unlink()
        raise UserError(f"{url}: more than {LARGEST:,} bytes arrived, and still no end")
    if size is not None and got < size:
        raise UserError(f"{url}: {got:,} of {size:,} bytes arrived: run this again to go on")
    if size is not None and got > size:
        partial.unlink()
        raise UserError(
            f"{url}: {got:,} bytes arrived, but {size:,} were announced: run this again"
        )
    if sha256 is not None:
        with open(partial, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            partial.unlink()
            raise UserError(f"{url}: the file's SHA-256 is {digest}, not {sha256}: run this again")
    elif size is None:
        partial.unlink()
        raise UserError(f"{url}: the server states no size, so the file can't be checked")


def extract(archive: Path, wanted: str, folder: Path, prefix: str) -> None:
    """Unpack the files of a tar or zip archive whose whole name matches; folders don't count."""
    found = 0

    def say(error: Exception) -> str:  # damage shows as errors of any kind
        reason = " ".join(str(error).split())
        return f"{archive} can't be unpacked ({reason}): remove it, and run this again"

    with rephrased(say):
        for member, size, content in _files(archive, wanted):
            if size > (free := shutil.disk_usage(folder).free):
                raise OSError(f"{member!r} needs {size:,} bytes, and {folder} has {free:,}")
            with content, open(folder / f"{prefix}{PurePosixPath(member).name}", "wb") as file:
                shutil.copyfileobj(content, file, BLOCK)
            found += 1
    if not found:
        raise UserError(f"{archive} holds no file named like {wanted}")


def _files(archive: Path, wanted: str) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Path inside the archive, size and content, which never has more bytes."""

    def fits(member: str) -> bool:
        return re.fullmatch(wanted, PurePosixPath(member).name) is not None

    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for item in zipped.infolist():
                if not item.is_dir() and fits(item.filename):
                    yield item.filename, item.file_size, zipped.open(item)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isdir() or not fits(member.name):
                continue
            if not member.isreg():
                raise tarfile.ReadError(f"{member.name!r} in it is a link or a device")
            content = tar.extractfile(member)
            assert content  # a regular file has content
            yield member.name, member.size, content
