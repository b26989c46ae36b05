"""The working state during apply: rows decoded once, written back once per run of entries.

Everything here is derived from rows and may be dropped between entries (design.md, rule 6).
"""

from collections.abc import Sequence
from typing import Final

from qm.model.state.head import Window
from qm.model.state.tables import BODY_ORDINAL_SYNTHETIC_FIRST, State, Table
from qm.model.values import records, rows
from qm.model.values.effects import Applied, EffectKind, Suspicion, no_effects
from qm.model.values.elements import QueueKind
from qm.model.values.limits import (
    CLOCK_MAX_MS,
    GROUPS_IN_HAND_MAX,
    POSITIONS_PER_QUEUE_MAX,
    SUSPICIONS_PER_ENTRY_MAX,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import Counters, Queue, QueueManager, RecordT
from qm.model.values.rows import (
    DEADLINE_KEY,
    LEASE_KEY,
    POSITION_KEY,
    QUEUE_KEY,
    SEQUENTIAL_ID_MAX,
    STATS_ROW,
    Position,
)
from qm.security.descriptor import SecurityDescriptor, parse_descriptor

QUEUES_IN_HAND_MAX: Final = 4_096
"""Decoded queues kept between entries; beyond it all are dropped and read again."""
META_QUEUE_MANAGER: Final = b"qm"
META_COUNTERS: Final = b"counters"
META_CHAIN: Final = b"chain"
"""Absent as long as nothing is archived."""
LEVELS: Final = 8
QUEUE_ID_MAX: Final = 0xFFFF_FFFE
"""Makes every queue's rows end where the next one's may begin."""
NUMBER_TRIES_MAX: Final = 4_096
"""Numbers in use that are skipped in the search for a free one."""
_U32_MAX: Final = 0xFFFF_FFFF
MANAGER_STORES: Final = frozenset(
    {QueueKind.SYSTEM_JOURNAL, QueueKind.DEADLETTER, QueueKind.TRANSACTIONAL_DEADLETTER}
)
"""Queues whose bytes count against QueueManager.JournalQuota."""


class QueueInHand:
    """One queue: its record, its counts and its first Available positions."""

    __slots__ = (
        "_descriptor",
        "arrivals",
        "counts",
        "grants",
        "hidden",
        "is_dirty",
        "linked_from",
        "locked",
        "record",
        "removals",
        "subqueue_bytes",
        "total_bytes",
        "watermark",
        "windows",
    )

    hidden: int
    total_bytes: int
    subqueue_bytes: int
    watermark: int
    arrivals: int
    removals: int

    def __init__(self, record: Queue, stats_row: bytes | None) -> None:
        self.record = record
        stats = STATS_ROW.unpack(stats_row or bytes(STATS_ROW.size))
        self.counts = list(stats[:LEVELS])
        """Visible positions per level (7 - effective priority), locked ones included."""
        self.locked = list(stats[LEVELS : 2 * LEVELS])
        (
            self.hidden,
            self.total_bytes,
            self.subqueue_bytes,
            self.watermark,
            self.arrivals,
            self.removals,
        ) = stats[2 * LEVELS :]
        self.is_dirty = False
        self.windows: list[Window | None] = [None] * LEVELS
        self.linked_from = [level << 56 for level in range(LEVELS)]
        """Per level: no position is linked before this key, locked and hidden ones included."""
        self.grants: dict[tuple[tuple[bytes, ...], int], bool] = {}
        """Access decisions of the current descriptor: (SIDs, mask) -> granted."""
        self._descriptor: SecurityDescriptor | None = None

    def stats_row(self) -> bytes:
        """Return the QUEUE_STATS row."""
        return STATS_ROW.pack(
            *self.counts,
            *self.locked,
            self.hidden,
            self.total_bytes,
            self.subqueue_bytes,
            self.watermark,
            self.arrivals,
            self.removals,
        )

    def count(self) -> int:
        """Return the number of linked positions that are not hidden, locked ones included."""
        return sum(self.counts)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more messages, whatever its quota says."""
        return self.count() + self.hidden >= POSITIONS_PER_QUEUE_MAX

    def window(self, level: int) -> Window:
        """Return the window of one level."""
        window = self.windows[level]
        if window is None:
            window = self.windows[level] = Window(self.record.queue_id, level)
            window.hide_upto(level << 56 | self.watermark)
        return window

    def descriptor(self) -> SecurityDescriptor | None:
        """Return the security descriptor, None = no restriction."""
        if self._descriptor is None and self.record.security:
            self._descriptor = parse_descriptor(self.record.security)
        return self._descriptor

    def forget_descriptor(self) -> None:
        """Drop the decoded descriptor after the record's descriptor changed."""
        self._descriptor = None
        self.grants.clear()


class Ledger:
    """Reads and writes rows for one Machine; `begin` starts an entry, `settle` ends a run."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.index = 0
        self.behaviour = 1
        """Apply version of this entry: that of its stamp, or the state's if higher."""
        self.counters = Counters()
        self.applied = Applied(0, 0, [], no_effects(), [], set(), set(), [], [], {})
        self._queues: dict[int, QueueInHand] = {}
        self._dirty: list[QueueInHand] = []
        self._manager: QueueManager | None = None
        self._has_counters = False
        self._synthetic_count = 0
        self._awaited_ordinal = 0
        """No MessageID between the last one assigned and this one is awaited."""
        self.groups: dict[bytes, tuple[bytes, ...]] = {}
        """Groups of the SIDs that were asked for, derived from the directory."""
        self.version = 0
        """Changes with every change of a queue's or the queue manager's record or of the directory,
        and when derived state is dropped: conclusions from them are valid as long as this stays the
        same."""

    def forget(self) -> None:
        """Drop everything derived; only rows remain. Only after `settle`."""
        assert not self._dirty, "queues that were not written back"
        self._queues.clear()
        self._manager = None
        self._has_counters = False
        self._awaited_ordinal = 0
        self.forget_groups()

    def forget_groups(self) -> None:
        """Drop what is known of SIDs: a user of the directory has changed."""
        self.groups.clear()
        self.version += 1

    # One entry ---------------------------------------------------------------------------

    def begin(self, index: int, now_ms: int, version: int = 1) -> None:
        """Start an entry: the clock only moves forward. `version`: that of the entry's stamp."""
        self.index = index
        if not self._has_counters:
            row = self.state.get(Table.META, META_COUNTERS)
            self.counters = records.decode(Counters, row) if row else Counters()
            self._has_counters = True
        self.behaviour = max(version, self.counters.apply_version)
        self.counters.clock_ms = max(self.counters.clock_ms, min(now_ms, CLOCK_MAX_MS))
        self.applied = Applied(
            index, self.counters.clock_ms, [], no_effects(), [], set(), set(), [], [], {}
        )
        self._synthetic_count = 0

    def settle(self) -> None:
        """Write what entries changed in memory."""
        for queue in self._dirty:
            queue.is_dirty = False
            self.state.put(
                Table.QUEUE_STATS, QUEUE_KEY.pack(queue.record.queue_id), queue.stats_row()
            )
        self._dirty.clear()
        if self._has_counters:
            self.state.put(Table.META, META_COUNTERS, records.encode(self.counters))
        if len(self._queues) > QUEUES_IN_HAND_MAX:
            self._queues.clear()
            self.version += 1
        if len(self.groups) > GROUPS_IN_HAND_MAX:
            self.forget_groups()

    @property
    def now_ms(self) -> int:
        """Cluster time of this entry, UTC milliseconds."""
        return self.counters.clock_ms

    def suspect(self, alarm: str, queue_manager: bytes, address: str, expected: str = "") -> None:
        """Raise an alarm that names a peer, once per entry."""
        suspicion = Suspicion(alarm, queue_manager, address, expected)
        known = self.applied.suspicions
        if suspicion not in known and len(known) < SUSPICIONS_PER_ENTRY_MAX:
            known.append(suspicion)
            self.applied.alarms.append(alarm)

    # Records -----------------------------------------------------------------------------

    def record(self, table: Table, key: bytes, kind: type[RecordT]) -> RecordT | None:
        """Return the record of a row, or None."""
        row = self.state.get(table, key)
        return None if row is None else records.decode(kind, row)

    def put_record(self, table: Table, key: bytes, record: records.Record) -> None:
        """Write the row of a record."""
        self.state.put(table, key, records.encode(record))

    @property
    def manager(self) -> QueueManager | None:
        """The queue manager, None before Provision."""
        if self._manager is None:
            self._manager = self.record(Table.META, META_QUEUE_MANAGER, QueueManager)
        return self._manager

    def put_manager(self, manager: QueueManager) -> None:
        """Write the queue manager's record."""
        self._manager = manager
        self.applied.is_manager_changed = True
        self.version += 1
        self.put_record(Table.META, META_QUEUE_MANAGER, manager)

    # Queues ------------------------------------------------------------------------------

    def queue(self, queue_id: int) -> QueueInHand | None:
        """Return a queue, or None."""
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self.passing_queue(queue_id)
            if queue is not None:
                self._queues[queue_id] = queue
        return queue

    def passing_queue(self, queue_id: int) -> QueueInHand | None:
        """Return a queue, or None, for reading only: whoever looks at very many keeps none in hand,
        where they would displace those in use.
        """
        queue = self._queues.get(queue_id)
        if queue is None:
            key = QUEUE_KEY.pack(queue_id)
            record = self.record(Table.QUEUE, key, Queue)
            if record is not None:
                queue = QueueInHand(record, self.state.get(Table.QUEUE_STATS, key))
        return queue

    def put_queue(self, record: Queue) -> QueueInHand:
        """Write a queue's record; its counts stay."""
        key = QUEUE_KEY.pack(record.queue_id)
        self.put_record(Table.QUEUE, key, record)
        queue = self._queues.get(record.queue_id)
        if queue is None:
            queue = QueueInHand(record, self.state.get(Table.QUEUE_STATS, key))
            self._queues[record.queue_id] = queue
        queue.record = record
        self.version += 1
        queue.forget_descriptor()
        self.touch(queue)
        return queue

    def remove_queue(self, queue: QueueInHand) -> None:
        """Remove an empty queue's rows."""
        key = QUEUE_KEY.pack(queue.record.queue_id)
        self.applied.removed_queue_names[queue.record.queue_id] = queue.record.pathname
        self.state.delete(Table.QUEUE, key)
        self.state.delete(Table.QUEUE_STATS, key)
        self._queues.pop(queue.record.queue_id, None)
        self.version += 1
        if queue.is_dirty:
            self._dirty.remove(queue)

    def touch(self, queue: QueueInHand) -> None:
        """Note that the queue's counts changed in this entry."""
        if not queue.is_dirty:
            queue.is_dirty = True
            self._dirty.append(queue)

    # Positions ---------------------------------------------------------------------------

    def position(self, queue_id: int, key: int) -> Position | None:
        """Return a linked position, or None."""
        row = self.state.get(Table.POSITION, POSITION_KEY.pack(queue_id, key))
        return None if row is None else rows.unpack_position(row)

    def put_position(self, queue_id: int, key: int, position: Position) -> None:
        """Write a position's row back."""
        self.state.put(Table.POSITION, POSITION_KEY.pack(queue_id, key), position.pack())

    def link(self, queue: QueueInHand, key: int, position: Position, kind: EffectKind) -> None:
        """Insert a position: charged at once, whatever its state (DM-A8, DM-A9)."""
        queue_id, level = queue.record.queue_id, key >> 56
        # A moved position keeps its key, which may precede all others.
        queue.linked_from[level] = min(queue.linked_from[level], key)
        self.put_position(queue_id, key, position)
        self.charge(queue, key, position.stored_size_bytes)
        if position.deadline_ms:
            self.put_deadline(position.deadline_ms, queue_id, key)
        self.retain_body(position.body_index, position.body_ordinal)
        if position.state == rows.PositionState.AVAILABLE:
            self.wake(queue, key)
        else:
            queue.locked[key >> 56] += 1
        self.effect(kind, queue_id, key, position, 0)

    def put_deadline(self, deadline_ms: int, queue_id: int, key: int) -> None:
        """Have a position checked when its time is over."""
        counters = self.counters
        counters.deadlines_from_ms = min(counters.deadlines_from_ms, deadline_ms)
        self.state.put(Table.DEADLINE, DEADLINE_KEY.pack(deadline_ms, queue_id, key), b"")

    def put_lease(self, due_ms: int, kind: rows.LeaseKind, owner: bytes) -> None:
        """Have the lease of `owner` end when its time is over."""
        self.counters.leases_from_ms = min(self.counters.leases_from_ms, due_ms)
        self.state.put(Table.LEASE, LEASE_KEY.pack(due_ms, kind) + owner, b"")

    def unlink(
        self, queue: QueueInHand, key: int, position: Position, kind: EffectKind, reason: int
    ) -> None:
        """Remove a position and its body reference; its consequences were settled before."""
        queue_id = queue.record.queue_id
        self.state.delete(Table.POSITION, POSITION_KEY.pack(queue_id, key))
        self._discharge(queue, key, position)
        if position.deadline_ms:
            deadline = DEADLINE_KEY.pack(position.deadline_ms, queue_id, key)
            self.state.delete(Table.DEADLINE, deadline)
        self.release_body(position.body_index, position.body_ordinal)
        self.effect(kind, queue_id, key, position, reason)

    def lock(self, queue: QueueInHand, key: int, position: Position, lock: records.Lock) -> None:
        """Change Available to Locked; the position keeps its place (guide 3.2)."""
        queue_id = queue.record.queue_id
        position.state = rows.PositionState.LOCKED
        position.flags |= rows.PositionFlag.HAS_LOCK
        self.put_position(queue_id, key, position)
        self.put_record(Table.LOCK, POSITION_KEY.pack(queue_id, key), lock)
        queue.locked[key >> 56] += 1
        self.touch(queue)
        self.effect(EffectKind.LOCKED, queue_id, key, position, 0)

    def unlock(self, queue: QueueInHand, key: int, position: Position, kind: EffectKind) -> None:
        """Change Locked to Available, at the same place."""
        queue_id = queue.record.queue_id
        position.state = rows.PositionState.AVAILABLE
        position.flags &= ~rows.PositionFlag.HAS_LOCK
        self.put_position(queue_id, key, position)
        self.state.delete(Table.LOCK, POSITION_KEY.pack(queue_id, key))
        queue.locked[key >> 56] -= 1
        self.touch(queue)
        self.wake(queue, key)
        self.effect(kind, queue_id, key, position, 0)

    def charge(self, queue: QueueInHand, key: int, size_bytes: int) -> None:
        """Count a position that entered the list."""
        queue.counts[key >> 56] += 1
        queue.arrivals += 1
        queue.total_bytes += size_bytes
        self.counters.total_bytes += size_bytes
        if queue.record.kind in MANAGER_STORES:
            self.counters.journal_bytes += size_bytes
        elif queue.record.kind is QueueKind.SUBQUEUE:
            self._charge_parent(queue, size_bytes)
        self.touch(queue)

    def charged_bytes(self, queue: QueueInHand) -> int:
        """Return the bytes that count against a queue's quota, its subqueues included."""
        if queue.record.kind is QueueKind.SUBQUEUE:
            parent = self.queue(queue.record.parent_queue)
            assert parent is not None, "a subqueue without its queue"
            queue = parent
        return queue.total_bytes + queue.subqueue_bytes

    def _charge_parent(self, queue: QueueInHand, size_bytes: int) -> None:
        parent = self.queue(queue.record.parent_queue)
        assert parent is not None, "a subqueue without its queue"
        parent.subqueue_bytes += size_bytes
        self.touch(parent)

    def _discharge(self, queue: QueueInHand, key: int, position: Position) -> None:
        if position.state != rows.PositionState.AVAILABLE:
            queue.locked[key >> 56] -= 1
        if self.is_hidden(queue, key, position):
            queue.hidden -= 1
        else:
            queue.counts[key >> 56] -= 1
        queue.removals += 1
        self.discharge_bytes(queue, position.stored_size_bytes)

    def discharge_bytes(self, queue: QueueInHand, size_bytes: int) -> None:
        """Subtract bytes that left a queue."""
        queue.total_bytes -= size_bytes
        self.counters.total_bytes -= size_bytes
        if queue.record.kind in MANAGER_STORES:
            self.counters.journal_bytes -= size_bytes
        elif queue.record.kind is QueueKind.SUBQUEUE:
            self._charge_parent(queue, -size_bytes)
        self.touch(queue)

    @staticmethod
    def is_hidden(queue: QueueInHand, key: int, position: Position) -> bool:
        """Whether a purge hid this position and no step has settled it yet."""
        return (
            position.state == rows.PositionState.AVAILABLE
            and key & rows.SEQUENTIAL_ID_MAX <= queue.watermark
        )

    def unhide(self, queue: QueueInHand, key: int, position: Position) -> None:
        """End the purge's claim on a position that meanwhile ends in another way."""
        if self.is_hidden(queue, key, position):
            queue.hidden -= 1
            queue.counts[key >> 56] += 1
            self.touch(queue)

    def wake(self, queue: QueueInHand, key: int) -> None:
        """Note that a position became Available, and have readers woken."""
        queue.window(key >> 56).became_available(key)
        self.applied.woken_queue_ids.add(queue.record.queue_id)

    def effect(
        self, kind: EffectKind, queue_id: int, key: int, position: Position, reason: int
    ) -> None:
        """Append one effect."""
        self.applied.to_append().add(
            kind,
            (queue_id, key),
            reason,
            (position.source_queue_manager, position.message_ordinal),
            position.stored_size_bytes,
            (position.body_index, position.body_ordinal),
            position.flags,
        )

    # Bodies ------------------------------------------------------------------------------

    def retain_body(self, index: int, ordinal: int) -> None:
        """Count one more row that refers to this body."""
        if ordinal < BODY_ORDINAL_SYNTHETIC_FIRST:
            self.state.retain_body(index, ordinal)
        else:
            self._count_synthetic(index, ordinal, 1)

    def release_body(self, index: int, ordinal: int) -> None:
        """Count one row fewer that refers to this body."""
        if ordinal < BODY_ORDINAL_SYNTHETIC_FIRST:
            self.state.release_body(index, ordinal)
        else:
            self._count_synthetic(index, ordinal, -1)

    def release_bodies(self, indexes: Sequence[int], ordinals: Sequence[int]) -> None:
        """Count one row fewer for each of these bodies."""
        if not ordinals:
            return
        if max(ordinals) < BODY_ORDINAL_SYNTHETIC_FIRST:
            self.state.release_bodies(zip(indexes, ordinals, strict=True))
            return
        for index, ordinal in zip(indexes, ordinals, strict=True):
            self.release_body(index, ordinal)

    def synthetic(
        self, packet: bytes, body_of: tuple[int, int, int, int, int] | None
    ) -> tuple[int, int]:
        """Keep a packet made by apply while rows refer to it; return its (index, ordinal).

        `body_of`: the packet whose MessageBody it returns (`SyntheticPacket.body_of`), which is
        kept as long as this one.
        """
        ordinal = BODY_ORDINAL_SYNTHETIC_FIRST + self._synthetic_count
        self._synthetic_count += 1
        if body_of is not None:
            index, _, _, body_ordinal, _ = body_of
            self.retain_body(index, body_ordinal)
        key = rows.BODY_KEY.pack(self.index, ordinal)
        self.put_record(Table.SYNTHETIC, key, records.SyntheticPacket(packet, body_of))
        return self.index, ordinal

    def _count_synthetic(self, index: int, ordinal: int, change: int) -> None:
        key = rows.BODY_KEY.pack(index, ordinal)
        synthetic = self.record(Table.SYNTHETIC, key, records.SyntheticPacket)
        assert synthetic is not None, "a reference to a packet that is gone"
        synthetic.reference_count += change
        if synthetic.reference_count:
            self.put_record(Table.SYNTHETIC, key, synthetic)
            return
        self.state.delete(Table.SYNTHETIC, key)
        if synthetic.body_of is not None:
            body_index, _, _, body_ordinal, _ = synthetic.body_of
            self.release_body(body_index, body_ordinal)

    # Numbers -----------------------------------------------------------------------------

    def next_message_ordinal(self) -> int:
        """Return the next MessageID; 0 is never assigned (QB-A12).

        It is assigned again after 2**32 others, unless a final ack for it is still awaited.
        """
        counters = self.counters
        for _ in range(NUMBER_TRIES_MAX):
            ordinal = counters.message_ordinal = counters.message_ordinal % _U32_MAX + 1
            if self.behaviour < VERSION_OF_REFUSALS:
                break
            if ordinal > self._awaited_ordinal or ordinal == 1:
                # None of those ahead becomes awaited before it is assigned.
                self._awaited_ordinal = self._first_awaited(ordinal)
            if ordinal < self._awaited_ordinal:
                break
            if self.state.get(Table.AWAITING_FINAL_ACK, QUEUE_KEY.pack(ordinal)) is None:
                break  # it was awaited at the time of the look-up
        return counters.message_ordinal

    def await_final_ack(self, ordinal: int, awaiting: records.AwaitingFinalAck) -> None:
        """Record that a sent message awaits its final ack, so that its MessageID is not reused."""
        self.put_record(Table.AWAITING_FINAL_ACK, QUEUE_KEY.pack(ordinal), awaiting)
        if ordinal > self.counters.message_ordinal:  # it was assigned before the last wrap
            self._awaited_ordinal = min(self._awaited_ordinal, ordinal)

    def reserve_message_ordinals(self, count: int) -> range:
        """Return consecutive MessageIDs that are assigned to nothing else."""
        if self.counters.message_ordinal + count > _U32_MAX:
            self.counters.message_ordinal = 0  # wrap a little earlier
        first = self.counters.message_ordinal + 1
        self.jump_message_ordinal(count)
        return range(first, first + count)

    def jump_message_ordinal(self, distance: int) -> None:
        """Continue with MessageIDs that are `distance` further on."""
        ahead = self.counters.message_ordinal + distance
        self.counters.message_ordinal = (ahead - 1) % _U32_MAX + 1
        self._awaited_ordinal = 0

    def _first_awaited(self, ordinal: int) -> int:
        low = QUEUE_KEY.pack(ordinal)
        rows = self.state.scan(Table.AWAITING_FINAL_ACK, low, b"\xff" * 5, 1)
        return int(QUEUE_KEY.unpack(rows[0][0])[0]) if rows else _U32_MAX + 1

    def next_queue_id(self) -> int:
        """Return an id for a queue about to be created, and count the queue.

        Ids are reused after a wrap, since they are part of every position's key.
        """
        counters = self.counters
        counters.queue_count += 1
        while True:
            # At most QUEUES_MAX are in use, and none of them before the first wrap.
            counters.queue_id = counters.queue_id % QUEUE_ID_MAX + 1
            if self.state.get(Table.QUEUE, QUEUE_KEY.pack(counters.queue_id)) is None:
                return counters.queue_id

    def next_sequential_id(self) -> int:
        """Return the next SequentialID; 0, below every watermark, is never assigned."""
        counters = self.counters
        counters.sequential_id = counters.sequential_id % SEQUENTIAL_ID_MAX + 1
        return counters.sequential_id
