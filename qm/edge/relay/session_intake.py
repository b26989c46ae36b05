"""One session's arrivals on their way to the leader.

The owner of a session, accepted or initiated, opens a `SessionIntake` for it, passes it the arrival
events of `qm.session` and is told when positions are durable. Nothing else of a session is known
here.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from zlib_ng.zlib_ng import crc32

from qm.cluster.relay import SessionFacts
from qm.edge.batches import FinalAckItem, IntakeOwner, Item, OrderAckItem, PacketRun
from qm.edge.facts import MessageFacts
from qm.model.values.commands import Facts
from qm.session import CloseReason, FinalAckArrived, OrderAckArrived, PacketsArrived
from qm.wire.errors import ProtocolError
from qm.wire.guid import Guid
from qm.wire.packets.soundness import PacketJudge

Arrival = PacketsArrived | OrderAckArrived | FinalAckArrived


class IntakeRelay(Protocol):
    """The relay as its intakes call it."""

    @property
    def inspector(self) -> "Inspector":
        """Inspects packets for all sessions."""

    @property
    def queue_manager(self) -> Guid | None:
        """Our own GUID, None before the cluster's birth."""

    def add(self, item: Item) -> None:
        """Add an item after all others."""

    def report_late(
        self, intake: "SessionIntake", tokens: Sequence[int], *, is_delivered: bool
    ) -> None:
        """Tell the leader whether its late packets were delivered."""

    def forget(self, intake: "SessionIntake", tokens: Sequence[int]) -> None:
        """The intake is closed."""


class SessionIntake:
    """One session's arrivals; made by `Relay.open_intake`."""

    __slots__ = (
        "_durable",
        "_is_broken",
        "_open_acks",
        "_relay",
        "facts",
        "is_announced",
        "is_open",
        "late",
        "log_index",
        "number",
        "opened_ms",
        "owner",
    )

    def __init__(
        self,
        relay: IntakeRelay,
        owner: IntakeOwner,
        number: int,
        claimed_guid: Guid,
        address: str,
        opened_ms: int,
    ) -> None:
        """`opened_ms`: cluster time."""
        self._relay = relay
        self.owner: Final = owner
        self.number: Final = number
        self.opened_ms: Final = opened_ms
        self.facts: Final = MessageFacts(number, claimed_guid, address)
        self.is_open = True
        self.is_announced = False
        """Whether the leader may send late packets over it."""
        self.late: dict[int, int] = {}
        """Late packets without an outcome: our token -> the present leader's."""
        self.log_index = 0
        """Highest log index by which this intake committed anything."""
        self._durable = 0
        self._is_broken = False
        # Positions of OrderAcks that have settled only a part of their sequence; nothing is
        # committed from the first of them on.
        self._open_acks: set[int] = set()

    @property
    def session_facts(self) -> SessionFacts:
        """Return what the leader is told of the session."""
        plain = self.facts.plain
        return SessionFacts(
            self.number, plain.peer_queue_manager, plain.peer_address, self.opened_ms
        )

    def arrived(self, event: Arrival) -> None:
        """Take arrivals in; they are committed in their order.

        An unsound packet is not relayed: those before it are, and the session is closed.
        """
        if self._is_broken or not self.is_open:
            return
        match event:
            case PacketsArrived():
                self._take_packets(event)
            case OrderAckArrived():
                ack = event.order_ack
                sequence = ack.tx_sequence_id.to_int()
                self._relay.add(
                    OrderAckItem(self, event.position, sequence, ack.tx_sequence_number)
                )
            case FinalAckArrived():
                self._take_final_ack(event)

    def _take_packets(self, event: PacketsArrived) -> None:
        run, error = self._relay.inspector.inspect(self, event)
        if run.count:
            self._relay.add(run)
        if error is not None:
            self._is_broken = True
            self.owner.close(CloseReason.MALFORMED_PACKET, str(error))

    def _take_final_ack(self, event: FinalAckArrived) -> None:
        ack = event.final_ack
        ordinal = ack.acknowledged_message_id
        if ack.acknowledged_source != self._relay.queue_manager:
            # It is about another queue manager's message. No message has the ordinal 0 (QB-A12), so
            # apply ignores it in its place.
            ordinal = 0
        self._relay.add(FinalAckItem(self, event.position, ordinal, ack.message_class))

    def settle(self, upto: int, log_index: int) -> None:
        """Commit every position up to `upto`, or up to the first OrderAck that is open."""
        if not self.is_open:
            return
        self._durable = max(self._durable, upto)
        self.log_index = max(self.log_index, log_index)
        self.owner.commit(min((self._durable, *(position - 1 for position in self._open_acks))))

    def keep_open(self, position: int) -> None:
        """The command of an OrderAck must be applied again before it is settled."""
        self._open_acks.add(position)

    def complete(self, position: int) -> None:
        """An OrderAck's command that was to be applied again has been, and is settled."""
        self._open_acks.discard(position)

    def delivered(self, tokens: Sequence[int]) -> None:
        """The peer acknowledged late packets."""
        self._relay.report_late(self, tokens, is_delivered=True)

    def close(self, tokens: Sequence[int]) -> None:
        """The session is gone, with the late packets that the peer did not acknowledge.

        What arrived on it before is still relayed.
        """
        if self.is_open:
            self.is_open = False
            self._relay.forget(self, tokens)


class Inspector:
    """Checks packets before they may enter the log: whether they are sound, and their facts."""

    def __init__(self) -> None:
        self._judge = PacketJudge()

    def inspect(
        self, intake: SessionIntake, event: PacketsArrived
    ) -> tuple[PacketRun, ProtocolError | None]:
        """Return the sound packets at the start of a run, and the error in the one after them."""
        block, offsets = event.block, event.offsets
        judge = self._judge.judge
        checksums: list[int] = []
        other_facts: dict[int, Facts] = {}
        error = None
        start = 0
        try:
            for stop in offsets[1:]:
                message = judge(block, start, stop)
                if message is not None and message.security is not None:
                    facts = intake.facts.of(message)
                    if facts is not intake.facts.plain:
                        other_facts[len(checksums)] = facts
                checksums.append(crc32(block[start:stop]))
                start = stop
        except ProtocolError as found:
            error = found
            offsets = offsets[: len(checksums) + 1]
        last_position = event.first_position + len(checksums) - 1
        return PacketRun(intake, last_position, block, offsets, checksums, other_facts), error
