"""What apply reports to the volatile side, as values (guide 6.5); it has no other output.

Effects of one entry are columns per kind: identical on every replica, consumed by the leader
(waking readers, dispatching, acknowledging), by every node (handles, waits) and by the archive.
"""

from array import array
from collections.abc import Collection, Iterable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from qm.model.values.columns import IntArray
from qm.model.values.rows import POSITION_KEY, POSITION_ROW

_OF_ROW: Final = Struct("<2xHQ8xH4xI8x16sI4x")
"""Taken from a POSITION row: flags, body index and ordinal, stored size, MessageIdentifier."""
assert _OF_ROW.size == POSITION_ROW.size


class EffectKind(IntEnum):
    """What happened to a position."""

    ARRIVED = 1
    """Became Available: readers of the queue may be woken."""
    PENDING = 2
    """Locked on entry by an uncommitted transaction."""
    LOCKED = 3
    UNLOCKED = 4
    """Available again, at the same place."""
    RECEIVED = 5
    MOVED_OUT = 6
    MOVED_IN = 7
    EXPIRED = 8
    PURGED = 9
    QUEUE_DELETED = 10
    REJECTED = 11
    DEAD_LETTERED = 12
    """A copy or move into a dead-letter queue."""
    JOURNALED = 13
    DELIVERED = 14
    """Left an outgoing queue, acknowledged by the peer."""
    ROLLED_BACK = 15
    """Never became visible: its transaction aborted."""
    DISCARDED = 16
    """A copy for which no quota had room."""
    FAILED = 17
    """Left an outgoing queue undelivered."""
    REFUSED = 18
    """Entered no queue: a transactional message that was refused for good; its sequence continues
    after it. queue_id and LookupIdentifier are 0; the reason says why."""


class PositionEffects(msgspec.Struct, gc=False):
    """Columns, one element per effect, in the order in which apply caused them."""

    kinds: bytearray
    queue_ids: IntArray
    """u32."""
    lookup_identifiers: IntArray
    """u64."""
    reasons: IntArray
    """u16: MessageClass, 0 = none."""
    message_ordinals: IntArray
    """u32."""
    source_queue_managers: list[bytes]
    sizes_bytes: IntArray
    """u32: stored size."""
    body_indexes: IntArray
    """u64: log index of the entry that brought the message."""
    body_ordinals: IntArray
    """u16: number of the body in that entry."""
    flags: IntArray
    """u16: `PositionFlag`."""
    command_ends: IntArray
    """u32, one per command of the entry: the number of effects after it."""

    def add(
        self,
        kind: EffectKind,
        place: tuple[int, int],
        reason: int,
        message: tuple[bytes, int],
        size_bytes: int,
        body: tuple[int, int],
        flags: int,
    ) -> None:
        """Append one effect at (queue_id, LookupIdentifier) on the message (source queue manager,
        ordinal) with the body (index, ordinal).
        """
        self.kinds.append(kind)
        self.queue_ids.append(place[0])
        self.lookup_identifiers.append(place[1])
        self.reasons.append(reason)
        self.message_ordinals.append(message[1])
        self.source_queue_managers.append(message[0])
        self.sizes_bytes.append(size_bytes)
        self.body_indexes.append(body[0])
        self.body_ordinals.append(body[1])
        self.flags.append(flags)

    def copy(self) -> "PositionEffects":
        """Return columns that can be appended to without changing these."""
        return PositionEffects(*(getattr(self, name)[:] for name in self.__struct_fields__))

    def add_run(self, run: "PositionRun") -> None:
        """Append one effect per position of a run, which is not empty."""
        queue_ids, keys = zip(*POSITION_KEY.iter_unpack(b"".join(run.keys)), strict=True)
        flags, body_indexes, body_ordinals, sizes, sources, ordinals = zip(
            *_OF_ROW.iter_unpack(b"".join(run.rows)), strict=True
        )
        count = len(keys)
        self.kinds += bytes((run.kind,)) * count
        self.queue_ids.extend(queue_ids)
        self.lookup_identifiers.extend(keys)
        self.reasons.extend([run.reason] * count)
        self.message_ordinals.extend(ordinals)
        self.source_queue_managers.extend(sources)
        self.sizes_bytes.extend(sizes)
        self.body_indexes.extend(body_indexes)
        self.body_ordinals.extend(body_ordinals)
        self.flags.extend(flags)


class Alike(NamedTuple):
    """Adjacent arrivals in a run whose rows differ only in body, size and ordinal. Their keys and
    body ordinals are consecutive.
    """

    at: int
    """How many positions precede them in the run."""
    key: bytes
    """Key of the first one."""
    row: bytes
    """Row of the first one."""
    offsets: IntArray
    """u32: where the body of the first one begins, then where each of them ends."""
    message_ordinals: IntArray
    """u32."""


