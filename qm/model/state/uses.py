"""What somebody may use a queue for, by its kind and the access lists (guide 8.5)."""

from collections.abc import Collection
from typing import Final

from qm.model.state.granting import is_granted_on_manager, is_granted_on_queue
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.people import with_groups
from qm.model.values.elements import QueueAccessType, QueueKind
from qm.security.sid import Sid
from qm.wire.access_mask import MachineAccess, QueueAccess

SEND: Final = QueueAccessType.SEND_ACCESS
PEEKS: Final = (QueueAccessType.PEEK_ACCESS, QueueAccessType.PEEK_ADMIN_ACCESS)
_DEADLETTER_KINDS: Final = (QueueKind.DEADLETTER, QueueKind.TRANSACTIONAL_DEADLETTER)


def may_open(
    ledger: Ledger, queue: QueueInHand, access: QueueAccessType, sids: Collection[Sid]
) -> bool:
    """Whether somebody may open a queue for this access."""
    manager = ledger.manager
    assert manager is not None, "a queue without its queue manager"
    sids = with_groups(ledger, sids)
    kind = queue.record.kind
    is_peek = access in PEEKS
    if kind is QueueKind.OUTGOING:
        if access is SEND:
            return True
        needed = (
            MachineAccess.GET_MACHINE_PROPERTIES
            if is_peek
            else MachineAccess.SET_MACHINE_PROPERTIES
        )
        return is_granted_on_manager(manager, sids, needed)
    if kind is QueueKind.SYSTEM_JOURNAL:
        journal = (
            MachineAccess.PEEK_JOURNAL_QUEUE_MESSAGE
            if is_peek
            else MachineAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE
        )
        return is_granted_on_manager(manager, sids, journal)
    if kind.is_system_store and kind is not QueueKind.JOURNAL:
        dead = (
            MachineAccess.PEEK_DEADLETTER_MESSAGE
            if is_peek
            else MachineAccess.RECEIVE_DEADLETTER_MESSAGE
        )
        return is_granted_on_manager(manager, sids, dead)
    owner = _owner(ledger, queue)
    if access is SEND:
        return is_granted_on_queue(owner, sids, QueueAccess.WRITE_MESSAGE)
    if is_peek:
        return is_granted_on_queue(owner, sids, QueueAccess.PEEK_MESSAGE)
    is_journal = kind is QueueKind.JOURNAL
    read = QueueAccess.RECEIVE_JOURNAL_MESSAGE if is_journal else QueueAccess.RECEIVE_MESSAGE
    return is_granted_on_queue(owner, sids, read)


def may_purge(ledger: Ledger, queue: QueueInHand, sids: Collection[Sid]) -> bool:
    """Whether somebody has the right to receive ([MS-MQDMPR] 3.1.1.17 QueueAccessType), for
    journals too.
    """
    kind = queue.record.kind
    manager = ledger.manager
    assert manager is not None, "a queue without its queue manager"
    sids = with_groups(ledger, sids)
    if kind is QueueKind.JOURNAL:
        parent = ledger.queue(queue.record.parent_queue)
        access = QueueAccess.RECEIVE_JOURNAL_MESSAGE
        return parent is not None and is_granted_on_queue(parent, sids, access)
    if kind is QueueKind.SYSTEM_JOURNAL:
        return is_granted_on_manager(manager, sids, MachineAccess.RECEIVE_JOURNAL_QUEUE_MESSAGE)
    if kind in _DEADLETTER_KINDS:
        return is_granted_on_manager(manager, sids, MachineAccess.RECEIVE_DEADLETTER_MESSAGE)
    if kind is QueueKind.OUTGOING:
        return is_granted_on_manager(manager, sids, MachineAccess.SET_MACHINE_PROPERTIES)
    return is_granted_on_queue(queue, sids, QueueAccess.RECEIVE_MESSAGE)


def may_delete(ledger: Ledger, queue: QueueInHand, sids: Collection[Sid]) -> bool:
    """Whether somebody may delete a queue of applications, or a subqueue."""
    owner = _owner(ledger, queue) if queue.record.kind is QueueKind.SUBQUEUE else queue
    return is_granted_on_queue(owner, with_groups(ledger, sids), QueueAccess.DELETE_QUEUE)


def may_set(ledger: Ledger, queue: QueueInHand, sids: Collection[Sid]) -> bool:
    """Whether somebody may change attributes of a queue of applications, but its access list."""
    return is_granted_on_queue(queue, with_groups(ledger, sids), QueueAccess.SET_QUEUE_PROPERTIES)


def _owner(ledger: Ledger, queue: QueueInHand) -> QueueInHand:
    """Return the queue whose access list decides: of a journal or subqueue its queue."""
    if not queue.record.parent_queue:
        return queue
    parent = ledger.queue(queue.record.parent_queue)
    assert parent is not None, "a journal or subqueue without its queue"
    return parent
