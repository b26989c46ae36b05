"""MessageControl: messages of any queue, journal or dead-letter queue as operators see them.

Clients see those of the queues, and of their journals and subqueues, whose access list lets them
peek, and not who reads them now.
"""

import asyncio
from typing import Final

from typing_extensions import override

from qm.api.control.return_to_source import Returning
from qm.api.convert.names import queue_id_of
from qm.api.convert.properties import message_id, properties_of
from qm.api.convert.reasons import reason_in_words
from qm.api.data.batches import BATCH_MAX_BYTES, Bodies
from qm.api.gate.answers import answer_room
from qm.api.gate.calls import Context, caller
from qm.api.gate.errors import InvalidArgument, MsmqError, NotPermitted
from qm.api.gate.pages import number_after, page_size, token_of
from qm.api.gate.roles import OPERATORS
from qm.cluster.cluster import Cluster
from qm.model.queries import (
    PositionInfo,
    QueueUse,
    browse,
    count_classes,
    position,
    queue_uses,
)
from qm.model.values.elements import LockKind, QueueKind
from qm.model.values.rows import PositionState
from qm.pb import control_pb2 as pb
from qm.pb import control_pb2_grpc, data_pb2
from qm.wire.codes import ErrorCode
from qm.wire.structures.identifiers import (
    MESSAGE_IDENTIFIER_SIZE_BYTES,
    parse_message_identifier,
)

COUNTED_STEPS_MAX: Final = 256
"""Reads of a queue per count: about a million messages."""
_SHOWN_TWICE: Final = 2
"""A view may show a body in its packet and in the properties."""
_WITH_ACCESS_LIST: Final = (QueueKind.APPLICATION, QueueKind.SUBQUEUE, QueueKind.JOURNAL)
"""Queues to which an access list of a queue applies; the others hold messages of everybody."""
_STATES: Final = dict(zip(PositionState, pb.PositionState.values(), strict=True))


