"""Rows of fixed layout for data that changes with every message; integers little-endian.

Keys are big-endian (`qm.model.state.tables`). Rows that change rarely are canonical msgpack
(`qm.model.values.records`).
"""

from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

import msgspec

POSITION_KEY: Final = Struct(">IQ")
"""queue_id u32, LookupIdentifier u64: key of POSITION, LOCK, OBLIGATION and OUTGOING."""
QUEUE_KEY: Final = Struct(">I")
DEADLINE_KEY: Final = Struct(">QIQ")
"""deadline_ms u64, queue_id u32, LookupIdentifier u64."""
BODY_KEY: Final = Struct(">QH")
"""index u64, ordinal u16: SYNTHETIC."""

EVENT_KEY: Final = Struct(">BQ")
"""EventKind u8, number u64."""
OUTBOX_KEY: Final = Struct(">Q")
"""outbox id u64."""

POSITION_ROW: Final = Struct("<BBHQIIHIIQ16sII")
"""state u8, class code u8 (`class_code`), flags u16, body index u64, body offset u32, body length
u32, body ordinal u16, body crc32 u32, stored size u32 (charged to quotas), deadline_ms u64 (0 =
none), source queue manager 16 bytes, message ordinal u32 (together the MessageIdentifier),
ArrivalTime in epoch seconds u32."""
POSITION_BODY: Final = Struct("<4xQ4xIH40x")
"""Taken from a POSITION row: body index, length, ordinal."""
assert POSITION_BODY.size == POSITION_ROW.size

STATS_ROW: Final = Struct("<8I8IIQQQQQ")
"""Visible positions per priority level (index = 7 - effective priority; locked ones included)
8 x u32, locked ones per level 8 x u32, hidden (Available at or below the purge watermark, still
linked) u32, TotalBytes u64, bytes of its subqueues u64, purge watermark (a SequentialID, 0 = none)
u64, arrivals ever u64, removals ever u64."""

CHAIN_ROW: Final = Struct(">Q32s")
"""META `chain`: index of the last DATA entry u64, chain value there (qm/archive/design.md)."""
CHAIN_START: Final = bytes(32)
"""Value before the first DATA entry."""

HISTORY_BITS: Final = 9
"""A history row is a bitmap of 2**9 ordinals: 64 bytes."""

BUCKET_BY_TIME_KEY: Final = Struct(">cQII")
"""0x00, forget_at_ms u64, 0, 0: the first key of rows due at that time."""
_U32: Final = Struct(">I")
_U32_MAX: Final = 0xFFFF_FFFF
_WIDE: Final = Struct(">IQ")
_U32_PAIR: Final = Struct(">II")
_U64: Final = Struct(">Q")


def number_key(number: int) -> bytes:
    """Return a 64-bit number as part of a key, in order: u32, or 0xFFFFFFFF and u64.

    Numbers of streams and sources were u32 once, and rows with such keys remain valid.
    """
    return _U32.pack(number) if number < _U32_MAX else _WIDE.pack(_U32_MAX, number)


def number_in(key: bytes, at: int = 0) -> tuple[int, int]:
    """Return a number that `number_key` wrote at offset `at`, and where it ends."""
    (number,) = _U32.unpack_from(key, at)
    return (number, at + 4) if number < _U32_MAX else (_U64.unpack_from(key, at + 4)[0], at + 12)


NUMBER_KEY_END: Final = b"\xff" * 13
"""Greater than every `number_key`."""


def history_key(stream_id: int, sent_time: int, high: int) -> bytes:
    """Return a HISTORY key: stream number, SentTime u32, message ordinal >> HISTORY_BITS u32."""
    return number_key(stream_id) + _U32_PAIR.pack(sent_time, high)


def bucket_rows(stream_id: int, sent_time: int) -> tuple[bytes, bytes]:
    """Return the bounds of the keys of a bucket's HISTORY rows."""
    prefix = number_key(stream_id) + _U32.pack(sent_time)
    return prefix, prefix + b"\xff" * 5


