"""Properties of the machine and of queues [MS-MQMQ 2.3.11, 2.3.12], from one state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from qm.api.gate.operations import Link, LinkEvent
from qm.model.clients.opens import is_open
from qm.model.queries import (
    OutgoingQueueInfo,
    SequencePlace,
    View,
    format_name_of_queue,
    list_queues,
    queue_manager,
    queue_statistics,
)
from qm.model.queries.incoming import IncomingSequence
from qm.model.state.ledger import QueueInHand
from qm.model.values.elements import (
    OutgoingAdminState,
    OutgoingQueueState,
    QueueKind,
    QueueType,
)
from qm.model.values.records import QueueManager
from qm.rpc.queue_formats import full_path
from qm.rpc.variants import Variant
from qm.wire.codes import ErrorCode
from qm.wire.enums import VarType
from qm.wire.property_id import MachineManagementProperty as OfMachine
from qm.wire.property_id import QueueManagementProperty as OfQueue
from qm.wire.structures.identifiers import SEQUENCE_INFO

QUEUES_LISTED_MAX: Final = 10_000
_U32_MAX: Final = 0xFFFF_FFFF
_PAGE_COUNT: Final = 1_000
_MS: Final = 1_000
_TYPES: Final = {
    QueueType.PRIVATE: "PRIVATE",
    QueueType.PUBLIC: "PUBLIC",
    QueueType.SYSTEM: "MACHINE",
    QueueType.CONNECTOR: "CONNECTOR",
}
_STATES: Final = {
    OutgoingQueueState.NEED_VALIDATION: "NEED VALIDATION",
    OutgoingQueueState.WAITING: "WAITING",
    OutgoingQueueState.CONNECTED: "CONNECTED",
    OutgoingQueueState.DISCONNECTING: "DISCONNECTING",
    OutgoingQueueState.DISCONNECTED: "DISCONNECTED",
    OutgoingQueueState.ON_HOLD: "ONHOLD",
}
"""LOCKED is never told: INACTIVE (RP-A49)."""
NULL: Final = Variant(VarType.NULL)


class IllegalProperty(Exception):
    """MQ_ERROR_ILLEGAL_PROPID: no such property of this kind of object."""

    status: Final = ErrorCode.MQ_ERROR_ILLEGAL_PROPID


def _text(value: str) -> Variant:
    return Variant(VarType.LPWSTR, value)


def _texts(values: list[str]) -> Variant:
    return Variant(VarType.VECTOR_LPWSTR, values)


def _number(value: int) -> Variant:
    return Variant(VarType.UI4, min(value, _U32_MAX))


# The machine ---------------------------------------------------------------------------------


def machine_property(view: View, number: int) -> Variant:
    """Return a property of the queue manager. Raises IllegalProperty."""
    info = queue_manager(view)
    assert info is not None, "management before the birth of the queue manager"
    manager = view.ledger.manager
    assert manager is not None
    if number == OfMachine.ACTIVEQUEUES.number:
        return _texts(list(_active(view)))
    if number == OfMachine.PRIVATEQ.number:
        names = [
            full_path(manager.computer_name, one.pathname)
            for one in _queues(view, QueueKind.APPLICATION)
            if one.queue_type is QueueType.PRIVATE
        ]
        return _texts(names)
    if number == OfMachine.DSSERVER.number:
        return NULL
    if number == OfMachine.CONNECTED.number:
        return _text("CONNECTED" if manager.connection_active else "DISCONNECTED")
    if number == OfMachine.TYPE.number:
        return _text(f"Quorate {_version(view, manager)}")
    if number == OfMachine.BYTES_IN_ALL_QUEUES.number:
        return Variant(VarType.I8, view.ledger.counters.total_bytes)
    raise IllegalProperty


def _version(view: View, manager: QueueManager) -> str:
    """Return the version that was set; else what all nodes apply, the same while builds differ."""
    applied = view.ledger.counters.apply_version
    return manager.queue_manager_version or f"apply version {applied}"


def _queues(view: View, *kinds: QueueKind) -> Iterator[Any]:
    after = 0
    for _ in range(QUEUES_LISTED_MAX // _PAGE_COUNT):
        page = list_queues(view, after=after, limit=_PAGE_COUNT, kinds=kinds)
        yield from (one for one in page.items if not one.is_deleting)
        if page.next is None:
            return
        after = page.next


def _active(view: View) -> Iterator[str]:
    """Format names of queues that are open or hold messages."""
    state = view.ledger.state
    for one in _queues(view, QueueKind.APPLICATION, QueueKind.OUTGOING):
        if one.message_count or is_open(state, one.queue_id):
            is_outgoing = one.kind is QueueKind.OUTGOING
            yield one.pathname if is_outgoing else format_name_of_queue(view, one.queue_id)


# Local queues --------------------------------------------------------------------------------


def queue_property(
    view: View, queue: QueueInHand, number: int, senders: Sequence[IncomingSequence] = ()
) -> Variant:
    """Return a property of a queue of this cluster. Raises IllegalProperty.

    `senders`: the streams into it, for EOD_SOURCE_INFO.
    """
    if number == OfQueue.EOD_SOURCE_INFO.number:
        return _senders(senders)
    read = _OF_LOCAL.get(number)
    return _not_of_this_kind(number) if read is None else read(view, queue)


def _pathname(view: View, queue: QueueInHand) -> Variant:
    manager = view.ledger.manager
    assert manager is not None
    return _text(full_path(manager.computer_name, queue.record.pathname))


def _type_of_local(view: View, queue: QueueInHand) -> Variant:
    record = queue.record
    is_machine = record.kind.is_system_store and record.kind is not QueueKind.JOURNAL
    return _text("MACHINE" if is_machine else _TYPES[record.queue_type])


def _message_count(view: View, queue_id: int) -> Variant:
    statistics = queue_statistics(view, queue_id) if queue_id else None
    return _number(0 if statistics is None else statistics.message_count)


def _byte_count(view: View, queue_id: int) -> Variant:
    statistics = queue_statistics(view, queue_id) if queue_id else None
    return _number(0 if statistics is None else statistics.total_bytes)


def _subqueues(view: View, queue: QueueInHand) -> list[str]:
    queue_id = queue.record.queue_id
    return [
        one.pathname.rpartition(";")[2]
        for one in _queues(view, QueueKind.SUBQUEUE)
        if one.parent_queue == queue_id
    ]


def _not_of_this_kind(number: int) -> Variant:
    """Return NULL for a property of the other kind of queue. Raises IllegalProperty."""
    if any(number == one.number for one in OfQueue):
        return NULL
    raise IllegalProperty


def _senders(streams: Sequence[IncomingSequence]) -> Variant:
    """Return EOD_SOURCE_INFO: six columns, a row for each stream into the queue."""
    columns = (
        (VarType.VECTOR_LPWSTR, [one.format_name for one in streams]),
        (VarType.VECTOR_CLSID, [one.sender_identifier for one in streams]),
        (VarType.VECTOR_UI8, [one.sequence_identifier for one in streams]),
        (VarType.VECTOR_UI4, [one.sequence_number for one in streams]),
        (VarType.VECTOR_I4, [one.last_access_ms // _MS for one in streams]),
        (VarType.VECTOR_UI4, [one.reject_count for one in streams]),
    )
    return Variant(VarType.VECTOR_VARIANT, [Variant(kind, values) for kind, values in columns])


_OF_LOCAL: Final[Mapping[int, Callable[[View, QueueInHand], Variant]]] = {
    OfQueue.PATHNAME.number: _pathname,
    OfQueue.FORMATNAME.number: lambda view, queue: _text(
        format_name_of_queue(view, queue.record.queue_id)
    ),
    OfQueue.TYPE.number: _type_of_local,
    OfQueue.LOCATION.number: lambda view, queue: _text("LOCAL"),
    OfQueue.XACT.number: lambda view, queue: _text("YES" if queue.record.transactional else "NO"),
    OfQueue.FOREIGN.number: lambda view, queue: _text("NO"),  # RP-A50
    OfQueue.MESSAGE_COUNT.number: lambda view, queue: _message_count(view, queue.record.queue_id),
    OfQueue.BYTES_IN_QUEUE.number: lambda view, queue: _byte_count(view, queue.record.queue_id),
    # Without a journal there is nothing in it (RP-A51); what is left in one that is no longer kept
    # is counted, but has no size [MS-MQMR 3.1.4.1].
    OfQueue.JOURNAL_MESSAGE_COUNT.number: lambda view, queue: _message_count(
        view, queue.record.journal_queue
    ),
    OfQueue.BYTES_IN_JOURNAL.number: lambda view, queue: _byte_count(
        view, queue.record.journal_queue if queue.record.journaling else 0
    ),
    OfQueue.STATE.number: lambda view, queue: _text("LOCAL CONNECTION"),
    OfQueue.SUBQUEUE_COUNT.number: lambda view, queue: _number(len(_subqueues(view, queue))),
    OfQueue.SUBQUEUE_NAMES.number: lambda view, queue: _texts(_subqueues(view, queue)),
}


# Outgoing queues -----------------------------------------------------------------------------


def outgoing_property(info: OutgoingQueueInfo, link: Link | None, number: int) -> Variant:
    """Return a property of a queue to another queue manager. Raises IllegalProperty.

    `link`: what the leader knows of its connection, None for none.
    """
    plain = {
        OfQueue.PATHNAME: NULL,
        OfQueue.FORMATNAME: _text(info.destination_format_name),
        OfQueue.TYPE: _text(_type_of(info.destination_format_name)),
        OfQueue.LOCATION: _text("REMOTE"),
        OfQueue.XACT: _text("UNKNOWN" if info.eod_next_seq is None else "YES"),
        OfQueue.FOREIGN: _text("NO"),
        OfQueue.MESSAGE_COUNT: _number(info.message_count),
        OfQueue.BYTES_IN_QUEUE: _number(info.total_bytes),
        OfQueue.JOURNAL_MESSAGE_COUNT: _number(0),
        OfQueue.BYTES_IN_JOURNAL: _number(0),
        OfQueue.STATE: _text(_state(info, link)),
        OfQueue.NEXTHOPS: _hops(info, link),
        OfQueue.EOD_LAST_ACK: _place(info.eod_last_ack),  # of the present sequence (RP-A54)
        OfQueue.EOD_FIRST_NON_ACK: _place(info.eod_first_non_ack),
        OfQueue.EOD_LAST_NON_ACK: _place(info.eod_last_non_ack),
        OfQueue.EOD_NEXT_SEQ: _place(info.eod_next_seq),
        OfQueue.EOD_NO_READ_COUNT: _number(info.eod_no_read_count),
        OfQueue.EOD_NO_ACK_COUNT: _number(info.eod_no_ack_count),
        OfQueue.SUBQUEUE_COUNT: _number(0),
        OfQueue.SUBQUEUE_NAMES: _texts([]),
    }
    if link is not None:
        plain |= {
            OfQueue.EOD_LAST_ACK_TIME: Variant(VarType.I4, link.last_ack_time_s),
            OfQueue.EOD_LAST_ACK_COUNT: _number(link.last_ack_count),
            OfQueue.EOD_RESEND_TIME: Variant(VarType.I4, link.next_resend_ms // _MS),
            OfQueue.EOD_RESEND_COUNT: _number(link.resend_count),
            # Nothing without a sequence is sent again.
            OfQueue.EOD_RESEND_INTERVAL: _number(
                0 if info.eod_next_seq is None else link.resend_interval_s
            ),
            OfQueue.CONNECTION_HISTORY: _history(link.connection_history),
        }
    found = next((value for one, value in plain.items() if one.number == number), None)
    return _not_of_this_kind(number) if found is None else found


def _type_of(name: str) -> str:
    head = name.partition("=")[0].upper()
    return head if head in ("PUBLIC", "MULTICAST") else "PRIVATE"


def _state(info: OutgoingQueueInfo, link: Link | None) -> str:
    if info.admin_state is OutgoingAdminState.ON_HOLD:
        return "ONHOLD"
    return _STATES.get(link.state, "INACTIVE") if link is not None else "INACTIVE"


def _hops(info: OutgoingQueueInfo, link: Link | None) -> Variant:
    if link is None or _state(info, link) not in ("CONNECTED", "WAITING") or not link.next_hops:
        return NULL
    return _texts(list(link.next_hops))


def _history(events: Sequence[LinkEvent]) -> Variant:
    """Return CONNECTION_HISTORY: four columns, a row for each event [MS-MQMQ 2.3.12.25]."""
    columns = (
        (VarType.VECTOR_UI4, [int(one.status) for one in events]),
        (VarType.VECTOR_I4, [one.time_s for one in events]),
        (VarType.VECTOR_I4, [_signed(one.error) for one in events]),
        (VarType.VECTOR_VARIANT, [_texts(_addresses(one)) for one in events]),
    )
    return Variant(VarType.VECTOR_VARIANT, [Variant(kind, values) for kind, values in columns])


def _addresses(event: LinkEvent) -> list[str]:
    """Return the address of an event if it is an IPv4 one: the property's grammar has no IPv6."""
    return [event.address] if event.address and ":" not in event.address else []


def _signed(value: int) -> int:
    """Return 32 bits as VT_I4 has them."""
    return value - (1 << 32) if value >> 31 else value


def _place(place: SequencePlace | None) -> Variant:
    if place is None:
        return NULL
    raw = SEQUENCE_INFO.pack(
        place.sequence_identifier, place.sequence_number, place.previous_number
    )
    return Variant(VarType.BLOB, raw)
