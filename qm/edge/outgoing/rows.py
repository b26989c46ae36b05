"""The replicated rows that the sending side reads, between applied entries."""

from typing import Final

from qm.model.state.ledger import META_COUNTERS, META_QUEUE_MANAGER, QueueInHand
from qm.model.state.outgoing_queues import OUTGOING_RECORD, admin_state_of, number_key
from qm.model.state.registry import NameIndex
from qm.model.state.tables import State, Table
from qm.model.values.elements import OutgoingAdminState
from qm.model.values.records import (
    Counters,
    OutgoingPosition,
    OutgoingTransferInfo,
    Queue,
    QueueManager,
    decode,
)
from qm.model.values.rows import (
    POSITION_KEY,
    QUEUE_KEY,
    SEQUENTIAL_ID_MAX,
    Position,
    PositionFlag,
    PositionState,
    unpack_position,
)

LEVEL_SHIFT: Final = 56
"""In a LookupIdentifier the bits above this are the priority level (DESIGN section 4, Order)."""
# Plain numbers: an enumeration's operators cost more than reading the rows.
_HAS_OUTGOING: Final = int(PositionFlag.HAS_OUTGOING)
_TRANSACTIONAL: Final = int(PositionFlag.TRANSACTIONAL)
_AVAILABLE: Final = int(PositionState.AVAILABLE)
_BY_QUEUE: Final = b"\x00"
_OUTGOING_NAMES: Final = bytes((NameIndex.OUTGOING,))
_OUTGOING_NAMES_END: Final = bytes((NameIndex.OUTGOING + 1,))


def queue_manager(state: State) -> QueueManager | None:
    """Return the cluster's queue manager, None before its birth."""
    row = state.get(Table.META, META_QUEUE_MANAGER)
    return None if row is None else decode(QueueManager, row)


def apply_version(state: State) -> int:
    """Return the version of apply that the state has reached."""
    row = state.get(Table.META, META_COUNTERS)
    return 1 if row is None else decode(Counters, row).apply_version


def queue(state: State, queue_id: int) -> QueueInHand | None:
    """Return a queue with its counts, None if it is gone."""
    key = QUEUE_KEY.pack(queue_id)
    row = state.get(Table.QUEUE, key)
    if row is None:
        return None
    return QueueInHand(decode(Queue, row), state.get(Table.QUEUE_STATS, key))


def is_held(state: State, record: Queue) -> bool:
    """Whether an administrator, or HardenedSecurity, keeps a queue from sending."""
    manager = queue_manager(state)
    assert manager is not None, "a queue without its queue manager"
    return admin_state_of(manager, record) is not OutgoingAdminState.NORMAL


def outgoing_queue_ids(state: State, after: bytes, limit: int) -> tuple[list[int], bytes | None]:
    """Return a page of outgoing queues after a name, and the name to continue from, if any."""
    low = after + b"\0" if after else _OUTGOING_NAMES
    found = state.scan(Table.QUEUE_NAME, low, _OUTGOING_NAMES_END, limit)
    following = found[-1][0] if len(found) == limit else None
    return [int(QUEUE_KEY.unpack(row)[0]) for _, row in found], following


def sequence(state: State, queue_id: int) -> OutgoingTransferInfo:
    """Return a queue's outgoing sequence; a new record if it never had one."""
    row = state.get(Table.SEQUENCE_OUT, _BY_QUEUE + QUEUE_KEY.pack(queue_id))
    return OutgoingTransferInfo() if row is None else decode(OutgoingTransferInfo, row)


def sendable(state: State, queue_id: int, key: int, watermark: int) -> Position | None:
    """Return a position that may be sent now; None if it is gone, locked or hidden by a purge."""
    row = state.get(Table.POSITION, POSITION_KEY.pack(queue_id, key))
    if row is None:
        return None
    position = unpack_position(row)
    return position if _may_leave(position, key, watermark) else None


def sendables(
    state: State, queue_id: int, low: int, watermark: int, limit: int
) -> tuple[list[tuple[int, Position]], int]:
    """Return positions of the level of `low` that may be sent, and where its next page begins.

    At most `limit` rows are read; a key of the next level means that there are no more.
    """
    end = ((low >> LEVEL_SHIFT) + 1) << LEVEL_SHIFT
    found = state.scan(
        Table.POSITION, POSITION_KEY.pack(queue_id, low), POSITION_KEY.pack(queue_id, end), limit
    )
    page = []
    following = end
    for row_key, row in found:
        key = POSITION_KEY.unpack(row_key)[1]
        position = unpack_position(row)
        if _may_leave(position, key, watermark):
            page.append((key, position))
        if len(found) == limit:
            following = key + 1
    return page, following


def numbers(state: State, queue_id: int, key: int) -> OutgoingPosition | None:
    """Return the sending side's numbers of a position."""
    row = state.get(Table.OUTGOING, OUTGOING_RECORD + POSITION_KEY.pack(queue_id, key))
    return None if row is None else decode(OutgoingPosition, row)


def numbered(
    state: State, queue_id: int, identifier: int, first: int, last: int, limit: int
) -> list[tuple[int, int]]:
    """Return (number, key) of a sequence's positions from number `first` to `last`, ascending."""
    low = number_key(queue_id, identifier, first)
    high = number_key(queue_id, identifier, last) + b"\0"
    return [
        (int.from_bytes(row_key[-4:], "big"), int.from_bytes(row, "big"))
        for row_key, row in state.scan(Table.OUTGOING, low, high, limit)
    ]


def _may_leave(position: Position, key: int, watermark: int) -> bool:
    return (
        position.state == _AVAILABLE
        and bool(position.flags & _HAS_OUTGOING)
        and key & SEQUENTIAL_ID_MAX > watermark
    )


def is_transactional(position: Position) -> bool:
    """Whether a position's message has a number in a sequence."""
    return bool(position.flags & _TRANSACTIONAL)
