"""Checks that every body that the rows of a state refer to exists and matches its checksum.

It is for a state without a log, as a snapshot leaves it: all bodies are in blob files. Bytes that
were damaged in transfer, or are of another stream, are thus found when the snapshot is installed,
not when the message is received.
"""

from collections.abc import Callable, Iterator
from typing import Final

from typing_extensions import override

from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, Table
from qm.model.values.records import SyntheticPacket, decode
from qm.model.values.results import unpack_results
from qm.model.values.rows import unpack_position
from qm.store.bodies.body_places import Bodies, BodyPlace
from qm.store.rocks import RocksState
from raft.log.files import Directory
from raft.log_view import Compacted
from raft.machine import Hold, LogReader

_PAGE_ROWS: Final = 1_024
_KEY_END: Final = b"\xff" * 300
"""Above every key: those of results begin with a client's id, which has at most 128 bytes."""


class _NoLog(LogReader):
    """A log that has dropped everything."""

    @override
    def read(self, index: int, offset: int, length: int) -> bytes:
        raise Compacted(f"entry {index}")

    @override
    def read_entry(self, index: int) -> bytes:
        raise Compacted(f"entry {index}")

    @override
    def hold(self, index: int) -> Hold:
        raise Compacted(f"entry {index}")

    @override
    def retirable(self, index: int) -> int:
        del index
        return 0  # there is nothing left to drop

    @override
    def on_retire(self, callback: Callable[[int, int], None]) -> None:
        pass  # nothing will be dropped


def prove_bodies(state: RocksState, blobs: Directory) -> int:
    """Read each body that a row refers to; return their number. Raises BodyDamaged."""
    bodies = Bodies(state, _NoLog(), blobs, lambda: None)
    count = 0
    try:
        for page in _pages(state):
            # Bodies of neighbouring keys are adjacent in the files.
            for place in sorted(page, key=lambda place: (place.index, place.ordinal)):
                bodies.read(place)
            count += len(page)
    finally:
        bodies.close()
    return count


def _pages(state: RocksState) -> Iterator[list[BodyPlace]]:
    for table in (Table.POSITION, Table.RESULT, Table.SYNTHETIC):
        low = b""
        while rows := state.scan(table, low, _KEY_END, _PAGE_ROWS):
            low = rows[-1][0] + b"\0"
            places = (place for _, row in rows for place in _places(table, row))
            yield [one for one in places if one.ordinal < BODY_ORDINAL_SYNTHETIC_FIRST]


def _places(table: Table, row: bytes) -> list[BodyPlace]:
    if table is Table.SYNTHETIC:
        body_of = decode(SyntheticPacket, row).body_of
        return [] if body_of is None else [BodyPlace(*body_of)]
    found = [unpack_position(row)] if table is Table.POSITION else unpack_results(row)
    return [
        BodyPlace(
            one.body_index, one.body_offset, one.body_length, one.body_ordinal, one.body_crc32
        )
        for one in found
        if one.body_length
    ]
