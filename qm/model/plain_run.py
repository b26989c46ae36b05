"""Runs of plain arrivals: the fast lane of the hot path.

A message is plain when it is neither transactional nor signed, sealed or from a named sender, asks
for no acknowledgement, lives forever and goes to a queue that takes all messages of its sender. Of
those the lane (source, destination, facts) is resolved once per batch, and what each costs is a few
dictionary and integer operations: counts, quotas, effects and rows are settled per run. Everything
else goes through `qm.model.arrivals`, which closes the run first, so that order and outcome are the
same; a test compares both ways.
"""

from typing import Final

from qm.model.commands import EdgeBatch
from qm.model.duplicates import History
from qm.model.effects import EffectKind
from qm.model.ledger import Ledger, QueueInHand
from qm.model.rows import (
    POSITION_KEY,
    POSITION_ROW,
    SEQUENTIAL_ID_MAX,
    PositionFlag,
    PositionState,
)
from qm.model.state import Table
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.peek import Head
from qm.wire.user_header import (
    AQ_SHIFT,
    FLAG_DM,
    FLAG_JN,
    FLAG_JP,
    FLAG_SH,
    FLAG_TH,
    QUEUE_TYPE_MASK,
)

_NOT_PLAIN: Final = FLAG_TH | FLAG_SH | QUEUE_TYPE_MASK << AQ_SHIFT
_FLAGS_OF_HEADER: Final = {
    header: (PositionFlag.RECOVERABLE.value if header & FLAG_DM else 0)
    | (PositionFlag.NEGATIVE_JOURNALING.value if header & FLAG_JN else 0)
    | (PositionFlag.POSITIVE_JOURNALING.value if header & FLAG_JP else 0)
    for header in (
        recoverable | negative | positive
        for recoverable in (0, FLAG_DM & -FLAG_DM)
        for negative in (0, FLAG_JN)
        for positive in (0, FLAG_JP)
    )
}
_FLAGS_MASK: Final = FLAG_DM | FLAG_JN | FLAG_JP
_AVAILABLE: Final = PositionState.AVAILABLE.value
_ARRIVED: Final = bytes((EffectKind.ARRIVED,))


def is_plain(head: Head) -> bool:
    """Whether the fast lane may take a packet with this head, as far as the head tells."""
    return not head[10] & _NOT_PLAIN and head[7] == TIME_INFINITE_S


class Lane:
    """Plain messages of one source to one destination, with the facts of one session."""

    __slots__ = ("history", "keys", "queue", "queue_id", "room_bytes", "taken_bytes")

    def __init__(self, queue: QueueInHand, history: History, room_bytes: int) -> None:
        self.queue = queue
        self.queue_id = queue.record.queue_id
        self.history = history
        self.room_bytes = room_bytes
        """What the queue's quota leaves; another lane to the same queue closes the run."""
        self.taken_bytes = 0
        self.keys: list[int] = []


class PlainRun:
    """Messages taken since the last `close`."""

    def __init__(self, ledger: Ledger, command: EdgeBatch) -> None:
        self._ledger = ledger
        self._command = command
        self._offsets = command.offsets
        self._checksums = command.checksums
        self._counters = ledger.counters
        self._now_s = ledger.now_ms // 1000
        self._rows: dict[bytes, bytes] = {}
        self._queue_ids: list[int] = []
        self._keys: list[int] = []
        self._ordinals: list[int] = []
        self._sizes: list[int] = []
        self._sources: list[bytes] = []
        self._bodies: list[int] = []
        self.taken_bytes = 0

    def take(self, lane: Lane, k: int, offset: int, size: int, head: Head) -> None:
        """Enqueue packet k; duplicate, expiry and quota were judged."""
        counters = self._counters
        sequential_id = counters.sequential_id = (counters.sequential_id + 1) & SEQUENTIAL_ID_MAX
        level = 7 - (head[1] & 7)
        key = level << 56 | sequential_id
        command = self._command
        queue_id = lane.queue_id
        self._rows[POSITION_KEY.pack(queue_id, key)] = POSITION_ROW.pack(
            _AVAILABLE,
            0,
            _FLAGS_OF_HEADER[head[10] & _FLAGS_MASK],
            command.body_index,
            command.body_offset + offset,
            size,
            command.first_ordinal + k,
            self._checksums[k],
            size,
            0,
            head[5],
            head[9],
            self._now_s,
        )
        lane.taken_bytes += size
        lane.room_bytes -= size
        lane.keys.append(key)
        self.taken_bytes += size
        self._queue_ids.append(queue_id)
        self._keys.append(key)
        self._ordinals.append(head[9])
        self._sizes.append(size)
        self._sources.append(head[5])
        self._bodies.append(command.first_ordinal + k)

    def close(self, lanes: list[Lane]) -> None:
        """Settle what was taken: rows, counts, heads, effects."""
        taken = len(self._keys)
        if not taken:
            return
        ledger = self._ledger
        ledger.state.put_rows(Table.POSITION, self._rows)
        ledger.state.retain_bodies(self._command.body_index, self._bodies)
        for lane in lanes:
            self._settle(lane)
        effects = ledger.applied.effects
        effects.kinds += _ARRIVED * taken
        effects.queue_ids.extend(self._queue_ids)
        effects.lookup_identifiers.extend(self._keys)
        effects.reasons.frombytes(bytes(2 * taken))
        effects.message_ordinals.extend(self._ordinals)
        effects.source_queue_managers.extend(self._sources)
        effects.sizes_bytes.extend(self._sizes)
        effects.body_indexes.extend([self._command.body_index] * taken)
        self._rows = {}
        for column in (
            self._queue_ids,
            self._keys,
            self._ordinals,
            self._sizes,
            self._bodies,
        ):
            column.clear()
        self._sources.clear()
        self.taken_bytes = 0

    def _settle(self, lane: Lane) -> None:
        keys = lane.keys
        if not keys:
            return
        queue = lane.queue
        queue.total_bytes += lane.taken_bytes
        queue.arrivals += len(keys)
        self._counters.total_bytes += lane.taken_bytes
        counts, windows = queue.counts, queue.windows
        for key in keys:
            level = key >> 56
            counts[level] += 1
            (windows[level] or queue.window(level)).became_available(key)
        self._ledger.touch(queue)
        self._ledger.applied.woken_queue_ids.add(lane.queue_id)
        lane.keys = []
        lane.taken_bytes = 0
