"""Reports of audits in an archive that is no folder of this machine: listed and read within bounds.

They are shown to people; who must rely on one checks its signature (`qm audit report --signer`).
"""

from collections.abc import Collection
from typing import Final

import msgspec
from pyarrow import ArrowException, fs

from qm.archive.destination import DestinationError, file_system

AUDIT_FOLDER: Final = "audit"


class AuditFile(msgspec.Struct, frozen=True):
    """One file of an audit."""

    folder: str
    name: str
    size_bytes: int
    written_ms: int
    """UTC, by the store; 0: it does not tell."""


class AuditReports:
    """The audits of one cluster. Everything blocks, and raises DestinationError."""

    def __init__(self, url: str, cluster: str) -> None:
        self._files, root = file_system(url)
        self._root = f"{root}/{cluster}/{AUDIT_FOLDER}"

    def folders(self) -> list[str]:
        """Return the names of the folders of audits."""
        return [one.base_name for one in self._infos() if one.type is fs.FileType.Directory]

    def files(self, folders: Collection[str], names: Collection[str]) -> list[AuditFile]:
        """Return which files of these names there are in these folders."""
        places = [(folder, name) for folder in folders for name in names]
        paths = [f"{self._root}/{folder}/{name}" for folder, name in places]
        try:
            infos = self._files.get_file_info(paths) if paths else []
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._root}: {error}") from error
        return [
            AuditFile(folder, name, info.size, (info.mtime_ns or 0) // 1_000_000)
            for (folder, name), info in zip(places, infos, strict=True)
            if info.type is fs.FileType.File
        ]

    def read(self, folder: str, name: str, max_bytes: int) -> bytes:
        """Return the first bytes of a file, at most this many."""
        path = f"{self._root}/{folder}/{name}"
        try:
            with self._files.open_input_file(path) as file:
                return bytes(file.read(max_bytes))
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{path}: {error}") from error

    def _infos(self) -> list[fs.FileInfo]:
        try:
            return list(
                self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
            )
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._root}: {error}") from error
