"""Results of numbered requests, as rows and as values.

A RESULT row holds the results that one command made for one client, ascending by number; its key
ends with the first number. Entries have a fixed layout. Since every receive makes a result, runs of
plain receives take over the rows of their positions unchanged. The value of any other command is
appended to its single entry as canonical msgpack.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from qm.model.values.rows import (
    POSITION_BODY,
    POSITION_ROW,
    RESULT_ENTRY,
    RESULT_RUN,
    Position,
    ResultKind,
    class_of,
)

_KIND_AT: Final = 14
"""Offset of ResultKind in entries and runs."""
_KEY_BYTES: Final = 8
_ROW_BYTES: Final = POSITION_ROW.size
_RUN_ENTRY_BYTES: Final = _KEY_BYTES + _ROW_BYTES
_VALUES = msgspec.msgpack.Encoder(order="deterministic")


class RequestResult(msgspec.Struct, frozen=True, gc=False):
    """Result of a numbered request."""

    number: int
    status: int
    """MQ_OK or an MQ_ERROR code."""
    flags: int = 0
    """PositionFlag bits of the message."""
    kind: ResultKind = ResultKind.NONE
    class_code: int = 0
    queue_id: int = 0
    lookup_identifier: int = 0
    body_index: int = 0
    body_offset: int = 0
    body_length: int = 0
    body_ordinal: int = 0
    body_crc32: int = 0
    source_queue_manager: bytes = bytes(16)
    message_ordinal: int = 0
    arrival_time: int = 0
    """Epoch seconds."""
    value: Any = None
    """Result of other commands, msgpack types only."""

    def pack(self) -> bytes:
        """Return a row with this result alone, or its entry in a run of reads."""
        entry = RESULT_ENTRY.pack(
            self.number,
            self.status,
            self.flags,
            self.kind if self.value is None else ResultKind.VALUE,
            self.class_code,
            self.queue_id,
            self.lookup_identifier,
            self.body_index,
            self.body_offset,
            self.body_length,
            self.body_ordinal,
            self.body_crc32,
            self.source_queue_manager,
            self.message_ordinal,
            self.arrival_time,
        )
        return entry if self.value is None else entry + _VALUES.encode(self.value)


def message_result(
    number: int, kind: ResultKind, queue_id: int, key: int, position: Position
) -> RequestResult:
    """Return the result of a read that found a position."""
    return RequestResult(
        number,
        0,
        position.flags,
        kind,
        position.class_code,
        queue_id,
        key,
        position.body_index,
        position.body_offset,
        position.body_length,
        position.body_ordinal,
        position.body_crc32,
        position.source_queue_manager,
        position.message_ordinal,
        position.arrival_time,
    )


def unpack_results(row: bytes) -> list[RequestResult]:
    """Return the results of a RESULT row, ascending by number."""
    if row[_KIND_AT] == ResultKind.RECEIVED_RUN:
        return _unpack_run(row)
    first = _result(RESULT_ENTRY.unpack_from(row))
    if first.kind is ResultKind.VALUE:
        value = msgspec.msgpack.decode(row[RESULT_ENTRY.size :])
        return [msgspec.structs.replace(first, kind=ResultKind.NONE, value=value)]
    return [first, *map(_result, RESULT_ENTRY.iter_unpack(row[RESULT_ENTRY.size :]))]


class Held(NamedTuple):
    """What a client's results up to some number hold."""

    results: int
    """Number of results."""
    body_bytes: int
    body_indexes: Sequence[int]
    body_ordinals: Sequence[int]


def held_upto(row: bytes, upto: int) -> Held:
    """Return what the results of a row up to a number hold."""
    if row[_KIND_AT] == ResultKind.RECEIVED_RUN:
        return _held_by_run(row, upto)
    indexes: list[int] = []
    ordinals: list[int] = []
    count = size = 0
    end = RESULT_ENTRY.size if row[_KIND_AT] == ResultKind.VALUE else len(row)
    for entry in map(_result, RESULT_ENTRY.iter_unpack(row[:end])):
        if entry.number > upto:
            break
        count += 1
        if entry.kind in (ResultKind.RECEIVED, ResultKind.BORROWED):
            size += entry.body_length
            indexes.append(entry.body_index)
            ordinals.append(entry.body_ordinal)
    return Held(count, size, indexes, ordinals)


def count_of(row: bytes) -> int:
    """Return how many results a row holds."""
    kind = row[_KIND_AT]
    if kind == ResultKind.VALUE:
        return 1
    if kind == ResultKind.RECEIVED_RUN:
        return (len(row) - RESULT_RUN.size) // _RUN_ENTRY_BYTES
    return len(row) // RESULT_ENTRY.size


def number_of(row: bytes) -> int:
    """Return the first number of a row."""
    return int.from_bytes(row[:8], "little")


def without_first(row: bytes, count: int) -> bytes:
    """Return a row without its first `count` results; b"" when none are left."""
    total = count_of(row)
    if count >= total:
        return b""
    if row[_KIND_AT] != ResultKind.RECEIVED_RUN:
        return row[count * RESULT_ENTRY.size :]
    number, *rest = RESULT_RUN.unpack_from(row)
    keys_at, rows_at = RESULT_RUN.size, RESULT_RUN.size + total * _KEY_BYTES
    keys = row[keys_at + count * _KEY_BYTES : rows_at]
    return RESULT_RUN.pack(number + count, *rest) + keys + row[rows_at + count * _ROW_BYTES :]


