"""The file system as the log and the snapshots see it: few calls, each with its durability.

Two implementations pass the same tests: the real one (`raft.disk`) and the simulator's,
which loses, tears and flips bytes. No call here retries: an error of `fdatasync` ends the
process (DESIGN section 3), since the kernel may have dropped the dirty pages it failed on.
"""

from typing import Protocol


class File(Protocol):
    """An open file. Offsets and lengths are in bytes."""

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data`; visible to reads at once, durable after `fdatasync` alone.

        Raises OSError (ENOSPC when the disk is full); part of the data may then be written.
        """

    def fdatasync(self) -> None:
        """Make every earlier write durable. Safe to call from another thread than writes."""

    def allocate(self, length: int) -> None:
        """Extend to `length` bytes of zeros so that later writes need no new blocks."""

    def size(self) -> int:
        """Return the length of the file."""

    def close(self) -> None:
        """Close; implies no durability."""


class Directory(Protocol):
    """One flat folder that belongs to the caller alone."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`."""

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` in one step; durable after `sync`."""

    def unlink(self, name: str) -> None:
        """Remove the name; durable after `sync`."""

    def subdirectory(self, name: str) -> "Directory":
        """Return the folder of that name below this one, made if absent."""

    def sync(self) -> None:
        """Make creations, renames and removals durable."""

    def free_bytes(self) -> int:
        """Return the space left for this process."""
