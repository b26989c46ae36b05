"""Where a node's archive is: whole files under one URL, each present completely or not at all.

On a disk a file gets its name by a rename after a sync; object stores show an object once all of it
was uploaded; on other systems that pyarrow or fsspec reach it is written beside the name and moved.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from pyarrow import ArrowException, NativeFile, fs
from typing_extensions import override

from qm.store.signing import SIGNATURE_SUFFIX, SignatureError, Signer, check

_OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
_TEMPORARY: Final = ".part"
_BUFFERED_BYTES: Final = 64 << 10


class DestinationError(Exception):
    """The archive cannot be reached, read or written; the text says what to look at."""


class Output(Protocol):
    """A file being written."""

    def write(self, data: bytes | memoryview) -> object:
        """Append. Raises DestinationError."""


class Destination(Protocol):
    """Paths are relative to the URL and use "/". Every method raises DestinationError."""

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Create or replace a file; durable on return."""

    def create(self, path: str) -> AbstractContextManager[Output]:
        """The same in pieces: the file exists, and is durable, when the context is left.

        When it is left by an exception, there is no file or, in an object store, a truncated one.
        """

    def read(self, path: str) -> bytes | None:
        """Return a file's contents, None when it does not exist."""

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder, sorted; none when it does not exist."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it, if it exists."""


class SignedDestination(Destination):
    """Signs the files that are written at once: manifests, which name the other files by hash.

    What the cluster's key has not signed is not there: whoever can write to an archive must not
    make a node believe that its entries are exported.
    """

    def __init__(
        self,
        below: Destination,
        signer: Callable[[], Signer | None],
        on_unsigned: Callable[[str], None],
    ) -> None:
        """`signer`: None for no key, then everything counts; `on_unsigned`: told why a file does
        not. Both are called in the thread that reads or writes.
        """
        self._below, self._signer, self._on_unsigned = below, signer, on_unsigned

    @override
    def write(self, path: str, data: bytes | memoryview) -> None:
        signer = self._signer()
        if signer is not None:
            # First: with the manifest the range, or the checkpoint, exists.
            signature = signer.sign(path.rpartition("/")[2], bytes(data))
            self._below.write(path + SIGNATURE_SUFFIX, signature)
        self._below.write(path, data)

    @override
    def create(self, path: str) -> AbstractContextManager[Output]:
        return self._below.create(path)

    @override
    def read(self, path: str) -> bytes | None:
        data, signer = self._below.read(path), self._signer()
        if data is None or signer is None:
            return data
        signature = self._below.read(path + SIGNATURE_SUFFIX)
        try:
            check(path.rpartition("/")[2], data, signature, {signer.public})
        except SignatureError as error:
            self._on_unsigned(f"{path}: {error}")
            return None
        return data

    @override
    def folders(self, path: str) -> list[str]:
        return self._below.folders(path)

    @override
    def remove_folder(self, path: str) -> None:
        self._below.remove_folder(path)


def open_destination(url: str) -> Destination:
    """Return the destination at a path or URL. Raises DestinationError."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return FolderDestination(Path(url))
    if scheme == "file":
        return FolderDestination(Path(rest))
    return RemoteDestination(*file_system(url))


def file_system(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, from pyarrow or fsspec, and the root path within it.

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


@contextmanager
def _naming(target: object) -> Iterator[None]:
    """Name the file in the errors raised inside."""
    try:
        yield
    except (ArrowException, OSError) as error:
        raise DestinationError(f"{target}: {error}") from error


class _Output(Output):
    """Implements Output over a file of Python or of pyarrow."""

    def __init__(self, file: "BinaryIO | NativeFile", target: object) -> None:
        self._file = file
        self._target = target

    @override
    def write(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._target}: {error}") from error


class FolderDestination(Destination):
    """A folder on a disk of this machine, or one mounted there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @override
    def write(self, path: str, data: bytes | memoryview) -> None:
        with self.create(path) as output:
            output.write(data)

    @override
    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        target = self._root / path
        temporary = target.with_name(target.name + _TEMPORARY)
        with _naming(target):
            _make_folder(target.parent)
            file = temporary.open("wb", _BUFFERED_BYTES)
        try:
            yield _Output(file, target)
            with _naming(target):
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(target)
                _sync_folder(target.parent)
        finally:
            with suppress(OSError):  # whatever is still buffered belongs to no file
                file.close()

    @override
    def read(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DestinationError(f"{self._root / path}: {error}") from error

    @override
    def folders(self, path: str) -> list[str]:
        try:
            return sorted(found.name for found in (self._root / path).iterdir() if found.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DestinationError(f"{self._root / path}: {error}") from error

    @override
    def remove_folder(self, path: str) -> None:
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
    """Create a folder and its parents so that they survive a power loss."""
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


class RemoteDestination(Destination):
    """A file system that pyarrow can reach."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        self._files = files
        self._root = root
        self._puts_whole = files.type_name in _OBJECT_STORES

    @override
    def write(self, path: str, data: bytes | memoryview) -> None:
        with self.create(path) as output:
            output.write(data)

    @override
    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        target = self._full(path)
        name = target if self._puts_whole else target + _TEMPORARY
        with _naming(target):
            if not self._puts_whole:
                self._files.create_dir(target.rpartition("/")[0], recursive=True)
            stream = self._files.open_output_stream(name)
        try:
            yield _Output(stream, target)
            with _naming(target):
                stream.close()
                if not self._puts_whole:
                    self._files.move(name, target)
        finally:
            with suppress(ArrowException, OSError):
                stream.close()

    @override
    def read(self, path: str) -> bytes | None:
        target = self._full(path)
        try:
            if self._files.get_file_info(target).type is not fs.FileType.File:
                return None
            with self._files.open_input_stream(target) as stream:
                data: bytes = stream.read()
                return data
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{target}: {error}") from error

    @override
    def folders(self, path: str) -> list[str]:
        selector = fs.FileSelector(self._full(path), allow_not_found=True)
        try:
            found = self._files.get_file_info(selector)
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._full(path)}: {error}") from error
        return sorted(one.base_name for one in found if one.type is fs.FileType.Directory)

    @override
    def remove_folder(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                self._files.delete_dir(self._full(path))
        except (ArrowException, OSError) as error:
            raise DestinationError(f"{self._full(path)}: {error}") from error

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"
