"""Files and archives from the network, that are whole when they have their name."""

import hashlib
import re
import tarfile
import urllib.error
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from shutil import copyfileobj

from tqdm import tqdm

from diet_fairseq.errors import UserError

BLOCK = 1 << 20


def fetch(url: str, path: Path, sha256: str | None = None) -> None:
    """Download, unless it is there.

    What has come is kept in ``.partial``, and a second call goes on from there. The file gets its
    name when it has the size that the server stated and, where one is known, the digest.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    there = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if answer.status != 206:  # the server sends all of it
                there = 0
            size = size_of(answer, there)
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
                while block := answer.read(BLOCK):
                    file.write(block)
                    bar.update(len(block))
    except urllib.error.HTTPError as error:
        if error.code != 416:  # there is nothing after what we have
            raise UserError(f"{url}: the server answers {error.code} {error.reason}") from error
        size = size_of(error, there)
    except (OSError, HTTPException) as error:  # no network, or a connection that broke
        reason = getattr(error, "reason", error)
        raise UserError(
            f"{url}: {reason}; run this again to go on, or use --from-dir with files you have"
        ) from error
    check(url, partial, size, sha256)
    partial.rename(path)


def size_of(answer: object, there: int) -> int | None:
    """Of the whole file, where the server tells."""
    headers = answer.headers  # type: ignore[attr-defined]
    whole = headers.get("Content-Range", "").rpartition("/")[2]
    if whole:
        return int(whole) if whole.isdigit() else None
    length = headers.get("Content-Length")
    return there + int(length) if length else None


def check(url: str, partial: Path, size: int | None, sha256: str | None) -> None:
    """Refuse a file that is not what was announced."""
    got = partial.stat().st_size
    if size is not None and got < size:
        raise UserError(f"{url}: {got:,} of {size:,} bytes came: run this again to go on")
    if size is not None and got > size:
        partial.unlink()
        raise UserError(f"{url}: {got:,} bytes came, but {size:,} were announced: run this again")
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
    """Unpack the files of a tar archive whose whole name matches; folders inside it don't count."""
    found = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PurePosixPath(member.name).name
                content = tar.extractfile(member) if re.fullmatch(wanted, name) else None
                if content:
                    with open(folder / f"{prefix}{name}", "wb") as file:
                        copyfileobj(content, file, BLOCK)
                    found += 1
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{archive} can't be unpacked ({reason}): remove it, and run this again"
        ) from error
    if not found:
        raise UserError(f"{archive} holds no file named like {wanted}")
