"""QueueControl: the queue manager, queues, their attributes and access lists."""

from collections.abc import Callable
from enum import IntFlag
from typing import Any, Final, TypeAlias

import msgspec
from typing_extensions import override

from qm.api.control.queue_lists import KINDS, TYPES, QueueLists, shown_statistics
from qm.api.convert.acl import (
    changed_descriptor,
    check_manager_list,
    descriptor_of_new_queue,
    explained_acl,
    names_of,
    shown_acl,
    sid_or_name,
    sids_in,
    sids_to_change,
)
from qm.api.convert.names import queue_id_of
from qm.api.convert.outcomes import number_of
from qm.api.convert.values import encode_values, shown_value
from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import InvalidArgument, MsmqError, NotPermitted, QuotaReached, check
from qm.api.gate.identity import Principal, Role
from qm.api.propose.control_once import UNNUMBERED, Decider, made_identifier
from qm.cluster.cluster import Cluster
from qm.model.queries import (
    QueueUse,
    View,
    find_by_path,
    list_clients,
    list_opens,
    queue_manager,
    queue_properties,
    queue_statistics,
    queue_uses,
)
from qm.model.queries.people import ReplicatedDirectory
from qm.model.state.granting import is_granted_on_manager, is_granted_on_queue
from qm.model.state.ledger import QueueInHand
from qm.model.state.people import with_groups
from qm.model.values.attributes import (
    QUEUE_ATTRIBUTES,
    QUEUE_MANAGER_ATTRIBUTES,
    decode_attributes,
    encode_attribute,
)
from qm.model.values.commands import (
    Command,
    CreateQueue,
    DeleteQueue,
    PurgeQueue,
    SetQueue,
    SetQueueManager,
)
from qm.model.values.elements import QueueKind
from qm.model.values.limits import APPLY_VERSION, QUEUES_PER_PRINCIPAL_MAX, QUOTA_QUEUES
from qm.model.values.records import Queue, QueueManager
from qm.names.errors import QueueNameError
from qm.names.path_name import parse_path_name
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.security.access import effective_sids
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.codes import ErrorCode

PRINCIPALS_SHOWN_MAX: Final = 1_000
OPENS_COUNTED_MAX: Final = 1_000
_SECRET: Final = frozenset({"sealed_private_keys"})
_INTERNAL: Final = frozenset({"outgoing_key", "queue_id", "kind", "is_deleting"})
_SECURITY: Final = "security"
_READERS_OF_ALL: Final = frozenset({Role.ADMIN, Role.OPERATOR})
_OF_MANAGER: Final = frozenset(
    {
        QueueKind.OUTGOING,
        QueueKind.SYSTEM_JOURNAL,
        QueueKind.DEADLETTER,
        QueueKind.TRANSACTIONAL_DEADLETTER,
        QueueKind.ORDER,
        QueueKind.NOTIFICATION,
    }
)
"""Queues without an access list of their own: the queue manager's says who sees them."""
_OF_MANAGER_ACCESS: Final = {
    QueueAccess.GET_QUEUE_PROPERTIES: MachineAccess.GET_MACHINE_PROPERTIES,
    QueueAccess.GET_QUEUE_PERMISSIONS: MachineAccess.GET_MACHINE_PERMISSIONS,
}


_SetRequest: TypeAlias = pb.SetQueueManagerRequest | pb.SetQueueRequest | pb.SetAclRequest