class MessageControl(control_pb2_grpc.MessageControlServicer):
    """Implements `quorate.control.v1.MessageControl`."""

    def __init__(self, cluster: Cluster, bodies: Bodies, returning: Returning) -> None:
        self._cluster = cluster
        self._bodies = bodies
        self._returning = returning

    async def _queue_id(self, name: pb.QueueName) -> int:
        """Return the queue_id of a queue whose messages the caller may see. Raises MsmqError."""
        await self._cluster.read_barrier()
        view = self._cluster.view
        queue_id = queue_id_of(view, name)
        if _is_operator():
            return queue_id
        queue = view.queue(queue_id)
        has_list = queue is not None and queue.record.kind in _WITH_ACCESS_LIST
        if has_list and QueueUse.PEEK in queue_uses(view, queue_id, caller().sids):
            return queue_id
        raise MsmqError(
            ErrorCode.MQ_ERROR_ACCESS_DENIED, "its access list does not let you peek at messages"
        )

    @override
    async def Browse(self, request: pb.BrowseRequest, context: Context) -> pb.BrowseReply:
        size, after = page_size(request.page_size), number_after(request.page_token)
        if request.with_hidden:
            _check_operator()
        queue_id = await self._queue_id(request.queue)
        page = browse(
            self._cluster.view,
            queue_id,
            after=after,
            limit=size,
            is_backward=request.is_backward,
            with_hidden=request.with_hidden,
        )
        classes = frozenset(request.reason_classes)
        identifier = _identifier("message_id", request.message_id)
        correlation = request.correlation_id
        _identifier("correlation_id", correlation)
        chosen: list[PositionInfo] = []
        following, size_bytes = page.next, 0
        for place, found in enumerate(page.items):
            if classes and found.message_class not in classes:
                continue
            if identifier and identifier != (found.source_queue_manager, found.message_ordinal):
                continue
            if size_bytes and size_bytes + found.body_length > BATCH_MAX_BYTES:
                following = page.items[place - 1].lookup_identifier
                break
            size_bytes += found.body_length
            if not correlation or await self._is_correlated(found, correlation):
                chosen.append(found)
        await answer_room(_SHOWN_TWICE * size_bytes)
        shown = [await self._healed(found, request.view) for found in chosen]
        return pb.BrowseReply(messages=shown, page_token=token_of(following))

    @override
    async def GetMessage(
        self, request: pb.GetMessageRequest, context: Context
    ) -> pb.BrowsedMessage:
        queue_id = await self._queue_id(request.queue)
        found = position(self._cluster.view, queue_id, request.lookup_identifier)
        if found is None or (found.is_hidden and not _is_operator()):
            raise MsmqError(
                ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, "no message has this lookup identifier"
            )
        await answer_room(_SHOWN_TWICE * found.body_length)
        return await self._healed(found, request.view)

    @override
    async def CountClasses(
        self, request: pb.CountClassesRequest, context: Context
    ) -> pb.CountClassesReply:
        queue_id = await self._queue_id(request.queue)
        totals: dict[int, int] = {}
        after = -1
        for _ in range(COUNTED_STEPS_MAX):
            counted = count_classes(self._cluster.view, queue_id, after=after)
            for message_class, count in counted.counts.items():
                totals[message_class] = totals.get(message_class, 0) + count
            if counted.next is None:
                break
            after = counted.next
            await asyncio.sleep(0)
        reply = pb.CountClassesReply(is_partial=counted.next is not None)
        for message_class, count in sorted(totals.items()):
            reply.counts.add(
                message_class=message_class, reason=reason_in_words(message_class), count=count
            )
        return reply

    @override
    async def ReturnToSource(
        self, request: pb.ReturnToSourceRequest, context: Context
    ) -> pb.ReturnToSourceReply:
        return await self._returning.give_back(request, caller())

    async def _is_correlated(self, found: PositionInfo, correlation_id: bytes) -> bool:
        packet = await self._bodies.healed(lambda: self._bodies.of_position(found))
        if correlation_id not in packet:  # nearly all, and cheaper than to parse it
            return False
        properties = properties_of(packet, 0, 0, found.flags, with_body=False)
        return bool(properties.correlation_id == correlation_id)

    async def _healed(self, found: PositionInfo, view: int) -> pb.BrowsedMessage:
        return await self._bodies.healed(lambda: self._shown(found, view))

    def _shown(self, found: PositionInfo, view: int) -> pb.BrowsedMessage:
        shown = pb.BrowsedMessage(
            queue_id=found.queue_id,
            lookup_identifier=found.lookup_identifier,
            state=_STATES[found.state],
            lock_owner=_owner(found) if _is_operator() else "",
            size_bytes=found.size_bytes,
            priority=found.priority,
            deadline_ms=found.deadline_ms,
            reason_class=found.message_class,
            reason=reason_in_words(found.message_class),
            message_id=message_id(found.source_queue_manager, found.message_ordinal),
            arrived_time_s=found.arrival_time,
            returns=found.returns,
            aborts=found.aborts,
            moves=found.moves,
            entry_index=found.body_index,
        )
        packet = self._bodies.of_position(found)
        if view in (data_pb2.PACKETS, data_pb2.PACKETS_AND_PROPERTIES):
            shown.packet = packet
        if view not in data_pb2.View.values():
            raise InvalidArgument("view", f"{view} is not a view")
        if view != data_pb2.PACKETS:
            shown.properties.CopyFrom(
                properties_of(
                    packet,
                    found.lookup_identifier,
                    found.arrival_time,
                    found.flags,
                    with_body=view != data_pb2.PROPERTIES_WITHOUT_BODY,
                )
            )
        return shown


def _is_operator() -> bool:
    return caller().role in OPERATORS


def _check_operator() -> None:
    if not _is_operator():
        raise NotPermitted("only operators and admins see messages that are being purged")


def _identifier(field: str, given: bytes) -> tuple[bytes, int] | None:
    """Return the parts of a message identifier, None for none. Raises InvalidArgument."""
    if not given:
        return None
    if len(given) != MESSAGE_IDENTIFIER_SIZE_BYTES:
        raise InvalidArgument(
            field, f"it has {MESSAGE_IDENTIFIER_SIZE_BYTES} bytes, not {len(given)}"
        )
    found, _ = parse_message_identifier(given, 0, len(given))
    return found.queue_manager_guid, found.ordinal


def _owner(found: PositionInfo) -> str:
    """Return the holder of a lock, in words."""
    if found.lock_kind is None:
        return ""
    if found.lock_kind is LockKind.REMOTE_READ:
        return found.lock_owner.decode("utf-8", "replace")
    if found.lock_kind is LockKind.DELAYED:
        return "waits before its next reader"
    if found.lock_kind is LockKind.FINAL_ACK:
        return "awaits its final acknowledgement"
    return f"transaction {found.lock_owner.hex()}"
