"""One outgoing queue while this node leads: from its rows to its peer [MS-MQQB 3.1.1.3.1].

Everything here is derived from rows and may be lost at any moment: a new leader derives it again
and sends the same messages with the same numbers, which their receivers recognize.
"""

import asyncio
from array import array
from collections.abc import Iterable, Sequence
from math import inf

from typing_extensions import override

from qm.edge.outgoing import rows
from qm.edge.outgoing.backlog import Backlog
from qm.edge.outgoing.limits import RESTORE_RETRY_S
from qm.edge.outgoing.link.connections import Connections
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.driver import LinkDriver, LinkOwner
from qm.edge.outgoing.link.resolver import Unresolved
from qm.edge.outgoing.link.timers import earliest
from qm.edge.outgoing.link.user import SharedConnection
from qm.edge.outgoing.packing import Packed, Packer
from qm.edge.outgoing.proposal_queue import KeyBatch
from qm.model.state.ledger import LEVELS, QueueInHand
from qm.model.state.naming import is_named_by_peer
from qm.model.state.outgoing_queues import peers_of
from qm.model.values.columns import IntArray
from qm.model.values.commands import (
    AssignTransfer,
    Command,
    TransferAcked,
    TransferFailed,
    TransferOpened,
    TransferTraced,
)
from qm.model.values.effects import Outcome
from qm.model.values.limits import VERSION_OF_BINDINGS
from qm.names.format_name import format_name_text, parse_format_name
from qm.session import (
    Closed,
    ConnectionStatus,
    NextHop,
    OutgoingState,
    OutgoingTable,
    ResendSchedule,
)
from qm.store.bodies.body_places import BodyPlace
from qm.wire.guid import Guid
from qm.wire.message_class import MessageClass


