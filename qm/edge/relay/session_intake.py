"""One session's arrivals on their way to the leader.

The owner of a session, accepted or initiated, opens a `SessionIntake` for it, passes it the arrival
events of `qm.session` and is told when positions are durable. Nothing else of a session is known
here.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from zlib_ng.zlib_ng import crc32

from qm.cluster.cluster import Unavailable
from qm.cluster.relay import SessionFacts
from qm.cluster.sealing import Sealing
from qm.edge.batches import FinalAckItem, IntakeOwner, Item, OrderAckItem, PacketRun
from qm.edge.facts import MessageFacts
from qm.edge.relay.sealed_runs import sealed_run
from qm.edge.security.verification import Chunk, Secured, Verification
from qm.session import CloseReason, FinalAckArrived, OrderAckArrived, PacketsArrived
from qm.wire.errors import ProtocolError
from qm.wire.guid import Guid
from qm.wire.packets.soundness import PacketJudge

Arrival = PacketsArrived | OrderAckArrived | FinalAckArrived
_ARRIVAL_BYTES: Final = 64
"""Approximate memory that an arrival without packets holds."""


class IntakeRelay(Protocol):
    """The relay as its intakes call it."""

    @property
    def inspector(self) -> "Inspector":
        """Inspects packets for all sessions."""

    @property
    def verification(self) -> Verification | None:
        """Examines messages; None while the cluster's version is too old for what comes of it."""

    @property
    def sealing(self) -> Sealing:
        """What is to be done to bodies before they are relayed."""

    @property
    def queue_manager(self) -> Guid | None:
        """Our own GUID, None before the cluster's birth."""

    def hold_back(self, size_bytes: int) -> None:
        """Count bytes that wait to be added; negative: that do not any more."""

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
        "_behind",
        "_durable",
        "_error",
        "_held_back_bytes",
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
        # What arrived behind packets that are being examined, in order; None while there are none.
        self._behind: deque[Arrival] | None = None
        self._error: ProtocolError | None = None
        self._held_back_bytes = 0
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
        if self._behind is not None:
            self._behind.append(event)
            self._hold_back(_size_bytes(event))
            return
        self._take(event)

    def _take(self, event: Arrival) -> None:
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
        checksums, secured, error = self._relay.inspector.inspect(event)
        count = len(checksums)
        offsets = event.offsets if error is None else event.offsets[: count + 1]
        verification = self._relay.verification if secured else None
        if verification is not None:
            self._error = error
            self._behind = deque()
            self._hold_back(_size_bytes(event))
            chunk = Chunk(self, event.first_position, event.block, offsets, checksums, secured)
            runs = verification.begin(chunk, self)
            if runs is not None:
                self.examined(runs)
            return
        if count:
            last, facts = event.first_position + count - 1, self.facts.of_all(secured)
            self._relay_run(PacketRun(self, last, event.block, offsets, checksums, facts))
        if error is not None and not self._is_broken:
            self._break(error)

    def _relay_run(self, run: PacketRun) -> None:
        """Relay packets; where their bodies cannot be sealed now, leave them to another node."""
        try:
            run = sealed_run(run, self._relay.sealing)
        except Unavailable as refusal:
            self._is_broken = True
            self.owner.close(CloseReason.STOPPED, str(refusal))
            return
        self._relay.add(run)

    def _break(self, error: ProtocolError) -> None:
        self._is_broken = True
        self.owner.close(CloseReason.MALFORMED_PACKET, str(error))

    def _hold_back(self, size_bytes: int) -> None:
        self._held_back_bytes += size_bytes
        self._relay.hold_back(size_bytes)

    def examined(self, runs: Sequence[PacketRun]) -> None:
        """Packets were examined: relay them, and what waited behind them."""
        if not self.is_open:
            return
        behind, self._behind = self._behind, None
        for run in runs:
            if not self._is_broken:
                self._relay_run(run)
        if self._is_broken:
            return
        error, self._error = self._error, None
        if error is not None:
            self._hold_back(-self._held_back_bytes)
            self._break(error)
            return
        self._go_on(behind or deque())

    def _go_on(self, behind: deque[Arrival]) -> None:
        """Take in what waited, up to the next packets that are being examined."""
        waiting_bytes = sum(map(_size_bytes, behind))
        self._hold_back(waiting_bytes - self._held_back_bytes)
        while behind and not self._is_broken:
            event = behind.popleft()
            self._hold_back(-_size_bytes(event))
            self._take(event)
            if self._behind is not None:
                self._behind.extend(behind)
                return
        self._hold_back(-self._held_back_bytes)

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

        What arrived on it before is still relayed, except what is being examined and what arrived
        behind that: its peer sends it again.
        """
        if self.is_open:
            self.is_open = False
            self._behind = None
            self._hold_back(-self._held_back_bytes)
            self._relay.forget(self, tokens)


def _size_bytes(event: Arrival) -> int:
    return len(event.block) if isinstance(event, PacketsArrived) else _ARRIVAL_BYTES


class Inspector:
    """Checks packets before they may enter the log, and finds those with a SecurityHeader."""

    def __init__(self) -> None:
        self._judge = PacketJudge()

    def inspect(self, event: PacketsArrived) -> tuple[list[int], Secured, ProtocolError | None]:
        """Return the checksums of the sound packets at the start of a run, those of them that have
        a SecurityHeader, and the error in the packet after them.
        """
        block, offsets = event.block, event.offsets
        judge = self._judge.judge
        checksums: list[int] = []
        secured: Secured = {}
        start = 0
        try:
            for stop in offsets[1:]:
                message = judge(block, start, stop)
                if message is not None and message.security is not None:
                    secured[len(checksums)] = message
                checksums.append(crc32(block[start:stop]))
                start = stop
        except ProtocolError as found:
            return checksums, secured, found
        return checksums, secured, None
