"""The methods of [MS-MQMR]: all results or none, as HRESULTs; nothing is thrown."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from qm.api.gate.errors import ApiError
from qm.api.gate.operations import Link, Operations
from qm.api.propose.control_once import UNNUMBERED
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster, OutcomeUnknown, Unavailable
from qm.model.queries import (
    IncomingSequence,
    View,
    find_by_format_name,
    outgoing_queue,
)
from qm.model.state.granting import is_granted_on_manager, is_granted_on_queue
from qm.model.state.ledger import QueueInHand
from qm.model.state.people import with_groups
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, SetOutgoingAdminState, SetQueueManager
from qm.model.values.elements import OutgoingAdminState, QueueKind
from qm.names.format_name import format_name_text
from qm.rpc.queue_formats import NotAName, WireFormat, name_of, settled_name, text_of
from qm.rpc.remote_management.interface import (
    MACHINE,
    QUEUE,
    ActionIn,
    InfoIn,
    InfoOut,
    ManagementObject,
    Result,
)
from qm.rpc.remote_management.properties import (
    NULL,
    IllegalProperty,
    machine_property,
    outgoing_property,
    queue_property,
)
from qm.rpc.remote_management.senders import Senders
from qm.rpc.server.call import Call
from qm.rpc.variants import Variant
from qm.security.sid import ADMINISTRATORS
from qm.wire.access_mask import MachineAccess, QueueAccess
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.property_id import QueueManagementProperty

OBJECT_MAX_CHARS: Final = 300
"""Of an object's name in an event."""
_MACHINE_ACTIONS: Final = ("CONNECT", "DISCONNECT", "TIDY")
_ADMIN_STATES: Final = {
    "PAUSE": OutgoingAdminState.ON_HOLD,
    "RESUME": OutgoingAdminState.NORMAL,
}
_RESEND: Final = "EOD_RESEND"
_SENDERS: Final = QueueManagementProperty.EOD_SOURCE_INFO.number
Audit = Callable[[str, str, str], None]
"""Told (action, principal, text) of every action."""