class QueueSender(LinkOwner):
    """Link, table and schedule of one outgoing queue; a `LinkOwner`."""

    def __init__(
        self, context: OutgoingContext, connections: Connections, queue: QueueInHand
    ) -> None:
        self._context = context
        self._queue_id = queue.record.queue_id
        self._name = parse_format_name(queue.record.pathname)
        self._packer = Packer(
            context.cluster, self._queue_id, self._name, context.own_guid, context.encryption
        )
        self._watermark = queue.watermark
        self._base_priority = queue.record.base_priority
        self._is_held = False
        self._is_stopped = False
        self._introductions = 0
        """Proposals in progress without which nothing leaves."""
        self._restoring: asyncio.Task[None] | None = None
        """Until a body that is damaged here can be read; nothing overtakes its message."""
        self._acked = KeyBatch(context.proposals, lambda keys: TransferAcked(self._queue_id, keys))
        self._expired = self._failing(MessageClass.NACK_REACH_QUEUE_TIMEOUT)
        self._unsendable = self._failing(MessageClass.NACK_DELETED)
        self._unencryptable = self._failing(MessageClass.NACK_BAD_ENCRYPTION)
        self._driver = LinkDriver(context, connections, self)
        self.link = self._driver.link
        self.table = OutgoingTable()
        self.resend = ResendSchedule(context.clock(), context.settings.resend_timer_table)
        self.time_of_last_ack_s = 0
        """Cluster time of the last order ack; 0 = none so far."""
        self._backlog = Backlog(self._queue_id, self.table, self._is_over)

    # What the rows say ---------------------------------------------------------------------

    def refresh(
        self, arrived: Iterable[int] = (), left: Iterable[int] = (), *, order_acks: int = 0
    ) -> None:
        """The queue's rows changed: these keys became ready, those left or were locked."""
        self._take_order_acks(order_acks)
        for key in left:
            self.table.remove(key)
            self._backlog.left(key)
        for key in arrived:
            self._backlog.arrived(key)
        if not self.table.has_transactional:
            self.resend.stop()
        queue = rows.queue(self._context.cluster.state, self._queue_id)
        if queue is None or queue.record.is_deleting:
            self.stop()
            return
        self._watermark = queue.watermark
        self._base_priority = queue.record.base_priority
        self._follow_admin_state(rows.is_held(self._context.cluster.state, queue.record))
        self.go_on()

    def resend_now(self) -> None:
        """An administrator resends without waiting for timers (EOD resend, [MS-MQMQ] 2.3.12)."""
        self.table.resend_transactional()
        if self.link.is_waiting_reconnect:
            self._driver.handle_timer(inf)
        self.go_on()

    def stop(self) -> None:
        """The queue is gone, or leadership is over."""
        self._is_stopped = True
        if self._restoring is not None:
            self._restoring.cancel()
        self._driver.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether it sends nothing any more."""
        return self._is_stopped

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to send and no connection, so that it may be forgotten."""
        is_quiet = self._driver.connection is None and self.link.next_timer() is None
        return is_quiet and not self.has_backlog and not self._acked

    def _take_order_acks(self, count: int) -> None:
        """Follow the sequence's row; `count` OrderAcks came, each of which is counted even if it
        only repeats an earlier one [MS-MQQB 3.1.5.6].
        """
        sequence = rows.sequence(self._context.cluster.state, self._queue_id)
        acked, is_progress = sequence.last_acked_number, False
        if sequence.sequence_identifier == self.table.sequence and acked > self.table.last_ack:
            is_progress = self.table.order_acked(sequence.sequence_identifier, acked).is_progress
        if not count and not is_progress:
            return
        if count:
            self.time_of_last_ack_s = self._context.utc_s()
        unacked = len(self.table.unacked_numbers)
        self.resend.order_acked(
            self._context.clock(), count=count, progress=is_progress, unacked=unacked
        )

    def _follow_admin_state(self, is_held: bool) -> None:
        """Pause and resume [MS-MQQB 3.1.7.13, 3.1.7.14]."""
        if is_held == self._is_held:
            return
        self._is_held = is_held
        self._set_held()
        if is_held:
            self.link.pause()
        else:
            self.link.resume(has_backlog=self.has_backlog)

    def _is_over(self, key: int) -> bool:
        ending = (self._acked, self._expired, self._unsendable, self._unencryptable)
        return any(key in batch for batch in ending)

    # Going on ------------------------------------------------------------------------------

    @override
    def go_on(self) -> None:
        """Load, number, connect, offer."""
        if self._is_stopped:
            return
        if self._load() and not self.table.waiting:
            asyncio.get_running_loop().call_soon(self.go_on)
        if self.has_backlog:
            self.link.message_available()
        self._driver.act()
        if self.table.waiting:
            self._ready()
        self._context.timers.watch(self)

    def _load(self) -> bool:
        """Read a page into the table; return whether there is more and room for it.

        Levels without messages are skipped, so that the table's next message is the queue's.
        """
        is_more = True
        for _ in range(LEVELS):
            is_more = self._backlog.load(self._context.cluster.state, self._watermark)
            if not is_more or self.table.waiting:
                break
        # A number is final: it is assigned only when the peer can receive it.
        if self.link.state is OutgoingState.CONNECTED:
            keys = self._backlog.take_unnumbered()
            if keys is not None:
                self._number(keys)
        return is_more

    def _number(self, keys: IntArray) -> None:
        def then(outcomes: Sequence[Outcome] | None) -> None:
            self._backlog.assigned(keys, outcomes is not None)
            self.go_on()

        commands = [*self._introduction(), AssignTransfer(self._queue_id, keys)]
        self._context.proposals.ask(commands, then)

    def _introduction(self) -> list[Command]:
        """Return what must be committed before a transactional message leaves over the connection
        in use: acknowledgements of it are taken from that peer. Nothing if that is known.
        """
        connection, state = self._driver.connection, self._context.cluster.state
        if connection is None or rows.apply_version(state) < VERSION_OF_BINDINGS:
            return []
        peer = (connection.remote_guid, connection.address)
        if peer in peers_of(state, self._queue_id)[:1]:
            return []
        return [TransferOpened(self._queue_id, *peer)]

    # LinkOwner -----------------------------------------------------------------------------

    @property
    @override
    def has_backlog(self) -> bool:
        return len(self.table) > 0 or self._backlog.has_unnumbered

    @override
    async def next_hops(self) -> Sequence[NextHop]:
        return await self._context.destinations.next_hops(
            self._name, is_named_by_peer=self.is_named_by_peer
        )

    @override
    def on_unresolved(self, error: Unresolved) -> None:
        self._context.lines.warning(
            f"unresolved_{error.status.value}",
            "an outgoing queue has nowhere to connect to",
            queue=format_name_text(self._name),
            error=str(error),
        )

    # TimerOwner -------------------------------------------------------------------------------

    @override
    def next_timer(self) -> float | None:
        return earliest(self.link.next_timer(), self.resend.next_timer())

    @override
    def handle_timer(self, now: float) -> None:
        self._driver.handle_timer(now)
        if self.resend.handle_timer(now):
            self.table.resend_transactional()
        self.go_on()

    # User ----------------------------------------------------------------------------------

    @property
    @override
    def number(self) -> int:
        return self._queue_id

    @property
    @override
    def priority(self) -> int:
        """Return Queue.BasePriority + Message.Priority."""
        return self._base_priority + self.table.next_priority

    @property
    @override
    def is_named_by_peer(self) -> bool:
        return is_named_by_peer(self._context.cluster.state, self._queue_id)

    @override
    def on_connected(self, connection: SharedConnection) -> None:
        self.resend.begin_session(self._context.clock())
        self._driver.on_connected(connection)

    @override
    def on_connect_failed(self, status: ConnectionStatus) -> None:
        self._driver.on_connect_failed(status)
        self.go_on()

    @override
    def on_establish_received(self) -> None:
        self._driver.on_establish_received()

    @override
    def on_established(self) -> None:
        self._driver.on_established()
        self._set_held()
        if rows.sequence(self._context.cluster.state, self._queue_id).pending_count:
            self._introduce()
        self.go_on()

    def _introduce(self) -> None:
        """Have the peer of a new session noted before it gets messages that have numbers."""
        commands = self._introduction()
        if not commands:
            return

        def then(_: Sequence[Outcome] | None) -> None:
            self._introductions -= 1
            self.go_on()

        self._introductions += 1
        self._context.proposals.ask(commands, then)

    @override
    def take_turn(self, count: int, size_bytes: int) -> tuple[list[int], list[bytes]]:
        """Read bodies only now, just before they are sent."""
        ending = self._expired or self._unsendable or self._unencryptable
        if ending or self._introductions or self._restoring is not None:
            return [], []  # nothing overtakes what is about to end (packing)
        self._load()
        dispatched = self.table.dispatch(count)
        packed = self._packer.pack(dispatched, self.table, self._watermark, size_bytes)
        if len(packed.keys) < len(dispatched):
            self._take_back(dispatched, packed)
        if packed.keys and packed.has_transactional:
            self.resend.sent(self._context.clock())
            self._context.timers.watch(self)
        if packed.traced:
            self._report(packed.traced)
        self._count("sent", len(packed.keys))
        return packed.keys, packed.packets

    def _report(self, traced: Sequence[tuple[int, Guid]]) -> None:
        """Have sendings reported [MS-MQQB 3.1.7.1.7]; reports are express, one may get lost."""
        connection = self._driver.connection
        assert connection is not None, "a turn without its connection"
        command = TransferTraced(
            self._queue_id,
            array("Q", [message_id for message_id, _ in traced]),
            b"".join(wanted for _, wanted in traced),
            connection.address,
        )
        self._context.proposals.ask([command], lambda _: None)

    def _take_back(self, dispatched: Sequence[int], packed: Packed) -> None:
        """Take back dispatched messages that cannot be sent, now or at all."""
        for key in (*packed.expired, *packed.unsendable, *packed.unencryptable):
            self.table.remove(key)
        left = set(packed.keys)
        self.table.withdrawn([key for key in dispatched if key not in left])
        self._expired.add(packed.expired)
        self._unsendable.add(packed.unsendable)
        self._unencryptable.add(packed.unencryptable)
        self._count("expired", len(packed.expired))
        self._count("unsendable", len(packed.unsendable))
        self._count("unencryptable", len(packed.unencryptable))
        if packed.encryption_error:
            self.link.encryption_failed(self._context.utc_s())
            self._context.lines.warning(
                "outgoing_unencryptable",
                "a message is not sent, since its body cannot be encrypted for its destination;"
                " `qm directory manager` gives the keys of other queue managers",
                queue=format_name_text(self._name),
                error=packed.encryption_error,
            )
        if packed.damaged is not None:
            self._count("damaged", 1)
            self._context.lines.warning(
                "outgoing_damaged",
                "a queue waits: a body in it is damaged on this node and being restored from"
                " another; if that takes long, transfer leadership",
                queue=format_name_text(self._name),
                error=packed.damage,
            )
            self._restoring = asyncio.ensure_future(self._restore(*packed.damaged))

    async def _restore(self, key: int, place: BodyPlace) -> None:
        """Have a damaged body restored from another replica, and go on sending."""
        cluster = self._context.cluster
        try:
            while rows.sendable(cluster.state, self._queue_id, key, self._watermark) is not None:
                await cluster.restore_body(place)
                if self._packer.is_readable(place):  # its seal may lack a key, though it is whole
                    break
                await asyncio.sleep(RESTORE_RETRY_S)
        finally:
            self._restoring = None  # whatever ended it, the next turn finds the damage again
        self.go_on()

    @override
    def on_acknowledged(self, released: Sequence[int], retained: Sequence[int]) -> None:
        """Keep what was acknowledged until that is committed (guide 6.2)."""
        known = [key for key in (*released, *retained) if key in self.table]
        self.table.session_acked(list(released), list(retained))
        self._acked.add(known)
        self._count("acknowledged", len(known))
        self._ready()

    @override
    def on_withdrawn(self, keys: Sequence[int]) -> None:
        self.table.withdrawn(keys)

    @override
    def on_closed(self, closed: Closed) -> None:
        """Send again what the session did not acknowledge [MS-MQQB 3.1.5.9]."""
        self.table.session_ended()
        self.resend.stop()
        self._driver.on_closed(closed)
        self.go_on()

    def _ready(self) -> None:
        if self._driver.connection is not None:
            self._driver.connection.ready(self)

    def _set_held(self) -> None:
        if self._driver.connection is not None:
            self._driver.connection.set_held(self, self._is_held)

    def _failing(self, message_class: MessageClass) -> KeyBatch:
        def make(keys: IntArray) -> Command:
            return TransferFailed(self._queue_id, keys, message_class)

        return KeyBatch(self._context.proposals, make, self.go_on)

    def _count(self, result: str, count: int) -> None:
        if count:
            self._context.metrics.counter("quorate_outgoing_messages_total").labels(
                result=result
            ).inc(count)