def high_of(row_key: bytes) -> int:
    """Return message ordinal >> HISTORY_BITS of a HISTORY key."""
    return int(_U32.unpack_from(row_key, len(row_key) - 4)[0])


def bucket_record_key(stream_id: int, sent_time: int) -> bytes:
    """Return the key of a HistoryBucket record: 0x01, number of the stream, SentTime u32."""
    return b"\x01" + number_key(stream_id) + _U32.pack(sent_time)


def bucket_by_time_key(forget_at_ms: int, stream_id: int, sent_time: int) -> bytes:
    """Return 0x00, forget_at_ms u64, number of the stream, SentTime u32."""
    key = number_key(stream_id) + _U32.pack(sent_time)
    return b"\x00" + _U64.pack(forget_at_ms) + key


def bucket_by_source_key(
    source_id: int, forget_at_ms: int, stream_id: int, sent_time: int
) -> bytes:
    """Return 0x02, number of the source, forget_at_ms u64, number of the stream, SentTime u32."""
    prefix = b"\x02" + number_key(source_id) + _U64.pack(forget_at_ms)
    return prefix + number_key(stream_id) + _U32.pack(sent_time)


def buckets_of_source(source_id: int, from_ms: int) -> tuple[bytes, bytes]:
    """Return the bounds of the keys of a source's buckets that are not due before `from_ms`."""
    prefix = b"\x02" + number_key(source_id)
    return prefix + _U64.pack(from_ms), prefix + b"\xff" * 9


def bucket_of(index_key: bytes) -> tuple[int, int, int]:
    """Return forget_at_ms, stream and SentTime of a `bucket_by_time_key` or source key."""
    at = 1 if index_key[:1] == b"\x00" else number_in(index_key, 1)[1]
    (forget_at_ms,) = _U64.unpack_from(index_key, at)
    stream_id, at = number_in(index_key, at + 8)
    return forget_at_ms, stream_id, int(_U32.unpack_from(index_key, at)[0])


SEQUENCE_IN_ROW: Final = Struct("<QIIQ")
"""SequenceIdentifier u64 (TimeStamp high), SequenceNumber u32, RejectCount u32,
LastAccessTime ms u64."""


LEASE_KEY: Final = Struct(">QB")
"""due_ms u64, LeaseKind u8; the owner's key follows."""
REQUEST_KEY: Final = Struct(">Q")
"""A request number, after the client's prefix."""

RESULT_ENTRY: Final = Struct("<QIHBBIQQIIHI16sII")
"""One committed result: number u64, status u32, PositionFlag bits u16, ResultKind u8, class
code u8, queue_id u32, LookupIdentifier u64, body index u64, body offset u32, body length u32, body
ordinal u16, body crc32 u32, source queue manager 16 bytes, message ordinal u32, ArrivalTime in
epoch seconds u32."""

RESULT_RUN: Final = Struct("<QIHBBI")
"""Start of a run of received messages with consecutive numbers, laid out like a result entry:
first number u64, status u32, 0 u16, ResultKind u8, 0 u8, queue_id u32. Then follow their
LookupIdentifiers, each u64, and their POSITION rows unchanged."""


class LeaseKind(IntEnum):
    """What becomes due; a LEASE row ends with the key of its owner."""

    CLIENT = 1
    """The client's session ends: client id."""
    CLIENT_FORGOTTEN = 2
    """Late retries are no longer answered: client id."""
    TRANSACTION = 3
    """The transaction was inactive for too long, or its owner is gone: transaction id."""
    OUTCOME_FORGOTTEN = 4
    """The outcome is no longer remembered: transaction id."""
    CLOSING = 5
    """What a closed client left behind is being settled: client id."""
    SEQUENCE = 6
    """An incoming sequence may have been silent for too long: number of the stream."""


