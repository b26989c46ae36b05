"""Runs of plain arrivals: the fast lane of the hot path.

A message is plain when it is neither transactional, signed nor sealed, has no named sender,
requests no acknowledgement and no report, never expires and goes to a queue that accepts all
messages of its sender. The lane (source, destination, facts) of such messages is resolved once for
many batches; each then costs a few dictionary and integer operations; rows and effects are settled
per run. All others are judged one by one (`qm.model.arrivals.arrivals`), after the run is closed,
so that order and outcome are the same; a test compares both ways.
"""

from array import array
from collections.abc import Callable
from itertools import islice, repeat
from operator import sub
from struct import Struct
from typing import Final

from qm.model.arrivals.incoming_streams import ORDINAL_MASK, History
from qm.model.state.ledger import Ledger, QueueInHand
from qm.model.state.tables import Table
from qm.model.values.columns import IntArray
from qm.model.values.commands import EdgeBatch, Facts, TransferVerdict
from qm.model.values.effects import Alike, EffectKind
from qm.model.values.records import QueueManager, quota_bytes
from qm.model.values.rows import (
    HISTORY_BITS,
    POSITION_KEY,
    POSITION_ROW,
    SEQUENTIAL_ID_MAX,
    PositionFlag,
    PositionState,
)
from qm.names.guid import GUID_SIZE_BYTES
from qm.wire.headers.base_header import (
    BASE_HEADER_SIZE_BYTES,
    FLAG_PR,
    FLAG_TR,
    FLAGS_OFFSET,
    PACKET_SIZE_OFFSET,
)
from qm.wire.headers.user_header import (
    AQ_SHIFT,
    DESTINATION_QUEUE_OFFSET,
    DESTINATION_TYPES,
    DQ_SHIFT,
    FLAG_DM,
    FLAG_JN,
    FLAG_JP,
    FLAG_SH,
    FLAG_TH,
    MESSAGE_ID_OFFSET,
    QUEUE_TYPE_MASK,
)
from qm.wire.headers.user_header import FLAGS_OFFSET as USER_FLAGS_OFFSET
from qm.wire.limits import HOPS_MAX, TIME_INFINITE_S
from qm.wire.packets.peek import HEAD, Head
from qm.wire.structures.queue_name import (
    DIRECT_COUNT_SIZE_BYTES,
    QUEUE_TYPE_DIRECT,
    queue_name_size,
)

NOT_PLAIN: Final = FLAG_TH | FLAG_SH | QUEUE_TYPE_MASK << AQ_SHIFT
"""UserHeader.Flags of messages that are judged one by one."""
FAR: Final = 0x1E
"""UserHeader.Flags.RC of a message that made at least HOPS_MAX + 1 hops: 30 and 31."""
assert HOPS_MAX + 1 == FAR

_REACH_AT: Final = PACKET_SIZE_OFFSET + 4
"""TimeToReachQueue; all offsets here count from a packet's start."""
_MESSAGE_ID_AT: Final = BASE_HEADER_SIZE_BYTES + MESSAGE_ID_OFFSET
_FLAGS_AT: Final = BASE_HEADER_SIZE_BYTES + USER_FLAGS_OFFSET
_DESTINATION_AT: Final = BASE_HEADER_SIZE_BYTES + DESTINATION_QUEUE_OFFSET
_BASE_BEGIN: Final = f"<{FLAGS_OFFSET}xH{_REACH_AT - FLAGS_OFFSET - 2}x"
"""Reads BaseHeader.Flags and continues at TimeToReachQueue."""
_HEAD: Final = Struct(f"{_BASE_BEGIN}I{2 * GUID_SIZE_BYTES}sIIIIH")
"""`qm.wire.packets.peek.HEAD` without version, signature and PacketSize, and with both GUIDs in
one.
"""
_PROBE: Final = bytes(range(HEAD.size))
_NAMED: Final = Head(*HEAD.unpack(_PROBE))
assert _HEAD.unpack(_PROBE) == (
    _NAMED.base_flags,
    _NAMED.time_to_reach_queue,
    _NAMED.source_queue_manager + _NAMED.queue_manager_address,
    _NAMED.time_to_be_received,
    _NAMED.sent_time,
    _NAMED.message_id,
    _NAMED.user_flags,
    _NAMED.direct_name_bytes,
)

_PLAIN_ROW: Final = Struct("<4sQIIHII8x16sII")
"""POSITION_ROW with state, class code and flags in one field, and without a deadline."""
assert _PLAIN_ROW.size == POSITION_ROW.size
_ROW_BEGIN: Final = Struct("<BBH")
_ROW_BEGIN_BYTES: Final = _ROW_BEGIN.size
_ALIKE_RUN_MIN: Final = 16
"""From this length on, a run is described by one row."""
_ALIKE_RUN_MAX: Final = 256
_ALIKE_ID_MAX: Final = SEQUENTIAL_ID_MAX - _ALIKE_RUN_MAX
"""Above it messages are taken one by one, since SequentialID may reach its end."""


