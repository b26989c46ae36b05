"""Runs of plain arrivals: the fast lane of the hot path.

A message is plain when it is neither transactional nor signed, sealed or from a named sender, asks
for no acknowledgement and no report, lives forever and goes to a queue that takes all messages of
its sender. Of those the lane (source, destination, facts) is resolved once for many batches, and
what each costs is a few dictionary and integer operations; rows and effects are settled per run.
Everything else is judged one by one (`qm.model.arrivals`), behind a closed run, so that order and
outcome are the same; a test compares both ways.
"""

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from qm.model.columns import IntArray
from qm.model.commands import EdgeBatch, TransferVerdict
from qm.model.effects import EffectKind
from qm.model.ledger import Ledger, QueueInHand
from qm.model.records import QueueManager, quota_bytes
from qm.model.rows import (
    HISTORY_BITS,
    POSITION_KEY,
    POSITION_ROW,
    SEQUENTIAL_ID_MAX,
    PositionFlag,
    PositionState,
)
from qm.model.state import Table
from qm.model.streams import ORDINAL_MASK, History
from qm.wire.base_header import FLAG_TR
from qm.wire.limits import TIME_INFINITE_S
from qm.wire.queue_name import QUEUE_TYPE_DIRECT
from qm.wire.user_header import (
    AQ_SHIFT,
    DQ_SHIFT,
    FLAG_DM,
    FLAG_JN,
    FLAG_JP,
    FLAG_SH,
    FLAG_TH,
    QUEUE_TYPE_MASK,
)

NOT_PLAIN: Final = FLAG_TH | FLAG_SH | QUEUE_TYPE_MASK << AQ_SHIFT
"""UserHeader.Flags of messages that are judged one by one."""
_HEAD: Final = Struct("<BxHIII32sIIIIH")
"""`qm.wire.peek.HEAD` with both GUIDs in one."""
_PLAIN_ROW: Final = Struct("<4sQIIHII8x16sII")
"""POSITION_ROW with state, class code and flags in one, and without a deadline."""
assert _PLAIN_ROW.size == POSITION_ROW.size
_DESTINATION_AT: Final = 64
_DESTINATION_END: Final = (64, 64, 64, 68, 64, 80, 64, 66)
"""By Flags.DQ: where DestinationQueue ends in a packet; a direct name's byte count comes on top."""
_QUEUE_TYPE_BITS: Final = 3
_FLAGS_MASK: Final = FLAG_DM | FLAG_JN | FLAG_JP
_ROW_BEGINS: Final = {
    header: Struct("<BBH").pack(
        PositionState.AVAILABLE,
        0,
        (PositionFlag.RECOVERABLE if header & FLAG_DM else 0)
        | (PositionFlag.NEGATIVE_JOURNALING if header & FLAG_JN else 0)
        | (PositionFlag.POSITIVE_JOURNALING if header & FLAG_JP else 0),
    )
    for header in (
        recoverable | negative | positive
        for recoverable in (0, FLAG_DM & -FLAG_DM)
        for negative in (0, FLAG_JN)
        for positive in (0, FLAG_JP)
    )
}
"""By what of UserHeader.Flags a position keeps."""
_ARRIVED: Final = bytes((EffectKind.ARRIVED,))
_DUPLICATE: Final = int(TransferVerdict.DUPLICATE)

LaneKey = tuple[bytes, bytes, int]
"""Both GUIDs of the UserHeader; destination name; number of the facts, and the name's type."""


class Lane:
    """Plain messages of one source to one destination, with the facts of one session."""

    __slots__ = ("history", "limit_bytes", "queue", "queue_id", "source")

    def __init__(self, source: bytes, queue: QueueInHand, history: History) -> None:
        self.source = source
        self.queue = queue
        self.queue_id = queue.record.queue_id
        self.history = history
        self.limit_bytes = quota_bytes(queue.record.quota)


Packet = tuple[int, int, int, Lane, tuple[Any, ...]]
"""Number in the batch, offset, size, lane, fields of the head."""
Taken = tuple[int, int, int, bytes, int, int]
"""queue_id, LookupIdentifier, MessageID, SourceQueueManager, size, body ordinal."""


class Lanes:
    """Lanes as long as what they were concluded from holds. None: one by one."""

    __slots__ = ("facts_numbers", "known")

    def __init__(self) -> None:
        self.known: dict[LaneKey, Lane | None] = {}
        self.facts_numbers: dict[object, int] = {}


