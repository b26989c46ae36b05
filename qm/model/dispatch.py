"""What is to be sent next ([MS-MQDMPR] 3.1.1.18, 3.1.7.1.28 to .34, 3.1.7.3.9).

The leader's own and volatile: rebuilt from the outgoing queues when leadership begins.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

import msgspec


class DispatchEntry(msgspec.Struct, eq=False):
    """One position that waits to be sent (3.1.1.18)."""

    queue_id: int
    lookup_identifier: int
    """With queue_id, MessagePositionReference."""
    protocol_data: object
    """Not None: a message for the binary protocol ([MS-MQQB])."""
    priority: int
    """Queue.BasePriority + Message.Priority: higher is sooner."""
    send_in_progress: bool = False


class DispatchCollection:
    """DispatchCollection of the queue manager. One entry at most is being sent."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], DispatchEntry] = {}
        self._heap: list[tuple[int, int, DispatchEntry]] = []
        self._order = count()
        self._sending: DispatchEntry | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self,
        queue_id: int,
        lookup_identifier: int,
        protocol_data: object,
        base_priority: int,
        message_priority: int,
    ) -> DispatchEntry:
        """3.1.7.1.28; `next` is to be asked afterwards."""
        entry = DispatchEntry(
            queue_id, lookup_identifier, protocol_data, base_priority + message_priority
        )
        self._entries[queue_id, lookup_identifier] = entry
        self._push(entry)
        return entry

    def _push(self, entry: DispatchEntry) -> None:
        heappush(self._heap, (-entry.priority, next(self._order), entry))

    def remove(self, queue_id: int, lookup_identifier: int) -> None:
        """3.1.7.1.29; an absent entry is no error, `next` is to be asked all the same."""
        entry = self._entries.pop((queue_id, lookup_identifier), None)
        if entry is not None and entry is self._sending:
            self._sending = None

    def remove_by_queue(self, queue_id: int) -> None:
        """3.1.7.1.34; nothing is dispatched because of it."""
        for key in [key for key in self._entries if key[0] == queue_id]:
            self.remove(*key)

    def next(
        self, is_active: Callable[[int], bool], is_linked: Callable[[int, int], bool]
    ) -> DispatchEntry | None:
        """3.1.7.3.9: the entry to send now, marked as such; None while one is being sent.

        Highest priority first, oldest first among equals (DM-A35). Entries of inactive queues wait;
        those whose position is gone are dropped.
        """
        if self._sending is not None:
            return None
        waiting = []
        chosen = None
        while self._heap and chosen is None:
            item = heappop(self._heap)
            entry = item[2]
            if self._entries.get((entry.queue_id, entry.lookup_identifier)) is not entry:
                continue
            if not is_linked(entry.queue_id, entry.lookup_identifier):
                del self._entries[entry.queue_id, entry.lookup_identifier]
            elif is_active(entry.queue_id):
                chosen = entry
            else:
                waiting.append(item)
        for item in waiting:
            heappush(self._heap, item)
        if chosen is not None:
            chosen.send_in_progress = True
            self._sending = chosen
        return chosen
