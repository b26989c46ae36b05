"""The outbox: reads what the replicated state owes to peers, and hands it to `PeerAcks`.

Rows are read in pages, and a bounded number per peer is kept in memory; a peer that never comes
back costs rows on disk until they are given up for their age.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from typing_extensions import override

from qm.cluster.relay import RelayHubEvents, SessionFacts
from qm.edge.outgoing.acks.order_acks import OrderAckIds, SendersSeen
from qm.edge.outgoing.acks.peer_acks import OutboxOwner, PeerAcks, PeerName
from qm.edge.outgoing.limits import (
    OUTBOX_AGE_MAX_MS,
    OUTBOX_PAGE_ROWS_MAX,
    OUTBOX_PEERS_MAX,
    OUTBOX_SWEEP_S,
    PEERS_PER_LOOK_MAX,
    PEERS_SWEEP_S,
)
from qm.edge.outgoing.link.connections import Connections
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.timers import TimerOwner
from qm.edge.outgoing.proposal_queue import KeyBatch
from qm.model.state.tables import Table
from qm.model.values.commands import OutboxDone
from qm.model.values.elements import OutboxKind
from qm.model.values.records import OutboxRow, decode
from qm.model.values.rows import OUTBOX_KEY
from qm.wire.guid import Guid

_FIRST_NUMBER = 1 << 32
"""Smaller user numbers of connections are outgoing queues."""
_END = OUTBOX_KEY.pack((1 << 64) - 1)


class Outbox(RelayHubEvents, OutboxOwner, TimerOwner):
    """Manages the peers that something is owed to, and accounts for their rows (`OutboxOwner`)."""

    def __init__(
        self,
        context: OutgoingContext,
        connections: Connections,
        senders: SendersSeen,
        order_ack_ids: OrderAckIds,
    ) -> None:
        self._context = context
        self._connections = connections
        self._senders = senders
        self._order_ack_ids = order_ack_ids
        self._peers: OrderedDict[PeerName, PeerAcks] = OrderedDict()
        """In the order in which they are checked for one that can be forgotten."""
        self._peers_of: dict[Guid, dict[PeerName, PeerAcks]] = {}
        """The same by GUID, each of which may have been seen at several addresses."""
        self._row_counts: dict[int, int] = {}
        """Number of a peer -> its rows in memory when `_count` was last called."""
        self._row_count = 0
        self._next_number = _FIRST_NUMBER
        self._carried: dict[int, PeerAcks] = {}
        self._done = KeyBatch(context.proposals, OutboxDone)
        self._read_from: int | None = None
        """Where the next page begins; None: nothing is to be read."""
        self._is_reading = False
        self._sweep_at = context.clock()
        self._look_at = context.clock()
        self._oldest = 0
        """No row lies before this id: scanning over deleted rows is slow."""
        self._has_forgotten = False
        """Whether rows are owed to peers that are not in memory."""
        self._is_stopped = False

    def start(self) -> None:
        """Read what is owed now and later."""
        self._read(0)
        self._context.timers.watch(self)

    def stop(self) -> None:
        """Leadership is over."""
        self._is_stopped = True
        self._context.timers.forget(self)
        for peer in self._peers.values():
            peer.stop()
        self._peers.clear()
        self._peers_of.clear()
        self._context.metrics.gauge("quorate_outbox_rows").set(0)

    # What is owed --------------------------------------------------------------------------

    def on_rows(self, outbox_ids: Iterable[int]) -> None:
        """An entry added these rows."""
        rows = []
        for outbox_id in outbox_ids:
            row = self._context.cluster.state.get(Table.OUTBOX, OUTBOX_KEY.pack(outbox_id))
            if row is not None:
                rows.append((outbox_id, row))
        self._admit(rows)

    def owe_order_ack(self, stream_id: int) -> None:
        """An order ack of an incoming sequence is due."""
        seen = self._senders.place(stream_id)
        if seen is None:
            return
        name = PeerName(seen.source_queue_manager, seen.address)
        peer = self._peer(name) if self._has_place(name) else None
        if peer is not None:
            peer.owe_order_ack(stream_id, seen)

    # What edges say ------------------------------------------------------------------------

    @override
    def on_session(self, edge: str, session: SessionFacts, is_open: bool) -> None:
        way = (session.opened_ms, edge, session.number)
        for peer in self._peers_at(session):
            if is_open:
                peer.session_opened(way)
            else:
                peer.session_closed(way)

    def _peers_at(self, session: SessionFacts) -> list[PeerAcks]:
        """Return the peers that a session may belong to."""
        guid = session.queue_manager
        if session.address == self._context.destinations.address_of(guid):
            # The configuration gives its address, wherever it was seen before.
            return list(self._peers_of.get(guid, {}).values())
        peer = self._peers.get(PeerName(guid, session.address))
        return [] if peer is None else [peer]

    @override
    def on_late_result(
        self, edge: str, session: int, tokens: Sequence[int], is_delivered: bool
    ) -> None:
        by_peer: dict[int, tuple[PeerAcks, list[int]]] = {}
        for token in tokens:
            peer = self._carried.get(token)
            if peer is not None:
                by_peer.setdefault(peer.number, (peer, []))[1].append(token)
        for peer, mine in by_peer.values():
            peer.late_result(edge, session, mine, is_delivered=is_delivered)

    # OutboxOwner --------------------------------------------------------------------------------

    @override
    def carried(self, outbox_ids: Sequence[int], peer: PeerAcks) -> None:
        self._carried.update(dict.fromkeys(outbox_ids, peer))

    @override
    def done(self, outbox_ids: Sequence[int], peer: PeerAcks) -> None:
        for outbox_id in outbox_ids:
            self._carried.pop(outbox_id, None)
        self._done.add(outbox_ids)
        self._count(peer)

    @override
    def wants_more(self, peer: PeerAcks) -> None:
        if peer.more_from is not None:
            first, peer.more_from = peer.more_from, None
            self._read(first)

    # TimerOwner -------------------------------------------------------------------------------

    @override
    def next_timer(self) -> float | None:
        return None if self._is_stopped else min(self._sweep_at, self._look_at)

    @override
    def handle_timer(self, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + PEERS_SWEEP_S
            for peer in self._next_peers():
                if peer.is_idle:
                    self._forget(peer)
        if now >= self._sweep_at:
            self._sweep_at = now + OUTBOX_SWEEP_S
            self._give_up_old()

    # ---------------------------------------------------------------------------------------

    def _read(self, first: int) -> None:
        self._read_from = first if self._read_from is None else min(self._read_from, first)
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._read_page)

    def _read_page(self) -> None:
        self._is_reading = False
        first, self._read_from = self._read_from, None
        if first is None or self._is_stopped:
            return
        found = self._context.cluster.state.scan(
            Table.OUTBOX, OUTBOX_KEY.pack(first), _END, OUTBOX_PAGE_ROWS_MAX
        )
        rows = [(int(OUTBOX_KEY.unpack(key)[0]), row) for key, row in found]
        if len(rows) == OUTBOX_PAGE_ROWS_MAX:
            self._read(rows[-1][0] + 1)
        self._admit(rows)

    def _admit(self, rows: Sequence[tuple[int, bytes]]) -> None:
        peers: dict[PeerName, PeerAcks] = {}
        for outbox_id, raw in rows:
            row = decode(OutboxRow, raw)
            if row.kind is not OutboxKind.FINAL_ACK or outbox_id in self._done:
                continue
            name = PeerName(row.queue_manager, row.address)
            if not self._has_place(name):
                self._has_forgotten = True
                continue
            peer = self._peer(name)
            if peer is not None:
                peer.owe_row(outbox_id)
                peers[name] = peer
        for peer in peers.values():
            peer.go_on()
            self._count(peer)

    def _has_place(self, name: PeerName) -> bool:
        """Whether the peer's address is known; of other peers nothing is kept in memory."""
        return bool(name.address or self._context.destinations.address_of(name.guid))

    def _peer(self, name: PeerName) -> PeerAcks | None:
        """Return a peer, None while there are too many: a later check finds its rows."""
        peer = self._peers.get(name)
        if peer is None and (len(self._peers) < OUTBOX_PEERS_MAX or self._make_room()):
            self._next_number += 1
            peer = self._peers[name] = PeerAcks(
                self._context,
                self._connections,
                self,
                name,
                self._next_number,
                self._order_ack_ids,
            )
            self._peers_of.setdefault(name.guid, {})[name] = peer
        return peer

    def _next_peers(self) -> list[PeerAcks]:
        """Return a few peers to check, other ones at the next call."""
        names = list(islice(self._peers, PEERS_PER_LOOK_MAX))
        for name in names:
            self._peers.move_to_end(name)
        return [self._peers[name] for name in names]

    def _forget(self, peer: PeerAcks) -> None:
        del self._peers[peer.name]
        of_guid = self._peers_of[peer.name.guid]
        del of_guid[peer.name]
        if not of_guid:
            del self._peers_of[peer.name.guid]
        peer.stop()
        self._row_count -= self._row_counts.pop(peer.number, 0)

    def _make_room(self) -> bool:
        """Forget a peer that is owed nothing, or cannot be reached: a check finds it again.

        So a sender that claims many GUIDs does not delay what is owed to others (DESIGN 1.7).
        """
        for peer in self._next_peers():
            if peer.is_idle or peer.is_out_of_reach:
                self._has_forgotten = self._has_forgotten or not peer.is_idle
                self._forget(peer)
                return True
        self._has_forgotten = True
        return False

    def _give_up_old(self) -> None:
        """Give up rows whose sender cannot be waiting for them any more."""
        around = self._context
        oldest_ms = around.cluster.now_ms() - OUTBOX_AGE_MAX_MS
        first = OUTBOX_KEY.pack(self._oldest)
        found = around.cluster.state.scan(Table.OUTBOX, first, _END, OUTBOX_PAGE_ROWS_MAX)
        if found:
            (self._oldest,) = OUTBOX_KEY.unpack(found[0][0])
        old = []
        for key, raw in found:
            row = decode(OutboxRow, raw)
            if row.since_ms > oldest_ms:
                break
            (outbox_id,) = OUTBOX_KEY.unpack(key)
            old.append(int(outbox_id))
            peer = self._peers.get(PeerName(row.queue_manager, row.address))
            if peer is not None:
                peer.give_up([int(outbox_id)])
                self._count(peer)
        if old:
            around.lines.warning(
                "acknowledgements_given_up",
                "acknowledgements were owed for longer than their senders can wait",
                rows=len(old),
            )
            self._done.add(old)
        if len(old) == OUTBOX_PAGE_ROWS_MAX:
            self._sweep_at = around.clock()
        if self._has_forgotten:
            self._has_forgotten = False
            self._read(self._oldest)

    def _count(self, peer: PeerAcks) -> None:
        """Update the count: the number of the peer's rows in memory may have changed."""
        if peer.name in self._peers:
            self._row_count += peer.row_count - self._row_counts.get(peer.number, 0)
            self._row_counts[peer.number] = peer.row_count
        self._context.metrics.gauge("quorate_outbox_rows").set(self._row_count)
