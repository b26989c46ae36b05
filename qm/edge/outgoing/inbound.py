"""What peers send back over sessions that this side opened.

Such a session carries messages both ways [MS-MQQB 3.1.1.3]. Order and final acknowledgements of
what was sent come this way above all; other messages belong to the flow of the node's edge, which
the node hands in as `Inbound`.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from qm.edge.outgoing.commits import Commits
from qm.edge.outgoing.limits import COMMANDS_PER_PROPOSAL_MAX
from qm.model.commands import Command, FinalAcked, OrderAcked
from qm.model.effects import Outcome
from qm.session import CloseReason, FinalAckArrived, OrderAckArrived, PacketsArrived

Arrival = PacketsArrived | OrderAckArrived | FinalAckArrived


class InboundPort(Protocol):
    """A session's face to whoever takes its arrivals."""

    def commit(self, upto: int) -> None:
        """Every arrival up to this position has its verdict, durably (`Session.commit`)."""

    def close(self, reason: CloseReason, detail: str) -> None:
        """End the session."""

    def hold(self, is_held: bool) -> None:
        """Stop reading from the peer, or go on."""

    def offer(self, tokens: Sequence[int], packets: Sequence[bytes]) -> bool:
        """Send late packets; False if they cannot be."""


class InboundFlow(Protocol):
    """Takes one session's arrivals."""

    def arrived(self, event: Arrival) -> None:
        """These came, in order; `InboundPort.commit` is to be called for them."""

    def close(self, tokens: Sequence[int]) -> None:
        """The session is gone, with late packets that were not acknowledged."""


class Inbound(Protocol):
    """Takes the arrivals of sessions that this side opened; the edge's relay is one."""

    def open_flow(
        self, owner: InboundPort, claimed_guid: bytes, address: str, *, is_announced: bool
    ) -> InboundFlow:
        """A session with a peer is open.

        `is_announced`: whether the leader may send late packets by it. It has its own way to do
        so over sessions of this side.
        """


class AcknowledgementsOnly:
    """The `Inbound` of a node without one: order and final acks, and no other messages."""

    def __init__(self, commits: Commits, own_guid: bytes) -> None:
        self._commits = commits
        self._own_guid = own_guid

    def open_flow(
        self, owner: InboundPort, claimed_guid: bytes, address: str, *, is_announced: bool
    ) -> InboundFlow:
        """See Inbound.open_flow."""
        del claimed_guid, address, is_announced
        return _Acknowledged(self._commits, self._own_guid, owner)


class _Acknowledged:
    """Commits one session's acknowledgements in their order, a group at a time."""

    def __init__(self, commits: Commits, own_guid: bytes, port: InboundPort) -> None:
        self._commits = commits
        self._own_guid = own_guid
        self._port: InboundPort | None = port
        self._waiting: deque[tuple[int, Command | None]] = deque()
        self._is_asking = False

    def arrived(self, event: Arrival) -> None:
        """See InboundFlow.arrived."""
        if isinstance(event, PacketsArrived):
            if self._port is not None:
                detail = "user messages on a session that this side opened are not taken"
                self._port.close(CloseReason.LIMIT, detail)
            return
        self._waiting.append((event.position, self._command(event)))
        self._ask()

    def close(self, tokens: Sequence[int]) -> None:
        """See InboundFlow.close."""
        del tokens
        self._port = None
        self._waiting.clear()

    def _command(self, event: OrderAckArrived | FinalAckArrived) -> Command | None:
        if isinstance(event, OrderAckArrived):
            order = event.order_ack
            return OrderAcked(order.tx_sequence_id.to_int(), order.tx_sequence_number)
        final = event.final_ack
        if final.acknowledged_source != self._own_guid:
            return None  # of another queue manager's message: counted, without effect
        return FinalAcked(final.acknowledged_message_id, final.message_class)

    def _ask(self) -> None:
        if self._is_asking or not self._waiting:
            return
        asked: list[tuple[int, Command | None]] = []
        while self._waiting and len(asked) < COMMANDS_PER_PROPOSAL_MAX:
            asked.append(self._waiting.popleft())
        self._propose(asked, [command for _, command in asked if command is not None])

    def _propose(self, asked: list[tuple[int, Command | None]], commands: list[Command]) -> None:
        self._is_asking = True

        def then(outcomes: Sequence[Outcome] | None) -> None:
            self._is_asking = False
            if self._port is None:
                return
            left = commands
            if outcomes is not None:
                # An order ack may settle more than one entry can hold: once more, then.
                pairs = zip(commands, outcomes, strict=True)
                left = [command for command, outcome in pairs if outcome.value is True]
            if left:
                self._propose(asked, left)
                return
            self._port.commit(asked[-1][0])
            self._ask()

        if commands:
            self._commits.ask(commands, then)
        else:
            then([])
