"""Repairs of a log that was refused at the start: one flipped bit, or an entry's data.

A single bit of a header is corrected without help: its checksum and the one of the record before
it confirm it together, 64 bits. So is one in the few data of records that are not entries, which
nobody else has. The data of an entry are written again if they are given with the right checksum:
correcting them by 32 bits alone would one day give other data. Everything else stays refused.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

import msgspec

from raft.log.checksum import crc32
from raft.log.files import Directory, File
from raft.log.record import (
    LAST_ENTRY_KIND,
    RECORD_HEADER_BYTES,
    Header,
    SegmentKeys,
    parse_header,
    record_bytes,
    segment_keys,
)
from raft.log.recovery import LogDamaged, read_alone
from raft.log.segment import (
    SEGMENT_HEADER_BYTES,
    parse_segment_header,
    segment_name,
    segment_numbers,
)
from raft.types import Entry, EntryKind, GroupId

CORRECTED_MAX_BYTES: Final = 1_024
"""Records that are not entries have less data."""


class WantedEntry(msgspec.Struct, frozen=True):
    """An entry whose data are damaged."""

    file: str
    offset: int
    header: Header

    @property
    def index(self) -> int:
        """Index of the entry."""
        return self.header.index

    @property
    def term(self) -> int:
        """Term of the entry."""
        return self.header.term

    def is_given_by(self, kind: EntryKind, data: bytes) -> bool:
        """Whether these are its kind and data."""
        header = self.header
        return (kind, len(data), crc32(data)) == (header.kind, header.length, header.data_checksum)

    def write(self, directory: Directory, data: bytes) -> None:
        """Write its data again, durably."""
        _write(directory.open(self.file), data, self.offset + RECORD_HEADER_BYTES)


def corrected(record: bytes, keys: SegmentKeys, previous: int) -> bytes | None:
    """Return a record in which one bit was flipped as it was written; None if that is not what
    damaged it. `record`: its bytes and perhaps more.
    """
    header = parse_header(record, 0, keys)
    if header is None:
        for fixed in _flips(record[:RECORD_HEADER_BYTES]):
            header = parse_header(fixed, 0, keys)
            if header is not None and header.previous == previous:
                data = record[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + header.length]
                return fixed + data if _has(data, header) else None
        return None
    data = record[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + header.length]
    if header.previous != previous or header.kind <= LAST_ENTRY_KIND:
        return None
    if len(data) == header.length <= CORRECTED_MAX_BYTES:
        for fixed in _flips(data):
            if _has(fixed, header):
                return record[:RECORD_HEADER_BYTES] + fixed
    return None


def repair(directory: Directory, group: GroupId, damaged: LogDamaged) -> WantedEntry | None:
    """Correct what made a log refused, durably, and return None; or return the entry whose data
    must be given. Raises `damaged` again when neither is possible. Blocks for the disk.
    """
    if damaged.file in directory.names():
        return _repair_file(directory, group, damaged.file, damaged)
    # Perhaps it was dropped, and damage hides the record that says so.
    for number in segment_numbers(directory):
        with suppress(LogDamaged):
            return _repair_file(directory, group, segment_name(number), damaged)
    raise damaged


def whole_entry(directory: Directory, group: GroupId, index: int, term: int) -> Entry | None:
    """Return an entry of a log that may be refused itself, if it is whole; None if it is not there.

    Members whose logs are all damaged, each elsewhere, repair each other by it. Blocks for the
    disk: reads headers of records, in the segment that is likely to hold the entry first.
    """
    numbers = segment_numbers(directory)
    numbers.sort(key=lambda number: (_last_before(directory, group, number) >= index, -number))
    for number in numbers:
        # One that cannot be read, or goes away meanwhile, is not the only one.
        with suppress(OSError), closing(directory.open(segment_name(number))) as file:
            found = _entry_of(file, group, index, term)
            if found is not None:
                return found
    return None


def _last_before(directory: Directory, group: GroupId, number: int) -> int:
    """Return the last index of the log before the batch that began a segment: a hint, since that
    batch may have begun in an earlier segment, or have replaced entries up to that index.
    """
    with suppress(OSError), closing(directory.open(segment_name(number))) as file:
        keys = _keys_of(file, group)
        first = None if keys is None else _header_at(file, SEGMENT_HEADER_BYTES, keys)
        if first is not None:
            return first.index
    return 0


def _entry_of(file: File, group: GroupId, index: int, term: int) -> Entry | None:
    keys = _keys_of(file, group)
    if keys is None:
        return None
    offset = SEGMENT_HEADER_BYTES
    while (header := _header_at(file, offset, keys)) is not None:
        if header.kind <= LAST_ENTRY_KIND and (header.index, header.term) == (index, term):
            data = file.pread(header.length, offset + RECORD_HEADER_BYTES)
            if _has(data, header):
                return Entry(index, term, EntryKind(header.kind), data)
        offset += record_bytes(header.length)
    return None


def _keys_of(file: File, group: GroupId) -> SegmentKeys | None:
    with suppress(ValueError):  # of another version
        segment = parse_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
        if segment is not None and segment.group == group:
            return segment_keys(group, segment.salt, segment.incarnation)
    return None


def _header_at(file: File, offset: int, keys: SegmentKeys) -> Header | None:
    return parse_header(file.pread(RECORD_HEADER_BYTES, offset), 0, keys)


def _repair_file(
    directory: Directory, group: GroupId, name: str, damaged: LogDamaged
) -> WantedEntry | None:
    file = directory.open(name)
    try:
        data = file.pread(file.size(), 0)
    except OSError as error:
        file.close()
        raise damaged from error
    header = _segment_header(data)
    if header is not None:
        _write(file, header, 0)
        return None
    scan = read_alone(file, name, data, group)
    if scan is None:
        file.close()
        raise damaged
    keys, offset, previous = scan
    fixed = corrected(data[offset:], keys, previous)
    if fixed is not None:
        _write(file, fixed, offset)
        return None
    file.close()
    found = parse_header(data, offset, keys)
    if found is None or found.previous != previous or found.kind > LAST_ENTRY_KIND:
        raise damaged
    return WantedEntry(name, offset, found)


def _segment_header(data: bytes) -> bytes | None:
    """Return a segment's header if one bit of it was flipped."""
    if parse_segment_header(data) is not None:
        return None
    for fixed in _flips(data[:SEGMENT_HEADER_BYTES]):
        try:
            if parse_segment_header(fixed) is not None:
                return fixed
        except ValueError:
            continue  # of another version, by chance
    return None


def _has(data: bytes, header: Header) -> bool:
    return len(data) == header.length and crc32(data) == header.data_checksum


def _flips(data: bytes) -> Iterator[bytes]:
    """Yield the bytes with each bit flipped in turn."""
    number = int.from_bytes(data, "little")
    for bit in range(8 * len(data)):
        yield (number ^ 1 << bit).to_bytes(len(data), "little")


def _write(file: File, data: bytes, offset: int) -> None:
    try:
        file.pwrite(data, offset)
        file.fdatasync()
    finally:
        file.close()
