"""Return of messages: from a dead-letter queue or journal to their original destination.

With a target this moves a message from any queue of applications to another one; to its sender it
counts as received.

The message is sent anew, and the original ends in the same apply, or with the transaction of the
send. If a node dies on the way, all of it is done or nothing. It runs in a session made for this
one call, with numbers that a repeat of the call finds again at any node: the state keeps their
results for as long as those of a client that has left.
"""

from typing import Final

from qm.api.convert.names import absolute_text, queue_id_of
from qm.api.convert.outcomes import number_of, numbers_of, sent
from qm.api.convert.packets import sent_again, stored_packet
from qm.api.convert.properties import message_id
from qm.api.data.batches import Bodies
from qm.api.gate.errors import InvalidArgument, LimitReached, MsmqError, check
from qm.api.gate.identity import Principal
from qm.api.propose.control_once import UNNUMBERED, Decider, made_identifier
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.model.clients.clients import request_result
from qm.model.messages.packets import deserialize_message_from_buffer
from qm.model.queries import PositionInfo, format_name_of_queue, get_client, position
from qm.model.state.addressing import format_name_of
from qm.model.state.ledger import QueueInHand
from qm.model.values.commands import (
    CloseClient,
    Command,
    Move,
    OpenClient,
    OpenQueue,
    Request,
    Send,
    TxBegin,
    TxCommit,
)
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueAccessType, QueueKind, QueueShareMode
from qm.model.values.limits import CLIENTS_MAX
from qm.pb import control_pb2 as pb
from qm.wire.codes import MQ_OK, ErrorCode
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.packets.user_message import parse_user_message

LEASE_MS: Final = 60_000
PRINCIPAL: Final = "\x01return"
"""Owner of these sessions; no certificate can have this name."""
CLIENTS_LEFT_MIN: Final = CLIENTS_MAX // 4
"""Reserved for applications: each call here takes a client's place until it is forgotten."""
_OPEN, _BEGIN, _SEND, _COMMIT = range(1, 5)
"""Request numbers of an attempt, after those of attempts whose session has ended."""


class Returning:
    """Returns messages to their source queues, for one caller's call at a time."""

    def __init__(
        self, cluster: Cluster, proposer: Proposer, decider: Decider, bodies: Bodies
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._decider = decider
        self._bodies = bodies

    async def give_back(
        self, request: pb.ReturnToSourceRequest, who: Principal
    ) -> pb.ReturnToSourceReply:
        """Return one message."""
        await self._cluster.read_barrier()
        queue = self._queue(queue_id_of(self._cluster.view, request.queue))
        kind = queue.record.kind
        if kind is QueueKind.SUBQUEUE and not request.target:
            return await self._move_up(request, queue, who)
        is_moved = kind is QueueKind.APPLICATION and request.target
        if not (kind.is_system_store or kind is QueueKind.SUBQUEUE or is_moved):
            raise InvalidArgument(
                "queue",
                "it must be a dead-letter queue, journal or subqueue, or with a `target` a queue of"
                " applications",
            )
        job = _Job(self._cluster, self._proposer, request, who)
        done = job.done()
        if done is not None:
            return self._reply(done, "")
        found = self._found(queue, request.lookup_identifier)
        packet, destination = await self._bodies.healed(
            lambda: self._renewed(found, request.target)
        )
        format_name = format_name_of_queue(self._cluster.view, queue.record.queue_id)
        try:
            outcome = await job.run(packet, destination, format_name)
        except MsmqError:
            # Another node may have been asked too, and may have done it meanwhile.
            await self._cluster.read_barrier()
            done = job.done()
            if done is None:
                raise
            outcome = done
        return self._reply(outcome, destination)

    def _reply(self, outcome: Outcome, destination: str) -> pb.ReturnToSourceReply:
        """Return what a caller is told; a `destination` of "" is taken from the outcome."""
        view = self._cluster.view
        manager = view.ledger.manager
        assert manager is not None, "a queue without its queue manager"
        ordinal, places = sent(outcome)
        return pb.ReturnToSourceReply(
            target=destination or format_name_of_queue(view, places[0][0]),
            message_id=message_id(manager.identifier, ordinal),
        )

    def _queue(self, queue_id: int) -> QueueInHand:
        queue = self._cluster.view.ledger.queue(queue_id)
        if queue is None:
            raise MsmqError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND)
        return queue

    def _found(self, queue: QueueInHand, key: int) -> PositionInfo:
        found = position(self._cluster.view, queue.record.queue_id, key)
        if found is None or found.is_hidden:
            raise MsmqError(ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND)
        return found

    async def _move_up(
        self, request: pb.ReturnToSourceRequest, queue: QueueInHand, who: Principal
    ) -> pb.ReturnToSourceReply:
        """Move a message from a subqueue back to its queue, unchanged."""
        source, parent = queue.record.queue_id, queue.record.parent_queue
        found: PositionInfo | None = None

        def make() -> Command:
            nonlocal found
            found = self._found(queue, request.lookup_identifier)
            return Move(UNNUMBERED, source, found.lookup_identifier, parent, who.sids)

        outcome = await self._decider.once(request, make)
        check(outcome.status)
        view = self._cluster.view
        reply = pb.ReturnToSourceReply(target=format_name_of_queue(view, parent))
        found = found or position(view, parent, number_of(outcome))
        if found is not None:  # else it is a repeat, and the message has been received since
            reply.message_id = message_id(found.source_queue_manager, found.message_ordinal)
        return reply

    def _renewed(self, found: PositionInfo, target: str) -> tuple[bytes, str]:
        """Return a packet with the content of a message, as one of this queue manager, and where it
        goes.
        """
        raw = self._bodies.of_position(found)
        manager = self._cluster.view.ledger.manager
        assert manager is not None, "a message without its queue manager"
        try:
            header = parse_user_message(raw, 0, len(raw))[0].user_header
            kept = deserialize_message_from_buffer(raw)
            own = format_name_of(header.destination_queue, header)
            destination = absolute_text(self._cluster.view, target or own, "target")
            message = sent_again(
                kept,
                destination,
                manager.identifier,
                self._cluster.now_ms(),
            )
            return stored_packet(message), destination
        except (ProtocolError, ValueOutOfRange) as error:
            raise InvalidArgument(
                "lookup_identifier", f"it cannot be sent again: {error}"
            ) from None


