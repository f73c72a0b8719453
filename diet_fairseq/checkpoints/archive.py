"""The records of a zip archive of ``torch.save``, located before PyTorch reads any of them.

PyTorch does not fill the memory of a record that the directory marks as a folder, and reads the
bytes of overlapping records once for each. So every byte of the archive may belong to at most one
record.
"""

import os
import struct
import zipfile
from typing import BinaryIO

from .plain import Refused, shorten

#: bytes of a record's header without its name and its extra field, whose lengths end the header
_HEADER = 30
#: bytes of the end of a directory, and in ZIP64 of the locator and of the other end before it
_END, _LOCATOR, _END64 = 22, 20, 56
#: attribute of folders in MS-DOS
_FOLDER = 0x10
#: flag of a name in UTF-8
_UTF8 = 0x800


def locate_records(file: BinaryIO) -> dict[str, range]:
    """The place of each record in the file, by the record's name without the archive's folder.

    Raises:
        Refused: a record is compressed or a folder, two records share bytes or a name, not all are
            in one folder, or the directory is not at the end of the file
        zipfile.BadZipFile: the archive is damaged
    """
    begin = file.tell()
    with zipfile.ZipFile(file) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
        end = archive.start_dir
    if end != begin + _find_directory(file, begin):
        raise Refused("PyTorch could read another directory of its records than Python")
    records: dict[str, range] = {}
    names: set[bytes] = set()
    folders: set[bytes] = set()
    last = 0
    for entry in entries:
        name = entry.orig_filename.encode("utf-8" if entry.flag_bits & _UTF8 else "cp437")
        shown = shorten(entry.orig_filename)
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise Refused("it is compressed, and unpacks to more than its size")
        if name.endswith(b"/") and not entry.file_size:  # a folder, as zip -r adds it
            continue
        if entry.external_attr & _FOLDER or name.endswith(b"/"):
            raise Refused(f"its record {shown} is marked as a folder, so it could not be read")
        if b"\0" in name:  # PyTorch would look for the name before it
            raise Refused(f"its record {shown} has no valid name")
        if name.lower() in names:  # PyTorch ignores case
            raise Refused(f"it has two records of the name {shown}")
        names.add(name.lower())
        file.seek(entry.header_offset + _HEADER - 4)
        start = entry.header_offset + _HEADER + sum(struct.unpack("<HH", file.read(4)))
        if entry.header_offset < last or start + entry.file_size > end:
            raise Refused(f"its record {shown} shares bytes with another part of the file")
        last = start + entry.file_size
        folder, _, record = name.partition(b"/")
        folders.add(folder)
        records[record.decode("utf-8", "surrogateescape")] = range(start, last)
    if len(folders) != 1:
        raise Refused(f"it has records in {len(folders)} folders, not in one")
    return records


def _find_directory(file: BinaryIO, begin: int) -> int:
    """The place of the directory that the end of the archive names, where PyTorch reads it.

    Python's ``zipfile`` reads the directory before the end, and ignores the place.

    Args:
        begin: place of the archive in the file
    """
    size = file.seek(0, os.SEEK_END) - begin
    file.seek(begin + max(0, size - _END - _LOCATOR - _END64))
    tail = file.read()
    end, end64 = tail[-_END:], tail[: -_END - _LOCATOR]
    if end[:4] != b"PK\5\6":
        raise Refused("its archive does not end with the end of its directory")
    if tail[-_END - _LOCATOR :][:4] != b"PK\6\7":
        length, place = struct.unpack_from("<II", end, 12)
        return place if place + length == size - _END else -1
    (place64,) = struct.unpack_from("<Q", tail, len(tail) - _END - _LOCATOR + 8)
    if end64[:4] != b"PK\6\6" or place64 != size - len(tail):
        return -1
    length, place = struct.unpack_from("<QQ", end64, 40)
    return place if place + length == place64 else -1
