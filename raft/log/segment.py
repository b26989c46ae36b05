"""Segment files: their names and headers, and the place of each entry in them.

A segment begins with a header of 64 bytes and then holds records. Its incarnation is in its name
and in its header; once anything in it was synced, that number is never used again in the log. The
file is: a retired segment is renamed to a spare, then to a new segment, with its old bytes in it.
"""

import errno
import struct
from array import array
from bisect import bisect_left, bisect_right
from zlib import crc32

import msgspec

from raft.log.files import Directory, File
from raft.log.record import SegmentKeys, segment_keys
from raft.types import GroupId

SEGMENT_HEADER_BYTES = 64
SEGMENT_MIN_BYTES = 4096
SEGMENT_MAX_BYTES = 1 << 30
"""Offsets in a segment are stored in 32 bits."""

_MAGIC = b"qrseg\0\0"
FORMAT_VERSION = 1
_HEADER = struct.Struct("<7sBQQQQII")
_CHECKSUM = struct.Struct("<I")
_SUCCESSOR = struct.Struct("<QI")
_SUCCESSOR_OFFSET = _HEADER.size + _CHECKSUM.size
_SEGMENT_SUFFIX = ".segment"
_SPARE_SUFFIX = ".spare"
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


def is_disk_full(error: OSError) -> bool:
    """Return whether an error means a lack of space: giving up a reserve may help."""
    return error.errno in _NO_SPACE


def may_pass(error: OSError) -> bool:
    """Return whether an error means a lack of space or of file descriptors: nothing is damaged, and
    the same call may succeed later.
    """
    return is_disk_full(error) or error.errno in _NO_DESCRIPTOR


def segment_name(incarnation: int) -> str:
    """Return the file name of a segment."""
    return f"{incarnation:016x}{_SEGMENT_SUFFIX}"


def spare_name(number: int) -> str:
    """Return the file name of a spare; spares have numbers of their own."""
    return f"{number:016x}{_SPARE_SUFFIX}"


def _numbers(names: list[str], suffix: str) -> list[int]:
    """Return the numbers of the names with this suffix, ascending."""
    numbers = []
    for name in names:
        digits = name.removesuffix(suffix)
        if digits != name and len(digits) == 16 and set(digits) <= set("0123456789abcdef"):
            numbers.append(int(digits, 16))
    return sorted(numbers)


def segment_numbers(directory: Directory) -> list[int]:
    """Return the incarnations of the segments in a directory, ascending."""
    return _numbers(directory.names(), _SEGMENT_SUFFIX)


def spare_numbers(directory: Directory) -> list[int]:
    """Return the numbers of the spares in a directory, ascending."""
    return _numbers(directory.names(), _SPARE_SUFFIX)


class SegmentHeader(msgspec.Struct, frozen=True):
    """The contents of a segment's header."""

    group: GroupId
    incarnation: int
    base_position: int
    """Log position of the first byte of this file."""
    size_bytes: int
    """Size of the file. The next segment's base is this one's plus its size."""
    salt: int
    """Salt of the log; the same in all segments."""
    previous: int
    """Checksum of the last record before this segment; 0 in the first one of a log."""
    successor: int = 0
    """Incarnation of the next segment, once that is durable (`Segment.mark_successor`)."""


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the first SEGMENT_HEADER_BYTES of a segment; it has no successor yet."""
    fields = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        header.incarnation,
        header.base_position,
        header.size_bytes,
        header.salt,
        header.group,
        header.previous,
    )
    return (fields + _CHECKSUM.pack(crc32(fields))).ljust(SEGMENT_HEADER_BYTES, b"\0")


def fixed_header(header: SegmentHeader) -> bytes:
    """Return the part of a header that never changes."""
    return encode_segment_header(header)[:_SUCCESSOR_OFFSET]


def parse_segment_header(data: bytes) -> SegmentHeader | None:
    """Read what `encode_segment_header` wrote; None when it is not valid.

    Raises ValueError when it is valid but of another version.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    magic, version, incarnation, base, size, salt, group, previous = _HEADER.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc32(data[: _HEADER.size]) != checksum:
        return None
    if version != FORMAT_VERSION:
        raise ValueError(f"its format is {version}, this release reads {FORMAT_VERSION} only")
    successor, successor_checksum = _SUCCESSOR.unpack_from(data, _SUCCESSOR_OFFSET)
    if _successor_checksum(successor, checksum) != successor_checksum:
        successor = 0
    return SegmentHeader(group, incarnation, base, size, salt, previous, successor)


