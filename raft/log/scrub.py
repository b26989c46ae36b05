"""Reads a running log's records back, and writes a damaged entry's record again in its place.

Reading needs no hold: it goes through a descriptor of its own, and what it finds counts only if the
segment is still part of the log afterwards. A repair is written in the owner's thread, since the
file of a segment may be reused at any other moment; its sync may run in any thread.

A record that is written again has the checksum that the record behind it names, so the log links
up as before. Its header is kept where it is whole. Where it is lost, everything in it is known but
what was synced when it was written: then it carries what the record before it carries, which is
not too much, and its four unused bytes make the checksum the same (docs/log.md, Repair).
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from raft.log.checksum import crc32
from raft.log.contents import Contents
from raft.log.files import Directory, File
from raft.log.record import (
    RECORD_ALIGNMENT_BYTES,
    RECORD_HEADER_BYTES,
    Header,
    encode_header,
    parse_header,
    record_bytes,
    with_checksum,
)
from raft.log.recovery import LogDamaged
from raft.log.repair import corrected
from raft.log.segment import SEGMENT_HEADER_BYTES, Segment, fixed_header
from raft.log_view import LogViewError
from raft.types import Entry

SEARCH_BYTES: Final = 1 << 20
"""Read at once where the next whole record is searched for."""


class DamagedRange(msgspec.Struct, frozen=True):
    """Bytes of a segment that are not the records that were written there."""

    segment: Segment
    begin: int
    end: int


class Stretch(msgspec.Struct, frozen=True):
    """A part of a segment, from a record's beginning on."""

    directory: Directory
    segment: Segment
    begin: int
    end: int
    """Offset of the end of the segment's last record."""

    def read(self, bytes_max: int) -> tuple[int, list[DamagedRange]]:
        """Check records, at least one and more up to a number of bytes; return the log position
        behind them and what is damaged. May be called from any thread.
        """
        begin, segment = self.begin, self.segment
        try:
            file = self.directory.open(segment.name)
        except FileNotFoundError:
            return segment.header.base_position + self.end, []
        try:
            at, damaged = begin, []
            for low, high, is_whole in self.records(file):
                if not is_whole:
                    damaged.append(DamagedRange(segment, low, high))
                at = high
                if at - begin >= bytes_max:
                    break
        finally:
            file.close()
        return segment.header.base_position + at, damaged

    def records(self, file: File) -> Iterator[tuple[int, int, bool]]:
        """Yield (begin, end, whether it is whole) of records and of what lies between them."""
        at = self.begin
        if at <= SEGMENT_HEADER_BYTES:
            fixed = fixed_header(self.segment.header)
            yield 0, SEGMENT_HEADER_BYTES, _read(file, 0, len(fixed)) == fixed
            at = SEGMENT_HEADER_BYTES
        while at < self.end:
            header = parse_header(_read(file, at, RECORD_HEADER_BYTES), 0, self.segment.keys)
            if header is not None and at + record_bytes(header.length) <= self.end:
                data = _read(file, at + RECORD_HEADER_BYTES, header.length)
                end = at + record_bytes(header.length)
                yield at, end, crc32(data) == header.data_checksum and len(data) == header.length
            else:
                end = self._next_whole(file, at + RECORD_ALIGNMENT_BYTES)
                yield at, end, False
            at = end

    def _next_whole(self, file: File, begin: int) -> int:
        """Return the offset of the next header of this segment, or the end."""
        keys = self.segment.keys
        while begin < self.end:
            data = _read(file, begin, min(SEARCH_BYTES, self.end - begin))
            at = data.find(keys.tag)
            while at >= 0:
                if at % RECORD_ALIGNMENT_BYTES == 0 and parse_header(data, at, keys) is not None:
                    return begin + at
                at = data.find(keys.tag, at + 1)
            begin += SEARCH_BYTES
        return self.end