# Runs of received messages -----------------------------------------------------------------


class ResultRow:
    """Results of consecutive numbers in their packed form; a sequence of RequestResult."""

    __slots__ = ("body_bytes", "packed")

    def __init__(self, packed: bytes, body_bytes: int) -> None:
        self.packed = packed
        """The contents of the RESULT row."""
        self.body_bytes = body_bytes
        """Length of all bodies together."""

    def __len__(self) -> int:
        return count_of(self.packed)

    def first_number(self) -> int:
        """Return the number of the first result."""
        return number_of(self.packed)

    def unpack(self) -> list[RequestResult]:
        """Return the results as values."""
        return unpack_results(self.packed)

    def columns(self) -> "MessageColumns":
        """Return the results field by field, at a tenth of the cost of values."""
        row, count = self.packed, len(self)
        number, _, _, _, _, queue_id = RESULT_RUN.unpack_from(row)
        keys_end = RESULT_RUN.size + count * _KEY_BYTES
        fields = zip(*POSITION_ROW.iter_unpack(memoryview(row)[keys_end:]), strict=True)
        _, codes, flags, indexes, offsets, lengths, ordinals, checksums, _, _, *rest = fields
        return MessageColumns(
            range(number, number + count),
            (queue_id,) * count,
            Struct(f"<{count}Q").unpack_from(row, RESULT_RUN.size),
            _classes(codes),
            flags,
            indexes,
            offsets,
            lengths,
            ordinals,
            checksums,
            *rest,
        )


class MessageColumns(msgspec.Struct, frozen=True, gc=False):
    """Messages that were read, field by field: columns of RequestResult, all of one length."""

    numbers: Sequence[int]
    """Empty if the read had no numbers."""
    queue_ids: Sequence[int]
    lookup_identifiers: Sequence[int]
    message_classes: Sequence[int]
    """The queue manager's own acknowledgement class, 0: none."""
    flags: Sequence[int]
    body_indexes: Sequence[int]
    body_offsets: Sequence[int]
    body_lengths: Sequence[int]
    body_ordinals: Sequence[int]
    body_crc32s: Sequence[int]
    source_queue_managers: Sequence[bytes]
    message_ordinals: Sequence[int]
    arrival_times: Sequence[int]

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.lookup_identifiers)

    def part(self, begin: int, end: int) -> "MessageColumns":
        """Return the messages from `begin` up to before `end`."""
        return MessageColumns(*[column[begin:end] for column in msgspec.structs.astuple(self)])


def columns_of(results: Sequence[RequestResult]) -> MessageColumns:
    """Return results that have messages, as columns."""
    return MessageColumns(
        [one.number for one in results],
        [one.queue_id for one in results],
        [one.lookup_identifier for one in results],
        _classes([one.class_code for one in results]),
        [one.flags for one in results],
        [one.body_index for one in results],
        [one.body_offset for one in results],
        [one.body_length for one in results],
        [one.body_ordinal for one in results],
        [one.body_crc32 for one in results],
        [one.source_queue_manager for one in results],
        [one.message_ordinal for one in results],
        [one.arrival_time for one in results],
    )


def _classes(codes: Sequence[int]) -> Sequence[int]:
    return [class_of(code) for code in codes] if any(codes) else codes


def received_run(
    first_number: int, queue_id: int, keys: Sequence[int], rows: bytes, body_bytes: int
) -> ResultRow:
    """Return the results of numbers that received these positions; `rows` back to back."""
    head = RESULT_RUN.pack(first_number, 0, 0, ResultKind.RECEIVED_RUN, 0, queue_id)
    return ResultRow(head + Struct(f"<{len(keys)}Q").pack(*keys) + rows, body_bytes)


def _unpack_run(row: bytes) -> list[RequestResult]:
    number, _, _, _, _, queue_id = RESULT_RUN.unpack_from(row)
    count = count_of(row)
    keys = Struct(f"<{count}Q").unpack_from(row, RESULT_RUN.size)
    positions = POSITION_ROW.iter_unpack(row[RESULT_RUN.size + count * _KEY_BYTES :])
    return [
        message_result(number + k, ResultKind.RECEIVED, queue_id, key, Position(*position))
        for k, (key, position) in enumerate(zip(keys, positions, strict=True))
    ]


def _held_by_run(row: bytes, upto: int) -> Held:
    total = count_of(row)
    count = min(total, upto - number_of(row) + 1)
    if count < 1:
        return Held(0, 0, (), ())
    begin = RESULT_RUN.size + total * _KEY_BYTES
    rows = row[begin : begin + count * _ROW_BYTES]
    indexes, lengths, ordinals = zip(*POSITION_BODY.iter_unpack(rows), strict=True)
    return Held(count, sum(lengths), indexes, ordinals)


def consecutive_runs(results: list[RequestResult]) -> list[list[RequestResult]]:
    """Split results into rows: consecutive numbers together, a value in a row of its own.

    Rows never interleave, so the row of a number is the last one that starts at or below it.
    """
    runs: list[list[RequestResult]] = []
    for result in results:
        previous = runs[-1][-1] if runs else None
        if (
            previous is None
            or previous.number + 1 != result.number
            or previous.value is not None
            or result.value is not None
        ):
            runs.append([result])
        else:
            runs[-1].append(result)
    return runs


def _result(fields: tuple[Any, ...]) -> RequestResult:
    number, status, flags, kind, *rest = fields
    return RequestResult(number, status, flags, ResultKind(kind), *rest)
