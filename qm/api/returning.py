"""Giving messages back: from a dead-letter queue or journal to where they were meant to go.

The message is sent anew, and the one it was made of ends in the same apply, or with the transaction
of its sending. A node that dies on the way has done all of it or nothing. All of it runs in a
session made for this one message.
"""

import secrets
from typing import Final
from zlib import crc32

from qm.api.batches import Bodies
from qm.api.deciding import UNNUMBERED, Decider
from qm.api.errors import InvalidArgument, MsmqError, check
from qm.api.identity import Principal
from qm.api.names import absolute_text
from qm.api.outcomes import numbers_of, sent
from qm.api.packets import sent_again
from qm.api.properties import message_id
from qm.api.proposing import Proposer
from qm.model.addressing import format_name_of
from qm.model.commands import (
    CloseClient,
    Command,
    Move,
    OpenClient,
    OpenQueue,
    Request,
    Send,
    Target,
    TxBegin,
    TxCommit,
)
from qm.model.effects import Outcome
from qm.model.elements import QueueAccessType, QueueKind, QueueShareMode
from qm.model.ledger import QueueInHand
from qm.model.message import deserialize_message_from_buffer, serialize_message_to_buffer
from qm.model.queries import PositionInfo, format_name_of_queue, position
from qm.model.transactions import TRANSACTION_ID_BYTES
from qm.pb import control_pb2 as pb
from qm.store.cluster import Cluster
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.user_message import parse_user_message

LEASE_MS: Final = 60_000
PRINCIPAL: Final = "\x01return"
"""Owner of these sessions; no certificate can carry it."""


class Returning:
    """See the module."""

    def __init__(
        self, cluster: Cluster, proposer: Proposer, decider: Decider, bodies: Bodies
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._decider = decider
        self._bodies = bodies

    async def give_back(
        self, queue_id: int, key: int, target: str, who: Principal
    ) -> pb.ReturnToSourceReply:
        """Return one message; `target` replaces its own destination unless it is ""."""
        view = self._cluster.view
        queue, found = view.ledger.queue(queue_id), position(view, queue_id, key)
        if queue is None or found is None or found.is_hidden:
            raise MsmqError(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        kind = queue.record.kind
        if kind is QueueKind.SUBQUEUE and not target:
            return await self._move_up(queue, found, who)
        if not (kind.is_system_store or kind is QueueKind.SUBQUEUE):
            raise InvalidArgument("queue", "a dead-letter queue, journal or subqueue is meant")
        packet, destination = self._renewed(found, target)
        job = _Job(self._proposer, found, who)
        reply = await job.run(packet, destination, format_name_of_queue(view, queue_id))
        manager = view.ledger.manager
        assert manager is not None, "a queue of no queue manager"
        ordinal, _ = sent(reply)
        return pb.ReturnToSourceReply(
            target=destination, message_id=message_id(manager.identifier, ordinal)
        )

    async def _move_up(
        self, queue: QueueInHand, found: PositionInfo, who: Principal
    ) -> pb.ReturnToSourceReply:
        """From a subqueue a message goes back to its queue as it is."""
        source, parent = queue.record.queue_id, queue.record.parent_queue
        command = Move(UNNUMBERED, source, found.lookup_identifier, parent, who.sids)
        outcome = await self._decider.decide(command)
        check(outcome.status)
        return pb.ReturnToSourceReply(
            target=format_name_of_queue(self._cluster.view, parent),
            message_id=message_id(found.source_queue_manager, found.message_ordinal),
        )

    def _renewed(self, found: PositionInfo, target: str) -> tuple[bytes, str]:
        """Return a packet with the same content as a message of this queue manager, and where it
        goes.
        """
        raw = self._bodies.of_position(found)
        manager = self._cluster.view.ledger.manager
        assert manager is not None, "a message of no queue manager"
        try:
            header = parse_user_message(raw, 0, len(raw))[0].user_header
            own = format_name_of(header.destination_queue, header)
            destination = absolute_text(self._cluster.view, target or own, "target")
            message = sent_again(
                deserialize_message_from_buffer(raw),
                destination,
                manager.identifier,
                self._cluster.now_ms(),
            )
            return serialize_message_to_buffer(message), destination
        except (ProtocolError, ValueOutOfRange) as error:
            raise InvalidArgument(
                "lookup_identifier", f"it cannot be sent again: {error}"
            ) from None


class _Job:
    """The commands for one message, in a session of their own."""

    def __init__(self, proposer: Proposer, found: PositionInfo, who: Principal) -> None:
        self._proposer = proposer
        self._found = found
        self._who = who
        self._client_id = f"return-{secrets.token_hex(16)}"
        self._number = 0

    async def run(self, packet: bytes, destination: str, format_name: str) -> Outcome:
        """Do it all; return the Send's outcome. Raises MsmqError and leaves the message."""
        await self._do(OpenClient(self._client_id, PRINCIPAL, LEASE_MS))
        try:
            return await self._carry(packet, destination, format_name)
        finally:
            # Whatever was locked and not decided goes back.
            await self._proposer.repeat(CloseClient(self._client_id))

    async def _carry(self, packet: bytes, destination: str, format_name: str) -> Outcome:
        handle = await self._open(format_name)
        is_transactional = parse_user_message(packet, 0, len(packet))[0].transaction is not None
        transaction = secrets.token_bytes(TRANSACTION_ID_BYTES) if is_transactional else None
        if transaction is not None:
            begin = TxBegin(
                self._next(), transaction, is_single_phase=True, coordinator="", timeout_ms=LEASE_MS
            )
            await self._do(begin)
        outcome = await self._do(
            Send(
                self._next(),
                memoryview(packet),
                body_index=0,
                body_offset=0,
                body_ordinal=0,
                checksum=crc32(packet),
                targets=(Target(destination),),
                sender_sids=self._who.sids,
                transaction=transaction,
                replaced_handle=handle,
                replaced_lookup_identifier=self._found.lookup_identifier,
            )
        )
        if transaction is not None:
            await self._do(TxCommit(self._next(), transaction))
        return outcome

    async def _open(self, format_name: str) -> int:
        """Open the message's queue for receiving; return the handle."""
        opened = await self._do(
            OpenQueue(
                self._next(),
                format_name,
                int(QueueAccessType.RECEIVE_ACCESS),
                int(QueueShareMode.DENY_NONE),
                self._who.sids,
            )
        )
        handle, _ = numbers_of(opened)
        return handle

    def _next(self) -> Request:
        self._number += 1
        return Request(self._client_id, self._number, 0)

    async def _do(self, command: Command) -> Outcome:
        (outcome,) = await self._proposer.repeat(command)
        if outcome.status != MQ_OK:
            raise MsmqError(outcome.status)
        return outcome
