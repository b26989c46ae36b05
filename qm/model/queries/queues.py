"""Queues: lists, names, attributes, counts."""

from collections.abc import Collection
from enum import Enum
from typing import Final

import msgspec

from qm.model.clients.opens import is_open
from qm.model.queries.view import Page, View, Walk, page_size
from qm.model.state.ledger import LEVELS, Ledger, QueueInHand
from qm.model.state.registry import Route
from qm.model.state.tables import Table
from qm.model.state.uses import SEND, may_delete, may_open, may_purge, may_set
from qm.model.values.elements import QueueAccessType, QueueKind, QueueType
from qm.model.values.records import QUOTA_UNLIMITED_KB, Queue, QueueManager, decode
from qm.model.values.rows import QUEUE_KEY, STATS_ROW, unpack_position
from qm.names.errors import QueueNameError
from qm.names.format_name import (
    ConnectorName,
    FormatName,
    MachineName,
    PrivateName,
    PublicName,
    format_name_text,
    parse_format_name,
)
from qm.names.grammar import SystemQueue
from qm.names.path_name import parse_path_name
from qm.security.sid import Sid
from qm.wire.codes import ErrorCode

MQ_OK: Final = 0
_CLOSED: Final = (QueueKind.ORDER, QueueKind.NOTIFICATION)
_QUEUE_ID_END: Final = 1 << 32
_SYSTEM_QUEUES: Final = {
    QueueKind.SYSTEM_JOURNAL: SystemQueue.JOURNAL,
    QueueKind.DEADLETTER: SystemQueue.DEADLETTER,
    QueueKind.TRANSACTIONAL_DEADLETTER: SystemQueue.DEADXACT,
}


class QueueInfo(msgspec.Struct, frozen=True):
    """One queue in a list."""

    queue_id: int
    identifier: bytes
    kind: QueueKind
    queue_type: QueueType
    pathname: str
    """For an outgoing queue, its DestinationFormatName."""
    label: str
    transactional: bool
    journaling: bool
    is_deleting: bool
    parent_queue: int
    """queue_id of the queue to which a journal or subqueue belongs, 0 = none."""
    message_count: int
    total_bytes: int
    quota_bytes: int | None
    """None: unlimited."""
    with_subqueues_bytes: int
    """What counts against its quota."""
    locked_count: int
    removal_count: int


class QueueStatistics(msgspec.Struct, frozen=True):
    """Counts of one queue. Positions hidden by a purge and not settled yet count as `hidden`."""

    queue_id: int
    message_count: int
    """Visible positions, locked ones included."""
    locked_count: int
    hidden_count: int
    count_by_priority: tuple[int, ...]
    """Eight counts, priority 0 first; transactional messages have effective priority 0."""
    total_bytes: int
    """TotalBytes (3.1.1.2), hidden and locked positions included."""
    subqueue_bytes: int
    quota_used_bytes: int
    """Bytes that count against the quota: its own and those of its subqueues."""
    quota_bytes: int | None
    """None: unlimited."""
    arrival_count: int
    """Number of positions that ever entered."""
    removal_count: int
    oldest_arrival_time: int | None
    """Epoch seconds of the oldest position that is first of its priority and Available."""


class QueueUse(Enum):
    """Something that a queue's access list admits or refuses."""

    SEND = "send"
    PEEK = "peek"
    RECEIVE = "receive"
    PURGE = "purge"
    DELETE = "delete"
    SET = "set"


class QueueProperties(msgspec.Struct, frozen=True):
    """Every attribute of a queue (3.1.1.2, 3.1.1.3)."""

    attributes: Queue
    """The record: all attributes by their names in the specification."""
    format_name: str
    """The format name of this queue and no other; "" if it has none."""
    subqueues: tuple[int, ...]
    """queue_ids of SubqueueCollection, by name."""
    is_active: bool
    """Active (3.1.1.2): opened by a client, or an outgoing queue that holds messages."""


class QueueLookup(msgspec.Struct, frozen=True):
    """Where a name leads."""

    status: int
    """MQ_OK, or the MQ_ERROR code for the reason why there is no queue."""
    queue_id: int = 0
    is_elsewhere: bool = False
    """The name belongs to another queue manager; `queue_id` is its outgoing queue, 0 = none yet."""


