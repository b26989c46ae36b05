"""What was read and has no outcome yet: waiting, sent, or to be sent again. No I/O.

An item is in exactly one of three places: in `waiting`, in the order of arrival; in a batch that is
`unanswered`; or in one that is to be sent `again` because its stream ended. Batches are numbered
once and keep their number and order, so that however streams end, each session's packets enter the
log in the order in which they arrived.
"""

from collections import deque
from collections.abc import Sequence

from qm.edge.batches import AckItem, Batch, Item, cut
from qm.edge.limits import BATCH_SOFT_MAX_BYTES


class Pipeline:
    """The items that were read and have no outcome yet."""

    __slots__ = (
        "_again",
        "_number",
        "_unanswered",
        "_waiting",
        "_waiting_bytes",
        "_waiting_since",
        "held_bytes",
    )

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._waiting_bytes = 0
        self._waiting_since = 0.0
        self._again: deque[Batch] = deque()
        self._unanswered: deque[Batch] = deque()
        self._number = 0
        self.held_bytes = 0
        """Total size of everything in here."""

    @property
    def is_empty(self) -> bool:
        """Whether everything has its outcome."""
        return not (self._waiting or self._again or self._unanswered)

    def add(self, item: Item, now: float) -> None:
        """Add an item after all others."""
        if not self._waiting:
            self._waiting_since = now
        self._waiting.append(item)
        self._waiting_bytes += item.size_bytes
        self.held_bytes += item.size_bytes

    def put_first(self, ack_items: Sequence[AckItem], now: float) -> None:
        """Put acknowledgements that must be applied again before everything unsent."""
        if not self._waiting:
            self._waiting_since = now
        self._waiting.extendleft(reversed(ack_items))
        size = sum(item.size_bytes for item in ack_items)
        self._waiting_bytes += size
        self.held_bytes += size

    def next_batch(self, now: float, *, least_bytes: int) -> Batch | None:
        """Return the batch to be sent now, which then is unanswered; None for nothing.

        `least_bytes`: see `RelayStream`; a full batch is sent in any case.
        """
        if self._again:
            batch = self._again.popleft()
        elif self._waiting and self._waiting_bytes >= min(least_bytes, BATCH_SOFT_MAX_BYTES):
            self._number += 1
            batch = Batch(self._number, cut(self._waiting), self._waiting_since)
            self._waiting_bytes -= batch.size_bytes
            self._waiting_since = now
        else:
            return None
        self._unanswered.append(batch)
        return batch

    def answered(self, number: int) -> Batch | None:
        """Remove and return the oldest unanswered batch; None if that is not its number."""
        if not self._unanswered or self._unanswered[0].number != number:
            return None
        batch = self._unanswered.popleft()
        self.held_bytes -= batch.size_bytes
        return batch

    def start_again(self) -> int:
        """The stream is gone: send unanswered batches again; return how many there are."""
        again = len(self._unanswered)
        self._again.extendleft(reversed(self._unanswered))
        self._unanswered.clear()
        return again

    def drop_closed(self) -> None:
        """Drop items of closed sessions that are not on their way.

        Their peers never saw them acknowledged and send them again, perhaps to another node.
        """
        for batch in self._again:
            batch.drop_closed()
        self._again = deque(batch for batch in self._again if batch.items)
        self._waiting = deque(item for item in self._waiting if item.intake.is_open)
        self._waiting_bytes = sum(item.size_bytes for item in self._waiting)
        self.held_bytes = self._waiting_bytes + sum(
            batch.size_bytes for batch in (*self._again, *self._unanswered)
        )