class RepairSync(msgspec.Struct, frozen=True):
    """Makes a repaired record durable."""

    file: File

    def run(self) -> None:
        """Sync; may be called from any thread, once. Raises FatalDiskError: stop the process."""
        try:
            self.file.fdatasync()
        finally:
            self.file.close()


class CannotRepair(Exception):
    """The record cannot be written again from this entry."""


class LogScrub:
    """The records of one log. Used in the thread of the log's owner."""

    def __init__(
        self, directory: Directory, contents: Contents, tail_checksum: Callable[[], int]
    ) -> None:
        """`tail_checksum`: of the last record."""
        self._directory = directory
        self._contents = contents
        self._tail_checksum = tail_checksum
        self.given_up = 0
        """Entries up to there are kept for no follower: see `give_up`."""

    def live_bytes(self) -> int:
        """Return the bytes of all records."""
        return sum(segment.end for segment in self._contents.segments)

    def stretch(self, position: int) -> Stretch | None:
        """Return what follows a log position at which a record ends; None at the end of the log.

        A position before the log gives its first record.
        """
        for segment in self._contents.segments:
            base = segment.header.base_position
            if position < segment.end_position and segment.end > SEGMENT_HEADER_BYTES:
                begin = max(position - base, SEGMENT_HEADER_BYTES)
                return Stretch(self._directory, segment, begin, segment.end)
        return None

    def damaged_entries(self, found: DamagedRange) -> list[int]:
        """Return the entries that are in a range and cannot be read."""
        if not self.holds(found):
            return []
        within = found.segment.table.between(found.begin, found.end)
        return [index for index in within if not self.is_whole(index)]

    def holds(self, found: DamagedRange) -> bool:
        """Whether the range is still part of the log and damaged: it may have been repaired, or its
        file have been reused, since it was read.
        """
        segment = found.segment
        if segment not in self._contents.segments:
            return False
        if found.end <= SEGMENT_HEADER_BYTES:
            fixed = fixed_header(segment.header)
            return _read(segment.file, 0, len(fixed)) != fixed
        stretch = Stretch(self._directory, segment, found.begin, found.end)
        return any(not is_whole for _, _, is_whole in stretch.records(segment.file))

    def last_index_of(self, found: DamagedRange) -> int:
        """Return the last entry of the range's segment: the log is whole again without it."""
        return found.segment.table.last_index

    def last_index_with(self, index: int) -> int:
        """Return the last entry of the segment that holds an entry. Raises LogViewError."""
        return self._contents.segment_of(index).table.last_index

    def give_up(self, upto: int) -> None:
        """Have the log dropped up to an entry, as soon as the state machine is durable without it,
        whatever is kept for followers: a record cannot be repaired, and what follows is whole.
        """
        self.given_up = max(self.given_up, upto)

    def range_of(self, index: int) -> DamagedRange:
        """Return the place of an entry's record. Raises LogViewError."""
        segment = self._contents.segment_of(index)
        offset, length = segment.table.place(index)
        return DamagedRange(segment, offset, offset + record_bytes(length))

    def correct(self, found: DamagedRange) -> RepairSync | None:
        """Write a damaged range again without help: a segment's header, or a record's of which one
        bit was flipped (`raft.log.repair.corrected`); None if it is not that. It counts when the
        returned sync has run.
        """
        segment = found.segment
        if found.end <= SEGMENT_HEADER_BYTES:
            return self._written(segment, 0, fixed_header(segment.header))
        try:
            before = self._before(segment, found.begin)
        except CannotRepair:
            return None
        previous = segment.header.previous if before is None else before.checksum
        data = _read(segment.file, found.begin, found.end - found.begin)
        fixed = corrected(data, segment.keys, previous)
        return None if fixed is None else self._written(segment, found.begin, fixed)

    def _written(self, segment: Segment, offset: int, data: bytes) -> RepairSync:
        file = self._directory.open(segment.name)
        try:
            file.pwrite(data, offset)
        except BaseException:
            file.close()
            raise
        return RepairSync(file)

    def is_whole(self, index: int) -> bool:
        """Whether an entry can be read; an entry that the log does not hold counts as whole."""
        try:
            self._contents.read_entry(index)
        except LogDamaged:
            return False
        except LogViewError:
            return True
        return True

    def term(self, index: int) -> int | None:
        """Return the term of an entry; None if the log does not hold it."""
        if not self._contents.first_index <= index <= self._contents.last_index:
            return None
        return self._contents.term(index)

    def entry(self, index: int, term: int) -> Entry | None:
        """Return an entry of a term if it is here and whole."""
        try:
            if self._contents.term(index) != term:
                return None
            return self._contents.entries(index, index + 1, 0)[0]
        except (LogViewError, LogDamaged):
            return None

    def repair(self, entry: Entry, *, is_confirmed: bool) -> RepairSync:
        """Write an entry again whose record is damaged; it counts when the returned sync has run.

        `is_confirmed`: two other members have it with the same bytes, which is asked for where the
        checksum of the data is lost with the header. Raises CannotRepair, LogViewError, and what
        writing raises: the record is then still damaged, or whole.
        """
        contents, index = self._contents, entry.index
        segment = contents.segment_of(index)
        offset, length = segment.table.place(index)
        if (len(entry.data), entry.term) != (length, contents.term(index)):
            raise CannotRepair(f"it is not the entry {index} of this log")
        header = parse_header(_read(segment.file, offset, RECORD_HEADER_BYTES), 0, segment.keys)
        if header is None or header.index != index:
            if not is_confirmed:
                raise CannotRepair("the checksum of its data is lost: two members must have it")
            fields = self._rebuilt(segment, offset, entry)
        elif (header.kind, header.data_checksum) != (entry.kind, crc32(entry.data)):
            raise CannotRepair(f"its data are not those of entry {index}")
        else:
            fields = b""
        if fields:
            return self._written(segment, offset, fields + entry.data)
        return self._written(segment, offset + RECORD_HEADER_BYTES, entry.data)

    def _rebuilt(self, segment: Segment, offset: int, entry: Entry) -> bytes:
        """Return the header of a record that links up with both of its neighbours."""
        before = self._before(segment, offset)
        previous = segment.header.previous if before is None else before.checksum
        synced = (0, 0) if before is None else (before.synced_index, before.synced_position)
        fields, _ = encode_header(
            segment.keys, entry.kind, entry.term, entry.index, entry.data, synced, previous
        )
        wanted = self._named_behind(segment, offset + record_bytes(len(entry.data)))
        return fields if wanted is None else with_checksum(fields, segment.keys, wanted)

    def _before(self, segment: Segment, offset: int) -> Header | None:
        """Return the header of the record that ends at an offset; None at the beginning."""
        table = segment.table
        earlier = table.between(0, offset)
        at = table.place(earlier[-1])[0] if earlier else SEGMENT_HEADER_BYTES
        header = None
        while at < offset:
            header = parse_header(_read(segment.file, at, RECORD_HEADER_BYTES), 0, segment.keys)
            if header is None:
                raise CannotRepair("the record before it is damaged, too: repair that one first")
            at += record_bytes(header.length)
        return header

    def _named_behind(self, segment: Segment, offset: int) -> int | None:
        """Return the checksum that the record at an offset, or the next segment, names as that of
        the one before it; None when its header is lost, too, and will be rebuilt after this one.
        """
        segments = self._contents.segments
        if offset < segment.end:
            header = parse_header(_read(segment.file, offset, RECORD_HEADER_BYTES), 0, segment.keys)
            return None if header is None else header.previous
        if segment is segments[-1]:
            return self._tail_checksum()
        return segments[segments.index(segment) + 1].header.previous


def _read(file: File, offset: int, length: int) -> bytes:
    """Return bytes of a file; fewer where the disk cannot read them."""
    try:
        return file.pread(length, offset)
    except OSError:
        return b""