class PositionRun(NamedTuple):
    """The same effect on many positions, described by their rows: columns are made of it only for
    those who read them.
    """

    kind: EffectKind
    reason: int
    keys: Collection[bytes]
    """Keys of POSITION rows."""
    rows: Iterable[bytes]
    """Whole POSITION_ROWs, one or several in each element, in the order of the keys."""
    queue_ids: Collection[int]
    """Queues of the keys, possibly more."""
    alike: Collection[Alike] = ()
    """Its stretches of similar arrivals, in order; then `rows` has one row in each element."""
    ends: tuple[bytes, bytes] | None = None
    """The first and the last key, if the keys ascend."""


class SequenceSeen(msgspec.Struct, frozen=True, gc=False):
    """Where the order acks of an incoming sequence go (QB-A22)."""

    source_queue_manager: bytes
    address: str
    """Where the sender was seen, without port."""
    is_direct: bool
    """It sent to a direct name and is answered with one."""
    message_ordinal: int = 0
    """MessageID for one order ack that answers this entry; 0: none was assigned."""


class Suspicion(msgspec.Struct, frozen=True, gc=False):
    """A peer that is not where it was, or whose sequence cannot be right."""

    alarm: str
    """ALARM_PEER_ELSEWHERE, ALARM_PEER_MOVED, ALARM_SEQUENCE_AHEAD or ALARM_NAMING_LIMIT."""
    queue_manager: bytes
    """GUID that it names."""
    address: str
    """Where it came from, without port."""
    expected: str = ""
    """Where that queue manager was bound before, or is pinned; "" = does not matter."""


class Outcome(msgspec.Struct, gc=False):
    """Result of one command, in the order of the batch."""

    status: int
    """MQ_OK, an MQ_ERROR or MQ_INFORMATION code."""
    verdicts: IntArray | None = None
    """EdgeBatch: one u16 per message, `TransferVerdict` or a MessageClass."""
    value: object = None
    """The command's own result record (`qm.model.values.results`), or None."""


class Applied(msgspec.Struct, gc=False):
    """All results of one entry."""

    index: int
    now_ms: int
    outcomes: list[Outcome]
    columns: PositionEffects
    """Effects that precede those in `runs`; readers use `effects`, which has all."""
    runs: list[PositionRun]
    outgoing_queue_ids: set[int]
    """Outgoing queues whose work grew or shrank, or whose admin state or sequence changed."""
    woken_queue_ids: set[int]
    """Queues in which a position became Available."""
    outbox_ids: list[int]
    """New outbox rows."""
    alarms: list[str]
    """Stable names from `qm.model.values.limits`, for metrics: a history bucket evicted, ..."""
    incoming_sequences: dict[int, SequenceSeen]
    """Stream id -> sender of a transactional message, accepted or not: an order ack is due
    [MS-MQQB 3.1.5.8.6]."""
    is_manager_changed: bool = False
    """An attribute of the queue manager changed: names, locks of outgoing queues, limits."""
    order_ack_ordinals: range = range(0)
    """MessageIDs for the order acks that the leader sends unasked when its term begins here."""
    suspicions: list[Suspicion] = []
    """At most SUSPICIONS_PER_ENTRY_MAX different ones; each also raised its alarm."""
    order_acks: dict[int, int] = {}
    """Outgoing queue id -> OrderAcks of its live sequence, repeated ones as well."""
    removed_queue_names: dict[int, str] = {}
    """Queue id -> path name of removed queues, which the state no longer shows later."""
    _joined: PositionEffects | None = None

    @property
    def effects(self) -> PositionEffects:
        """All effects on positions, in order; read it only after the entry was applied.

        Columns and runs stay as apply left them: what the archive keeps is made from them and must
        not depend on whether anything on this node read the effects before.
        """
        if not self.runs:
            return self.columns
        if self._joined is None:
            joined = self.columns.copy()
            for run in self.runs:
                joined.add_run(run)
            self._joined = joined
        return self._joined

    def to_append(self) -> PositionEffects:
        """Return the columns for apply to append to; the runs before it are merged in, in order."""
        for run in self.runs:
            self.columns.add_run(run)
        self.runs.clear()
        return self.columns

    @property
    def effect_count(self) -> int:
        """Number of effects."""
        return len(self.columns.kinds) + sum([len(run.keys) for run in self.runs])

    def note(
        self,
        kind: EffectKind,
        reason: int,
        keys: Collection[bytes],
        rows: Iterable[bytes],
        queue_ids: Collection[int],
        alike: Collection[Alike] = (),
        ends: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Append the same effect on at least one position; see `PositionRun`. Neither keys nor rows
        may change afterwards.
        """
        self.runs.append(PositionRun(kind, reason, keys, rows, queue_ids, alike, ends))


def no_effects() -> PositionEffects:
    """Return empty columns."""
    return PositionEffects(
        bytearray(),
        array("I"),
        array("Q"),
        array("H"),
        array("I"),
        [],
        array("I"),
        array("Q"),
        array("H"),
        array("H"),
        array("I"),
    )
