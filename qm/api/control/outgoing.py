"""OutgoingControl: queues to other queue managers, their links, pause and resume."""

from datetime import UTC, datetime
from typing import Final

from typing_extensions import override

from qm.api.convert.names import queue_id_of
from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import MsmqError, check
from qm.api.gate.operations import Link, LinkEvent, Operations
from qm.api.gate.pages import number_after, page_size, token_of
from qm.api.propose.control_once import UNNUMBERED, Decider
from qm.cluster.cluster import Cluster
from qm.model.queries import (
    OutgoingQueueInfo,
    SequencePlace,
    list_outgoing_queues,
    outgoing_queue,
)
from qm.model.values.commands import Command, SetOutgoingAdminState
from qm.model.values.elements import OutgoingAdminState, OutgoingQueueState
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc
from qm.wire.codes import ErrorCode

_STATES: Final = dict(zip(OutgoingQueueState, pb.OutgoingState.values(), strict=True))
_ADMIN_STATES: Final = {
    OutgoingAdminState.ON_HOLD: OutgoingQueueState.ON_HOLD,
    OutgoingAdminState.LOCKED: OutgoingQueueState.LOCKED,
}


class OutgoingControl(control_pb2_grpc.OutgoingControlServicer):
    """Implements `quorate.control.v1.OutgoingControl`."""

    def __init__(self, cluster: Cluster, operations: Operations, decider: Decider) -> None:
        self._cluster = cluster
        self._operations = operations
        self._decider = decider

    @override
    async def ListOutgoing(
        self, request: pb.ListOutgoingRequest, context: Context
    ) -> pb.ListOutgoingReply:
        size, after = page_size(request.page_size), number_after(request.page_token)
        await self._cluster.read_barrier()
        page = list_outgoing_queues(self._cluster.view, after=after or 0, limit=size)
        links = await self._operations.links([info.queue_id for info in page.items])
        return pb.ListOutgoingReply(
            queues=[_shown(info, links.get(info.queue_id)) for info in page.items],
            page_token=token_of(page.next),
        )

    @override
    async def GetOutgoing(
        self, request: pb.GetOutgoingRequest, context: Context
    ) -> pb.OutgoingQueue:
        await self._cluster.read_barrier()
        return await self._get(self._queue_id(request))

    @override
    async def Pause(self, request: pb.GetOutgoingRequest, context: Context) -> pb.OutgoingQueue:
        return await self._set(request, OutgoingAdminState.ON_HOLD)

    @override
    async def Resume(self, request: pb.GetOutgoingRequest, context: Context) -> pb.OutgoingQueue:
        return await self._set(request, OutgoingAdminState.NORMAL)

    @override
    async def Resend(self, request: pb.GetOutgoingRequest, context: Context) -> pb.OutgoingQueue:
        await self._cluster.read_barrier()
        queue_id = self._queue_id(request)
        await self._operations.resend(queue_id)
        return await self._get(queue_id)

    def _queue_id(self, request: pb.GetOutgoingRequest) -> int:
        """Return the outgoing queue that is meant, by its id or its destination."""
        queue_id = queue_id_of(self._cluster.view, request.queue)
        if outgoing_queue(self._cluster.view, queue_id) is None:
            raise MsmqError(
                ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, "it is a local queue, not an outgoing one"
            )
        return queue_id

    async def _set(
        self, request: pb.GetOutgoingRequest, admin_state: OutgoingAdminState
    ) -> pb.OutgoingQueue:
        def make() -> Command:
            queue_id = self._queue_id(request)
            return SetOutgoingAdminState(UNNUMBERED, queue_id, int(admin_state), caller().sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        return await self._get(self._queue_id(request))

    async def _get(self, queue_id: int) -> pb.OutgoingQueue:
        info = outgoing_queue(self._cluster.view, queue_id)
        if info is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        links = await self._operations.links([queue_id])
        return _shown(info, links.get(queue_id))


def _shown(info: OutgoingQueueInfo, link: Link | None) -> pb.OutgoingQueue:
    state = _ADMIN_STATES.get(info.admin_state)
    if state is None:
        state = link.state if link is not None else OutgoingQueueState.INACTIVE
    shown = pb.OutgoingQueue(
        queue_id=info.queue_id,
        format_name=info.destination_format_name,
        base_priority=info.base_priority,
        state=_STATES[state],
        message_count=info.message_count,
        total_bytes=info.total_bytes,
        is_deleting=info.is_deleting,
        next=_place(info.eod_next_seq),
        last_acked=_place(info.eod_last_ack),
        first_unacked=_place(info.eod_first_non_ack),
        last_unacked=_place(info.eod_last_non_ack),
        unacked_count=info.eod_no_ack_count,
        unread_count=info.eod_no_read_count,
    )
    if link is not None:
        shown.next_hops.extend(link.next_hops)
        shown.connection_history.extend(map(_told, link.connection_history))
        shown.resend_count = link.resend_count
        shown.next_resend_ms = link.next_resend_ms
        shown.last_error = link.last_error
        shown.last_ack_time_s = link.last_ack_time_s
        shown.last_ack_count = link.last_ack_count
        shown.resend_interval_s = link.resend_interval_s
    return shown


def _told(event: LinkEvent) -> str:
    """Return an event of a connection as a line."""
    when = datetime.fromtimestamp(event.time_s, UTC)
    status = event.status.name.title().replace("_", "")
    error = f" error {event.error:#010x}" if event.error else ""
    return f"{when:%Y-%m-%dT%H:%M:%SZ} {status} {event.address}{error}"


def _place(place: SequencePlace | None) -> pb.SequencePlace | None:
    if place is None:
        return None
    return pb.SequencePlace(
        sequence_identifier=place.sequence_identifier,
        sequence_number=place.sequence_number,
        previous_number=place.previous_number,
    )
