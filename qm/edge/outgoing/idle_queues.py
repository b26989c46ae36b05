"""Removes outgoing queues that have had nothing to send for long.

Destinations change, and peers cause some by naming an administration queue; queues that were used
only once must not fill up OUTGOING_QUEUES_MAX. Apply removes a queue only while it is empty and its
sequence owes nothing, so nothing is lost if a message comes at this moment.
"""

from typing_extensions import override

from qm.edge.outgoing import rows
from qm.edge.outgoing.limits import (
    COMMANDS_PER_PROPOSAL_MAX,
    IDLE_PAGE_S,
    IDLE_QUEUE_S,
    QUEUES_PER_PAGE_MAX,
)
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.timers import TimerOwner
from qm.model.clients.opens import is_open
from qm.model.state.ledger import QueueInHand
from qm.model.values.commands import RemoveOutgoingQueue
from qm.model.values.elements import OutgoingAdminState


class IdleQueues(TimerOwner):
    """Checks every outgoing queue once in IDLE_QUEUE_S, a page at a time."""

    def __init__(self, context: OutgoingContext) -> None:
        self._context = context
        self._look_at = context.clock() + IDLE_QUEUE_S
        self._after = b""
        self._arrivals: dict[int, int] = {}
        """For queues that were empty when last checked: how many messages ever entered them."""

    @override
    def next_timer(self) -> float | None:
        return self._look_at

    @override
    def handle_timer(self, now: float) -> None:
        state = self._context.cluster.state
        page, following = rows.outgoing_queue_ids(state, self._after, QUEUES_PER_PAGE_MAX)
        self._after = following or b""
        self._look_at = now + (IDLE_PAGE_S if following else IDLE_QUEUE_S)
        idle = [queue_id for queue_id in page if self._is_idle(queue_id)]
        del idle[COMMANDS_PER_PROPOSAL_MAX:]
        for queue_id in idle:
            del self._arrivals[queue_id]
        if idle:
            removals = [RemoveOutgoingQueue(queue_id) for queue_id in idle]
            self._context.proposals.ask(removals, lambda outcomes: None)

    def _is_idle(self, queue_id: int) -> bool:
        """Whether a queue was empty at the last check too, and nothing passed through since."""
        state = self._context.cluster.state
        queue = rows.queue(state, queue_id)
        if queue is None or not _is_empty(queue) or is_open(state, queue_id):
            self._arrivals.pop(queue_id, None)
            return False
        if rows.sequence(state, queue_id).pending_count:
            return False
        known, self._arrivals[queue_id] = self._arrivals.get(queue_id), queue.arrivals
        return known == queue.arrivals


def _is_empty(queue: QueueInHand) -> bool:
    """Whether a queue holds nothing and is not on hold."""
    is_normal = queue.record.admin_state is OutgoingAdminState.NORMAL
    return is_normal and not queue.count() and not queue.hidden
