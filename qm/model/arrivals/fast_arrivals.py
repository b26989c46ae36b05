"""Runs of plain arrivals: the fast lane of the hot path.

A message is plain when it is neither signed nor encrypted, requests no acknowledgement and no
report, and goes to a queue that accepts all messages of its sender. The lane (source, destination,
facts) of such messages is resolved once for many batches; each then costs a few dictionary and
integer operations; rows and effects are settled per run. A transactional message is plain if its
sequence is known and it is the next one. All others are judged one by one
(`qm.model.arrivals.arrivals`), after the run is closed, so that order and outcome are the same; a
test compares both ways.
"""

from array import array
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import islice, repeat
from operator import sub
from struct import Struct
from typing import Final

from qm.model.arrivals.incoming_streams import ORDINAL_MASK, History, Stream
from qm.model.arrivals.lanes import (
    DESTINATION_AT,
    DESTINATION_END,
    KIND_MASK,
    NUMBERS,
    PACKET_HEAD,
    PARTED,
    SPECIAL,
    Lane,
    Lanes,
    LanesByName,
    RowBegins,
)
from qm.model.messages.enqueue import deadline_ms
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.columns import IntArray
from qm.model.values.commands import EdgeBatch, TransferVerdict
from qm.model.values.effects import Alike, EffectKind
from qm.model.values.limits import VERSION_OF_RENEWED_MEMORY
from qm.model.values.records import QueueManager, quota_bytes
from qm.model.values.rows import (
    DEADLINE_KEY,
    HISTORY_BITS,
    POSITION_KEY,
    POSITION_ROW,
    SEQUENTIAL_ID_MAX,
    PositionFlag,
    PositionState,
)
from qm.wire.headers.base_header import FLAG_PR, FLAG_TR
from qm.wire.headers.user_header import (
    AQ_SHIFT,
    DQ_SHIFT,
    FLAG_DM,
    FLAG_JN,
    FLAG_JP,
    FLAG_TH,
    QUEUE_TYPE_MASK,
)
from qm.wire.limits import HOPS_MAX, TIME_INFINITE_S
from qm.wire.structures.queue_name import QUEUE_TYPE_DIRECT

NOT_PLAIN: Final = QUEUE_TYPE_MASK << AQ_SHIFT
"""UserHeader.Flags of messages that are judged one by one."""
FAR: Final = 0x1E
"""UserHeader.Flags.RC of a message that made at least HOPS_MAX + 1 hops: 30 and 31."""
assert HOPS_MAX + 1 == FAR

_PLAIN_ROW: Final = Struct("<4sQIIHIIQ16sII")
"""POSITION_ROW with state, class code and flags in one field."""
assert _PLAIN_ROW.size == POSITION_ROW.size
_ROW_BEGIN: Final = Struct("<BBH")
_ROW_BEGIN_BYTES: Final = _ROW_BEGIN.size
_ALIKE_RUN_MIN: Final = 16
"""From this length on, a run is described by one row."""
_ALIKE_RUN_MAX: Final = 256
_ALIKE_ID_MAX: Final = SEQUENTIAL_ID_MAX - _ALIKE_RUN_MAX
"""Above it messages are taken one by one, since SequentialID may reach its end."""


_FLAGS_MASK: Final = FLAG_DM | FLAG_JN | FLAG_JP | FLAG_TH
_JOURNALED: Final = FLAG_JN | FLAG_JP
_KEPT_BITS: Final = tuple(
    recoverable | negative | positive | transactional
    for recoverable in (0, FLAG_DM & -FLAG_DM)
    for negative in (0, FLAG_JN)
    for positive in (0, FLAG_JP)
    for transactional in (0, FLAG_TH)
)
"""Values of the bits of UserHeader.Flags that a position keeps."""


@cache
def row_begins(proven: int) -> RowBegins:
    """Return the starts of rows of messages of which the flags `proven` say what was proven."""
    return {
        header: _ROW_BEGIN.pack(
            PositionState.AVAILABLE,
            0,
            proven
            | (PositionFlag.RECOVERABLE if header & FLAG_DM else 0)
            | (PositionFlag.NEGATIVE_JOURNALING if header & FLAG_JN else 0)
            | (PositionFlag.POSITIVE_JOURNALING if header & FLAG_JP else 0)
            | (PositionFlag.TRANSACTIONAL if header & FLAG_TH else 0),
        )
        for header in _KEPT_BITS
    }


