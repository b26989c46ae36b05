"""Positions of a queue: browsing, peeking, counting."""

from typing import Final

import msgspec

from qm.model.messages.seek import select
from qm.model.messages.unlock import is_purge_pending
from qm.model.queries.view import SCANNED_ROWS_MAX, Page, View, Walk, page_size
from qm.model.state.ledger import LEVELS, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.commands import Selector
from qm.model.values.elements import LockKind
from qm.model.values.records import Lock, Obligation
from qm.model.values.rows import (
    POSITION_KEY,
    Position,
    PositionFlag,
    PositionState,
    class_of,
    unpack_position,
)
from qm.wire.codes import ErrorCode

_KEY_END: Final = LEVELS << 56


class PositionInfo(msgspec.Struct, frozen=True):
    """One MessagePosition (3.1.1.11) and what its row holds of the message."""

    queue_id: int
    lookup_identifier: int
    state: PositionState
    """PurgePending if a purge overtook the lock."""
    is_hidden: bool
    """A purge took it and no step has settled it yet: it is invisible to readers."""
    lock_kind: LockKind | None
    lock_owner: bytes
    """Transaction id, or client id in UTF-8 of a two-phase read; b"" when not locked."""
    flags: PositionFlag
    priority: int
    """Effective priority, 0 to 7."""
    source_queue_manager: bytes
    message_ordinal: int
    """Together with the source, the message's Identifier."""
    message_class: int
    """MessageClass that gives the reason of a dead letter; 0 for every other message."""
    arrival_time: int
    """Epoch seconds."""
    deadline_ms: int
    """When TimeToBeReceived ends, cluster time; 0 = never."""
    size_bytes: int
    body_index: int
    body_ordinal: int
    body_offset: int
    body_length: int
    body_crc32: int
    returns: int = 0
    """How often readers had it and did not take it."""
    aborts: int = 0
    moves: int = 0


class ClassCounts(msgspec.Struct, frozen=True):
    """Number of positions of a range per message_class."""

    counts: dict[int, int]
    """MessageClass -> positions."""
    next: int | None
    """LookupIdentifier to continue from; None: the range ends the queue."""


def position(view: View, queue_id: int, lookup_identifier: int) -> PositionInfo | None:
    """Return one position, visible or not; None if it does not exist."""
    queue = view.queue(queue_id)
    if queue is None or not 0 <= lookup_identifier < _KEY_END:
        return None
    found = view.ledger.position(queue_id, lookup_identifier)
    if found is None:
        return None
    return position_info(view, queue, lookup_identifier, found)


def browse(
    view: View,
    queue_id: int,
    *,
    after: int | None = None,
    limit: int = 100,
    is_backward: bool = False,
    with_hidden: bool = False,
) -> Page[PositionInfo, int]:
    """Return positions in order after `after`, a LookupIdentifier that need not exist.

    Locked positions are included, hidden ones only `with_hidden`. None = from the queue's start, or
    backward from its end.
    """
    queue = view.queue(queue_id)
    if queue is None:
        return Page([], None)
    wanted = page_size(limit)
    low, high = _bounds(queue, after, is_backward=is_backward, with_hidden=with_hidden)
    walk = Walk(
        view.ledger.state,
        Table.POSITION,
        POSITION_KEY.pack(queue_id, low),
        POSITION_KEY.pack(queue_id, high),
        backward=is_backward,
    )
    items: list[PositionInfo] = []
    last: int | None = None
    for row_key, row in walk:
        if len(items) == wanted:
            return Page(items, last)
        last = POSITION_KEY.unpack(row_key)[1]
        info = position_info(view, queue, last, unpack_position(row))
        if with_hidden or not info.is_hidden:
            items.append(info)
    return Page(items, last if walk.is_cut else None)


