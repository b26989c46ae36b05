"""The bytes of one record of the log (docs/log.md, Records).

A record is a header of 64 bytes, its data, and zeros up to a multiple of 64. The header's checksum
is seeded with the incarnation of the segment and covers the checksums of the previous record and
of the data: it can be checked alone, and it links the record to exactly one predecessor.

Both the seed and the tag that every header of a segment begins with depend on the log's salt,
which no peer knows: recovery, searching behind a torn write, does not mistake a message whose body
imitates a record for one.
"""

import struct
from enum import IntEnum
from hashlib import blake2b

import msgspec

from raft.log.checksum import crc32
from raft.log.files import Buffer
from raft.types import Configuration, EntryKind, GroupId, HardState, SnapshotMeta

RECORD_ALIGNMENT_BYTES = 64
"""A cache line: copying a large entry to such an offset takes a third less time."""
RECORD_HEADER_BYTES = 64

_FIELDS = struct.Struct("<4sB3xIIQQQQII4x")
_CHECKSUM = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_KEYS = struct.Struct("<4sI")
_FLOOR = struct.Struct("<QQQ")
_COMMIT = struct.Struct("<Q")
_UNUSED_OFFSET = _FIELDS.size - 4
_REMAINDERS = tuple(crc32(bytes([byte])) ^ crc32(b"\0") for byte in range(256))
_BY_TOP_BYTE = {remainder >> 24: at for at, remainder in enumerate(_REMAINDERS)}
_PADDING = tuple(bytes(count) for count in range(RECORD_ALIGNMENT_BYTES))


class RecordKind(IntEnum):
    """The kind of a record. Entries use the numbers of EntryKind."""

    NOOP = EntryKind.NOOP
    DATA = EntryKind.DATA
    CONFIG = EntryKind.CONFIG
    HARD_STATE = 16
    TRUNCATE = 17
    """Entries above `index` are void."""
    FLOOR = 18
    """Where the log begins (`Floor`); segments before that are retired."""
    RESET = 19
    """All entries before this record are void and the log begins behind a snapshot (`Floor`)."""
    OPENED = 20
    """The log was recovered, and everything before this record is durable. It is synced before
    anything is appended after it, so that remains of a cut tail never link up again."""
    SYNCED = 21
    """Carries only what is synced, when the log is idle (`Log.mark_synced`)."""


LAST_ENTRY_KIND = RecordKind.CONFIG
_KINDS = frozenset(int(kind) for kind in RecordKind)


class Header(msgspec.Struct, frozen=True, gc=False):
    """A record's header with a valid checksum."""

    kind: int
    length: int
    """Length of the data in bytes."""
    term: int
    index: int
    """Index of the entry; for other kinds the last index of the log after this record."""
    synced_index: int
    """Highest index known to be synced when the record was written."""
    synced_position: int
    """Log position (docs/log.md) up to which everything was known to be synced then."""
    previous: int
    """Checksum of the previous record."""
    data_checksum: int
    checksum: int
    """Checksum of the header; the next record has it as `previous`."""


class Floor(msgspec.Struct, frozen=True):
    """Where the log begins, and what must still be known of what came before."""

    retired_below: int = 0
    """Segments of lower incarnations are retired, whether or not their files still exist."""
    base_index: int = 0
    """The entry before the first one of the log."""
    base_term: int = 0
    meta: SnapshotMeta | None = None
    """What the state machine has without the log, at or above the base; None in a new log."""


def record_bytes(length: int) -> int:
    """Return the space that a record with `length` bytes of data takes in a segment."""
    return (RECORD_HEADER_BYTES + length + RECORD_ALIGNMENT_BYTES - 1) & -RECORD_ALIGNMENT_BYTES


def padding(length: int) -> bytes:
    """Return the zeros that follow `length` bytes of data."""
    return _PADDING[-(RECORD_HEADER_BYTES + length) % RECORD_ALIGNMENT_BYTES]


class SegmentKeys(msgspec.Struct, frozen=True, gc=False):
    """Values that tell the records of one incarnation of a segment from other bytes."""

    group: GroupId
    tag: bytes
    """The first four bytes of every record."""
    seed: int
    """Start value of the headers' checksums."""


def segment_keys(group: GroupId, salt: int, incarnation: int) -> SegmentKeys:
    """Return the keys of a segment of the log with this salt (64 bits)."""
    digest = blake2b(_NUMBER.pack(incarnation), key=_NUMBER.pack(salt), digest_size=_KEYS.size)
    tag, seed = _KEYS.unpack(digest.digest())
    # The first byte is never zero: the search for tags goes over long stretches of zeros.
    return SegmentKeys(group, bytes([tag[0] | 1]) + tag[1:], seed)


