"""Archives of models: unpacking writes only into the target folder."""

import shutil
import tarfile
from pathlib import PurePosixPath
from typing import Any

from ..errors import UserError
from .patch import Proxy, replaces


@replaces(
    "fairseq.file_utils:tarfile",
    safety="unpacking an archive of a model writes to any folder that its names and links give",
)
def check_archives(module: Any) -> Any:
    """``tarfile`` with an ``open`` that returns a `ModelArchive`."""
    return Proxy(module, open=ModelArchive.open)


class ModelArchive(tarfile.TarFile):
    """A tar archive that holds one folder of regular files and folders.

    Python's data filter accepts links within the folder. The links would lead elsewhere after the
    folder is moved, and no model needs them.
    """

    def getnames(self) -> list[str]:
        """The name of the only top-level folder, where fairseq looks for the model."""
        folders = {self._find_folder(member) for member in self.getmembers()}
        if len(folders) != 1:
            raise self._refusal(f"it has {len(folders)} folders at its top level instead of one")
        return list(folders)

    def extractall(self, path: Any = ".", *args: Any, **kwargs: Any) -> None:
        self.getnames()
        size, free = sum(member.size for member in self.getmembers()), shutil.disk_usage(path).free
        if size > free:
            raise self._refusal(f"it needs {size:,} bytes, but {path} has only {free:,} free")
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            kwargs["filter"] = "data"
        super().extractall(path, *args, **kwargs)

    def _find_folder(self, member: tarfile.TarInfo) -> str:
        """The member's top-level folder; raises a `UserError` if its name may lead elsewhere."""
        name = PurePosixPath(member.name)
        if not (member.isreg() or member.isdir()):
            raise self._refusal(f"{member.name!r} in it is neither a file nor a folder")
        if name.is_absolute() or ".." in name.parts or len(name.parts) < 1 + member.isreg():
            raise self._refusal(f"{member.name!r} in it is not in a folder of the archive")
        return name.parts[0]

    def _refusal(self, reason: str) -> UserError:
        return UserError(
            f"{self.name!s} can't be unpacked as a model archive ({reason}): give one from "
            "a source that you trust, or a folder"
        )
