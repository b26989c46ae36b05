"""Outgoing queues (3.1.1.3) and their sequences (3.1.1.4): messages to send and acks awaited.

The administrative half of OutgoingQueue.State is here; the link's half, NextHops and
ConnectionHistory belong to the leader (DESIGN section 7).
"""

from typing import Final

import msgspec

from qm.model.queries.messages import PositionInfo, browse
from qm.model.queries.queues import list_queues
from qm.model.queries.view import SCANNED_ROWS_MAX, Page, View
from qm.model.state.ledger import QueueInHand
from qm.model.state.outgoing_queues import (
    NUMBERED_KEY,
    NUMBERED_PREFIX,
    OUTGOING_RECORD,
    admin_state_of,
    number_key,
    sequence_of,
)
from qm.model.state.tables import Table
from qm.model.values.elements import OutgoingAdminState, QueueKind
from qm.model.values.records import OutgoingPosition, decode
from qm.model.values.rows import POSITION_KEY, PositionFlag, PositionState

_NUMBERED_END: Final = NUMBERED_PREFIX + b"\xff" * NUMBERED_KEY.size


class SequencePlace(msgspec.Struct, frozen=True):
    """SEQUENCE_INFO: one message's place in its sequence."""

    sequence_identifier: int
    """TxSequenceID as u64, TimeStamp high."""
    sequence_number: int
    previous_number: int


class OutgoingQueueInfo(msgspec.Struct, frozen=True):
    """One outgoing queue."""

    queue_id: int
    destination_format_name: str
    base_priority: int
    admin_state: OutgoingAdminState
    message_count: int
    total_bytes: int
    is_deleting: bool
    eod_next_seq: SequencePlace | None
    """Numbers of the next message; None: nothing of a sequence is pending."""
    eod_last_ack: SequencePlace | None
    """Numbers of the last message that was order-acknowledged."""
    eod_first_non_ack: SequencePlace | None
    """Numbers of the oldest message that was numbered and not order-acknowledged."""
    eod_last_non_ack: SequencePlace | None
    eod_no_ack_count: int
    """Messages that are numbered and not yet settled."""
    eod_no_read_count: int
    """Order-acknowledged messages that await their final ack; at most SCANNED_ROWS_MAX."""


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A position of an outgoing queue with its numbers, for the sender."""

    position: PositionInfo
    place: SequencePlace | None
    """None: not transactional, or not numbered yet."""
    is_session_acked: bool
    is_order_acked: bool
    transaction_tag: int
    """TransactionHeader.Flags.ID."""

    @property
    def sent_time(self) -> int:
        """SentTime, epoch seconds: when the send was committed, the same for every attempt."""
        return self.position.arrival_time

    @property
    def is_first(self) -> bool:
        """FirstInTransaction."""
        return bool(self.position.flags & PositionFlag.FIRST_IN_TRANSACTION)

    @property
    def is_last(self) -> bool:
        """LastInTransaction."""
        return bool(self.position.flags & PositionFlag.LAST_IN_TRANSACTION)


def list_outgoing_queues(
    view: View, *, after: int = 0, limit: int = 100
) -> Page[OutgoingQueueInfo, int]:
    """Return outgoing queues by ascending queue_id."""
    queues = list_queues(view, after=after, limit=limit, kinds=(QueueKind.OUTGOING,))
    found = [outgoing_queue(view, one.queue_id) for one in queues.items]
    return Page([one for one in found if one is not None], queues.next)


def outgoing_queue(view: View, queue_id: int) -> OutgoingQueueInfo | None:
    """Return an outgoing queue; None if there is none."""
    queue = view.queue(queue_id)
    if queue is None or queue.record.kind is not QueueKind.OUTGOING:
        return None
    assert view.ledger.manager is not None, "a queue without its queue manager"
    sequence = sequence_of(view.ledger, queue_id)
    identifier, acked = sequence.sequence_identifier, sequence.last_acked_number
    is_live = bool(identifier)
    following, last = sequence.next_number, sequence.next_number - 1
    return OutgoingQueueInfo(
        queue_id,
        queue.record.pathname,
        queue.record.base_priority,
        admin_state_of(view.ledger.manager, queue.record),
        queue.count(),
        queue.total_bytes,
        queue.record.is_deleting,
        SequencePlace(identifier, following, following - 1) if is_live else None,
        SequencePlace(identifier, acked, acked - 1) if is_live and acked else None,
        _numbered(view, queue_id, identifier, acked, last, is_last=False),
        _numbered(view, queue_id, identifier, acked, last, is_last=True),
        sequence.pending_count,
        _unread(view, queue, identifier, acked),
    )


def count_numbered(view: View) -> int:
    """Return how many positions have a TxSequenceNumber. Reads a row for each."""
    count, low, has_more = 0, NUMBERED_PREFIX, True
    while has_more:
        rows, has_more = view.rows_after(Table.OUTGOING, low, _NUMBERED_END, SCANNED_ROWS_MAX)
        count += len(rows)
        low = rows[-1][0] + b"\0" if rows else low
    return count


def _numbered(
    view: View, queue_id: int, identifier: int, acked: int, last: int, *, is_last: bool
) -> SequencePlace | None:
    """Return the first or last linked position of a sequence that is not order-acknowledged."""
    if acked >= last:
        return None
    rows = view.ledger.state.scan(
        Table.OUTGOING,
        number_key(queue_id, identifier, acked + 1),
        number_key(queue_id, identifier, last) + b"\0",
        1,
        backward=is_last,
    )
    for _, row in rows:
        key = int.from_bytes(row, "big")
        numbers = view.ledger.record(
            Table.OUTGOING, OUTGOING_RECORD + POSITION_KEY.pack(queue_id, key), OutgoingPosition
        )
        return None if numbers is None else _place(numbers)
    return None


def _unread(view: View, queue: QueueInHand, identifier: int, acked: int) -> int:
    """Count messages that are order-acknowledged and still here: they await their final ack."""
    queue_id = queue.record.queue_id
    rows = view.ledger.state.scan(
        Table.OUTGOING,
        number_key(queue_id, 0, 0),
        number_key(queue_id, identifier, acked) + b"\0",
        SCANNED_ROWS_MAX,
    )
    return len(rows)


def _place(numbers: OutgoingPosition) -> SequencePlace | None:
    if not numbers.sequence_number:
        return None
    return SequencePlace(
        numbers.sequence_identifier, numbers.sequence_number, numbers.previous_number
    )


def outgoing_messages(
    view: View, queue_id: int, *, after: int | None = None, limit: int = 100
) -> Page[OutgoingMessage, int]:
    """Return the messages that an outgoing queue has to send, in order, without those that only
    wait for their final ack and those of an uncommitted transaction.
    """
    page = browse(view, queue_id, after=after, limit=limit)
    items = []
    for info in page.items:
        is_ready = info.state is PositionState.AVAILABLE and info.flags & PositionFlag.HAS_OUTGOING
        if is_ready:
            key = OUTGOING_RECORD + POSITION_KEY.pack(queue_id, info.lookup_identifier)
            row = view.ledger.state.get(Table.OUTGOING, key)
            numbers = OutgoingPosition() if row is None else decode(OutgoingPosition, row)
            items.append(
                OutgoingMessage(
                    info,
                    _place(numbers),
                    numbers.is_session_acked,
                    numbers.is_order_acked,
                    numbers.transaction_tag,
                )
            )
    return Page(items, page.next)