class Refused(Exception):
    """Ends a call with this HRESULT."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status:08X}")
        self.status = status


class RemoteManagement:
    """Implements the interface."""

    def __init__(
        self,
        cluster: Cluster,
        proposer: Proposer,
        operations: Operations,
        audit: Audit,
        senders: Senders,
    ) -> None:
        self._cluster = cluster
        self._senders = senders
        self._proposer = proposer
        self._operations = operations
        self._audit = audit

    # Reading -----------------------------------------------------------------------------

    async def get_info(self, call: Call, given: InfoIn) -> InfoOut:
        """R_QMMgmtGetInfo."""
        try:
            await self._cluster.read_barrier()
            read = await self._reader(call, given)
            values = [read(number) for number in given.properties]
        except IllegalProperty as error:
            return _nothing(given, error.status)
        except Refused as error:
            return _nothing(given, error.status)
        except (Unavailable, OutcomeUnknown, ApiError):
            return _nothing(given, ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE)
        return InfoOut(values, MQ_OK)

    async def _reader(self, call: Call, given: InfoIn) -> Callable[[int], Variant]:
        """Return what reads properties of an object. Raises Refused."""
        view, what = self._cluster.view, given.what
        if what.kind == MACHINE:
            self._demand_administrator(call)
            return partial(machine_property, view)
        if what.kind != QUEUE:
            raise Refused(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue = self._queue(call, what)
        self._demand_right(call, queue)
        queue_id = queue.record.queue_id
        if queue.record.kind is not QueueKind.OUTGOING:
            return await self._local_reader(queue, _SENDERS in given.properties)
        links = await self._operations.links([queue_id])
        return self._outgoing_reader(view, queue_id, links.get(queue_id))

    async def _local_reader(
        self, queue: QueueInHand, is_about_senders: bool
    ) -> Callable[[int], Variant]:
        senders: Sequence[IncomingSequence] = ()
        if is_about_senders:
            senders = await self._senders.of(queue.record.queue_id)
        view = self._cluster.view
        found = view.ledger.queue(queue.record.queue_id)  # the state went on meanwhile
        if found is None:
            raise Refused(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return partial(queue_property, view, found, senders=senders)

    def _outgoing_reader(
        self, view: View, queue_id: int, link: Link | None
    ) -> Callable[[int], Variant]:
        info = outgoing_queue(view, queue_id)
        if info is None:
            raise Refused(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return partial(outgoing_property, info, link)

    def _queue(self, call: Call, what: ManagementObject) -> QueueInHand:
        """Return the queue that is meant, local or outgoing. Raises Refused."""
        wire = what.what.value
        if not isinstance(wire, WireFormat):
            raise Refused(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        manager = self._cluster.view.ledger.manager
        try:
            name = name_of(wire)
        except NotAName:
            raise Refused(ErrorCode.MQ_ERROR_INVALID_PARAMETER) from None
        if manager is not None:
            name = settled_name(name, call.local[0], manager.computer_name)
        found = find_by_format_name(self._cluster.view, format_name_text(name))
        queue = self._cluster.view.ledger.queue(found.queue_id) if found.queue_id else None
        if found.status or queue is None:
            raise Refused(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return queue

    def _demand_administrator(self, call: Call) -> None:
        sids = with_groups(self._cluster.view.ledger, call.identity.sids)
        if ADMINISTRATORS not in sids:
            raise Refused(ErrorCode.MQ_ERROR_ACCESS_DENIED)

    def _demand_right(self, call: Call, queue: QueueInHand) -> None:
        """Administrators, or whoever may get the queue's properties (RP-A47, RP-A56); those of the
        queue manager, for its own queues.
        """
        ledger = self._cluster.view.ledger
        sids = with_groups(ledger, call.identity.sids)
        if ADMINISTRATORS in sids:
            return
        owner = ledger.queue(queue.record.parent_queue) if queue.record.parent_queue else queue
        if owner is None or queue.record.kind is QueueKind.OUTGOING:
            is_granted = False
        elif owner.record.kind.is_system_store:
            manager = ledger.manager
            right = MachineAccess.GET_MACHINE_PROPERTIES
            is_granted = manager is not None and is_granted_on_manager(manager, sids, right)
        else:
            is_granted = is_granted_on_queue(owner, sids, QueueAccess.GET_QUEUE_PROPERTIES)
        if not is_granted:
            raise Refused(ErrorCode.MQ_ERROR_ACCESS_DENIED)

    # Acting ------------------------------------------------------------------------------

    async def act(self, call: Call, given: ActionIn) -> Result:
        """R_QMMgmtAction; committed before it is answered. TIDY never purges (RP-A46)."""
        action = given.action.upper()
        try:
            self._demand_administrator(call)
            await self._cluster.read_barrier()
            if given.what.kind == MACHINE and action in _MACHINE_ACTIONS:
                await self._act_on_machine(call, action)
            elif given.what.kind == QUEUE and (action in _ADMIN_STATES or action == _RESEND):
                await self._act_on_queue(call, given.what, action)
            else:
                raise Refused(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
            status = MQ_OK
        except Refused as error:
            status = error.status
        except (Unavailable, OutcomeUnknown, ApiError):
            status = ErrorCode.MQ_ERROR_SERVICE_NOT_AVAILABLE
        what = _described(given.what)[:OBJECT_MAX_CHARS]
        text = f"{action[:32]} of {what} from {call.address}: {status:08X}"
        self._audit("RemoteManagement", call.identity.name, text)
        return Result(status)

    async def _act_on_machine(self, call: Call, action: str) -> None:
        if action == "TIDY":
            return
        changes = {"connection_active": encode_attribute(action == "CONNECT")}
        await self._do(SetQueueManager(UNNUMBERED, changes, call.identity.sids))

    async def _act_on_queue(self, call: Call, what: ManagementObject, action: str) -> None:
        queue = self._queue(call, what)
        if queue.record.kind is not QueueKind.OUTGOING:
            raise Refused(ErrorCode.MQ_ERROR_INVALID_PARAMETER)
        queue_id = queue.record.queue_id
        if action == _RESEND:
            await self._operations.resend(queue_id)
            return
        state = int(_ADMIN_STATES[action])
        await self._do(SetOutgoingAdminState(UNNUMBERED, queue_id, state, call.identity.sids))

    async def _do(self, command: Command) -> None:
        (outcome,) = await self._proposer.repeat(command)
        if outcome.status:
            raise Refused(outcome.status)


def _described(what: ManagementObject) -> str:
    """Return what is acted on, as events tell it."""
    if what.kind != QUEUE:
        return "the queue manager" if what.kind == MACHINE else "a session"
    wire = what.what.value
    try:
        return text_of(wire) if isinstance(wire, WireFormat) else "no queue"
    except NotAName:
        return "no queue"


def _nothing(given: InfoIn, status: int) -> InfoOut:
    return InfoOut([NULL for _ in given.properties], status)
