"""The ages of queues' oldest messages, to sort ten thousand queues by: looked for many at a time,
and kept while the counts of a queue stay.

To look for one queue's costs 40 us, mostly for a scan of the store, however little it finds. One
scan over the positions of many queues with few messages each costs 5 us for each of them.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from qm.model.queries import QueueInfo, View, oldest_arrival
from qm.model.state.tables import Table
from qm.model.values.rows import POSITION_KEY, PositionState, unpack_position

KEPT_QUEUES_MAX: Final = 100_000
SCANNED_MESSAGES_MAX: Final = 32
"""Of a queue whose positions are all read; of others the heads are looked for."""
SCANNED_REMOVALS_MAX: Final = 50_000
"""Of the queues that are read without a pause: a scan goes over what was removed from them and is
not compacted yet, 0.4 us each. A queue with more is not scanned.
"""
SCAN_ROWS: Final = 1_024
"""Expected of one scan; it reads at most twice as many."""

YOUNGEST: Final = float("-inf")
"""The age of an empty queue."""

_Counts: TypeAlias = tuple[int, int, int]


class QueueAges:
    """What grows with the age of a queue's oldest message."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[_Counts, float]] = {}
        """queue_id -> (counts, age), of queues with messages."""

    def of(self, view: View, queues: Sequence[QueueInfo]) -> list[float]:
        """Return the ages of queues that were listed, by ascending queue_id."""
        ages: dict[int, float] = {}
        unknown = []
        for info in queues:
            counts, age = self._known.get(info.queue_id, (None, YOUNGEST))
            if not info.message_count:
                self._known.pop(info.queue_id, None)
                ages[info.queue_id] = YOUNGEST
            elif counts == _counts(info):
                ages[info.queue_id] = age
            else:
                unknown.append(info)
        if len(self._known) + len(unknown) > KEPT_QUEUES_MAX:
            self._known.clear()
        arrived = _scanned(view, [info for info in unknown if _is_short(info)])
        for info in unknown:
            if info.queue_id not in arrived:
                arrived[info.queue_id] = oldest_arrival(view, info.queue_id)
            oldest = arrived[info.queue_id]
            age = ages[info.queue_id] = YOUNGEST if oldest is None else -oldest
            self._known[info.queue_id] = (_counts(info), age)
        return [ages[info.queue_id] for info in queues]


def parts_of(queues: Sequence[QueueInfo]) -> Iterator[Sequence[QueueInfo]]:
    """Yield queues in parts between which others have their turn: to find the ages of one part
    takes some 20 ms at most.
    """
    start = removals = 0
    for end, info in enumerate(queues):
        added = info.removal_count if _is_short(info) else 0
        if removals + added > SCANNED_REMOVALS_MAX:
            yield queues[start:end]
            start, removals = end, 0
        removals += added
    yield queues[start:]


def _counts(info: QueueInfo) -> _Counts:
    return (info.message_count, info.locked_count, info.removal_count)


def _is_short(info: QueueInfo) -> bool:
    few = info.message_count <= SCANNED_MESSAGES_MAX
    return few and info.removal_count <= SCANNED_REMOVALS_MAX


def _scanned(view: View, queues: Sequence[QueueInfo]) -> dict[int, int | None]:
    """Return queue_id -> `oldest_arrival` of the queues all of whose positions are messages: a
    purge has left none that are hidden.
    """
    found: dict[int, int | None] = {}
    start, width = 0, len(queues)
    while start < len(queues):
        run = _run(queues, start, width)
        first, last = run[0].queue_id, run[-1].queue_id
        limit = 2 * sum(info.message_count for info in run) + len(run)
        rows, is_more = view.rows_after(
            Table.POSITION, POSITION_KEY.pack(first, 0), POSITION_KEY.pack(last + 1, 0), limit
        )
        positions = {queue_id: list(group) for queue_id, group in groupby(rows, _queue_of)}
        # Queues in between, of other kinds, may have more than the scan reads.
        end = _queue_of(rows[-1]) if is_more else last + 1
        whole = [info for info in run if info.queue_id < end]
        for info in whole:
            if len(positions.get(info.queue_id, ())) == info.message_count:
                found[info.queue_id] = _oldest(positions[info.queue_id])
        start += max(len(whole), 1)
        width = max(len(whole), 1) if is_more else 2 * width
    return found


def _run(queues: Sequence[QueueInfo], start: int, width: int) -> Sequence[QueueInfo]:
    """Return at most `width` queues, one at least, with as many messages as one scan reads."""
    messages = 0
    for end in range(start, min(start + width, len(queues))):
        messages += queues[end].message_count
        if messages > SCAN_ROWS and end > start:
            return queues[start:end]
    return queues[start : start + width]


def _queue_of(row: tuple[bytes, bytes]) -> int:
    queue_id: int = POSITION_KEY.unpack(row[0])[0]
    return queue_id


def _oldest(rows: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return the oldest of the heads: the first Available position of each priority."""
    heads: dict[int, int] = {}
    for key, row in rows:
        position = unpack_position(row)
        if position.state == PositionState.AVAILABLE:
            heads.setdefault(POSITION_KEY.unpack(key)[1] >> 56, position.arrival_time)
    return min(heads.values(), default=None)
