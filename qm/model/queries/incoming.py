"""Transactional streams from other queue managers (3.1.1.5, [MS-MQQB] 3.1.1.5)."""

import msgspec

from qm.model.arrivals.duplicates import NAME_END, STREAM_NAME, STREAM_PREFIX
from qm.model.queries.view import Page, View, Walk, page_size
from qm.model.state.addressing import sent_name
from qm.model.state.tables import Table
from qm.model.values.rows import NUMBER_KEY_END, SEQUENCE_IN_ROW, number_in, number_key
from qm.names.guid import GUID_SIZE_BYTES

_STREAM_ID_MAX = (1 << 64) - 1


class IncomingSequence(msgspec.Struct, frozen=True):
    """IncomingTransactionalTransferInfo: the last message of one stream."""

    stream_id: int
    sender_identifier: bytes
    """GUID of the sending queue manager."""
    queue_id: int
    """QueueReference; 0 if the name no longer leads to a local queue."""
    wire_name: bytes
    """FormatName that the sender used: its type and its bytes, as in packets."""
    format_name: str
    """The same as text: DestinationFormatName of the sender's outgoing queue."""
    sequence_identifier: int
    """u64, TimeStamp high."""
    sequence_number: int
    reject_count: int
    """Rejections since the last acceptance."""
    last_access_ms: int
    """Cluster time of the last acceptance or rejection."""


def list_incoming_sequences(
    view: View, *, after: int = 0, limit: int = 100, queue_id: int = 0
) -> Page[IncomingSequence, int]:
    """Return the streams that ever carried a transactional message, by ascending stream id; only
    those into a queue if one is given: a page may be short then and still have a next one.
    """
    low = number_key(min(max(after, 0) + 1, _STREAM_ID_MAX))
    rows, has_more = view.rows_after(Table.SEQUENCE_IN, low, NUMBER_KEY_END, page_size(limit))
    items = [
        _sequence(view, key, row)
        for key, row in rows
        if not queue_id or _destination(view, key) == queue_id
    ]
    return Page(items, number_in(rows[-1][0])[0] if has_more else None)


def sequences_of(
    view: View, source: bytes, *, after: bytes = b"", limit: int = 100
) -> Page[IncomingSequence, bytes]:
    """Return the sequences of a source, by the name of their destination; a page may be short and
    still have a next one.
    """
    begin = STREAM_PREFIX + source
    low = begin + after + b"\0" if after else begin
    walk = Walk(view.ledger.state, Table.STREAM, low, begin + NAME_END)
    found: list[IncomingSequence] = []
    last = after
    for name, key in walk:
        if len(found) == page_size(limit):
            return Page(found, last)
        last = name[len(begin) :]
        row = view.ledger.state.get(Table.SEQUENCE_IN, key)
        if row is not None:
            found.append(_sequence(view, key, row))
    return Page(found, last if walk.is_cut else None)


def _own(view: View) -> bytes:
    manager = view.ledger.manager
    return manager.identifier if manager is not None else bytes(GUID_SIZE_BYTES)


def _name(view: View, key: bytes) -> bytes:
    """Return the source and the destination's name of a stream, `key` being its number."""
    name = view.ledger.state.get(Table.STREAM, STREAM_NAME + key)
    assert name is not None, "a sequence without its stream"
    return name


def _destination(view: View, key: bytes) -> int:
    return max(view.registry.wire(_name(view, key)[GUID_SIZE_BYTES:], _own(view)), 0)


def _sequence(view: View, key: bytes, row: bytes) -> IncomingSequence:
    """Return the sequence of a stream, `key` being its number."""
    name, own = _name(view, key), _own(view)
    source, wire_name = name[:GUID_SIZE_BYTES], name[GUID_SIZE_BYTES:]
    sequence, number, rejects, last_access_ms = SEQUENCE_IN_ROW.unpack(row)
    return IncomingSequence(
        number_in(key)[0],
        source,
        max(view.registry.wire(wire_name, own), 0),
        wire_name,
        sent_name(wire_name, own),
        sequence,
        number,
        rejects,
        last_access_ms,
    )