_BITS: Final = tuple(1 << bit for bit in range(1 << HISTORY_BITS))
_CLOSE: Final = int(TransferVerdict.CLOSE_SESSION)
_DUPLICATE: Final = int(TransferVerdict.DUPLICATE)


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
        advance: Callable[[int, Stream, int], None],
        closed: AbstractSet[int],
    ) -> None:
        """`closed`: facts of sessions of which nothing is taken; `judge` may add to them.

        `open_lane(k)` returns the lane of packet k and those like it; `judge(k)` returns its
        verdict by all rules. `advance(k, stream, number)` notes that packet k, the next one of its
        stream's sequence, was accepted: of a run it is called for the first, and `Stream.number`
        is raised for the others.
        """
        self._ledger = ledger
        self._command = command
        self._lanes = lanes
        self._open_lane = open_lane
        self._judge = judge
        self._advance = advance
        self._closed = closed
        self._advanced: dict[int, Lane] = {}
        """Stream id -> the lane for which `advance` was called last in this run."""
        self._deadlines: dict[bytes, bytes] = {}
        """New rows of DEADLINE."""
        self._rows: dict[bytes, bytes] = {}
        self._bodies: list[int] = []
        self._alike: list[Alike] = []
        self._horizon_ms = manager.duplicate_horizon_ms
        self._limit_bytes = quota_bytes(manager.queue_manager_quota)

    def take_all(self) -> IntArray:  # noqa: C901, PLR0915 - one loop, see below
        """Enqueue new plain packets, have the others judged; return the verdicts.

        It is one loop, since calls would take a third of a message's time. After a session's first
        message, and after two in succession in one lane, messages that differ from it only in
        ordinal, numbers and body are taken together.
        """
        command, ledger, counters = self._command, self._ledger, self._ledger.counters
        limit_bytes, horizon_ms, now_ms = self._limit_bytes, self._horizon_ms, ledger.now_ms
        index, body_offset, body = command.body_index, command.body_offset, command.first_ordinal
        head_of, key_of, row_of = PACKET_HEAD.unpack_from, POSITION_KEY.pack, _PLAIN_ROW.pack
        now_s, woken = now_ms // 1000, ledger.applied.woken_queue_ids
        data, start = _bytes_of(command)
        verdicts = array("H", bytes(2 * len(command.facts_of)))
        rows, bodies = self._rows, self._bodies
        last_guids, last_fact, last_kind, lanes = b"", -1, -1, LanesByName()
        sequential_id, total_bytes = counters.sequential_id, counters.total_bytes
        last_lane, last_bits, tried, offsets = None, -1, -1, command.offsets
        closed = self._closed
        seen: dict[tuple[bytes, int, int], LanesByName] = {}
        packets = zip(offsets, offsets[1:], command.facts_of, command.checksums, strict=False)
        columns = enumerate(packets)
        for k, (begin, end, fact, checksum) in columns:
            if fact in closed:
                verdicts[k] = _CLOSE
                continue
            at, stored = start + begin, end - begin
            bits, reach, guids, life, sent, ordinal, flags, name_bytes = head_of(data, at)
            lane, number, due_ms = None, 0, 0
            if (
                not flags & NOT_PLAIN
                and flags & FAR != FAR
                and not bits & FLAG_TR
                and (reach == TIME_INFINITE_S or now_s - sent <= reach)
            ):
                kind = flags & KIND_MASK
                if guids != last_guids or fact != last_fact or kind != last_kind:
                    last_guids, last_fact, last_kind = guids, fact, kind
                    found = seen.get((guids, fact, kind))
                    if found is None:  # facts are long to hash, and alternate
                        found = self._lanes.of(guids, command.facts[fact], kind)
                        seen[guids, fact, kind] = found
                    lanes = found
                name_type = flags >> DQ_SHIFT & QUEUE_TYPE_MASK
                name_end = DESTINATION_END[name_type] + (
                    name_bytes if name_type == QUEUE_TYPE_DIRECT else 0
                )
                name = data[at + DESTINATION_AT : at + name_end]
                lane = lanes.get(name)
                if lane is None and name not in lanes:
                    lane = lanes[name] = self._new_lane(k, name_end)
            if lane is not None and (flags & PARTED or life != TIME_INFINITE_S):
                due_ms = deadline_ms(sent, life)
                number = _next_number(lane, data, at, flags)
                if number < 0 or 0 < due_ms <= now_ms:
                    lane = None
            if lane is not None:
                queue, history, size = lane.queue, lane.history, stored - lane.seal_bytes
                if not number:
                    high = ordinal >> HISTORY_BITS
                    if history.high != high or history.sent_time != sent:
                        history.turn_to(sent, high)
                    if history.bitmap & _BITS[ordinal & ORDINAL_MASK]:
                        verdicts[k] = _DUPLICATE
                        self._renew(history, sent, reach)
                        continue
                charged = queue.total_bytes + queue.subqueue_bytes + size
                if charged > lane.limit_bytes or total_bytes + size > limit_bytes:
                    lane = None
            if lane is None:
                rows, bodies = self._close(sequential_id, total_bytes)
                self._advanced.clear()
                verdicts[k] = self._judge(k)
                sequential_id, total_bytes = counters.sequential_id, counters.total_bytes
                continue
            if number:
                level = FLAG_PR
                self._advance_to(k, lane, number)
            else:
                level = FLAG_PR - (bits & FLAG_PR)
                if not history.is_dirty:
                    history.touch()
                history.bitmap |= _BITS[ordinal & ORDINAL_MASK]
                lifetime_ms = horizon_ms if reach == TIME_INFINITE_S else reach * 1000
                if (now_ms if sent <= now_s else sent * 1000) + lifetime_ms > history.forget_at_ms:
                    history.keep(lifetime_ms)
            sequential_id = sequential_id % SEQUENTIAL_ID_MAX + 1
            place = level << 56 | sequential_id
            key = key_of(lane.queue_id, place)
            rows[key] = row = row_of(
                lane.row_begins[flags & _FLAGS_MASK],
                index,
                body_offset + begin,
                stored,
                body + k,
                checksum,
                size,
                due_ms,
                lane.source,
                ordinal,
                now_s,
            )
            if due_ms:
                self._deadlines[DEADLINE_KEY.pack(due_ms, lane.queue_id, place)] = b""
                counters.deadlines_from_ms = min(counters.deadlines_from_ms, due_ms)
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
                ordinals = (self._numbered_ordinals if number else self._alike_ordinals)(
                    k, lane, data, start, room
                )
                taken = len(ordinals) - 1
                if taken:
                    self._take_alike(k, lane, place, row, ordinals, due_ms)
                sequential_id += taken
                total_bytes += offsets[k + 1 + taken] - end - taken * lane.seal_bytes
                next(islice(columns, taken, taken), None)
            last_lane, last_bits = lane, bits
        self._close(sequential_id, total_bytes)
        return verdicts

    def _renew(self, history: History, sent_time: int, reach_s: int) -> None:
        """A repeat is remembered from now on, for as long as it may be repeated."""
        if self._ledger.behaviour < VERSION_OF_RENEWED_MEMORY:
            return
        lifetime_ms = self._horizon_ms if reach_s == TIME_INFINITE_S else reach_s * 1000
        if max(self._ledger.now_ms, sent_time * 1000) + lifetime_ms > history.forget_at_ms:
            history.keep(lifetime_ms)

    def _advance_to(self, k: int, lane: Lane, number: int) -> None:
        """Have a sequence advance, and its sender told, which is the same for all of a lane."""
        stream = lane.stream
        if self._advanced.get(stream.stream_id) is lane:
            stream.number = number
        else:
            self._advanced[stream.stream_id] = lane
            self._advance(k, stream, number)

    def _take_alike(
        self, last: int, lane: Lane, place: int, row: bytes, ordinals: list[int], due_ms: int
    ) -> None:
        """Enqueue the packets after `last`, which have these ordinals behind its own, and differ
        from it only in ordinal, numbers and body.

        `place` and `row` are those of `last`, the newest packet.
        """
        command, queue, count = self._command, lane.queue, len(ordinals) - 1
        first, queue_id = last + 1, lane.queue_id
        offsets = command.offsets[first : first + count + 1]
        begins = offsets[:-1]
        stored = [*map(sub, offsets[1:], begins)]
        seal_bytes = lane.seal_bytes
        sizes = [size - seal_bytes for size in stored] if seal_bytes else stored
        queue.total_bytes += sum(sizes)
        queue.arrivals += count
        queue.counts[place >> 56] += count
        body = command.first_ordinal + first
        rows = map(
            _PLAIN_ROW.pack,
            repeat(row[:_ROW_BEGIN_BYTES]),
            repeat(command.body_index),
            map(command.body_offset.__add__, begins),
            stored,
            range(body, body + count),
            command.checksums[first : first + count],
            sizes,
            repeat(due_ms),
            repeat(lane.source),
            islice(ordinals, 1, None),
            repeat(self._ledger.now_ms // 1000),
        )
        places = range(place + 1, place + 1 + count)
        if count >= _ALIKE_RUN_MIN and not seal_bytes:  # such a row says one size for both
            at, all_offsets = len(self._rows) - 1, command.offsets[last : first + count + 1]
            key = POSITION_KEY.pack(queue_id, place)
            self._alike.append(Alike(at, key, row, all_offsets, array("I", ordinals)))
        self._rows.update(zip(map(POSITION_KEY.pack, repeat(queue_id), places), rows, strict=False))
        if due_ms:
            deadlines = map(DEADLINE_KEY.pack, repeat(due_ms), repeat(queue_id), places)
            self._deadlines.update(dict.fromkeys(deadlines, b""))
        self._bodies += range(body, body + count)

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

    def _numbered_ordinals(
        self, last: int, lane: Lane, data: bytes, start: int, room: int
    ) -> list[int]:
        """Return the ordinals of `last` and of those that follow it in its sequence and are like
        it, and have the sequence advance to the last one.
        """
        command, stream, alike_of = self._command, lane.stream, lane.numbered_alike_of
        first, end_max = last + 1, last + 1 + _ALIKE_RUN_MAX
        fact, bytes_max = command.facts_of[last], command.offsets[first] + room
        reached, sequence, size_min = stream.number, stream.sequence, lane.size_min
        bits, head, ordinal, tail, *_, rest = alike_of(data, start + command.offsets[last])
        ordinals = [ordinal]
        offsets = command.offsets[first : end_max + 1]
        columns = zip(offsets, offsets[1:], command.facts_of[first:end_max], strict=False)
        for begin, end, own_fact in columns:
            if own_fact != fact or end > bytes_max or end - begin < size_min:
                break
            own_bits, own_head, ordinal, own_tail, own, own_sequence, number, previous, own_rest = (
                alike_of(data, start + begin)
            )
            if own_head != head or own_tail != tail or own_rest != rest or own_bits != bits:
                break
            if own & SPECIAL or own_sequence != sequence or not previous <= reached < number:
                break
            reached = number
            ordinals.append(ordinal)
        stream.number = reached
        return ordinals

    def _new_lane(self, k: int, name_end: int) -> Lane | None:
        self._lanes.size += 1
        lane = self._open_lane(k)
        if lane is not None:
            lane.read_to(name_end)
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
            if self._deadlines:
                ledger.state.put_rows(Table.DEADLINE, self._deadlines)
            self._rows, self._bodies, self._alike, self._deadlines = {}, [], [], {}
        return self._rows, self._bodies


def _next_number(lane: Lane, data: bytes, at: int, flags: int) -> int:
    """Return the TxSequenceNumber of a packet, 0 if it is not transactional; below 0 if it must be
    judged, since its lane does not take it, it is not the next one or owes a final acknowledgement.
    """
    if flags & PARTED and not lane.takes(data, at, flags):
        return -1
    if not flags & FLAG_TH:
        return 0
    stream = lane.stream
    _, sequence, number, previous = NUMBERS.unpack_from(data, at + lane.numbers_at)
    is_next = sequence == stream.sequence and previous <= stream.number < number
    return int(number) if is_next and stream.last_access_ms and not flags & _JOURNALED else -1


def _bytes_of(command: EdgeBatch) -> tuple[bytes, int]:
    """Return bytes that hold the packets, and where the packets begin in them.

    A decoded command's view lies in its entry at `body_offset`: then nothing is copied.
    """
    packets, begin = command.packets, command.body_offset
    whole = packets.obj
    if isinstance(whole, bytes) and len(whole) >= begin + len(packets):
        first = slice(begin, begin + DESTINATION_AT)
        if whole[first] == packets[:DESTINATION_AT]:
            return whole, begin
    return bytes(packets), 0