def list_queues(
    view: View,
    *,
    after: int = 0,
    limit: int = 100,
    kinds: Collection[QueueKind] | None = None,
) -> Page[QueueInfo, int]:
    """Return queues by ascending queue_id: those of `kinds`, or all."""
    wanted = page_size(limit)
    low, high = QUEUE_KEY.pack(min(max(after, 0) + 1, _QUEUE_ID_END - 1)), b"\xff" * 5
    items: list[QueueInfo] = []
    last = after
    walk = Walk(view.ledger.state, Table.QUEUE, low, high)
    for key, row in walk:
        if len(items) == wanted:
            return Page(items, last)
        last = QUEUE_KEY.unpack(key)[0]
        record = decode(Queue, row)
        if kinds is None or record.kind in kinds:
            stats = view.ledger.state.get(Table.QUEUE_STATS, key)
            items.append(_info(record, stats))
    return Page(items, last if walk.is_cut else None)


def queue_info(view: View, queue_id: int) -> QueueInfo | None:
    """Return one queue as a list shows it; None if there is none."""
    key, state = QUEUE_KEY.pack(queue_id), view.ledger.state
    row = state.get(Table.QUEUE, key)
    return None if row is None else _info(decode(Queue, row), state.get(Table.QUEUE_STATS, key))


def _info(record: Queue, stats_row: bytes | None) -> QueueInfo:
    stats = STATS_ROW.unpack(stats_row or bytes(STATS_ROW.size))
    return QueueInfo(
        record.queue_id,
        record.identifier,
        record.kind,
        record.queue_type,
        record.pathname,
        record.label,
        record.transactional,
        record.journaling,
        record.is_deleting,
        record.parent_queue,
        sum(stats[:LEVELS]),
        stats[2 * LEVELS + 1],
        _quota_bytes(record),
        stats[2 * LEVELS + 1] + stats[2 * LEVELS + 2],
        sum(stats[LEVELS : 2 * LEVELS]),
        stats[2 * LEVELS + 5],
    )


def _quota_bytes(record: Queue) -> int | None:
    return None if record.quota == QUOTA_UNLIMITED_KB else record.quota * 1024


def find_by_format_name(view: View, text: str) -> QueueLookup:
    """Return where a format name leads."""
    try:
        name = parse_format_name(text)
    except QueueNameError as error:
        return QueueLookup(error.code)
    found = view.registry.format_name(name)
    if found == Route.ELSEWHERE:
        return QueueLookup(MQ_OK, max(view.registry.outgoing(name), 0), is_elsewhere=True)
    return _lookup(view.ledger, found)


def find_by_path(view: View, text: str) -> QueueLookup:
    """Return where a path name leads."""
    try:
        found = view.registry.path(parse_path_name(text))
    except QueueNameError as error:
        return QueueLookup(error.code)
    if found == Route.ELSEWHERE:
        return QueueLookup(MQ_OK, is_elsewhere=True)
    return _lookup(view.ledger, found)


