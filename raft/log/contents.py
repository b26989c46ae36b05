"""The index of a log in memory: the places of its entries, and how they are read back."""

from bisect import bisect_right
from operator import attrgetter

from raft.log.appender import Placed
from raft.log.checksum import crc32
from raft.log.record import (
    LAST_ENTRY_KIND,
    RECORD_HEADER_BYTES,
    Floor,
    Header,
    RecordKind,
    parse_header,
    record_bytes,
)
from raft.log.recovery import LogDamaged, Recovered, drop_above
from raft.log.segment import Segment
from raft.log_view import Compacted, Unavailable
from raft.types import Entry, EntryKind

READ_THROUGH_MAX_BYTES = 64 * 1024
"""Truncated entries of at most this size between others are read along instead of skipped."""

_FIRST_INDEX = attrgetter("table.first_index")


class Contents:
    """The entries of a log. Only `read` and `read_entry` may be called by others than its owner."""

    def __init__(self, found: Recovered) -> None:
        self.segments: list[Segment] = found.segments
        """Never empty. The list is replaced, never changed: `read` runs in other threads."""
        self.floor: Floor = found.floor
        self.configuration_entries: list[Entry] = found.configuration_entries
        self.last_index: int = found.last_index
        self.last_term: int = found.last_term

    @property
    def first_index(self) -> int:
        """Index of the first entry; `last_index + 1` when there is none."""
        return self.floor.base_index + 1

    def take(self, item: Placed) -> None:
        """Note a record that was written. Its segment is the newest, or follows it."""
        segment, kind, index = item.segment, item.kind, item.index
        if segment is not self.segments[-1]:
            segment.table.first_index = self.last_index + 1
            self.segments = [*self.segments, segment]
        if kind <= LAST_ENTRY_KIND:
            segment.table.append(index, item.term, item.offset, len(item.data))
            self.last_index, self.last_term = index, item.term
            if kind == RecordKind.CONFIG:
                entry = Entry(index, item.term, EntryKind.CONFIG, item.data)
                self.configuration_entries.append(entry)
        elif kind in (RecordKind.TRUNCATE, RecordKind.RESET):
            keep = index if kind == RecordKind.TRUNCATE else 0
            for earlier in self.segments:
                earlier.table.truncate(keep)
            drop_above(self.configuration_entries, keep)
            self.last_index, self.last_term = index, item.term

    def drop_oldest(self, count: int) -> list[Segment]:
        """Remove and return the oldest segments; the floor is above their entries."""
        dropped, self.segments = self.segments[:count], self.segments[count:]
        base_index = self.floor.base_index
        self.configuration_entries = [
            entry for entry in self.configuration_entries if entry.index > base_index
        ]
        return dropped

    def term(self, index: int) -> int:
        """Return the term of an entry, also of the base. Raises Compacted, Unavailable."""
        if index == self.last_index:
            return self.last_term
        if index == self.floor.base_index:
            return self.floor.base_term
        return self.segment_of(index).table.term(index)

    def entries(self, low: int, high: int, max_bytes: int) -> tuple[Entry, ...]:
        """Read entries. See `Log.entries`."""
        if low > high:
            raise ValueError(f"{low} to {high} is not a range of entries")
        entries: list[Entry] = []
        if low < high:
            self.segment_of(low)
            self.segment_of(high - 1)
        room = max_bytes
        while low < high:
            segment = self.segment_of(low)
            end = min(high, segment.table.last_index + 1)
            stop = low
            while stop < end:
                room -= segment.table.place(stop)[1]
                if room < 0 and (entries or stop > low):
                    break
                stop += 1
            if stop > low:
                entries += self._read_entries(segment, low, stop)
            if stop < end:
                break
            low = end
        return tuple(entries)

    def read(self, index: int, offset: int, length: int) -> bytes:
        """Read a part of an entry's data. See `Log.read`."""
        segment = self.segment_of(index)
        start, entry_bytes = segment.table.place(index)
        if offset < 0 or length < 0 or offset + length > entry_bytes:
            raise ValueError(
                f"entry {index} has {entry_bytes} bytes, not {length} from byte {offset} on"
            )
        return _pread(segment, start + RECORD_HEADER_BYTES + offset, length, index)

    def read_entry(self, index: int) -> memoryview:
        """Read an entry's data. See `Log.read_entry`."""
        segment = self.segment_of(index)
        start, length = segment.table.place(index)
        return _checked(segment, index, _pread(segment, start, record_bytes(length), index), 0)[1]

    def segment_of(self, index: int) -> Segment:
        """Return the segment that holds an entry. Raises Compacted, Unavailable."""
        if index <= self.floor.base_index:
            raise Compacted(f"entry {index} has been dropped; the log begins at {self.first_index}")
        if index > self.last_index:
            raise Unavailable(f"entry {index} is not there yet; the log ends at {self.last_index}")
        segments = self.segments
        return segments[bisect_right(segments, index, key=_FIRST_INDEX) - 1]

    def _read_entries(self, segment: Segment, low: int, high: int) -> list[Entry]:
        """Read and check entries of one segment, in as few reads as is sensible."""
        entries: list[Entry] = []
        place = segment.table.place
        start, length = place(low)
        end = start + record_bytes(length)
        first = low
        for index in range(low + 1, high):
            offset, length = place(index)
            if offset - end > READ_THROUGH_MAX_BYTES:
                entries += _read_run(segment, first, index, end)
                first = index
            end = offset + record_bytes(length)
        return entries + _read_run(segment, first, high, end)


def _read_run(segment: Segment, low: int, high: int, end: int) -> list[Entry]:
    """Read and check entries with one read up to the offset `end`. Raises LogDamaged."""
    start, _ = segment.table.place(low)
    data = _pread(segment, start, end - start, low)
    entries = []
    for index in range(low, high):
        offset, _ = segment.table.place(index)
        header, body = _checked(segment, index, data, offset - start)
        entries.append(Entry(index, header.term, EntryKind(header.kind), bytes(body)))
    return entries


def _checked(segment: Segment, index: int, data: bytes, at: int) -> tuple[Header, memoryview]:
    """Return header and data of an entry whose record begins at `at`. Raises LogDamaged."""
    offset, length = segment.table.place(index)
    header = parse_header(data, at, segment.keys)
    body = memoryview(data)[at + RECORD_HEADER_BYTES : at + RECORD_HEADER_BYTES + length]
    if header is None or header.index != index or crc32(body) != header.data_checksum:
        reason = "the record is no longer what was written"
        raise LogDamaged(segment.name, offset, index, reason)
    return header, body


def _pread(segment: Segment, offset: int, length: int, index: int) -> bytes:
    """Read from a segment. Raises LogDamaged when the disk cannot read it."""
    try:
        return segment.file.pread(length, offset)
    except OSError as error:
        raise LogDamaged(segment.name, offset, index, f"it cannot be read: {error}") from error
