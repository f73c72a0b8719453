"""Archives of models: their files stay in the folder that they are unpacked into.

fairseq's ``from_pretrained`` unpacks all that a tar archive holds, wherever its names and links
lead, and then moves what the names have in common to the archive's place.
"""

import shutil
import tarfile
from collections.abc import Callable
from functools import wraps
from pathlib import PurePosixPath
from typing import Any

from ..errors import UserError, rephrased


class ModelArchive(tarfile.TarFile):
    """A tar archive with one folder in it, and in there nothing but files and folders.

    Python's filter for data lets links pass that stay inside. They would lead elsewhere once the
    folder is moved, and no model needs them.
    """

    def getnames(self) -> list[str]:
        """The one folder, where fairseq looks for what all names have in common."""
        folders = {_folder_of(member) for member in self.getmembers()}
        if len(folders) != 1:
            raise tarfile.ReadError(
                f"it has {len(folders)} folders at its top level instead of one"
            )
        return list(folders)

    def extractall(self, path: Any = ".", *args: Any, **kwargs: Any) -> None:
        self.getnames()
        size, free = sum(member.size for member in self.getmembers()), shutil.disk_usage(path).free
        if size > free:
            raise tarfile.ReadError(f"it needs {size:,} bytes, and {path} has {free:,}")
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            kwargs["filter"] = "data"
        super().extractall(path, *args, **kwargs)


def _folder_of(member: tarfile.TarInfo) -> str:
    """The first folder of its name; raises `tarfile.ReadError` for what could end up elsewhere."""
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise tarfile.ReadError(f"{member.name!r} in it is neither a file nor a folder")
    if name.is_absolute() or ".." in name.parts or len(name.parts) < 1 + member.isreg():
        raise tarfile.ReadError(f"{member.name!r} in it is not in a folder of the archive")
    return name.parts[0]


def explained(load_archive_file: Callable) -> Callable:
    """Say what is wrong with a file that is not an archive of a model."""

    @wraps(load_archive_file)
    def wrapper(archive_file: str) -> Any:
        # Damage shows as errors of any kind, RecursionError and OverflowError among them.
        def say(error: Exception) -> str:
            reason = " ".join(str(error).split())
            return (
                f"{archive_file} can't be unpacked as the archive of a model ({reason}): give "
                "one from a source that you trust, or a folder"
            )

        with rephrased(say):
            found = load_archive_file(archive_file)
        if found is None:
            raise UserError(f"there is no model {archive_file}: give a folder, or an archive")
        return found

    return wrapper
