"""Where a node's archive is: whole files under one URL, each there completely or not at all.

On a disk a file gets its name by a rename after it was synced; object stores show an object when
all of it was put; what else pyarrow or fsspec reach is written beside the name and moved.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from pyarrow import ArrowException, fs

_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
_TEMPORARY: Final = ".part"


class DestinationError(Exception):
    """The archive cannot be reached, read or written; the text says what to look at."""


class Destination(Protocol):
    """Paths are relative to the URL and use "/". Everything raises DestinationError."""

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Make a file, or put another in its place; durable on return."""

    def write_parts(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """Likewise, of any size, from its parts. When they raise there is no file, or, in an object
        store, one that is cut off.
        """

    def read(self, path: str) -> bytes | None:
        """Return a file, None when there is none."""

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; none when it is not there."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all in it, if it is there."""


def open_destination(url: str) -> Destination:
    """Return the folder, or what pyarrow or fsspec make of a URL. Raises DestinationError."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return FolderDestination(Path(url))
    if scheme == "file":
        return FolderDestination(Path(rest))
    return RemoteDestination(*file_system(url))


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return what pyarrow or fsspec make of a URL, and where in it its root is.

    Raises DestinationError.
    """
    try:
        files, root = fs.FileSystem.from_uri(url)
    except (ArrowException, OSError, ValueError) as error:
        files, root = _by_fsspec(url, error)
    return files, root.rstrip("/")


def _by_fsspec(url: str, refusal: Exception) -> tuple[fs.FileSystem, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise DestinationError(
            f"archive.url {url!r}: {refusal}; for file systems that pyarrow does not know, install"
            " fsspec and its package for this one"
        ) from refusal
    try:
        files, root = url_to_fs(url)
    except (ImportError, OSError, ValueError) as error:
        raise DestinationError(f"archive.url {url!r}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(files)), str(root)


class FolderDestination:
    """A folder on a disk of this machine, or mounted there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, path: str, data: bytes | memoryview) -> None:
        """See Destination.write."""
        self.write_parts(path, (data,))

    def write_parts(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """See Destination.write_parts."""
        target = self._root / path
        temporary = target.with_name(target.name + _TEMPORARY)
        try:
            _make_folder(target.parent)
            with temporary.open("wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            _sync_folder(target.parent)
        except OSError as error:
            raise DestinationError(f"{target}: {error}") from error

    def read(self, path: str) -> bytes | None:
        """See Destination.read."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DestinationError(f"{self._root / path}: {error}") from error

    def folders(self, path: str) -> list[str]:
        """See Destination.folders."""
        try:
            return sorted(found.name for found in (self._root / path).iterdir() if found.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DestinationError(f"{self._root / path}: {error}") from error

    def remove_folder(self, path: str) -> None:
        """See Destination.remove_folder."""
        folder = self._root / path
        try:
            for file in list(folder.iterdir()):
                file.unlink()
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DestinationError(f"{folder}: {error}") from error


def _make_folder(folder: Path) -> None:
    """Make a folder and what it lies in, so that they are still there after a power loss."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with suppress(FileExistsError):
            path.mkdir()
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteDestination:
    """What pyarrow can reach."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self._root = root
        self._puts_whole = files.type_name in _OBJECT_STORES

    def write(self, path: str, data: bytes | memoryview) -> None:
        """See Destination.write."""
        self.write_parts(path, (data,))

    def write_parts(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """See Destination.write_parts."""
        target = self._full(path)
        name = target if self._puts_whole else target + _TEMPORARY
        try:
            if not self._puts_whole:
                self._files.create_dir(target.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(name) as stream:
                for part in parts:
                    stream.write(part)
            if not self._puts_whole:
                self._files.move(name, target)
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{target}: {error}") from error

    def read(self, path: str) -> bytes | None:
        """See Destination.read."""
        target = self._full(path)
        try:
            if self._files.get_file_info(target).type is not fs.FileType.File:
                return None
            with self._files.open_input_stream(target) as stream:
                data: bytes = stream.read()
                return data
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{target}: {error}") from error

    def folders(self, path: str) -> list[str]:
        """See Destination.folders."""
        selector = fs.FileSelector(self._full(path), allow_not_found=True)
        try:
            found = self._files.get_file_info(selector)
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._full(path)}: {error}") from error
        return sorted(one.base_name for one in found if one.type is fs.FileType.Directory)

    def remove_folder(self, path: str) -> None:
        """See Destination.remove_folder."""
        try:
            with suppress(FileNotFoundError):
                self._files.delete_dir(self._full(path))
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._full(path)}: {error}") from error

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"
