"""What one peer is owed: final acks from the outbox, order acks of its sequences (QB-A22).

They are sent over sessions that edges of any nodes have with the peer, if its GUID and its address
both match; or over a matching connection of this side; or over a new one, to the address where the
peer was seen, which then has to answer with that GUID. A peer that merely claims a GUID is sent
nothing that belongs to it (DESIGN section 7).
"""

from collections.abc import Sequence
from heapq import nlargest
from itertools import islice
from typing import Final, Protocol, TypeAlias

import msgspec
from typing_extensions import override

from qm.cluster.relay import LatePackets
from qm.edge.outgoing.acks.order_acks import OrderAckIds, sequence_row
from qm.edge.outgoing.limits import (
    ORDER_ACK_SESSIONS_MAX,
    ORDER_ACKS_PER_PEER_MAX,
    OUTBOX_IN_FLIGHT_MAX,
    OUTBOX_RETRY_S,
    OUTBOX_ROWS_PER_PEER_MAX,
)
from qm.edge.outgoing.link.connections import Connections
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.driver import LinkDriver, LinkOwner
from qm.edge.outgoing.link.resolver import Unresolved
from qm.edge.outgoing.link.timers import earliest
from qm.edge.outgoing.link.user import ACKS_PRIORITY, SharedConnection
from qm.edge.outgoing.packets import final_ack_packet, order_ack_packet, order_queue
from qm.model.state.tables import Table
from qm.model.values.effects import SequenceSeen
from qm.model.values.records import OutboxRow, decode
from qm.model.values.rows import OUTBOX_KEY
from qm.names.guid import guid_text
from qm.session import Closed, ConnectionStatus, NextHop
from qm.wire.guid import Guid

ORDER_ACK_TOKEN: Final = 1 << 63
"""Above every outbox id: an order ack is repeated on demand, so its token needs no tracking."""


EdgeSession: TypeAlias = tuple[int, str, int]
"""When it was opened, its edge, its number there: newer ones compare greater."""


class PeerName(msgspec.Struct, frozen=True, gc=False):
    """Identity of a peer that something is owed to."""

    guid: Guid
    address: str
    """Address where it was seen, without port; "" = not known."""


class OutboxOwner(Protocol):
    """Accounts for outbox rows of all peers."""

    def carried(self, outbox_ids: Sequence[int], peer: "PeerAcks") -> None:
        """An edge's session carries these; tell `peer` the result."""

    def done(self, outbox_ids: Sequence[int], peer: "PeerAcks") -> None:
        """These reached their peer."""

    def wants_more(self, peer: "PeerAcks") -> None:
        """There is room again for rows of this peer."""


