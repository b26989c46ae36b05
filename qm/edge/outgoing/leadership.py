"""The sending side of one leadership: starts with it, is derived from rows, and ends with it."""

import asyncio
from itertools import islice
from typing import Final

from qm.edge.outgoing import rows
from qm.edge.outgoing.acks.order_acks import OrderAckIds, OrderAcks, SendersSeen, sequence_row
from qm.edge.outgoing.acks.outbox import Outbox
from qm.edge.outgoing.idle_queues import IdleQueues
from qm.edge.outgoing.limits import QUEUES_PER_PAGE_MAX, SENDERS_MAX, SENDERS_PER_LOOK_MAX
from qm.edge.outgoing.link.connections import Connections
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.queue import QueueSender
from qm.model.values.effects import Applied, EffectKind

_ARRIVING: Final = frozenset({EffectKind.ARRIVED, EffectKind.UNLOCKED, EffectKind.MOVED_IN})
_LEAVING: Final = frozenset(
    {
        EffectKind.LOCKED,
        EffectKind.RECEIVED,
        EffectKind.MOVED_OUT,
        EffectKind.EXPIRED,
        EffectKind.PURGED,
        EffectKind.QUEUE_DELETED,
        EffectKind.REJECTED,
        EffectKind.DELIVERED,
        EffectKind.FAILED,
    }
)


class Leading:
    """All outgoing queues, the outbox and the order acks, while this node leads."""

    def __init__(self, context: OutgoingContext, senders: SendersSeen) -> None:
        self._context = context
        self._senders = senders
        self.queues: Final[dict[int, QueueSender]] = {}
        """Queues that have, or had in this leadership, something to send."""
        self.connections: Final = Connections(context)
        self._order_ack_ids = OrderAckIds(senders)
        self.outbox: Final = Outbox(context, self.connections, senders, self._order_ack_ids)
        self._order_acks = OrderAcks(
            context.timers,
            context.clock,
            self.outbox.owe_order_ack,
            is_prompt=context.settings.are_order_acks_prompt,
        )
        self._idle = IdleQueues(context)
        self._scanned_to: bytes | None = b""
        self._is_stopped = False

    def start(self) -> None:
        """Derive everything from rows, a page at a time."""
        context = self._context
        self.outbox.start()
        context.timers.watch(self._idle)
        for stream_id in self._senders.active(context.cluster.state, context.cluster.now_ms()):
            self._order_ack_due(stream_id, is_last=False)
        self._scan()

    def stop(self) -> None:
        """Leadership is over: nothing more is sent [DESIGN section 7]."""
        self._is_stopped = True
        self.outbox.stop()
        for sender in self.queues.values():
            sender.stop()
        self.connections.stop()
        self._context.proposals.stop()
        self._context.timers.stop()

    def on_applied(self, applied: Applied) -> None:
        """An entry was applied here."""
        if applied.incoming_sequences:
            self._order_ack_ids.note(applied.incoming_sequences)
            is_last = self._context.cluster.relay_hub.is_free()
            for stream_id in applied.incoming_sequences:
                self._order_ack_due(stream_id, is_last=is_last)
        if applied.outbox_ids:
            self.outbox.on_rows(applied.outbox_ids)
        if applied.outgoing_queue_ids:
            self._refresh(applied)
        if applied.is_manager_changed:
            for sender in list(self.queues.values()):
                sender.refresh()  # HardenedSecurity locks all queues, or releases them

    def _order_ack_due(self, stream_id: int, *, is_last: bool) -> None:
        if sequence_row(self._context.cluster.state, stream_id) is not None:
            self._order_acks.received(stream_id, is_last=is_last)

    def _scan(self) -> None:
        """Wake the outgoing queues of one page; the next page follows."""
        if self._is_stopped or self._scanned_to is None:
            return
        page, self._scanned_to = rows.outgoing_queue_ids(
            self._context.cluster.state, self._scanned_to, QUEUES_PER_PAGE_MAX
        )
        for queue_id in page:
            self._wake(queue_id)
        asyncio.get_running_loop().call_soon(self._scan)

    def _wake(self, queue_id: int) -> QueueSender | None:
        """Return the sender of a queue, created if there is something in the queue."""
        sender = self.queues.get(queue_id)
        if sender is not None:
            return sender
        if len(self.queues) >= SENDERS_MAX:
            self._forget_idle()
        queue = rows.queue(self._context.cluster.state, queue_id)
        if queue is None or queue.record.is_deleting or not queue.count():
            return None
        sender = self.queues[queue_id] = QueueSender(self._context, self.connections, queue)
        sender.refresh()
        return sender

    def _forget_idle(self) -> None:
        """Check a few queues, other ones at the next call."""
        for queue_id in list(islice(self.queues, SENDERS_PER_LOOK_MAX)):
            sender = self.queues.pop(queue_id)
            if sender.is_idle:
                sender.stop()
            else:
                self.queues[queue_id] = sender

    def _refresh(self, applied: Applied) -> None:
        """Tell each queue which of its rows came and went."""
        changed = applied.outgoing_queue_ids
        arrived: dict[int, list[int]] = {}
        left: dict[int, list[int]] = {}
        effects = applied.effects
        for kind, queue_id, key in zip(
            effects.kinds, effects.queue_ids, effects.lookup_identifiers, strict=True
        ):
            if queue_id in changed:
                if kind in _ARRIVING:
                    arrived.setdefault(queue_id, []).append(key)
                elif kind in _LEAVING:
                    left.setdefault(queue_id, []).append(key)
        for queue_id in changed:
            sender = self.queues.get(queue_id)
            if sender is None:
                self._wake(queue_id)
                continue
            sender.refresh(
                arrived.get(queue_id, ()),
                left.get(queue_id, ()),
                order_acks=applied.order_acks.get(queue_id, 0),
            )
            if sender.is_stopped:
                del self.queues[queue_id]
