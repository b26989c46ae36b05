"""The file system as the log and the snapshots see it: few calls, with defined durability.

Two implementations pass the same tests: the real one (`raft.log.disk`) and the simulator's,
which loses, tears and flips bytes. No call here retries: an error of `fdatasync` ends the
process (DESIGN section 3), since the kernel may have dropped the dirty pages it failed on.

After a crash, any subset of any pieces of the writes since the last `fdatasync` of a file may
remain, and any prefix of the changes of names since the last `sync` of a directory (a journaling
file system replays them in order). `allocate` counts as a write.
"""

import errno
from collections.abc import Sequence
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to write; not referenced after the call returns."""


class FatalDiskError(OSError):
    """The disk failed in such a way that unsynced writes cannot be trusted.

    Never retry and never continue: stop the process. What peers were told before remains true, and
    what was not synced was never promised; a restart reads back what the disk really has. `errno`
    is always EIO: even after a sync that failed for lack of space, waiting does not help.
    """

    def __init__(self, text: str) -> None:
        super().__init__(errno.EIO, text)


class File(Protocol):
    """An open file. Offsets and lengths are in bytes."""

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file. May be called from any
        thread.
        """

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data`; visible to reads at once, durable only after `fdatasync`.

        Raises OSError (ENOSPC when the disk is full); part of the data may then be written.
        """

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write the buffers one after the other, as one `pwrite` of their concatenation would.

        The log writes headers and entries' data with it, so that no payload is copied.
        """

    def write_out(self) -> None:
        """Have the disk start on what was written, without waiting, so that a sync that follows has
        less to do. Guarantees nothing and reports no errors.
        """

    def fdatasync(self) -> None:
        """Make every earlier write durable. May be called from another thread than writes.

        Raises FatalDiskError; the file must not be used afterwards.
        """

    def allocate(self, length: int) -> None:
        """Extend to `length` bytes of zeros so that later writes need no new blocks.

        Raises OSError (ENOSPC when the disk is full).
        """

    def size(self) -> int:
        """Return the length of the file."""

    def close(self) -> None:
        """Close the file without making anything durable."""


class Directory(Protocol):
    """One flat folder that only the caller uses.

    Calls may come from one other thread than the owner's (`Sync.run`).
    """

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError unless `create`.

        A new name is durable after `sync`. An existing file keeps its bytes.
        """

    def names(self) -> list[str]:
        """Return the names of the files (not of the folders), sorted."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` in one step; durable after `sync`. Open files stay open."""

    def unlink(self, name: str) -> None:
        """Remove the name; durable after `sync`. Open files stay readable."""

    def subdirectory(self, name: str) -> "Directory":
        """Return the folder of that name below this one, created durably if absent."""

    def sync(self) -> None:
        """Make creations, renames and removals durable. Raises FatalDiskError."""

    def free_bytes(self) -> int:
        """Return the space that this process can still use."""

    def close(self) -> None:
        """Give back what is kept for `sync`. The folder can be used again."""


class DirectoryTree(Directory, Protocol):
    """A folder with subfolders that are created and removed as a whole."""

    def folders(self) -> list[str]:
        """Return the names of the folders, sorted."""

    def remove_tree(self, name: str) -> None:
        """Remove a folder below this one with all its contents; durable after `sync`."""

    def sync_tree(self, name: str) -> None:
        """Make all contents of a folder below this one durable, names included, even if another
        process wrote them.

        Raises FatalDiskError.
        """
