"""The real file system (Linux) behind `raft.log.files`."""

import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from raft.log.files import Buffer, DirectoryTree, FatalDiskError, File

BUFFERS_PER_CALL = min(1024, os.sysconf("SC_IOV_MAX"))

_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = ctypes.CDLL(None).sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


class DiskFile(File):
    """An open file. Implements `raft.log.files.File`."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)

    @override
    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        # A short read may be due to a signal; only an empty one means the end of the file.
        parts = [data]
        missing = length - len(data)
        while missing and (data := os.pread(self._fd, missing, offset + length - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    @override
    def pwrite(self, data: Buffer, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._fd, rest, offset)
            offset += written
            rest = rest[written:]

    @override
    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), BUFFERS_PER_CALL):
            part = buffers[start : start + BUFFERS_PER_CALL]
            length = sum(map(len, part))
            written = os.pwritev(self._fd, part, offset)
            if written < length:
                self.pwrite(b"".join(part)[written:], offset + written)
            offset += length

    @override
    def write_out(self) -> None:
        """Start writing out; errors are reported by `fdatasync`."""
        _sync_file_range(self._fd, 0, 0, _SYNC_FILE_RANGE_WRITE)

    @override
    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise FatalDiskError(f"{self._path} cannot be synced: {error}") from error

    @override
    def allocate(self, length: int) -> None:
        os.posix_fallocate(self._fd, 0, length)

    @override
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    @override
    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DiskDirectory(DirectoryTree):
    """A folder, created if absent. Implements `raft.log.files.DirectoryTree`.

    Its descriptor is opened before the first change of names and kept: a sync that had to open the
    folder would end the process when there are too many open files.
    """

    _fd = -1

    def __init__(self, path: Path) -> None:
        """Create the folder if it is absent. Raises OSError."""
        self._path = path
        if not path.is_dir():
            path.mkdir(mode=0o700)
            _sync_directory(path.parent)

    @override
    def open(self, name: str, *, create: bool = False) -> DiskFile:
        if create:
            self._descriptor()
        return DiskFile(self._path / name, os.O_RDWR | (os.O_CREAT if create else 0))

    @override
    def names(self) -> list[str]:
        with os.scandir(self._path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    @override
    def rename(self, old: str, new: str) -> None:
        self._descriptor()
        (self._path / old).rename(self._path / new)

    @override
    def unlink(self, name: str) -> None:
        self._descriptor()
        (self._path / name).unlink()

    @override
    def subdirectory(self, name: str) -> "DiskDirectory":
        return DiskDirectory(self._path / name)

    @override
    def folders(self) -> list[str]:
        with os.scandir(self._path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    @override
    def remove_tree(self, name: str) -> None:
        self._descriptor()
        shutil.rmtree(self._path / name)

    @override
    def sync_tree(self, name: str) -> None:
        for root, _, names in os.walk(self._path / name):
            for each in names:
                _sync_path(Path(root) / each, os.O_RDONLY)
            _sync_directory(Path(root))

    @override
    def sync(self) -> None:
        _sync_descriptor(self._descriptor(), self._path)

    def _descriptor(self) -> int:
        """Return the descriptor of the folder as it is now. Raises OSError."""
        found = self._path.stat()
        if self._fd >= 0 and os.path.samestat(found, os.fstat(self._fd)):
            return self._fd
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.close()
        self._fd = fd
        return fd

    @override
    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close

    @override
    def free_bytes(self) -> int:
        status = os.statvfs(self._path)
        return status.f_bavail * status.f_frsize


class ReadOnlyDirectory(DiskDirectory):
    """A folder that another process may be using: nothing in it can be changed through this."""

    def __init__(self, path: Path) -> None:
        """Creates nothing. Operations that would change something raise OSError (EROFS)."""
        self._path = path

    @override
    def open(self, name: str, *, create: bool = False) -> DiskFile:
        """Open for reading. Raises FileNotFoundError."""
        if create:
            raise self._refusal(name)
        return DiskFile(self._path / name, os.O_RDONLY)

    @override
    def rename(self, old: str, new: str) -> None:
        """Refuse it."""
        raise self._refusal(old)

    @override
    def unlink(self, name: str) -> None:
        """Refuse it."""
        raise self._refusal(name)

    @override
    def remove_tree(self, name: str) -> None:
        """Refuse it."""
        raise self._refusal(name)

    @override
    def sync_tree(self, name: str) -> None:
        """Refuse it."""
        raise self._refusal(name)

    @override
    def subdirectory(self, name: str) -> DiskDirectory:
        """Return an existing folder, which is for reading only as well."""
        return ReadOnlyDirectory(self._path / name)

    @override
    def sync(self) -> None:
        """Refuse it."""
        raise self._refusal("")

    def _refusal(self, name: str) -> OSError:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), str(self._path / name))


def _sync_directory(path: Path) -> None:
    """Make the names in a folder durable. Raises FatalDiskError."""
    _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync_path(path: Path, flags: int) -> None:
    """Make a file or a folder durable. Raises FatalDiskError."""
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        _sync_descriptor(fd, path)
    finally:
        os.close(fd)


def _sync_descriptor(fd: int, path: Path) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise FatalDiskError(f"{path} cannot be synced: {error}") from error