class PeerAcks(LinkOwner):
    """A `LinkOwner` for one peer, which also uses edges' sessions with it."""

    def __init__(
        self,
        context: OutgoingContext,
        connections: Connections,
        owner: OutboxOwner,
        name: PeerName,
        number: int,
        order_ack_ids: OrderAckIds,
    ) -> None:
        self.name = name
        self.more_from: int | None = None
        """The first row that was left in the outbox for lack of room here."""
        self._context = context
        self._owner = owner
        self._number = number
        self._order_ack_ids = order_ack_ids
        self._waiting: dict[int, None] = {}
        """Outbox ids, oldest first."""
        self._flight: dict[int, EdgeSession | None] = {}
        """Outbox id -> the session that carries it; None: a connection of this side."""
        self._order_acks: dict[int, SequenceSeen] = {}
        self._order_ack_count = 0
        self._retry_at: float | None = None
        self._driver = LinkDriver(context, connections, self)

    # What is owed --------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed or in progress, so that it may be forgotten."""
        is_owing = self._waiting or self._flight or self._order_acks or self.more_from is not None
        driver = self._driver
        return not is_owing and driver.connection is None and not driver.is_resolving

    @property
    def is_out_of_reach(self) -> bool:
        """Whether nothing is in progress because there is no way to the peer."""
        driver = self._driver
        is_unused = driver.connection is None and not self._flight
        return is_unused and driver.link.is_waiting_reconnect

    @property
    def row_count(self) -> int:
        """Number of outbox rows in memory."""
        return len(self._waiting) + len(self._flight)

    def owe_row(self, outbox_id: int) -> None:
        """A row of the outbox is for this peer; `go_on` follows."""
        if outbox_id in self._flight or outbox_id in self._waiting:
            return
        if self.row_count < OUTBOX_ROWS_PER_PEER_MAX:
            self._waiting[outbox_id] = None
        elif self.more_from is None:
            self.more_from = outbox_id

    def owe_order_ack(self, stream_id: int, seen: SequenceSeen) -> None:
        """An order ack of one of the peer's sequences is due now."""
        if len(self._order_acks) < ORDER_ACKS_PER_PEER_MAX:
            self._order_acks[stream_id] = seen
        self.go_on()

    def give_up(self, outbox_ids: Sequence[int]) -> None:
        """These rows are too old to be of use."""
        for outbox_id in outbox_ids:
            self._waiting.pop(outbox_id, None)

    def stop(self) -> None:
        """Leadership is over, or the peer is forgotten."""
        self._driver.stop()

    # Ways ----------------------------------------------------------------------------------

    @override
    def go_on(self) -> None:
        """Send what is owed over the best connection available; open one if needed."""
        is_owing = bool(self._waiting or self._order_acks)
        if is_owing and self._retry_at is None and not self._use_edges():
            if self._driver.connection is not None:
                self._driver.connection.ready(self)
            else:
                self._driver.link.message_available()
        self._driver.act()
        if self.more_from is not None and self.row_count <= OUTBOX_ROWS_PER_PEER_MAX // 2:
            self._owner.wants_more(self)
        self._context.timers.watch(self)

    def session_opened(self, session: EdgeSession) -> None:
        """An edge has a session with this peer, which may have lost all older ones.

        A peer that reconnects leaves them half-open, until the Session Ack Wait Timer notices. So
        what they carry is sent over this one too: the peer recognizes a final ack that it has
        already.
        """
        self._retry_at = None
        self._return(
            [one for one, way in self._flight.items() if way is not None and way < session]
        )
        self.go_on()

    def session_closed(self, session: EdgeSession) -> None:
        """Send again what it carried."""
        self._retry_at = None
        self._return([one for one, way in self._flight.items() if way == session])
        self.go_on()

    def late_result(
        self, edge: str, number: int, tokens: Sequence[int], *, is_delivered: bool
    ) -> None:
        """Rows that a session of an edge was to carry were delivered, or were not."""
        mine = [token for token in tokens if token in self._flight]
        if is_delivered:
            self._finish(mine)
        elif lost := [token for token in mine if self._is_carrying(token, edge, number)]:
            self._return(lost)
            self._retry_at = self._context.clock() + OUTBOX_RETRY_S
        self.go_on()

    def _is_carrying(self, outbox_id: int, edge: str, number: int) -> bool:
        way = self._flight[outbox_id]
        return way is not None and way[1:] == (edge, number)

    def _edge_sessions(self) -> list[EdgeSession]:
        """Return the sessions that match in GUID and address, the newest first."""
        places = self._places()
        return nlargest(
            ORDER_ACK_SESSIONS_MAX,
            (
                (facts.opened_ms, edge, facts.number)
                for edge, facts in self._context.cluster.relay_hub.sessions(self.name.guid)
                if facts.address in places
            ),
        )

    def _use_edges(self) -> bool:
        """Hand packets to edges that have sessions with the peer; return whether there are any.

        Rows are sent over the newest, order acks over all: the loss of one is not noticed.
        """
        sessions = self._edge_sessions()
        order_acks = self._take_order_acks() if sessions else []
        for place, session in enumerate(sessions):
            due = list(order_acks)
            if place == 0:
                rows = self._take_rows(OUTBOX_IN_FLIGHT_MAX - len(self._flight))
                outbox_ids = [outbox_id for outbox_id, _ in rows]
                self._flight.update(dict.fromkeys(outbox_ids, session))
                self._owner.carried(outbox_ids, self)
                due += rows
            if due:
                tokens, packets = zip(*due, strict=True)
                _, edge, number = session
                late = LatePackets(number, tokens, packets)
                self._context.cluster.relay_hub.send_late(edge, late)
        return bool(sessions)

    def _places(self) -> tuple[str, ...]:
        """Return the addresses that confirm the peer's claim to its GUID."""
        mapped = self._context.destinations.address_of(self.name.guid)
        return tuple(place for place in (mapped, self.name.address) if place)

    def _take_order_acks(self) -> list[tuple[int, bytes]]:
        """Take those that are due, as (token, packet)."""
        taken = []
        for stream_id, seen in self._order_acks.items():
            packet = self._order_ack(stream_id, seen)
            if packet is not None:
                taken.append((ORDER_ACK_TOKEN | self._order_ack_count, packet))
        self._order_acks.clear()
        return taken

    def _take_rows(self, room: int) -> list[tuple[int, bytes]]:
        """Take up to `room` rows, as (outbox id, packet)."""
        context = self._context
        taken = []
        for outbox_id in list(islice(self._waiting, max(room, 0))):
            del self._waiting[outbox_id]
            row = context.cluster.state.get(Table.OUTBOX, OUTBOX_KEY.pack(outbox_id))
            if row is not None:
                packet = final_ack_packet(context.own_guid, decode(OutboxRow, row))
                taken.append((outbox_id, packet))
        return taken

    def _order_ack(self, stream_id: int, seen: SequenceSeen) -> bytes | None:
        context = self._context
        row = sequence_row(context.cluster.state, stream_id)
        if row is None:
            return None
        message_ordinal = self._order_ack_ids.take(stream_id)
        if not message_ordinal:
            return None  # the sequence's next message causes another one
        self._order_ack_count += 1
        return order_ack_packet(
            context.own_guid,
            order_queue(self.name.guid, self.name.address, is_direct=seen.is_direct),
            row,
            message_ordinal,
            context.utc_s(),
        )

    def _return(self, outbox_ids: Sequence[int]) -> None:
        """These were possibly not delivered: put them back, before all others."""
        for outbox_id in outbox_ids:
            del self._flight[outbox_id]
        self._waiting = dict.fromkeys((*outbox_ids, *self._waiting))

    def _finish(self, outbox_ids: Sequence[int]) -> None:
        for outbox_id in outbox_ids:
            del self._flight[outbox_id]
        if outbox_ids:
            self._owner.done(outbox_ids, self)

    # LinkOwner -----------------------------------------------------------------------------

    @property
    @override
    def has_backlog(self) -> bool:
        """Order acks do not count: the next message asks for them again."""
        return bool(self._waiting)

    @override
    async def next_hops(self) -> Sequence[NextHop]:
        return await self._context.destinations.hops_of(self.name.guid, self.name.address)

    @override
    def on_unresolved(self, error: Unresolved) -> None:
        self._context.lines.warning(
            "acknowledgement_undeliverable",
            "acknowledgements are owed to a queue manager that cannot be found",
            queue_manager=guid_text(self.name.guid),
            error=str(error),
        )
        self._order_acks.clear()

    # TimerOwner -------------------------------------------------------------------------------

    @override
    def next_timer(self) -> float | None:
        return earliest(self._driver.link.next_timer(), self._retry_at)

    @override
    def handle_timer(self, now: float) -> None:
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
        self._driver.handle_timer(now)
        self.go_on()

    # User ----------------------------------------------------------------------------------

    @property
    @override
    def number(self) -> int:
        return self._number

    @property
    @override
    def priority(self) -> int:
        return ACKS_PRIORITY

    @property
    @override
    def is_named_by_peer(self) -> bool:
        return True

    @override
    def on_connected(self, connection: SharedConnection) -> None:
        self._driver.on_connected(connection)

    @override
    def on_connect_failed(self, status: ConnectionStatus) -> None:
        """Give up order acks, which the next message asks for again."""
        self._order_acks.clear()
        self._driver.on_connect_failed(status)
        self.go_on()

    @override
    def on_establish_received(self) -> None:
        self._driver.on_establish_received()

    @override
    def on_established(self) -> None:
        self._driver.on_established()
        self.go_on()

    @override
    def take_turn(self, count: int, size_bytes: int) -> tuple[list[int], list[bytes]]:
        del count, size_bytes  # these packets are small, and the number in flight is bounded
        rows = self._take_rows(OUTBOX_IN_FLIGHT_MAX - len(self._flight))
        self._flight.update(dict.fromkeys((outbox_id for outbox_id, _ in rows), None))
        due = self._take_order_acks() + rows
        return [token for token, _ in due], [packet for _, packet in due]

    @override
    def on_acknowledged(self, released: Sequence[int], retained: Sequence[int]) -> None:
        self._finish([token for token in (*released, *retained) if token in self._flight])
        self.go_on()

    @override
    def on_withdrawn(self, keys: Sequence[int]) -> None:
        self._return([key for key in keys if key in self._flight])

    @override
    def on_closed(self, closed: Closed) -> None:
        self._return([one for one, way in self._flight.items() if way is None])
        self._driver.on_closed(closed)
        self.go_on()