def _destination_end(queue_type: int) -> int:
    if queue_type == QUEUE_TYPE_DIRECT:
        return _DESTINATION_AT + DIRECT_COUNT_SIZE_BYTES
    if queue_type not in DESTINATION_TYPES:
        return _DESTINATION_AT
    return _DESTINATION_AT + queue_name_size(bytes(DIRECT_COUNT_SIZE_BYTES), 0, queue_type)


_DESTINATION_END: Final = tuple(map(_destination_end, range(QUEUE_TYPE_MASK + 1)))
"""By Flags.DQ: where DestinationQueue ends in a packet; a direct name's bytes are added to it."""
_FLAGS_MASK: Final = FLAG_DM | FLAG_JN | FLAG_JP
_ROW_BEGINS: Final = {
    header: _ROW_BEGIN.pack(
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
"""By the bits of UserHeader.Flags that a position keeps."""
_BITS: Final = tuple(1 << bit for bit in range(1 << HISTORY_BITS))
_DUPLICATE: Final = int(TransferVerdict.DUPLICATE)


class Lane:
    """Plain messages of one source to one destination, with the facts of one session."""

    __slots__ = ("alike_of", "history", "limit_bytes", "queue", "queue_id", "size_min", "source")

    def __init__(self, source: bytes, queue: QueueInHand, history: History) -> None:
        self.source = source
        self.queue = queue
        self.queue_id = queue.record.queue_id
        self.history = history
        self.limit_bytes = quota_bytes(queue.record.quota)
        self.size_min = _DESTINATION_AT
        """Size up to the end of DestinationQueue."""
        self.alike_of = _alike(self.size_min)

    def reads_to(self, name_end: int) -> None:
        """Set where DestinationQueue ends in this lane's packets."""
        self.size_min = name_end
        self.alike_of = _alike(name_end)


def _alike(name_end: int) -> Callable[[bytes, int], tuple[int, bytes, int, bytes]]:
    """Return a reader of BaseHeader.Flags, the fields from TimeToReachQueue to SentTime, the
    ordinal, and UserHeader.Flags with DestinationQueue.
    """
    return Struct(f"{_BASE_BEGIN}{_MESSAGE_ID_AT - _REACH_AT}sI{name_end - _FLAGS_AT}s").unpack_from


Speaker = tuple[bytes, str]
"""Source queue manager of messages, and address of the session that brought them."""
LanesByName = dict[bytes, Lane | None]
"""By destination name. None: one by one."""


class Lanes:
    """Lanes, valid as long as the facts from which they were derived."""

    __slots__ = ("_by_sender", "heard", "size")

    def __init__(self) -> None:
        self._by_sender: dict[tuple[bytes, Facts, int], tuple[LanesByName, Speaker]] = {}
        self.heard: list[Speaker] = []
        """Those of the batch in hand, in order, each at least once."""
        self.size = 0
        """Number of lanes and senders."""

    def of(self, guids: bytes, facts: Facts, queue_type: int) -> LanesByName:
        """Return the lanes of packets with these GUIDs in the UserHeader, these facts and this type
        of destination name.
        """
        sender = (guids, facts, queue_type)
        known = self._by_sender.get(sender)
        if known is None:
            known = self._by_sender[sender] = ({}, (guids[:GUID_SIZE_BYTES], facts.peer_address))
            self.size += 1
        lanes, speaker = known
        self.heard.append(speaker)
        return lanes

    def forget(self, stream_ids: frozenset[int]) -> None:
        """Drop the lanes of streams that no longer exist."""
        for lanes, _ in self._by_sender.values():
            for name, lane in list(lanes.items()):
                if lane is not None and lane.history.stream.stream_id in stream_ids:
                    del lanes[name]


class PlainRun:
    """Processes one EdgeBatch: plain runs, and single messages between them."""

    def __init__(
        self,
        ledger: Ledger,
        manager: QueueManager,
        command: EdgeBatch,
        lanes: Lanes,
        open_lane: Callable[[int], Lane | None],
        judge: Callable[[int], int],
    ) -> None:
        """`open_lane(k)` returns the lane of packet k and those like it; `judge(k)` returns its
        verdict by all rules.
        """
        self._ledger = ledger
        self._command = command
        self._lanes = lanes
        self._open_lane = open_lane
        self._judge = judge
        self._rows: dict[bytes, bytes] = {}
        self._bodies: list[int] = []
        self._alike: list[Alike] = []
        self._horizon_ms = manager.duplicate_horizon_ms
        self._limit_bytes = quota_bytes(manager.queue_manager_quota)

    def take_all(self) -> IntArray:  # noqa: PLR0915 - one loop, as said below
        """Enqueue new plain packets, have the others judged; return the verdicts.

        It is one loop, since calls would take a third of a message's time. After a session's first
        message, and after two in succession in one lane, messages that differ from it only in
        ordinal and body are taken together.
        """
        command, ledger, counters = self._command, self._ledger, self._ledger.counters
        limit_bytes, horizon_ms, now_ms = self._limit_bytes, self._horizon_ms, ledger.now_ms
        index, body_offset, body = command.body_index, command.body_offset, command.first_ordinal
        head_of, key_of, row_of = _HEAD.unpack_from, POSITION_KEY.pack, _PLAIN_ROW.pack
        now_s, woken = now_ms // 1000, ledger.applied.woken_queue_ids
        data, start = _bytes_of(command)
        verdicts = array("H", bytes(2 * len(command.facts_of)))
        rows, bodies = self._rows, self._bodies
        last_guids, last_fact, last_type, lanes = b"", -1, -1, LanesByName()
        sequential_id, total_bytes = counters.sequential_id, counters.total_bytes
        last_lane, last_bits, tried, offsets = None, -1, -1, command.offsets
        packets = zip(offsets, offsets[1:], command.facts_of, command.checksums, strict=False)
        columns = enumerate(packets)
        for k, (begin, end, fact, checksum) in columns:
            at, size = start + begin, end - begin
            bits, reach, guids, life, sent, ordinal, flags, name_bytes = head_of(data, at)
            lane = None
            if (
                life == TIME_INFINITE_S
                and not flags & NOT_PLAIN
                and flags & FAR != FAR
                and not bits & FLAG_TR
                and (reach == TIME_INFINITE_S or now_s - sent <= reach)
            ):
                name_type = flags >> DQ_SHIFT & QUEUE_TYPE_MASK
                if guids != last_guids or fact != last_fact or name_type != last_type:
                    last_guids, last_fact, last_type = guids, fact, name_type
                    lanes = self._lanes.of(guids, command.facts[fact], name_type)
                name_end = _DESTINATION_END[name_type] + (
                    name_bytes if name_type == QUEUE_TYPE_DIRECT else 0
                )
                name = data[at + _DESTINATION_AT : at + name_end]
                lane = lanes.get(name)
                if lane is None and name not in lanes:
                    lane = lanes[name] = self._new_lane(k, name_end)
            if lane is not None:
                queue, history, high = lane.queue, lane.history, ordinal >> HISTORY_BITS
                if history.high != high or history.sent_time != sent:
                    history.turn_to(sent, high)
                if history.bitmap & _BITS[ordinal & ORDINAL_MASK]:
                    verdicts[k] = _DUPLICATE
                    continue
                charged = queue.total_bytes + queue.subqueue_bytes + size
                if charged > lane.limit_bytes or total_bytes + size > limit_bytes:
                    lane = None
            if lane is None:
                rows, bodies = self._close(sequential_id, total_bytes)
                verdicts[k] = self._judge(k)
                sequential_id, total_bytes = counters.sequential_id, counters.total_bytes
                continue
            if not history.is_dirty:
                history.touch()
            history.bitmap |= _BITS[ordinal & ORDINAL_MASK]
            lifetime_ms = horizon_ms if reach == TIME_INFINITE_S else reach * 1000
            if (now_ms if sent <= now_s else sent * 1000) + lifetime_ms > history.forget_at_ms:
                history.keep(lifetime_ms)
            sequential_id = sequential_id % SEQUENTIAL_ID_MAX + 1
            level = FLAG_PR - (bits & FLAG_PR)
            key = key_of(lane.queue_id, level << 56 | sequential_id)
            rows[key] = row = row_of(
                _ROW_BEGINS[flags & _FLAGS_MASK],
                index,
                body_offset + begin,
                size,
                body + k,
                checksum,
                size,
                lane.source,
                ordinal,
                now_s,
            )
            bodies.append(body + k)
            woken.add(lane.queue_id)
            total_bytes += size
            queue.total_bytes += size
            queue.arrivals += 1
            queue.counts[level] += 1
            if not queue.is_dirty:
                ledger.touch(queue)
            if (
                fact != tried or (lane is last_lane and bits == last_bits)
            ) and sequential_id < _ALIKE_ID_MAX:
                tried = fact
                room = min(lane.limit_bytes - charged, limit_bytes - total_bytes)
                taken = self._take_alike(k, lane, key, row, data, start, room)
                sequential_id += taken
                total_bytes += offsets[k + 1 + taken] - end
                next(islice(columns, taken, taken), None)
            last_lane, last_bits = lane, bits
        self._close(sequential_id, total_bytes)
        return verdicts

    def _take_alike(
        self, last: int, lane: Lane, key: bytes, row: bytes, data: bytes, start: int, room: int
    ) -> int:
        """Enqueue the packets after `last` for as long as they differ from it only in ordinal and
        body.

        `key` and `row` are those of `last`, the newest packet; `room`: bytes left of the quotas.
        Returns the number of packets taken.
        """
        ordinals = self._alike_ordinals(last, lane, data, start, room)
        count = len(ordinals) - 1
        if not count:
            return 0
        command, queue = self._command, lane.queue
        first, (queue_id, place) = last + 1, POSITION_KEY.unpack(key)
        offsets = command.offsets[first : first + count + 1]
        begins = offsets[:-1]
        sizes = [*map(sub, offsets[1:], begins)]
        queue.total_bytes += sum(sizes)
        queue.arrivals += count
        queue.counts[place >> 56] += count
        body = command.first_ordinal + first
        rows = map(
            _PLAIN_ROW.pack,
            repeat(row[:_ROW_BEGIN_BYTES]),
            repeat(command.body_index),
            map(command.body_offset.__add__, begins),
            sizes,
            range(body, body + count),
            command.checksums[first : first + count],
            sizes,
            repeat(lane.source),
            islice(ordinals, 1, None),
            repeat(self._ledger.now_ms // 1000),
        )
        keys = map(POSITION_KEY.pack, repeat(queue_id), range(place + 1, place + 1 + count))
        if count >= _ALIKE_RUN_MIN:
            at, all_offsets = len(self._rows) - 1, command.offsets[last : first + count + 1]
            self._alike.append(Alike(at, key, row, all_offsets, array("I", ordinals)))
        self._rows.update(zip(keys, rows, strict=False))
        self._bodies += range(body, body + count)
        return count

    def _alike_ordinals(
        self, last: int, lane: Lane, data: bytes, start: int, room: int
    ) -> list[int]:
        """Return the ordinals of `last` and the packets like it, and remember the latter."""
        command, history, alike_of = self._command, lane.history, lane.alike_of
        first, end_max = last + 1, last + 1 + _ALIKE_RUN_MAX
        fact, bytes_max = command.facts_of[last], command.offsets[first] + room
        bitmap, high, size_min = history.bitmap, history.high, lane.size_min
        bits, head, ordinal, tail = alike_of(data, start + command.offsets[last])
        ordinals = [ordinal]
        offsets = command.offsets[first : end_max + 1]
        columns = zip(offsets, offsets[1:], command.facts_of[first:end_max], strict=False)
        for begin, end, own_fact in columns:
            if own_fact != fact or end > bytes_max or end - begin < size_min:
                break
            own_bits, own_head, ordinal, own_tail = alike_of(data, start + begin)
            if own_head != head or own_tail != tail or own_bits != bits:
                break
            bit = _BITS[ordinal & ORDINAL_MASK]
            if ordinal >> HISTORY_BITS != high or bitmap & bit:
                break
            bitmap |= bit
            ordinals.append(ordinal)
        history.bitmap = bitmap
        return ordinals

    def _new_lane(self, k: int, name_end: int) -> Lane | None:
        self._lanes.size += 1
        lane = self._open_lane(k)
        if lane is not None:
            lane.reads_to(name_end)
        return lane

    def _close(self, sequential_id: int, total_bytes: int) -> tuple[dict[bytes, bytes], list[int]]:
        """Settle the run: rows, bodies, counters, effects. Returns containers for the next one."""
        rows, ledger = self._rows, self._ledger
        if rows:
            ledger.counters.sequential_id, ledger.counters.total_bytes = sequential_id, total_bytes
            ledger.state.put_rows(Table.POSITION, rows)
            ledger.state.retain_bodies(self._command.body_index, self._bodies)
            applied = ledger.applied
            applied.note(
                EffectKind.ARRIVED,
                0,
                rows.keys(),
                rows.values(),
                applied.woken_queue_ids,
                self._alike,
            )
            self._rows, self._bodies, self._alike = {}, [], []
        return self._rows, self._bodies


def _bytes_of(command: EdgeBatch) -> tuple[bytes, int]:
    """Return bytes that hold the packets, and where the packets begin in them.

    A decoded command's view lies in its entry at `body_offset`: then nothing is copied.
    """
    packets, begin = command.packets, command.body_offset
    whole = packets.obj
    if isinstance(whole, bytes) and len(whole) >= begin + len(packets):
        first = slice(begin, begin + _DESTINATION_AT)
        if whole[first] == packets[:_DESTINATION_AT]:
            return whole, begin
    return bytes(packets), 0