def _lookup(ledger: Ledger, queue_id: int) -> QueueLookup:
    queue = ledger.queue(queue_id) if queue_id > 0 else None
    if queue is None or queue.record.is_deleting:
        return QueueLookup(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
    return QueueLookup(MQ_OK, queue_id)


def find_queue(view: View, name: str) -> QueueLookup:
    """Return where a format name leads, or else a path name, as operators type them."""
    found = find_by_format_name(view, name)
    return find_by_path(view, name) if _is_no_format_name(found) else found


def _is_no_format_name(found: QueueLookup) -> bool:
    return found.status == ErrorCode.MQ_ERROR_ILLEGAL_FORMATNAME


def queue_properties(view: View, queue_id: int) -> QueueProperties | None:
    """Return every attribute of a queue; None if there is none."""
    queue = view.queue(queue_id)
    if queue is None:
        return None
    is_outgoing = queue.record.kind is QueueKind.OUTGOING
    return QueueProperties(
        msgspec.structs.replace(queue.record),
        format_name_of_queue(view, queue_id),
        tuple(view.registry.subqueues(queue_id)),
        bool(is_outgoing and queue.count()) or is_open(view.ledger.state, queue_id),
    )


def queue_uses(view: View, queue_id: int, sids: tuple[Sid, ...]) -> tuple[QueueUse, ...]:
    """Return what somebody may use a queue for now; nothing if there is none."""
    queue = view.queue(queue_id)
    if queue is None or queue.record.is_deleting or queue.record.kind in _CLOSED:
        return ()
    ledger, kind = view.ledger, queue.record.kind
    is_own = kind is QueueKind.APPLICATION
    may_receive = may_open(ledger, queue, QueueAccessType.RECEIVE_ACCESS, sids)
    # Apply asks the subqueue's list for the right to purge, and it has none.
    is_purgeable = may_receive if kind is QueueKind.SUBQUEUE else may_purge(ledger, queue, sids)
    found = {
        QueueUse.SEND: is_own and may_open(ledger, queue, SEND, sids),
        QueueUse.PEEK: may_open(ledger, queue, QueueAccessType.PEEK_ACCESS, sids),
        QueueUse.RECEIVE: may_receive,
        QueueUse.PURGE: is_purgeable,
        QueueUse.DELETE: (is_own or kind is QueueKind.SUBQUEUE) and may_delete(ledger, queue, sids),
        QueueUse.SET: is_own and may_set(ledger, queue, sids),
    }
    return tuple(use for use, is_admitted in found.items() if is_admitted)


def format_name_of_queue(view: View, queue_id: int) -> str:
    """Return the format name of a queue; "" if it has none (subqueues: a direct name)."""
    manager, queue = view.ledger.manager, view.queue(queue_id)
    if manager is None or queue is None:
        return ""
    record = queue.record
    if record.kind is QueueKind.OUTGOING:
        return record.pathname
    if record.kind is QueueKind.SUBQUEUE:
        return f"DIRECT=OS:{record.qualified_pathname or record.pathname}"
    if record.kind is QueueKind.JOURNAL:
        parent = view.queue(record.parent_queue)
        name = None if parent is None else _name_of(manager, parent.record, is_journal=True)
    else:
        name = _name_of(manager, record)
    return "" if name is None else format_name_text(name)


def _name_of(
    manager: QueueManager, record: Queue, *, is_journal: bool = False
) -> FormatName | None:
    system = _SYSTEM_QUEUES.get(record.kind)
    if system is not None:
        return MachineName(manager.identifier, system)
    if record.kind is QueueKind.CONNECTOR:
        return ConnectorName(record.identifier, record.transactional)
    if record.private_queue_number:
        return PrivateName(manager.identifier, record.private_queue_number, is_journal)
    return PublicName(record.identifier, is_journal)


def queue_statistics(view: View, queue_id: int) -> QueueStatistics | None:
    """Return the counts of a queue; None if there is none."""
    queue = view.queue(queue_id)
    if queue is None:
        return None
    return QueueStatistics(
        queue_id,
        queue.count(),
        sum(queue.locked),
        queue.hidden,
        tuple(reversed(queue.counts)),
        queue.total_bytes,
        queue.subqueue_bytes,
        view.ledger.charged_bytes(queue),
        _quota_bytes(queue.record),
        queue.arrivals,
        queue.removals,
        _oldest_arrival(view, queue),
    )


def oldest_arrival(view: View, queue_id: int) -> int | None:
    """Return `QueueStatistics.oldest_arrival_time` alone; None also if there is no queue."""
    queue = view.ledger.passing_queue(queue_id)
    return None if queue is None else _oldest_arrival(view, queue)


def _oldest_arrival(view: View, queue: QueueInHand) -> int | None:
    """Return the oldest of eight heads: the first position of a priority is its oldest."""
    times = []
    for level in range(LEVELS):
        if queue.counts[level] - queue.locked[level] > 0:
            head = queue.window(level).first(view.ledger.state)
            if head is not None:
                times.append(unpack_position(head[1]).arrival_time)
    return min(times, default=None)