class QueueControl(control_pb2_grpc.QueueControlServicer):
    """Implements `quorate.control.v1.QueueControl`."""

    def __init__(self, cluster: Cluster, decider: Decider) -> None:
        self._cluster = cluster
        self._decider = decider
        self._lists = QueueLists(cluster)

    @property
    def _view(self) -> View:
        return self._cluster.view

    # The queue manager -------------------------------------------------------------------

    @override
    async def GetQueueManager(
        self, request: pb.GetQueueManagerRequest, context: Context
    ) -> pb.QueueManager:
        await self._cluster.read_barrier()
        found = queue_manager(self._view)
        if found is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        record, counters = found.attributes, found.counters
        return pb.QueueManager(
            identifier=record.identifier,
            computer_name=record.computer_name,
            qualified_computer_name=record.qualified_computer_name,
            attributes=_shown(record, self._may_see_manager(MachineAccess.GET_MACHINE_PERMISSIONS)),
            settable=sorted(QUEUE_MANAGER_ATTRIBUTES),
            version=record.version,
            total_bytes=counters.total_bytes,
            journal_bytes=counters.journal_bytes,
            queue_count=counters.queue_count,
        )

    @override
    async def SetQueueManager(
        self, request: pb.SetQueueManagerRequest, context: Context
    ) -> pb.SetReply:
        changes = encode_values(QUEUE_MANAGER_ATTRIBUTES, request.changes, "changes")
        return await self._set_manager(request, lambda: changes)

    async def _set_manager(
        self, request: _SetRequest, make_changes: Callable[[], dict[str, bytes]]
    ) -> pb.SetReply:
        def make() -> Command:
            changes, sids, manager = make_changes(), caller().sids, self._manager_record()
            values, refusal = decode_attributes(
                QUEUE_MANAGER_ATTRIBUTES, changes, APPLY_VERSION, is_change=True
            )
            if not refusal and _SECURITY in values:
                check_manager_list(manager, values[_SECURITY])
            if changes.keys() == {_SECURITY}:
                sids = sids_to_change(caller(), manager.security)
            return SetQueueManager(UNNUMBERED, changes, sids, _version(request))

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        return pb.SetReply(version=number_of(outcome) or self._manager_record().version)

    def _manager_record(self) -> QueueManager:
        manager = self._view.ledger.manager
        if manager is None:
            raise MsmqError(ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return manager

    # Queues ------------------------------------------------------------------------------

    @override
    async def CreateQueue(self, request: pb.CreateQueueRequest, context: Context) -> pb.Queue:
        try:
            parse_path_name(request.path_name)
        except QueueNameError as error:
            raise InvalidArgument("path_name", error.reason) from None
        who = caller()
        attributes = encode_values(QUEUE_ATTRIBUTES, request.attributes, "attributes")
        security = b""
        if _SECURITY not in attributes:
            security = descriptor_of_new_queue(who, request.security_descriptor)
        elif given := request.attributes[_SECURITY].data:
            attributes[_SECURITY] = encode_attribute(descriptor_of_new_queue(who, given))
        command = CreateQueue(
            UNNUMBERED,
            made_identifier(f"queue {request.path_name}"),
            made_identifier(f"journal {request.path_name}"),
            request.path_name,
            attributes,
            security,
            who.sids,
        )
        outcome = await self._decider.once(request, lambda: command)
        if outcome.status == ErrorCode.MQ_ERROR_QUEUE_EXISTS and request.if_not_exists:
            return self._existing(request.path_name, attributes)
        if outcome.value == QUOTA_QUEUES:
            raise QuotaReached(
                QUOTA_QUEUES,
                f"{who.name!r} has created {QUEUES_PER_PRINCIPAL_MAX} queues: delete some, or have"
                " an admin create more",
            )
        check(outcome.status)
        return self._shown_queue(self._id_at(request.path_name))

    def _id_at(self, path_name: str) -> int:
        found = find_by_path(self._view, path_name)
        check(found.status)
        return found.queue_id

    def _existing(self, path_name: str, wanted: dict[str, bytes]) -> pb.Queue:
        """Return the existing queue if the caller may see it and it has the wanted attributes."""
        queue_id = self._id_at(path_name)
        queue = self._view.ledger.queue(queue_id)
        assert queue is not None, "a name without its queue"
        self._check_sight(queue_id, QueueAccess.GET_QUEUE_PROPERTIES)
        if not _has(queue.record, QUEUE_ATTRIBUTES, wanted):
            raise MsmqError(
                ErrorCode.MQ_ERROR_QUEUE_EXISTS, "the queue exists with other attributes"
            )
        return self._shown_queue(queue_id)

    @override
    async def ListQueues(
        self, request: pb.ListQueuesRequest, context: Context
    ) -> pb.ListQueuesReply:
        who = caller()
        return await self._lists.page(request, context, lambda found: self._may_see(found, who))

    @override
    async def GetQueue(self, request: pb.GetQueueRequest, context: Context) -> pb.Queue:
        queue_id = await self._readable(request.queue, QueueAccess.GET_QUEUE_PROPERTIES)
        return self._shown_queue(queue_id)

    @override
    async def SetQueue(self, request: pb.SetQueueRequest, context: Context) -> pb.SetReply:
        changes = encode_values(QUEUE_ATTRIBUTES, request.changes, "changes")
        return await self._set_queue(request, lambda _: changes)

    async def _set_queue(
        self,
        request: pb.SetQueueRequest | pb.SetAclRequest,
        make_changes: Callable[[Queue], dict[str, bytes]],
    ) -> pb.SetReply:
        def make() -> Command:
            queue = self._queue(queue_id_of(self._view, request.queue)).record
            changes, sids = make_changes(queue), caller().sids
            if changes.keys() == {_SECURITY}:
                sids = sids_to_change(caller(), queue.security)
            return SetQueue(UNNUMBERED, queue.queue_id, changes, sids, _version(request))

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        if version := number_of(outcome):
            return pb.SetReply(version=version)
        queue = self._queue(queue_id_of(self._view, request.queue))
        return pb.SetReply(version=queue.record.version)

    @override
    async def DeleteQueue(
        self, request: pb.DeleteQueueRequest, context: Context
    ) -> pb.DeleteQueueReply:
        count = 0

        def make() -> Command:
            nonlocal count
            queue_id = queue_id_of(self._view, request.queue)
            count = self._queue(queue_id).count()
            return DeleteQueue(UNNUMBERED, queue_id, caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        return pb.DeleteQueueReply(message_count=count)

    @override
    async def PurgeQueue(
        self, request: pb.PurgeQueueRequest, context: Context
    ) -> pb.PurgeQueueReply:
        if request.dry_run:
            queue = self._queue(await self._countable(request.queue))
            return pb.PurgeQueueReply(message_count=queue.count() - sum(queue.locked))

        def make() -> Command:
            queue_id = queue_id_of(self._view, request.queue)
            self._check_purge_of_subqueue(queue_id)
            return PurgeQueue(UNNUMBERED, queue_id, caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        return pb.PurgeQueueReply(message_count=number_of(outcome))

    # Access lists ------------------------------------------------------------------------

    @override
    async def GetAcl(self, request: pb.GetAclRequest, context: Context) -> pb.Acl:
        if not request.HasField("queue"):
            await self._cluster.read_barrier()
            manager = self._manager_record()
            if not self._may_see_manager(MachineAccess.GET_MACHINE_PERMISSIONS):
                raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)
            return self._acl(manager.security, manager.version, MachineAccess)
        queue_id = await self._readable(request.queue, QueueAccess.GET_QUEUE_PERMISSIONS)
        record = self._queue(queue_id).record
        return self._acl(record.security, record.version, QueueAccess)

    def _acl(self, security: bytes, version: int, access: type[IntFlag]) -> pb.Acl:
        clients = list_clients(self._view, limit=PRINCIPALS_SHOWN_MAX).items
        names = names_of({client.principal for client in clients} | {caller().name})
        people = ReplicatedDirectory(lambda: self._cluster.state)
        for sid in sids_in(security) - names.keys():
            user = people.user(sid)
            if user is not None and user.name:
                names[sid] = user.name
        return shown_acl(security, version, access, names)

    @override
    async def ExplainAcl(
        self, request: pb.ExplainAclRequest, context: Context
    ) -> pb.ExplainAclReply:
        shown = await self.GetAcl(pb.GetAclRequest(queue=_queue_of(request)), context)
        access = QueueAccess if request.HasField("queue") else MachineAccess
        sid = sid_or_name(request.who, "who")
        identity = effective_sids(with_groups(self._view.ledger, (sid,)))
        return explained_acl(shown.security_descriptor, identity, request.rights, access)

    @override
    async def SetAcl(self, request: pb.SetAclRequest, context: Context) -> pb.SetReply:
        def changed(security: bytes, access: type[IntFlag]) -> dict[str, bytes]:
            new = changed_descriptor(security, request.entries, request.owner, access)
            return {_SECURITY: encode_attribute(new)}

        if request.HasField("queue"):
            return await self._set_queue(
                request, lambda queue: changed(queue.security, QueueAccess)
            )
        if caller().role is not Role.ADMIN:
            raise NotPermitted("only admins may change the queue manager's access list")
        return await self._set_manager(
            request, lambda: changed(self._manager_record().security, MachineAccess)
        )

    # What callers see --------------------------------------------------------------------

    def _queue(self, queue_id: int) -> QueueInHand:
        queue = self._view.ledger.queue(queue_id)
        if queue is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return queue

    async def _readable(self, name: pb.QueueName, access: QueueAccess) -> int:
        """Return the queue_id of a queue that the caller may see."""
        await self._cluster.read_barrier()
        queue_id = queue_id_of(self._view, name)
        self._check_sight(queue_id, access)
        return queue_id

    async def _countable(self, name: pb.QueueName) -> int:
        """Return the queue_id of a queue that the caller may purge, or see how long it is."""
        await self._cluster.read_barrier()
        queue_id = queue_id_of(self._view, name)
        if QueueUse.PURGE not in queue_uses(self._view, queue_id, caller().sids):
            self._check_sight(queue_id, QueueAccess.GET_QUEUE_PROPERTIES)
        return queue_id

    def _check_purge_of_subqueue(self, queue_id: int) -> None:
        """Raises MsmqError where the list of its queue refuses it, which apply does not ask."""
        if self._queue(queue_id).record.kind is not QueueKind.SUBQUEUE:
            return
        if QueueUse.PURGE not in queue_uses(self._view, queue_id, caller().sids):
            raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)

    def _check_sight(self, queue_id: int, access: QueueAccess) -> None:
        """Raises MsmqError if the caller may not see this of a queue."""
        if not self._may_see(queue_id, caller(), access):
            raise MsmqError(ErrorCode.MQ_ERROR_ACCESS_DENIED)

    def _may_see_manager(self, access: MachineAccess) -> bool:
        who = caller()
        return who.role in _READERS_OF_ALL or is_granted_on_manager(
            self._manager_record(), with_groups(self._view.ledger, who.sids), access
        )

    def _may_see(
        self, queue_id: int, who: Principal, access: QueueAccess = QueueAccess.GET_QUEUE_PROPERTIES
    ) -> bool:
        if who.role in _READERS_OF_ALL:
            return True
        ledger = self._view.ledger
        queue = ledger.passing_queue(queue_id)
        if queue is not None and queue.record.parent_queue:
            queue = ledger.passing_queue(queue.record.parent_queue)
        if queue is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        if queue.record.kind in _OF_MANAGER:
            return self._may_see_manager(_OF_MANAGER_ACCESS[access])
        return is_granted_on_queue(queue, with_groups(ledger, who.sids), access)

    def _shown_queue(self, queue_id: int) -> pb.Queue:
        found = queue_properties(self._view, queue_id)
        counted = queue_statistics(self._view, queue_id)
        if found is None or counted is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        record = found.attributes
        opens = list_opens(self._view, queue_id=queue_id, limit=OPENS_COUNTED_MAX)
        shown = shown_statistics(counted)
        shown.open_count = len(opens.items)
        return pb.Queue(
            queue_id=queue_id,
            identifier=record.identifier,
            kind=KINDS[record.kind],
            type=TYPES[record.queue_type],
            path_name=record.pathname,
            format_name=found.format_name,
            label=record.label,
            is_transactional=record.transactional,
            is_journaling=record.journaling,
            is_deleting=record.is_deleting,
            parent_queue_id=record.parent_queue,
            message_count=counted.message_count,
            total_bytes=counted.total_bytes,
            attributes=_shown(
                record, self._may_see(queue_id, caller(), QueueAccess.GET_QUEUE_PERMISSIONS)
            ),
            statistics=shown,
            subqueue_ids=found.subqueues,
            journal_queue_id=record.journal_queue,
            is_active=found.is_active,
            version=record.version,
            uses=[use.value for use in queue_uses(self._view, queue_id, caller().sids)],
        )


def _shown(record: Queue | QueueManager, shows_security: bool) -> dict[str, pb.Value]:
    """Return a record's attributes by name, without secret ones. `shows_security`: whether the
    caller may see the access list.
    """
    hidden = _SECRET | _INTERNAL | (frozenset() if shows_security else {_SECURITY})
    return {
        name: shown_value(value)
        for name, value in msgspec.structs.asdict(record).items()
        if name not in hidden
    }


def _has(record: Queue | QueueManager, known: Any, wanted: dict[str, bytes]) -> bool:
    """Whether a record's attributes already have these values."""
    return all(
        encode_attribute(getattr(record, name)) == value
        for name, value in wanted.items()
        if name in known
    )


def _version(request: _SetRequest) -> int | None:
    return request.if_version if request.HasField("if_version") else None


def _queue_of(request: pb.ExplainAclRequest) -> pb.QueueName | None:
    return request.queue if request.HasField("queue") else None