def encode_header(
    keys: SegmentKeys,
    kind: int,
    term: int,
    index: int,
    data: Buffer,
    synced: tuple[int, int],
    previous: int,
) -> tuple[bytes, int]:
    """Return a header and its checksum. `synced` is (index, position)."""
    fields = _FIELDS.pack(
        keys.tag, kind, keys.group, len(data), term, index, *synced, previous, crc32(data)
    )
    checksum = crc32(fields, keys.seed)
    return fields + _CHECKSUM.pack(checksum), checksum


def with_checksum(header: bytes, keys: SegmentKeys, checksum: int) -> bytes:
    """Return a header that has this checksum instead of its own, by its four unused bytes."""
    fixed = header[:_UNUSED_OFFSET]
    # CRC-32 is linear: those bytes are what takes the sum of the fixed ones to the wanted one.
    state = checksum ^ 0xFFFFFFFF
    for _ in range(4):
        at = _BY_TOP_BYTE[state >> 24]
        state = (state ^ _REMAINDERS[at]) << 8 & 0xFFFFFFFF | at
    unused = state ^ crc32(fixed, keys.seed) ^ 0xFFFFFFFF
    return fixed + unused.to_bytes(4, "little") + _CHECKSUM.pack(checksum)


def parse_header(buffer: Buffer, offset: int, keys: SegmentKeys) -> Header | None:
    """Return the header at `offset`, or None when there is no valid one of this segment.

    The data is not read; it may extend beyond the buffer.
    """
    if len(buffer) - offset < RECORD_HEADER_BYTES:
        return None
    fields = _FIELDS.unpack_from(buffer, offset)
    tag, kind, group, length, term, index, synced_index, synced_position, *checksums = fields
    if tag != keys.tag or group != keys.group or kind not in _KINDS:
        return None
    end = offset + _FIELDS.size
    (checksum,) = _CHECKSUM.unpack_from(buffer, end)
    if crc32(memoryview(buffer)[offset:end], keys.seed) != checksum:
        return None
    previous, data_checksum = checksums
    return Header(
        kind,
        length,
        term,
        index,
        synced_index,
        synced_position,
        previous,
        data_checksum,
        checksum,
    )


def encode_hard_state(state: HardState) -> bytes:
    """Return the data of HARD_STATE; the term is in the header."""
    return _COMMIT.pack(state.commit) + (state.vote or "").encode()


def decode_hard_state(term: int, data: bytes) -> HardState:
    """Read what `encode_hard_state` wrote. Raises ValueError."""
    if len(data) < _COMMIT.size:
        raise ValueError("a hard state is too short")
    (commit,) = _COMMIT.unpack_from(data)
    return HardState(term, data[_COMMIT.size :].decode() or None, commit)


_Members = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_Meta = tuple[int, int, int, _Members]
_META = msgspec.msgpack.Decoder(_Meta | None)


def encode_floor(floor: Floor) -> bytes:
    """Return the data of FLOOR and RESET."""
    numbers = _FLOOR.pack(floor.retired_below, floor.base_index, floor.base_term)
    return numbers + encode_meta(floor.meta)


def decode_floor(data: bytes) -> Floor:
    """Read what `encode_floor` wrote. Raises ValueError."""
    if len(data) < _FLOOR.size:
        raise ValueError("a floor is too short")
    retired_below, base_index, base_term = _FLOOR.unpack_from(data)
    return Floor(retired_below, base_index, base_term, decode_meta(data[_FLOOR.size :]))


def encode_meta(meta: SnapshotMeta | None) -> bytes:
    """Return the bytes of a snapshot's meta: its fields in order, in MessagePack."""
    if meta is None:
        return msgspec.msgpack.encode(None)
    members = meta.configuration
    return msgspec.msgpack.encode(
        (
            meta.index,
            meta.term,
            meta.size_bytes,
            (members.voters, members.learners, members.retired),
        )
    )


def decode_meta(data: bytes) -> SnapshotMeta | None:
    """Read what `encode_meta` wrote. Raises ValueError."""
    try:
        meta = _META.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a snapshot's meta cannot be read: {error}") from error
    if meta is None:
        return None
    index, term, size_bytes, members = meta
    return SnapshotMeta(index, term, Configuration(*members), size_bytes)
