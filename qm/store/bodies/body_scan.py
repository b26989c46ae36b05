"""The bodies that a state refers to, page by page, and checks of their copies in blob files."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, Table
from qm.model.values.records import SyntheticPacket, decode
from qm.model.values.results import RequestResult, unpack_results
from qm.model.values.rows import Position, unpack_position
from qm.store.bodies.body_places import BodyPlace, is_body
from qm.store.rocks import RocksState
from raft.log.files import Directory

_KEY_END: Final = b"\xff" * 300
"""Above every key: those of results begin with a client's id, which has at most 128 bytes."""
_TABLES: Final = (Table.POSITION, Table.RESULT, Table.SYNTHETIC)

Cursor: TypeAlias = tuple[int, bytes]
"""Number of the table in their order, first key of the next page."""
START: Final[Cursor] = (0, b"")


class KnownBody(NamedTuple):
    """A body and the message that it belongs to."""

    place: BodyPlace
    source_queue_manager: bytes
    """First part of the message's identifier; empty for the body of a report."""
    message_ordinal: int


def page(state: RocksState, cursor: Cursor, rows_max: int) -> tuple[Cursor | None, list[KnownBody]]:
    """Return the bodies that up to so many rows refer to, by entry, and where to go on; None at the
    end. A body that several rows refer to may come several times.
    """
    number, low = cursor
    table = _TABLES[number]
    rows = state.scan(table, low, _KEY_END, rows_max)
    found = [body for _, row in rows for body in _bodies(table, row)]
    found.sort(key=lambda body: (body.place.index, body.place.ordinal))
    if len(rows) == rows_max:
        return (number, rows[-1][0] + b"\0"), found
    return ((number + 1, b"") if number + 1 < len(_TABLES) else None), found


def pages(state: RocksState, rows_max: int) -> Iterator[list[KnownBody]]:
    """Yield all of them."""
    cursor: Cursor | None = START
    while cursor is not None:
        cursor, found = page(state, cursor, rows_max)
        yield found


def _bodies(table: Table, row: bytes) -> Iterable[KnownBody]:
    if table is Table.SYNTHETIC:
        body_of = decode(SyntheticPacket, row).body_of
        places = [] if body_of is None else [BodyPlace(*body_of)]
        return [KnownBody(place, b"", 0) for place in places]
    found: Sequence[Position | RequestResult]
    found = [unpack_position(row)] if table is Table.POSITION else unpack_results(row)
    return [
        KnownBody(
            BodyPlace(
                one.body_index, one.body_offset, one.body_length, one.body_ordinal, one.body_crc32
            ),
            one.source_queue_manager,
            one.message_ordinal,
        )
        for one in found
        if one.body_length and one.body_ordinal < BODY_ORDINAL_SYNTHETIC_FIRST
    ]


class Copy(NamedTuple):
    """A body's copy in a blob file."""

    file: str
    offset: int
    place: BodyPlace


class CopyCheck(msgspec.Struct, frozen=True):
    """Copies that are to be read through descriptors of their own."""

    directory: Directory
    copies: Sequence[Copy]

    def run(self) -> list[BodyPlace]:
        """Return the bodies whose copies are damaged, or in files that are gone: look again where
        they are. May be called from any thread.
        """
        damaged: list[BodyPlace] = []
        by_file: dict[str, list[Copy]] = {}
        for copy in self.copies:
            by_file.setdefault(copy.file, []).append(copy)
        for name, copies in by_file.items():
            damaged += self._damaged_in(name, copies)
        return damaged

    def _damaged_in(self, name: str, copies: list[Copy]) -> list[BodyPlace]:
        try:
            file = self.directory.open(name)
        except FileNotFoundError:
            return [copy.place for copy in copies]
        damaged = []
        try:
            for copy in copies:
                try:
                    data = file.pread(copy.place.length, copy.offset)
                except OSError:
                    data = b""
                if not is_body(data, copy.place):
                    damaged.append(copy.place)
        finally:
            file.close()
        return damaged