def _successor_checksum(successor: int, header_checksum: int) -> int:
    return crc32(successor.to_bytes(8, "little"), header_checksum)


class Table:
    """The places of a segment's entries: 8 bytes for each, plus 16 for each change of term."""

    def __init__(self, first_index: int) -> None:
        self.first_index = first_index
        self._offsets = array("I")
        self._lengths = array("I")
        self._term_starts = array("Q")
        self._terms = array("Q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_index(self) -> int:
        """Index of the last entry; `first_index - 1` when there is none."""
        return self.first_index + len(self._offsets) - 1

    def size_bytes(self) -> int:
        """Return the memory that the table takes."""
        arrays = (self._offsets, self._lengths, self._term_starts, self._terms)
        return sum(item.buffer_info()[1] * item.itemsize for item in arrays)

    def append(self, index: int, term: int, offset: int, length: int) -> None:
        """Add the next entry. `offset` is that of its record, `length` that of its data."""
        if not self._offsets:
            self.first_index = index
        if index != self.first_index + len(self._offsets):
            raise ValueError(f"entry {index} does not follow entry {self.last_index}")
        if not self._terms or self._terms[-1] != term:
            self._term_starts.append(index)
            self._terms.append(term)
        self._offsets.append(offset)
        self._lengths.append(length)

    def truncate(self, last_index: int) -> None:
        """Forget the entries above `last_index`."""
        keep = max(0, last_index - self.first_index + 1)
        if keep < len(self._offsets):
            del self._offsets[keep:], self._lengths[keep:]
            terms = bisect_right(self._term_starts, last_index)
            del self._term_starts[terms:], self._terms[terms:]
        if keep == 0:
            self.first_index = last_index + 1

    def place(self, index: int) -> tuple[int, int]:
        """Return (offset of the record, length of the data) of an entry of the segment."""
        at = index - self.first_index
        return self._offsets[at], self._lengths[at]

    def between(self, low: int, high: int) -> range:
        """Return the entries whose records begin at offsets in [low, high)."""
        begin, end = bisect_left(self._offsets, low), bisect_left(self._offsets, high)
        return range(self.first_index + begin, self.first_index + end)

    def term(self, index: int) -> int:
        """Return the term of an entry of the segment."""
        return self._terms[bisect_right(self._term_starts, index) - 1]


class Segment:
    """An open segment of the log."""

    def __init__(self, file: File, header: SegmentHeader, first_index: int) -> None:
        self.file = file
        self.header = header
        self.keys: SegmentKeys = segment_keys(header.group, header.salt, header.incarnation)
        self.table = Table(first_index)
        self.end = SEGMENT_HEADER_BYTES
        """Offset of the end of the last record."""

    @property
    def name(self) -> str:
        """The name of the file."""
        return segment_name(self.header.incarnation)

    @property
    def end_position(self) -> int:
        """Log position of the end of the last record."""
        return self.header.base_position + self.end

    def mark_successor(self, incarnation: int) -> None:
        """Note durably that this segment has a successor, which is durable.

        Without this note a lost newest segment could not be told from one that never existed.
        Blocks for the disk. Raises OSError (ENOSPC: nothing is noted), FatalDiskError.
        """
        (header_checksum,) = _CHECKSUM.unpack_from(encode_segment_header(self.header), _HEADER.size)
        checksum = _successor_checksum(incarnation, header_checksum)
        self.file.pwrite(_SUCCESSOR.pack(incarnation, checksum), _SUCCESSOR_OFFSET)
        self.file.fdatasync()


class Spare(msgspec.Struct, frozen=True):
    """An allocated file that waits to become a segment."""

    name: str
    file: File
    size_bytes: int


def make_spare(directory: Directory, name: str, size_bytes: int) -> Spare:
    """Allocate a file durably. Raises OSError (then no part of it is left), FatalDiskError."""
    file = directory.open(name, create=True)
    try:
        file.allocate(size_bytes)
    except OSError:
        # Free the part that was allocated: other writers need the space.
        file.close()
        directory.unlink(name)
        raise
    file.fdatasync()
    directory.sync()
    return Spare(name, file, size_bytes)


def make_first_segment(directory: Directory, spare: Spare, group: GroupId, salt: int) -> None:
    """Turn a spare into the first segment of a log.

    It gets its name only when its header is durable: a first segment without a valid header is
    damaged, not unfinished.
    """
    header = SegmentHeader(group, 1, 0, spare.size_bytes, salt, previous=0)
    spare.file.pwrite(encode_segment_header(header), 0)
    spare.file.fdatasync()
    spare.file.close()
    directory.rename(spare.name, segment_name(1))
    directory.sync()
