"""Creation and settings of the queue manager and its queues ([MS-MQDMPR] 3.1.7.1.3, .4, .33)."""

from collections import Counter
from typing import Any, Final

import msgspec

from qm.model.management.directory import manager_full_path, queue_paths
from qm.model.state.addressing import NOTIFICATION_QUEUE_NUMBER, ORDER_QUEUE_NUMBER
from qm.model.state.events import Events
from qm.model.state.granting import is_granted_on_manager, is_granted_on_queue
from qm.model.state.ledger import META_CHAIN, Ledger, QueueInHand
from qm.model.state.outgoing_queues import OutgoingQueues
from qm.model.state.people import with_groups
from qm.model.state.principals import Principals
from qm.model.state.registry import PRIVATE_QUEUE_NUMBER_FIRST, NameIndex, Registry, folded
from qm.model.state.tables import Table
from qm.model.values.attributes import (
    QUEUE_ATTRIBUTES,
    QUEUE_MANAGER_ATTRIBUTES,
    audits_only,
    decode_attributes,
)
from qm.model.values.commands import (
    AuditMark,
    AuditResult,
    CreateQueue,
    LeaderActivated,
    Provision,
    RaiseApplyVersion,
    RemoveOutgoingQueue,
    SetOutgoingAdminState,
    SetQueue,
    SetQueueManager,
)
from qm.model.values.effects import Outcome
from qm.model.values.elements import (
    EventKind,
    OutgoingAdminState,
    PoisonAction,
    QueueKind,
    QueuePrivacyLevel,
    QueueType,
)
from qm.model.values.limits import (
    ALARM_DIVERGED,
    APPLY_VERSION,
    ORDER_ACK_ORDINALS,
    POISON_SUBQUEUE,
    QUEUES_MAX,
    QUEUES_PER_PRINCIPAL_MAX,
    QUOTA_QUEUES,
    SUBQUEUES_PER_QUEUE_MAX,
    VERSION_OF_AUDITED_RIGHTS,
    VERSION_OF_BINDINGS,
    VERSION_OF_QUEUE_RIGHTS,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import Queue, QueueManager
from qm.model.values.rows import CHAIN_ROW, CHAIN_START
from qm.names.direct import DirectName
from qm.names.errors import QueueNameError
from qm.names.path_name import PathKind, PathName, parse_path_name, path_name_text
from qm.security.descriptor import parse_descriptor
from qm.security.sid import ADMINISTRATORS
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.codes import ErrorCode
from qm.wire.errors import ProtocolError

MQ_OK: Final = 0
_BASE_PRIORITY: Final = "base_priority"
_SECURITY: Final = "security"
_QUEUE_RIGHTS: Final = int(QueueAccess.QUEUE_GENERIC_ALL)


class Administration:
    """Applies commands on the queue manager and the attributes of queues."""

    def __init__(
        self,
        ledger: Ledger,
        registry: Registry,
        outgoing: OutgoingQueues,
        principals: Principals,
        events: Events,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._outgoing = outgoing
        self._principals = principals
        self._events = events

    # The queue manager -------------------------------------------------------------------

    def apply_provision(self, command: Provision) -> Outcome:
        """Create the queue manager and its system queues, once."""
        if self._ledger.manager is not None:
            return Outcome(ErrorCode.MQ_ERROR_MACHINE_EXISTS)
        if len(command.queue_manager) != 16 or not command.computer_name:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        now = self._ledger.now_ms // 1000
        counters = self._ledger.counters
        counters.tx_time_stamp = command.tx_time_stamp
        counters.private_queue_number = PRIVATE_QUEUE_NUMBER_FIRST - 1
        manager = QueueManager(
            identifier=command.queue_manager,
            computer_name=command.computer_name,
            qualified_computer_name=command.qualified_computer_name,
            aliases=command.aliases,
            create_time=now,
            modify_time=now,
            machine_domain_id=command.realm or bytes(16),
            sealed_private_keys=command.sealed_private_keys,
            public_encryption_key_list=command.public_keys,
        )
        try:
            self._registry.aliases(manager)
        except QueueNameError:
            self._registry.forget()
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        manager.full_path = manager_full_path(manager)
        self._ledger.put_manager(manager)
        host = command.computer_name
        manager.system_journal_queue = self._system(
            QueueKind.SYSTEM_JOURNAL, f"{host}\\system$;JOURNAL"
        )
        manager.system_deadletter_queue = self._system(
            QueueKind.DEADLETTER, f"{host}\\system$;DEADLETTER"
        )
        manager.system_transactional_deadletter_queue = self._system(
            QueueKind.TRANSACTIONAL_DEADLETTER, f"{host}\\system$;DEADXACT"
        )
        manager.order_queue = self._system(
            QueueKind.ORDER, f"{host}\\private$\\order_queue$", ORDER_QUEUE_NUMBER
        )
        manager.notification_queue = self._system(
            QueueKind.NOTIFICATION, f"{host}\\private$\\notify_queue$", NOTIFICATION_QUEUE_NUMBER
        )
        self._ledger.put_manager(manager)
        return Outcome(MQ_OK)

    def _system(self, kind: QueueKind, pathname: str, number: int = 0) -> int:
        record = Queue(
            queue_id=self._ledger.next_queue_id(),
            identifier=bytes(16),
            kind=kind,
            queue_type=QueueType.SYSTEM,
            pathname=pathname,
            create_time=self._ledger.now_ms // 1000,
            modify_time=self._ledger.now_ms // 1000,
            private_queue_number=number,
            transactional=kind is QueueKind.TRANSACTIONAL_DEADLETTER,
        )
        self._ledger.put_queue(record)
        self._registry.bind_queue(record)
        return record.queue_id

    def apply_set_queue_manager(self, command: SetQueueManager) -> Outcome:
        """Change attributes; all or nothing."""
        manager = self._ledger.manager
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        access = MachineAccess.SET_MACHINE_PROPERTIES
        if _SECURITY in command.changes:
            access |= MachineAccess.CHANGE_MACHINE_PERMISSIONS
        sids = with_groups(self._ledger, command.sender_sids)
        if not is_granted_on_manager(manager, sids, access):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        if command.if_version is not None and command.if_version != manager.version:
            return Outcome(ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT, value=manager.version)
        values, refusal = decode_attributes(
            QUEUE_MANAGER_ATTRIBUTES, command.changes, self._ledger.behaviour, is_change=True
        )
        is_audited = self._ledger.behaviour >= VERSION_OF_AUDITED_RIGHTS
        if is_audited and not audits_only(MachineAccess, values.get(_SECURITY, b"")):
            refusal = refusal or ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
        if refusal:
            return Outcome(refusal)
        for name, value in values.items():
            setattr(manager, name, value)
        manager.modify_time = self._ledger.now_ms // 1000
        manager.version += 1
        self._ledger.put_manager(manager)
        self._registry.forget()
        return Outcome(MQ_OK, value=manager.version)

    def apply_raise_apply_version(self, command: RaiseApplyVersion) -> Outcome:
        """Use the new behaviour for later entries; never lower, never beyond this build."""
        counters = self._ledger.counters
        if not counters.apply_version <= command.apply_version <= APPLY_VERSION:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        counters.apply_version = command.apply_version
        self._ledger.version += 1
        text = f"every member supports apply version {command.apply_version}"
        self._events.add(EventKind.MEMBER, "apply_version", text)
        return Outcome(MQ_OK)

    def apply_leader_activated(self, command: LeaderActivated) -> Outcome:
        """Begin a leader's term: raise the epoch, give leases their full time, release nothing."""
        counters = self._ledger.counters
        if command.is_archived:
            self._begin_chain()
        if self._ledger.behaviour >= VERSION_OF_REFUSALS:
            self._ledger.applied.order_ack_ordinals = self._ledger.reserve_message_ordinals(
                ORDER_ACK_ORDINALS
            )
        counters.epoch += 1
        counters.leader_since_ms = counters.clock_ms
        self._events.add(
            EventKind.LEADERSHIP,
            "leader",
            f"{command.node} leads in term {command.term}",
            node=command.node,
            details={"term": str(command.term), "epoch": str(counters.epoch)},
        )
        return Outcome(MQ_OK, value=counters.epoch)

    def _begin_chain(self) -> None:
        """Chain entries from this one on. If there were entries before, the chain starts after
        them, so that a reader of the archive sees that it is incomplete.
        """
        state = self._ledger.state
        if state.get(Table.META, META_CHAIN) is None:
            before = self._ledger.index - 1 if self._ledger.counters.epoch else 0
            state.put(Table.META, META_CHAIN, CHAIN_ROW.pack(before, CHAIN_START))

    def apply_audit_mark(self, _command: AuditMark) -> Outcome:
        """Change no row: each node takes its digest at this entry."""
        return Outcome(MQ_OK)

    def apply_audit_result(self, command: AuditResult) -> Outcome:
        """Keep which nodes differ from most; each node compares the digest that it took."""
        digests = command.digests
        counts = Counter(digests.values())
        if len(counts) > 1:
            most = max(sorted(counts), key=counts.__getitem__)
            others = sorted(name for name, digest in digests.items() if digest != most)
            text = f"{', '.join(others)}: another state than most at audit mark {command.number}"
            self._events.add(EventKind.ALARM, ALARM_DIVERGED, text)
        return Outcome(MQ_OK)

    # Queues ------------------------------------------------------------------------------

    def apply_create_queue(self, command: CreateQueue) -> Outcome:
        """Create Queue, with its journal; a public one is in the directory at once."""
        manager = self._ledger.manager
        if manager is None:
            return Outcome(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        name = self._application_path(command.pathname)
        if name is None:
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME)
        refusal = self._refusal_to_create(manager, name, command)
        if refusal:
            return Outcome(refusal)
        if self._is_greedy(command.sender_sids):
            return Outcome(ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES, value=QUOTA_QUEUES)
        values, refusal = decode_attributes(
            QUEUE_ATTRIBUTES, command.attributes, self._ledger.behaviour, is_change=False
        )
        if refusal:
            return Outcome(refusal)
        security = values.pop(_SECURITY, command.security_descriptor)
        if not _is_descriptor(security) or not self._names_queue_rights(security):
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR)
        queue = self._create(manager, name, command, values, security)
        self._principals.add_queue(queue.queue_id, next(iter(command.sender_sids), b""))
        return Outcome(MQ_OK, value=queue.queue_id)

    def _refusal_to_create(
        self, manager: QueueManager, name: PathName, command: CreateQueue
    ) -> int:
        """Return MQ_OK, or the reason why no such queue can be created."""
        sids = with_groups(self._ledger, command.sender_sids)
        if not is_granted_on_manager(manager, sids, MachineAccess.CREATE_QUEUE):
            return ErrorCode.MQ_ERROR_ACCESS_DENIED
        if len(command.identifier) != 16 or len(command.journal_identifier) != 16:
            return ErrorCode.MQ_ERROR_INVALID_PARAMETER
        is_private = name.kind is PathKind.PRIVATE
        index = NameIndex.PRIVATE_NAME if is_private else NameIndex.PUBLIC_NAME
        is_taken = self._registry.find(index, folded(name.queue)) or self._registry.find(
            NameIndex.PUBLIC_GUID, command.identifier
        )
        if is_taken:
            return ErrorCode.MQ_ERROR_QUEUE_EXISTS
        if not is_private and not manager.directory_integrated:
            return ErrorCode.MQ_ERROR_UNSUPPORTED_OPERATION
        if self._ledger.counters.queue_count + 2 > QUEUES_MAX:
            return ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        return MQ_OK

    def _is_greedy(self, sender_sids: tuple[bytes, ...]) -> bool:
        """Whether a principal, whose SID is the first, created too many queues already."""
        if self._ledger.behaviour < VERSION_OF_BINDINGS or not sender_sids:
            return False
        if ADMINISTRATORS in sender_sids:
            return False
        return self._principals.use(sender_sids[0]).queue_count >= QUEUES_PER_PRINCIPAL_MAX

    def _create(
        self,
        manager: QueueManager,
        name: PathName,
        command: CreateQueue,
        values: dict[str, Any],
        security: bytes,
    ) -> Queue:
        now = self._ledger.now_ms // 1000
        number = 0
        if name.kind is PathKind.PRIVATE:
            number = self._registry.next_private_number()
        here = msgspec.structs.replace(name, computer=manager.computer_name)
        full = msgspec.structs.replace(
            name, computer=manager.qualified_computer_name or manager.computer_name
        )
        values["privacy_level"] = QueuePrivacyLevel(
            values.get("privacy_level", QueuePrivacyLevel.OPTIONAL)
        )
        values["poison_action"] = PoisonAction(values.get("poison_action", PoisonAction.MOVE))
        record = Queue(
            queue_id=self._ledger.next_queue_id(),
            identifier=command.identifier,
            kind=QueueKind.APPLICATION,
            queue_type=QueueType.PRIVATE if number else QueueType.PUBLIC,
            pathname=path_name_text(here),
            qualified_pathname=path_name_text(full),
            create_time=now,
            modify_time=now,
            private_queue_number=number,
            security=security,
            **values,
        )
        journal = Queue(
            queue_id=self._ledger.next_queue_id(),
            identifier=command.journal_identifier,
            kind=QueueKind.JOURNAL,
            queue_type=QueueType.SYSTEM,
            pathname=f"{record.pathname};JOURNAL",
            qualified_pathname=f"{record.qualified_pathname};JOURNAL",
            create_time=now,
            modify_time=now,
            quota=record.journal_quota,
            transactional=record.transactional,
            parent_queue=record.queue_id,
        )
        record.journal_queue = journal.queue_id
        if not number:
            record.full_path, record.directory_path = queue_paths(manager, record)
        self._ledger.put_queue(journal)
        self._ledger.put_queue(record)
        self._registry.bind_queue(record)
        return record

    def _application_path(self, pathname: str) -> PathName | None:
        manager = self._ledger.manager
        assert manager is not None
        try:
            name = parse_path_name(pathname)
        except QueueNameError:
            return None
        is_application = name.kind is not PathKind.SYSTEM and not name.journal
        if not is_application or name.subqueue is not None:
            return None
        return name if self._registry.aliases(manager).is_local_path(name) else None

    def create_subqueue(self, name: DirectName, sender_sids: tuple[bytes, ...]) -> int:
        """Create a subqueue of a local queue on its first use; return its queue_id or an MQ_ERROR.

        It has no journal, and its bytes count against its queue's quota (guide 8.1).
        """
        assert name.subqueue is not None
        parent_name = msgspec.structs.replace(name, subqueue=None)
        parent = self._ledger.queue(max(self._registry.format_name(parent_name), 0))
        if parent is None or parent.record.is_deleting:
            return ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND
        sids = with_groups(self._ledger, sender_sids)
        if not is_granted_on_queue(parent, sids, QueueAccess.RECEIVE_MESSAGE):
            return ErrorCode.MQ_ERROR_ACCESS_DENIED
        return self._create_subqueue(parent.record, name.subqueue)

    def poison_queue(self, record: Queue) -> int:
        """Return the queue_id of a queue's subqueue for poison messages, created on its first use,
        or an MQ_ERROR.
        """
        known = self._registry.subqueue(record.queue_id, POISON_SUBQUEUE)
        return known or self._create_subqueue(record, POISON_SUBQUEUE)

    def _create_subqueue(self, record: Queue, subname: str) -> int:
        is_full = (
            len(self._registry.subqueues(record.queue_id)) >= SUBQUEUES_PER_QUEUE_MAX
            or self._ledger.counters.queue_count >= QUEUES_MAX
        )
        if is_full:
            return ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES
        now = self._ledger.now_ms // 1000
        subqueue = Queue(
            queue_id=self._ledger.next_queue_id(),
            identifier=record.identifier,
            kind=QueueKind.SUBQUEUE,
            queue_type=record.queue_type,
            pathname=f"{record.pathname};{subname}",
            qualified_pathname=f"{record.qualified_pathname};{subname}",
            create_time=now,
            modify_time=now,
            transactional=record.transactional,
            parent_queue=record.queue_id,
        )
        self._ledger.put_queue(subqueue)
        self._registry.bind_queue(subqueue)
        return subqueue.queue_id

    def apply_set_queue(self, command: SetQueue) -> Outcome:
        """Change attributes of a queue; all or nothing."""
        queue = self._ledger.queue(command.queue_id)
        if queue is None or queue.record.is_deleting:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        record = queue.record
        refusal = self._refusal_to_set(queue, command)
        if refusal:
            return Outcome(refusal)
        if command.if_version is not None and command.if_version != record.version:
            return Outcome(ErrorCode.MQ_ERROR_PROPERTIES_CONFLICT, value=record.version)
        values, refusal = decode_attributes(
            QUEUE_ATTRIBUTES, command.changes, self._ledger.behaviour, is_change=True
        )
        if refusal:
            return Outcome(refusal)
        if not self._names_queue_rights(values.get(_SECURITY, b"")):
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR)
        for name, value in values.items():
            setattr(record, name, value)
        record.privacy_level = QueuePrivacyLevel(record.privacy_level)
        record.poison_action = PoisonAction(record.poison_action)
        record.modify_time = self._ledger.now_ms // 1000
        record.version += 1
        record.sd_version += _SECURITY in values
        self._ledger.put_queue(record)
        if "journal_quota" in values:
            self._set_journal_quota(record)
        if record.kind is QueueKind.OUTGOING:
            self._outgoing.changed(record.queue_id)
        return Outcome(MQ_OK, value=record.version)

    def _refusal_to_set(self, queue: QueueInHand, command: SetQueue) -> int:
        """Return MQ_OK, or the reason why this caller cannot change these attributes.

        Of an outgoing queue only its priority can be set; the queue manager's descriptor decides,
        as for its administrative state.
        """
        sids = with_groups(self._ledger, command.sender_sids)
        if queue.record.kind is QueueKind.OUTGOING:
            manager = self._ledger.manager
            assert manager is not None, "a queue without its queue manager"
            if command.changes.keys() - {_BASE_PRIORITY}:
                return ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
            is_granted = is_granted_on_manager(manager, sids, MachineAccess.SET_MACHINE_PROPERTIES)
            return MQ_OK if is_granted else ErrorCode.MQ_ERROR_ACCESS_DENIED
        if queue.record.kind is not QueueKind.APPLICATION:
            return ErrorCode.MQ_ERROR_ILLEGAL_OPERATION
        needed = QueueAccess(0)
        if command.changes.keys() - {_SECURITY}:
            needed |= QueueAccess.SET_QUEUE_PROPERTIES
        if _SECURITY in command.changes:
            needed |= QueueAccess.CHANGE_QUEUE_PERMISSIONS
        is_granted = is_granted_on_queue(queue, sids, needed)
        return MQ_OK if is_granted else ErrorCode.MQ_ERROR_ACCESS_DENIED

    def _names_queue_rights(self, security: bytes) -> bool:
        """Whether all entries name rights of MQQUEUEACCESSMASK alone (3.1.1.2 Security).

        Generic rights are not values of it: whoever writes a descriptor maps them first.
        """
        if self._ledger.behaviour < VERSION_OF_QUEUE_RIGHTS or not security:
            return True
        descriptor = parse_descriptor(security)
        lists = [acl for acl in (descriptor.dacl, descriptor.sacl) if acl is not None]
        return not any(entry.mask & ~_QUEUE_RIGHTS for acl in lists for entry in acl.entries)

    def _set_journal_quota(self, record: Queue) -> None:
        journal = self._ledger.queue(record.journal_queue)
        assert journal is not None, "an application queue without its journal"
        journal.record.quota = record.journal_quota
        self._ledger.put_queue(journal.record)

    # Outgoing queues ---------------------------------------------------------------------

    def apply_set_outgoing_admin_state(self, command: SetOutgoingAdminState) -> Outcome:
        """Pause or resume an outgoing queue; a locked one stays locked."""
        queue = self._outgoing_queue(command.queue_id)
        manager = self._ledger.manager
        if queue is None or manager is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        wanted = (OutgoingAdminState.NORMAL, OutgoingAdminState.ON_HOLD)
        if command.admin_state not in wanted:
            return Outcome(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        sids = with_groups(self._ledger, command.sender_sids)
        if not is_granted_on_manager(manager, sids, MachineAccess.SET_MACHINE_PROPERTIES):
            return Outcome(ErrorCode.MQ_ERROR_ACCESS_DENIED)
        if manager.hardened_security:
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_OPERATION)
        queue.record.admin_state = OutgoingAdminState(command.admin_state)
        self._ledger.put_queue(queue.record)
        self._ledger.applied.outgoing_queue_ids.add(command.queue_id)
        return Outcome(MQ_OK)

    def apply_remove_outgoing_queue(self, command: RemoveOutgoingQueue) -> Outcome:
        """Remove an outgoing queue that holds no message and whose sequence has nothing pending."""
        queue = self._outgoing_queue(command.queue_id)
        if queue is None:
            return Outcome(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        is_empty = not queue.count() and not queue.hidden
        if not is_empty or not self._outgoing.forget_sequence(command.queue_id):
            return Outcome(ErrorCode.MQ_ERROR_ILLEGAL_OPERATION)
        self._outgoing.changed(command.queue_id)
        self._registry.unbind_queue(queue.record)
        self._ledger.remove_queue(queue)
        self._ledger.counters.queue_count -= 1
        self._ledger.counters.outgoing_queue_count -= 1
        return Outcome(MQ_OK)

    def _outgoing_queue(self, queue_id: int) -> QueueInHand | None:
        queue = self._ledger.queue(queue_id)
        return queue if queue is not None and queue.record.kind is QueueKind.OUTGOING else None


def _is_descriptor(security: bytes) -> bool:
    try:
        parse_descriptor(security) if security else None
    except ProtocolError:
        return False
    return True