class PlainRun:
    """One EdgeBatch on its way through: plain runs, and single messages between them."""

    def __init__(
        self,
        ledger: Ledger,
        manager: QueueManager,
        command: EdgeBatch,
        lanes: Lanes,
        open_lane: Callable[[int], Lane | None],
        judge: Callable[[int], int],
    ) -> None:
        """`open_lane(k)`: the lane of packet k and all like it; `judge(k)`: its verdict, by all
        rules.
        """
        self._ledger = ledger
        self._command = command
        self._lanes = lanes
        self._open_lane = open_lane
        self._judge = judge
        self._horizon_ms = manager.duplicate_horizon_ms
        self._limit_bytes = quota_bytes(manager.queue_manager_quota)
        numbers = lanes.facts_numbers
        self._facts_bits = [
            numbers.setdefault(facts, len(numbers)) << _QUEUE_TYPE_BITS for facts in command.facts
        ]

    def take_all(self) -> IntArray:
        """Return the verdicts."""
        command, now_s = self._command, self._ledger.now_ms // 1000
        data, start = _bytes_of(command)
        offsets, facts_bits, known = command.offsets, self._facts_bits, self._lanes.known
        verdicts = array("H", bytes(2 * len(command.facts_of)))
        run: list[Packet] = []
        begin = 0
        for k, fact in enumerate(command.facts_of):
            at = start + begin
            head = _HEAD.unpack_from(data, at)
            _, bits, _, _, reach, guids, life, sent, _, flags, name_bytes = head
            lane = None
            if (
                life == TIME_INFINITE_S
                and not flags & NOT_PLAIN
                and not bits & FLAG_TR
                and (reach == TIME_INFINITE_S or now_s - sent <= reach)
            ):
                queue_type = flags >> DQ_SHIFT & QUEUE_TYPE_MASK
                end = at + _DESTINATION_END[queue_type]
                if queue_type == QUEUE_TYPE_DIRECT:
                    end += name_bytes
                key = (guids, data[at + _DESTINATION_AT : end], facts_bits[fact] | queue_type)
                lane = known.get(key)
                if lane is None and key not in known:
                    lane = known[key] = self._open_lane(k)
            size = offsets[k + 1] - begin
            if lane is not None:
                run.append((k, begin, size, lane, head))
            else:
                self._take_run(run, verdicts)
                run = []
                verdicts[k] = self._judge(k)
            begin += size
        self._take_run(run, verdicts)
        return verdicts

    def _take_run(self, run: list[Packet], verdicts: IntArray) -> None:
        """Enqueue plain packets that are not known; without room one is judged by all rules."""
        ledger, command = self._ledger, self._command
        counters, checksums, row_of = ledger.counters, command.checksums, _PLAIN_ROW.pack
        index, body_offset, first_ordinal = (
            command.body_index,
            command.body_offset,
            command.first_ordinal,
        )
        now_ms, now_s = ledger.now_ms, ledger.now_ms // 1000
        rows: dict[bytes, bytes] = {}
        taken: list[Taken] = []
        for k, begin, size, lane, head in run:
            _, bits, _, _, reach, _, _, sent, ordinal, flags, _ = head
            history, queue = lane.history, lane.queue
            high = ordinal >> HISTORY_BITS
            if history.high != high or history.sent_time != sent:
                history.turn_to(sent, high)
            bit = 1 << (ordinal & ORDINAL_MASK)
            if history.bitmap & bit:
                verdicts[k] = _DUPLICATE
                continue
            used = queue.total_bytes + queue.subqueue_bytes + size
            if used > lane.limit_bytes or counters.total_bytes + size > self._limit_bytes:
                self._close(rows, taken)
                rows, taken = {}, []
                verdicts[k] = self._judge(k)
                continue
            if not history.is_dirty:
                history.touch()
            history.bitmap |= bit
            lifetime_ms = self._horizon_ms if reach == TIME_INFINITE_S else reach * 1000
            sent_ms = now_ms if sent <= now_s else sent * 1000
            if sent_ms + lifetime_ms > history.forget_at_ms:
                history.keep(lifetime_ms)
            counters.sequential_id = (counters.sequential_id + 1) & SEQUENTIAL_ID_MAX
            level = 7 - (bits & 7)
            key = level << 56 | counters.sequential_id
            body = first_ordinal + k
            rows[POSITION_KEY.pack(lane.queue_id, key)] = row_of(
                _ROW_BEGINS[flags & _FLAGS_MASK],
                index,
                body_offset + begin,
                size,
                body,
                checksums[k],
                size,
                lane.source,
                ordinal,
                now_s,
            )
            counters.total_bytes += size
            queue.total_bytes += size
            queue.arrivals += 1
            queue.counts[level] += 1
            if not queue.is_dirty:
                ledger.touch(queue)
            taken.append((lane.queue_id, key, ordinal, lane.source, size, body))
        self._close(rows, taken)

    def _close(self, rows: dict[bytes, bytes], taken: list[Taken]) -> None:
        """Settle what was taken: rows, bodies, effects."""
        if not taken:
            return
        ledger, body_index = self._ledger, self._command.body_index
        queue_ids, keys, ordinals, sources, sizes, bodies = zip(*taken, strict=True)
        ledger.state.put_rows(Table.POSITION, rows)
        ledger.state.retain_bodies(body_index, bodies)
        applied = ledger.applied
        applied.woken_queue_ids.update(queue_ids)
        effects = applied.effects
        effects.kinds += _ARRIVED * len(keys)
        effects.queue_ids.extend(queue_ids)
        effects.lookup_identifiers.extend(keys)
        effects.reasons.frombytes(bytes(2 * len(keys)))
        effects.message_ordinals.extend(ordinals)
        effects.source_queue_managers.extend(sources)
        effects.sizes_bytes.extend(sizes)
        effects.body_indexes.extend([body_index] * len(keys))
        effects.body_ordinals.extend(bodies)


def _bytes_of(command: EdgeBatch) -> tuple[bytes, int]:
    """Return bytes that hold the packets, and where they begin there.

    A decoded command's view lies in its entry at `body_offset`: then nothing is copied.
    """
    packets, begin = command.packets, command.body_offset
    whole = packets.obj
    if isinstance(whole, bytes) and len(whole) >= begin + len(packets):
        first = slice(begin, begin + _DESTINATION_AT)
        if whole[first] == packets[:_DESTINATION_AT]:
            return whole, begin
    return bytes(packets), 0
