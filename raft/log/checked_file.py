"""Small files that are replaced as a whole and verified when they are read.

Layout: a magic text whose last byte is the version of the format, a CRC-32 of the rest, the rest.
"""

from zlib import crc32

from raft.log.files import Directory

_NEW_SUFFIX = ".new"


def read_checked(directory: Directory, name: str, magic: bytes, bytes_max: int) -> bytes | None:
    """Return what `replace_checked` wrote, or None when it is damaged. Raises OSError."""
    file = directory.open(name)
    try:
        data = file.pread(bytes_max, 0)
    finally:
        file.close()
    head = len(magic) + 4
    body = data[head:]
    return body if data[:head] == magic + crc32(body).to_bytes(4, "little") else None


def replace_checked(directory: Directory, name: str, magic: bytes, body: bytes) -> None:
    """Replace the file durably. Blocks for its fsync. Raises OSError, FatalDiskError."""
    fresh = name + _NEW_SUFFIX
    _remove(directory, fresh)  # left by a crash; it may be longer than the new one
    file = directory.open(fresh, create=True)
    try:
        file.pwrite(magic + crc32(body).to_bytes(4, "little") + body, 0)
        file.fdatasync()
    finally:
        file.close()
    directory.rename(fresh, name)
    directory.sync()


def remove_checked(directory: Directory, name: str) -> None:
    """Remove the file durably, if there is one."""
    _remove(directory, name + _NEW_SUFFIX)
    if _remove(directory, name):
        directory.sync()


def _remove(directory: Directory, name: str) -> bool:
    """Remove the file; return whether it existed."""
    is_there = name in directory.names()
    if is_there:
        directory.unlink(name)
    return is_there