class ResultKind(IntEnum):
    """Contents of a result entry."""

    NONE = 0
    """Only a status."""
    RECEIVED = 1
    """The message, which has left its queue: it would be lost with the result."""
    BORROWED = 2
    """The message of a two-phase or transactional read; it is still in its queue, locked."""
    VALUE = 3
    """A status and a value, which follows the entry; such a row has one entry."""
    RECEIVED_RUN = 4
    """Messages that have left their queue, in the layout of RESULT_RUN."""


class PositionState(IntEnum):
    """MessagePosition.State ([MS-MQDMPR] 3.1.1.11)."""

    AVAILABLE = 0
    LOCKED = 1
    PURGE_PENDING = 2
    # Deleted is the absence of the row.


class PositionFlag(IntFlag):
    """What apply must know of a message without reading its body."""

    RECOVERABLE = 0x0001
    TRANSACTIONAL = 0x0002
    ALLOW_PEEK_WHEN_LOCKED = 0x0004
    HAS_OBLIGATION = 0x0008
    """An OBLIGATION row says what must be done when the position ends."""
    HAS_LOCK = 0x0010
    EXPIRY_DUE = 0x0020
    """TimeToBeReceived passed while it was locked: settled on unlock (DM-A13)."""
    NEGATIVE_JOURNALING = 0x0040
    POSITIVE_JOURNALING = 0x0080
    HAS_OUTGOING = 0x0100
    """An OUTGOING row holds the sending side's numbers."""
    FROM_THIS_MANAGER = 0x0200
    """SourceMachineIdentifier is this queue manager."""
    WAS_ENCRYPTED = 0x0400
    SYSTEM = 0x0800
    """Made by apply: acknowledgement, journal or dead-letter copy, report."""
    FINAL_ACK_WANTED = 0x1000
    """TransactionHeader.FA of a message sent here."""
    FIRST_IN_TRANSACTION = 0x2000
    """FirstInTransaction, known when its transaction is prepared or commits."""
    LAST_IN_TRANSACTION = 0x4000
    """LastInTransaction, likewise."""
    AUTHENTICATED = 0x8000
    """Its signature counts: SecurityHeader.Flags.AS is what the edge verified. Without this flag AS
    is what the sender wrote, which proves nothing."""


class Position(msgspec.Struct, gc=False):
    """A decoded POSITION row; mutable, since apply edits it in place before writing it back."""

    state: int
    class_code: int
    flags: int
    body_index: int
    body_offset: int
    body_length: int
    body_ordinal: int
    body_crc32: int
    stored_size_bytes: int
    deadline_ms: int
    source_queue_manager: bytes
    message_ordinal: int
    arrival_time: int
    """Epoch seconds of cluster time (3.1.1.12 ArrivalTime)."""

    def pack(self) -> bytes:
        """Return the row."""
        return POSITION_ROW.pack(
            self.state,
            self.class_code,
            self.flags,
            self.body_index,
            self.body_offset,
            self.body_length,
            self.body_ordinal,
            self.body_crc32,
            self.stored_size_bytes,
            self.deadline_ms,
            self.source_queue_manager,
            self.message_ordinal,
            self.arrival_time,
        )


def unpack_position(row: bytes) -> Position:
    """Return the position of a POSITION row."""
    return Position(*POSITION_ROW.unpack(row))


SEQUENTIAL_ID_MAX: Final = (1 << 56) - 1
_CLASS_CODE_KIND: Final = 0xC0


def class_code(message_class: int) -> int:
    """Return an acknowledgement class as the byte used in rows; 0 = the packet's own class.

    Classes differ in their two highest bits and their lowest six ([MS-MQMQ] 2.2.18.1.6).
    """
    return message_class >> 8 & _CLASS_CODE_KIND | message_class & ~_CLASS_CODE_KIND & 0xFF


def class_of(code: int) -> int:
    """Return the MessageClass of a class code."""
    return (code & _CLASS_CODE_KIND) << 8 | code & ~_CLASS_CODE_KIND


def lookup_identifier(effective_priority: int, sequential_id: int) -> int:
    """Return the order key of a position, u64 (DESIGN section 4, Order; DM-A1)."""
    return (7 - effective_priority) << 56 | sequential_id