def _bounds(
    queue: QueueInHand, after: int | None, *, is_backward: bool, with_hidden: bool
) -> tuple[int, int]:
    """Return the range of keys; forward it begins at the known head if nothing is locked."""
    if is_backward:
        return 0, _KEY_END if after is None else max(0, min(after, _KEY_END))
    low = 0 if after is None else max(0, min(after + 1, _KEY_END))
    if not with_hidden and not any(queue.locked):
        empty = next((level for level in range(LEVELS) if queue.counts[level]), LEVELS)
        low = max(low, empty << 56)
    return low, _KEY_END


def position_info(view: View, queue: QueueInHand, key: int, found: Position) -> PositionInfo:
    """Return a position with its lock."""
    queue_id = queue.record.queue_id
    lock = None
    if found.flags & PositionFlag.HAS_LOCK:
        lock = view.ledger.record(Table.LOCK, POSITION_KEY.pack(queue_id, key), Lock)
    told = returns_of(view, queue_id, key) if found.flags & PositionFlag.HAS_OBLIGATION else None
    is_hidden = view.ledger.is_hidden(queue, key, found)
    state = PositionState(found.state)
    if lock is not None and not lock.is_enqueue() and is_purge_pending(queue, key):
        state = PositionState.PURGE_PENDING
    return PositionInfo(
        queue_id,
        key,
        state,
        is_hidden,
        None if lock is None else lock.kind,
        b"" if lock is None else lock.owner,
        PositionFlag(found.flags),
        7 - (key >> 56),
        found.source_queue_manager,
        found.message_ordinal,
        class_of(found.class_code),
        found.arrival_time,
        found.deadline_ms,
        found.stored_size_bytes,
        found.body_index,
        found.body_ordinal,
        found.body_offset,
        found.body_length,
        found.body_crc32,
        *((told.returns, told.aborts, told.moves) if told is not None else ()),
    )


def returns_of(view: View, queue_id: int, key: int) -> Obligation | None:
    """Return what is known of how a message was read before; None if it has left its queue."""
    return view.ledger.record(Table.OBLIGATION, POSITION_KEY.pack(queue_id, key), Obligation)


def peek(view: View, queue_id: int, selector: Selector) -> tuple[int, PositionInfo | None]:
    """Return (status, position) of a read that removes nothing (3.1.7.1.13 to .15).

    Status 0 with None: nothing at present; the caller may wait.
    """
    queue = view.queue(queue_id)
    if queue is None or queue.record.is_deleting:
        return ErrorCode.MQ_ERROR_QUEUE_NOT_AVAILABLE, None
    if not 0 <= selector.lookup_identifier < _KEY_END:
        return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None
    status, found = select(view.ledger, queue, selector, is_peek=True)
    return status, None if found is None else position_info(view, queue, *found)


def last_key(view: View, queue_id: int) -> int:
    """Return the highest LookupIdentifier in a queue, -1 if it is empty (DM-A17)."""
    if view.queue(queue_id) is None:
        return -1
    rows = view.ledger.state.scan(
        Table.POSITION,
        POSITION_KEY.pack(queue_id, 0),
        POSITION_KEY.pack(queue_id, _KEY_END),
        1,
        backward=True,
    )
    return int(POSITION_KEY.unpack(rows[0][0])[1]) if rows else -1


def count_classes(view: View, queue_id: int, *, after: int = -1) -> ClassCounts:
    """Count the positions after `after` by class: why there are dead letters.

    Reads SCANNED_ROWS_MAX positions; continue with `next`.
    """
    queue = view.queue(queue_id)
    counts: dict[int, int] = {}
    if queue is None:
        return ClassCounts(counts, None)
    rows, has_more = view.rows_after(
        Table.POSITION,
        POSITION_KEY.pack(queue_id, max(0, min(after + 1, _KEY_END))),
        POSITION_KEY.pack(queue_id, _KEY_END),
        SCANNED_ROWS_MAX,
    )
    key = after
    for row_key, row in rows:
        key = POSITION_KEY.unpack(row_key)[1]
        found = unpack_position(row)
        if not view.ledger.is_hidden(queue, key, found):
            message_class = class_of(found.class_code)
            counts[message_class] = counts.get(message_class, 0) + 1
    return ClassCounts(counts, key if has_more else None)
