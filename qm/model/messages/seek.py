"""Finding positions ([MS-MQDMPR] 3.1.7.3.2, .3): pure functions, used by apply and by peeks.

Seeks start after their starting point (DM-A2). They skip hidden positions and, in a peek, locked
ones whose sender did not allow peeking.
"""

from collections.abc import Sequence

from qm.model.messages.unlock import is_purge_pending
from qm.model.state.ledger import LEVELS, Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.commands import Selector, SelectorKind
from qm.model.values.limits import VERSION_OF_UNKNOWN_LOOKUPS
from qm.model.values.rows import (
    POSITION_KEY,
    SEQUENTIAL_ID_MAX,
    Position,
    PositionFlag,
    PositionState,
    unpack_position,
)
from qm.wire.codes import ErrorCode

_SCAN_ROWS = 256
_KEY_END = LEVELS << 56

Found = tuple[int, Position]


def is_visible(queue: QueueInHand, key: int, row: bytes, *, is_peek: bool) -> bool:
    """Whether a seek stops at this position."""
    if is_purge_pending(queue, key):
        return False
    if row[0] == PositionState.AVAILABLE:
        return True
    flags = unpack_position(row).flags
    return is_peek and bool(flags & PositionFlag.ALLOW_PEEK_WHEN_LOCKED)


def first(ledger: Ledger, queue: QueueInHand, *, is_peek: bool = False) -> Found | None:
    """Return the first position in order, or None."""
    for level in range(LEVELS):
        if not queue.counts[level]:
            continue
        if is_peek and queue.locked[level]:
            found = _forward(ledger, queue, level, level << 56, is_peek=True)
            if found is not None:
                return found
            continue
        head = queue.window(level).first(ledger.state)
        if head is not None:
            return head[0], unpack_position(head[1])
    return None


def forward(
    ledger: Ledger, queue: QueueInHand, after: int, *, is_peek: bool = False
) -> Found | None:
    """Return the next position after the key `after`."""
    low = max(after + 1, 0)
    for level in range(low >> 56, LEVELS):
        if queue.counts[level]:
            found = _forward(ledger, queue, level, low, is_peek=is_peek)
            if found is not None:
                return found
    return None


def _forward(
    ledger: Ledger, queue: QueueInHand, level: int, low: int, *, is_peek: bool
) -> Found | None:
    """Return the first position of a level at or after the key `low`.

    Tombstones of received messages precede what is linked: a scan crosses them only once.
    """
    queue_id, head = queue.record.queue_id, queue.linked_from[level]
    is_from_head, low = low <= head, max(low, head)
    high = POSITION_KEY.pack(queue_id, (level + 1) << 56)
    while True:
        rows = ledger.state.scan(Table.POSITION, POSITION_KEY.pack(queue_id, low), high, _SCAN_ROWS)
        if is_from_head and rows:
            queue.linked_from[level] = POSITION_KEY.unpack(rows[0][0])[1]
            is_from_head = False
        found = _first_visible(queue, rows, is_peek=is_peek)
        if found is not None or len(rows) < _SCAN_ROWS:
            return found
        low = POSITION_KEY.unpack(rows[-1][0])[1] + 1


def backward(
    ledger: Ledger, queue: QueueInHand, before: int, *, is_peek: bool = False
) -> Found | None:
    """Return the last position before the key `before`."""
    queue_id = queue.record.queue_id
    low, high = POSITION_KEY.pack(queue_id, 0), before
    while True:
        rows = ledger.state.scan(
            Table.POSITION, low, POSITION_KEY.pack(queue_id, high), _SCAN_ROWS, backward=True
        )
        found = _first_visible(queue, rows, is_peek=is_peek)
        if found is not None or len(rows) < _SCAN_ROWS:
            return found
        high = POSITION_KEY.unpack(rows[-1][0])[1]


def _first_visible(
    queue: QueueInHand, rows: Sequence[tuple[bytes, bytes]], *, is_peek: bool
) -> Found | None:
    """Return the first readable position among scanned rows."""
    for key_bytes, row in rows:
        key = POSITION_KEY.unpack(key_bytes)[1]
        if is_visible(queue, key, row, is_peek=is_peek):
            return key, unpack_position(row)
    return None


def select(
    ledger: Ledger, queue: QueueInHand, selector: Selector, *, is_peek: bool = False
) -> tuple[int, Found | None]:
    """Return (status, position). Status 0 with None: nothing now; a reader may wait.

    Statuses of a lookup are those of 3.1.7.3.3, as chosen in DM-A3 to DM-A5.
    """
    kind, key = selector.kind, selector.lookup_identifier
    if kind is SelectorKind.FIRST:
        return 0, first(ledger, queue, is_peek=is_peek)
    if kind is SelectorKind.AFTER:
        return 0, forward(ledger, queue, key, is_peek=is_peek)
    if kind is SelectorKind.EXACT:
        return _current(ledger, queue, key, is_peek=is_peek)
    if kind is SelectorKind.SEEK_LAST:
        found = backward(ledger, queue, _KEY_END, is_peek=is_peek)
    elif ledger.position(queue.record.queue_id, key) is None:
        # DM-A4: previous and next need the position from which they start.
        return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None
    elif kind is SelectorKind.SEEK_NEXT:
        found = forward(ledger, queue, key, is_peek=is_peek)
    else:
        found = backward(ledger, queue, key, is_peek=is_peek)
    return (0 if found is not None else ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND), found


def _current(
    ledger: Ledger, queue: QueueInHand, key: int, *, is_peek: bool
) -> tuple[int, Found | None]:
    """SeekCurrent (DM-A5)."""
    position = ledger.position(queue.record.queue_id, key)
    if position is None:
        # What was received leaves no row; what was never given is above the counter.
        is_judged = is_peek or ledger.behaviour >= VERSION_OF_UNKNOWN_LOOKUPS
        if is_judged and not _was_given(ledger, key):
            return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None
        return ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED, None
    if is_purge_pending(queue, key):
        return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None
    if position.state == PositionState.AVAILABLE:
        return 0, (key, position)
    if not is_peek:
        return ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, None
    if position.flags & PositionFlag.ALLOW_PEEK_WHEN_LOCKED:
        return 0, (key, position)
    return ErrorCode.MQ_ERROR_TRANSACTION_USAGE, None


def _was_given(ledger: Ledger, key: int) -> bool:
    """Whether a position may have had this LookupIdentifier."""
    level, sequential_id = key >> 56, key & SEQUENTIAL_ID_MAX
    return level < LEVELS and 0 < sequential_id <= ledger.counters.sequential_id
