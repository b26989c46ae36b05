"""Transactional streams from other queue managers (3.1.1.5, [MS-MQQB] 3.1.1.5)."""

import msgspec

from qm.model.arrivals.duplicates import NAME_END, STREAM_NAME, STREAM_PREFIX
from qm.model.queries.view import SCANNED_ROWS_MAX, Page, View, page_size
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
    view: View, *, after: int = 0, limit: int = 100
) -> Page[IncomingSequence, int]:
    """Return the streams that ever carried a transactional message, by ascending stream id."""
    low = number_key(min(max(after, 0) + 1, _STREAM_ID_MAX))
    rows, has_more = view.rows_after(Table.SEQUENCE_IN, low, NUMBER_KEY_END, page_size(limit))
    items = [_sequence(view, key, row) for key, row in rows]
    return Page(items, items[-1].stream_id if has_more else None)


def sequences_of(view: View, source: bytes, limit: int) -> list[IncomingSequence]:
    """Return the first sequences of a source, by the name of their destination."""
    state = view.ledger.state
    streams = state.scan(
        Table.STREAM, STREAM_PREFIX + source, STREAM_PREFIX + source + NAME_END, SCANNED_ROWS_MAX
    )
    found: list[IncomingSequence] = []
    for _, key in streams:
        row = state.get(Table.SEQUENCE_IN, key)
        if row is not None and len(found) < limit:
            found.append(_sequence(view, key, row))
    return found


def _sequence(view: View, key: bytes, row: bytes) -> IncomingSequence:
    """Return the sequence of a stream, `key` being its number."""
    manager = view.ledger.manager
    own = manager.identifier if manager is not None else bytes(GUID_SIZE_BYTES)
    name = view.ledger.state.get(Table.STREAM, STREAM_NAME + key)
    assert name is not None, "a sequence without its stream"
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
