"""What administrators see of an outgoing queue's link ([MS-MQDMPR] 3.1.1.3, 3.1.1.4).

This is the half that only the leader knows; counts of messages, sequence places and the
administrative state are replicated and read with `qm.model.queries`.
"""

import msgspec

from qm.edge.outgoing.queue import QueueSender
from qm.session import OutgoingState
from qm.session.link import ConnectionHistoryEntry


class LinkReport(msgspec.Struct, frozen=True):
    """The volatile attributes of an outgoing queue."""

    state: OutgoingState
    """OutgoingQueue.State."""
    next_hops: tuple[str, ...]
    """OutgoingQueue.NextHops, in the form of PROPID_MGMT_QUEUE_NEXTHOPS."""
    connection_history: tuple[ConnectionHistoryEntry, ...]
    """Oldest first."""
    loaded_count: int
    """Messages in OutgoingMessageTable: read ahead, in flight, or waiting for an order ack."""
    eod_no_ack_count: int
    """Numbers that were sent without an order ack (UnackedSequence)."""
    eod_last_ack_time: int
    """Epoch seconds of the last order ack received by this leader, 0 = none."""
    eod_last_ack_count: int
    """Order acks received by this leader."""
    eod_resend_interval_s: int
    """Seconds until unacknowledged messages are sent again, at this stage."""
    eod_resend_count: int
    """ResendIntervalIndex: timeouts in a row."""
    eod_resend_time: int
    """Epoch seconds of the next resend, 0 = none is scheduled."""


def link_report(sender: QueueSender, now: float, now_ms: int) -> LinkReport:
    """Return the report of a queue; `now` in monotonic seconds, `now_ms` in cluster time."""
    due = sender.resend.resend_time
    return LinkReport(
        state=sender.link.state,
        next_hops=sender.link.next_hops,
        connection_history=sender.link.history,
        loaded_count=len(sender.table),
        eod_no_ack_count=len(sender.table.unacked_numbers),
        eod_last_ack_time=sender.time_of_last_ack_s,
        eod_last_ack_count=sender.resend.last_ack_count,
        eod_resend_interval_s=sender.resend.resend_interval_s,
        eod_resend_count=sender.resend.resend_interval_index,
        eod_resend_time=0 if due is None else int(now_ms / 1000 + due - now),
    )