class _Job:
    """The commands for one call, in a session of its own."""

    def __init__(
        self,
        cluster: Cluster,
        proposer: Proposer,
        request: pb.ReturnToSourceRequest,
        who: Principal,
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._key = request.lookup_identifier
        self._who = who
        asked = request.SerializeToString(deterministic=True).hex()
        self._client_id = f"return-{made_identifier(f'client {asked}').hex()}"
        self._first = 0

    def done(self) -> Outcome | None:
        """Return the Send's outcome if this node's state shows that it counts."""
        client = get_client(self._cluster.view, self._client_id)
        if client is None:
            return None
        for first in range(0, client.highest_number, _COMMIT):
            outcome = self._result(first + _SEND)
            is_plain = self._result(first + _BEGIN) is None
            end = outcome if is_plain else self._result(first + _COMMIT)
            if outcome is not None and end is not None and outcome.status == end.status == MQ_OK:
                return outcome
        return None

    def _result(self, number: int) -> Outcome | None:
        state = self._cluster.view.ledger.state
        result = request_result(state, self._client_id, number)
        return None if result is None else Outcome(result.status, value=result.value)

    async def run(self, packet: bytes, destination: str, format_name: str) -> Outcome:
        """Do everything; return the Send's outcome. Raises MsmqError and leaves the message."""
        self._first = self._first_number()
        await self._do(OpenClient(self._client_id, PRINCIPAL, LEASE_MS))
        try:
            return await self._carry(packet, destination, format_name)
        finally:
            # Anything locked and not decided is given back.
            await self._proposer.repeat(CloseClient(self._client_id))

    def _first_number(self) -> int:
        """Return the number that this attempt's numbers follow; an open session continues."""
        view = self._cluster.view
        client = get_client(view, self._client_id)
        if client is None:
            if view.counters().client_count + CLIENTS_LEFT_MIN >= CLIENTS_MAX:
                raise LimitReached(
                    "too many messages were returned recently: their calls are remembered for"
                    " result_retention_ms; lower that setting of the queue manager, or wait"
                )
            return 0
        attempts = -(-client.highest_number // _COMMIT)
        return _COMMIT * (max(attempts - 1, 0) if client.is_open else attempts)

    async def _carry(self, packet: bytes, destination: str, format_name: str) -> Outcome:
        handle = await self._open(format_name)
        is_transactional = parse_user_message(packet, 0, len(packet))[0].transaction is not None
        transaction = made_identifier(f"{self._client_id} {self._first}")
        if is_transactional:
            begin = TxBegin(
                self._numbered(_BEGIN),
                transaction,
                is_single_phase=True,
                coordinator="",
                timeout_ms=LEASE_MS,
            )
            await self._do(begin)
        outcome = await self._do(
            Send.of(
                self._numbered(_SEND),
                [(destination, packet)],
                self._who.sids,
                transaction=transaction if is_transactional else None,
                replaced_handle=handle,
                replaced_lookup_identifier=self._key,
            )
        )
        if is_transactional:
            await self._do(TxCommit(self._numbered(_COMMIT), transaction))
        return outcome

    async def _open(self, format_name: str) -> int:
        """Open the message's queue for receiving; return the handle."""
        opened = await self._do(
            OpenQueue(
                self._numbered(_OPEN),
                format_name,
                int(QueueAccessType.RECEIVE_ACCESS),
                int(QueueShareMode.DENY_NONE),
                self._who.sids,
            )
        )
        handle, _ = numbers_of(opened)
        return handle

    def _numbered(self, number: int) -> Request:
        return Request(self._client_id, self._first + number, 0)

    async def _do(self, command: Command) -> Outcome:
        (outcome,) = await self._proposer.repeat(command)
        if outcome.status != MQ_OK:
            raise MsmqError(outcome.status)
        return outcome
