"""Send: a call's messages as numbered commands, all in one proposal."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from qm.api.convert.names import settled
from qm.api.convert.outcomes import sent
from qm.api.convert.packets import PacketBuilder
from qm.api.convert.properties import message_id
from qm.api.data.sessions import Sessions
from qm.api.gate.errors import InvalidArgument
from qm.api.gate.identity import Principal
from qm.api.propose.proposer import Proposer
from qm.cluster.cluster import Cluster
from qm.cluster.examining import Examined, Examining
from qm.model.clients.clients import CLIENT_FENCED
from qm.model.clients.transactions import TRANSACTION_ID_BYTES
from qm.model.queries import find_by_format_name, queue_statistics
from qm.model.values.commands import Facts, Request, Send, Target
from qm.model.values.effects import Outcome
from qm.model.values.limits import VERSION_OF_SIGNED_SENDS
from qm.model.values.records import quota_bytes
from qm.pb import data_pb2
from qm.security.body_encryption import is_by_connector
from qm.wire.codes import ErrorCode
from qm.wire.packets.peek import has_security, peek_head
from qm.wire.packets.user_message import parse_user_message

MESSAGES_PER_SEND_MAX: Final = 1_024
_NOTHING: Final = Facts(0, b"", "", ())
"""Of a packet in which nothing was to be examined."""


class Sending:
    """Answers Send."""

    def __init__(
        self, cluster: Cluster, proposer: Proposer, sessions: Sessions, examining: Examining
    ) -> None:
        self._cluster = cluster
        self._proposer = proposer
        self._sessions = sessions
        self._examining = examining

    async def send(self, request: data_pb2.SendRequest, who: Principal) -> data_pb2.SendReply:
        """Send; the reply is returned when every message is committed or refused."""
        count = len(request.messages)
        if not 1 <= count <= MESSAGES_PER_SEND_MAX:
            raise InvalidArgument("messages", f"{count}; 1 to {MESSAGES_PER_SEND_MAX} per call")
        transaction = checked_transaction(request.transaction)
        first = await self._sessions.numbered(request.request, who, count)
        commands = await settled(
            self._cluster, lambda: self._commands(request, first, who, transaction)
        )
        if any(map(_brings_security, request.messages)):
            commands = [await self._examined(command, who) for command in commands]
        outcomes = await self._proposer.repeat(*commands)
        if any(outcome.status == CLIENT_FENCED for outcome in outcomes):
            await self._sessions.tell_fenced(first.client_id)
        return data_pb2.SendReply(results=list(map(self._result, commands, outcomes)))

    async def compose(
        self, request: data_pb2.ComposeRequest, who: Principal
    ) -> data_pb2.ComposeReply:
        """Return messages as packets for their caller to sign."""
        count = len(request.messages)
        if not 1 <= count <= MESSAGES_PER_SEND_MAX:
            raise InvalidArgument("messages", f"{count}; 1 to {MESSAGES_PER_SEND_MAX} per call")
        transaction = checked_transaction(request.transaction)
        packets = await settled(self._cluster, lambda: self._composed(request, who, transaction))
        return data_pb2.ComposeReply(packets=packets)

    async def _examined(self, command: Send, who: Principal) -> Send:
        """Return a command with what the packets for queues of this cluster are worth.

        What leaves stays as it was signed: its receiver examines it.
        """
        view = self._cluster.view
        if view.counters().apply_version < VERSION_OF_SIGNED_SENDS:
            return command
        packets, facts, begin = [], [], 0
        for target in command.targets:
            packet = bytes(command.packets[begin : begin + target.packet_bytes])
            begin += target.packet_bytes
            found = Examined(packet, _NOTHING)
            is_here = find_by_format_name(view, target.format_name).queue_id > 0
            if is_here and _is_for_us(packet):
                found = await self._examining.examine(packet, f"client {who.name}")
            packets.append((target.format_name, found.packet))
            facts.append(found.facts)
        return replace(
            Send.of(
                command.request,
                packets,
                command.sender_sids,
                transaction=command.transaction,
                application_deadletter_queue=command.application_deadletter_queue,
            ),
            facts=tuple(facts),
        )

    def _composed(
        self, request: data_pb2.ComposeRequest, who: Principal, transaction: bytes | None
    ) -> list[bytes]:
        builder = PacketBuilder(self._cluster.view, self._cluster.now_ms(), transaction, who)
        packets = []
        for place, message in enumerate(request.messages):
            try:
                targets = builder.targets(message)
                packets.append(builder.composed(message, targets))
            except InvalidArgument as error:
                raise error.within(f"messages[{place}]") from None
        return packets

    def _commands(
        self,
        request: data_pb2.SendRequest,
        first: Request,
        who: Principal,
        transaction: bytes | None,
    ) -> list[Send]:
        builder = PacketBuilder(self._cluster.view, self._cluster.now_ms(), transaction, who)
        commands = []
        for place, message in enumerate(request.messages):
            number = replace(first, number=first.number + place)
            try:
                commands.append(self._command(builder, message, number, who, transaction))
            except InvalidArgument as error:
                raise error.within(f"messages[{place}]") from None
        return commands

    def _command(
        self,
        builder: PacketBuilder,
        message: data_pb2.OutgoingMessage,
        number: Request,
        who: Principal,
        transaction: bytes | None,
    ) -> Send:
        targets = builder.targets(message)
        packets = builder.packets(message, targets)
        return Send.of(
            number,
            [*zip(targets, packets, strict=True)],
            who.sids,
            transaction=transaction,
            application_deadletter_queue=builder.absolute(
                message.application_dead_letter_queue, "application_dead_letter_queue"
            ),
        )

    def _result(self, command: Send, outcome: Outcome) -> data_pb2.SendResult:
        ordinal, places = sent(outcome)
        result = data_pb2.SendResult(status=outcome.status)
        manager = self._cluster.view.ledger.manager
        if ordinal and manager is not None:
            result.message_id = message_id(manager.identifier, ordinal)
        for queue_id, key in places:
            result.places.add(queue_id=queue_id, lookup_identifier=key)
        if outcome.status == ErrorCode.MQ_ERROR_INSUFFICIENT_RESOURCES:
            result.quota = self._quota(command.targets[len(places) :])
        return result

    def _quota(self, targets: Sequence[Target]) -> str:
        """Return the quota that has no room for the first of these, "" if both have."""
        view = self._cluster.view
        manager, queue_id = view.ledger.manager, 0
        if not targets or manager is None:
            return ""
        size = targets[0].packet_bytes
        if size > quota_bytes(manager.queue_manager_quota) - view.counters().total_bytes:
            return "computer"
        queue_id = find_by_format_name(view, targets[0].format_name).queue_id
        found = queue_statistics(view, queue_id) if queue_id > 0 else None
        if found is None or found.quota_bytes is None:
            return ""
        return "queue" if size > found.quota_bytes - found.quota_used_bytes else ""


def _brings_security(message: data_pb2.OutgoingMessage) -> bool:
    """Whether there may be something to verify or to decrypt in a message."""
    given = message.properties
    return bool(message.packet or given.signature or given.destination_symmetric_key)


def _is_for_us(packet: bytes) -> bool:
    """Whether a sound packet has something to examine; what a connector application encrypted is
    for whom that knows.
    """
    if not has_security(peek_head(packet, 0)):
        return False
    return not is_by_connector(parse_user_message(packet, 0, len(packet))[0])


def checked_transaction(raw: bytes) -> bytes | None:
    """Return a transaction's id, None for none. Raises InvalidArgument."""
    if not raw:
        return None
    if len(raw) != TRANSACTION_ID_BYTES or not any(raw):
        raise InvalidArgument(
            "transaction", f"{len(raw)} bytes; a transaction is a GUID of {TRANSACTION_ID_BYTES}"
        )
    return raw
