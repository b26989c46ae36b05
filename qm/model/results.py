"""Results of numbered requests, as rows and as values.

A RESULT row holds the results that one command made for one client, ascending by number; its key
ends with the first number. Entries have a fixed layout, since every receive makes one; the value of
any other command is appended to its single entry as canonical msgpack.
"""

from typing import Any

import msgspec

from qm.model.rows import RESULT_ENTRY, Position, ResultKind

_VALUES = msgspec.msgpack.Encoder(order="deterministic")


class RequestResult(msgspec.Struct, frozen=True, gc=False):
    """What a numbered request came to."""

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
    """What other commands return, msgpack types only."""

    def pack(self) -> bytes:
        """Return the row of this result alone, or its entry in a run of reads."""
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
    first = _result(RESULT_ENTRY.unpack_from(row))
    if first.kind is ResultKind.VALUE:
        value = msgspec.msgpack.decode(row[RESULT_ENTRY.size :])
        return [msgspec.structs.replace(first, kind=ResultKind.NONE, value=value)]
    return [first, *map(_result, RESULT_ENTRY.iter_unpack(row[RESULT_ENTRY.size :]))]


class ResultRow:
    """Results of consecutive numbers in their packed form; a sequence of RequestResult."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        """What the RESULT row holds."""

    def __len__(self) -> int:
        return len(self.packed) // RESULT_ENTRY.size

    def first_number(self) -> int:
        """Return the number of the first result."""
        return int.from_bytes(self.packed[:8], "little")

    def body_bytes(self) -> int:
        """Return the length of all bodies."""
        return sum(entry[9] for entry in RESULT_ENTRY.iter_unpack(self.packed))

    def unpack(self) -> list[RequestResult]:
        """Return the results as values."""
        return unpack_results(self.packed)


def held_bodies(row: bytes, upto: int) -> tuple[int, int, tuple[list[int], list[int]]]:
    """Return of the entries up to a number: how many, their bodies' bytes, and their bodies as
    columns of indexes and ordinals.
    """
    indexes: list[int] = []
    ordinals: list[int] = []
    count = size = 0
    end = RESULT_ENTRY.size if row[14] == ResultKind.VALUE else len(row)
    for entry in RESULT_ENTRY.iter_unpack(row[:end]):
        if entry[0] > upto:
            break
        count += 1
        if entry[3] in (ResultKind.RECEIVED, ResultKind.BORROWED):
            size += entry[9]
            indexes.append(entry[7])
            ordinals.append(entry[10])
    return count, size, (indexes, ordinals)


def consecutive_runs(results: list[RequestResult]) -> list[list[RequestResult]]:
    """Part results into rows: consecutive numbers, and a value in a row of its own.

    Rows never interleave, so that the row of a number is the last one that starts at or below it.
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
