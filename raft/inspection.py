"""Reads the log of a replica that does not run, and changes nothing.

It finds what a start would find: the records that link up, and everything that was synced.
"""

from collections.abc import Iterator
from types import TracebackType

import msgspec

from raft.core.membership import decode_configuration
from raft.log.contents import Contents
from raft.log.files import Directory
from raft.log.recovery import LogDamaged, Recovered, recover
from raft.log.segment import segment_numbers
from raft.types import Configuration, Entry, GroupId, HardState, SnapshotMeta

READ_BYTES = 4 << 20
"""Bytes of entries read at once."""


class SegmentInfo(msgspec.Struct, frozen=True):
    """One file of a log."""

    name: str
    first_index: int
    """Above `last_index` when it holds no entry."""
    last_index: int
    used_bytes: int
    size_bytes: int


class Inspection:
    """A log on disk, open for reading; a context manager."""

    def __init__(self, found: Recovered) -> None:
        """Use `open` instead."""
        self._found = found
        self._contents = Contents(found)

    @classmethod
    def open(cls, directory: Directory, group: GroupId) -> "Inspection":
        """Read every record. Raises LogDamaged with the exact place, FileNotFoundError when there
        is no log.
        """
        incarnations = segment_numbers(directory)
        if not incarnations:
            raise FileNotFoundError("there is no segment of a log in this folder")
        return cls(recover(directory, incarnations, group))

    @property
    def first_index(self) -> int:
        """Index of the oldest entry; `last_index + 1` when there is none."""
        return self._contents.first_index

    @property
    def last_index(self) -> int:
        """Index of the newest entry, or of the snapshot after which the log begins."""
        return self._contents.last_index

    @property
    def last_term(self) -> int:
        """Term at `last_index`."""
        return self._contents.last_term

    @property
    def synced_index(self) -> int:
        """Highest index that the log itself records as durable."""
        return self._found.synced_index

    @property
    def hard_state(self) -> HardState:
        """The newest hard state."""
        return self._found.hard_state

    @property
    def snapshot_meta(self) -> SnapshotMeta | None:
        """The snapshot after which the log begins; None for a log that begins at index 1."""
        return self._contents.floor.meta

    def configuration(self) -> Configuration:
        """Return the newest configuration, committed or not."""
        entries = self._contents.configuration_entries
        if entries:
            return decode_configuration(entries[-1].data)
        meta = self.snapshot_meta
        return Configuration(()) if meta is None else meta.configuration

    def segments(self) -> list[SegmentInfo]:
        """Return the files, oldest first."""
        return [
            SegmentInfo(
                segment.name,
                segment.table.first_index,
                segment.table.last_index,
                segment.end,
                segment.header.size_bytes,
            )
            for segment in self._contents.segments
        ]

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Yield those entries from `first` to `last` that exist. Raises LogDamaged."""
        low, high = max(first, self.first_index), min(last, self.last_index) + 1
        while low < high:
            page = self._contents.entries(low, high, READ_BYTES)
            yield from page
            low = page[-1].index + 1

    def close(self) -> None:
        """Close the files."""
        for segment in self._contents.segments:
            segment.file.close()

    def __enter__(self) -> "Inspection":
        """Return this inspection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


__all__ = ["Inspection", "LogDamaged", "SegmentInfo"]
