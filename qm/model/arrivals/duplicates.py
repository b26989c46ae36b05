"""Memory of earlier arrivals, by which none is delivered twice (DESIGN section 4).

A stream is (source queue manager, destination format name byte for byte as on the wire).
Transactional messages are judged by the stream's sequence, without a time limit. The others are
judged by (stream, SentTime, ordinal): copies to several queues share an id and differ by stream,
and an ordinal that wrapped has another SentTime. Ordinals are bits of 64-byte rows, so a source
with consecutive ordinals costs one row per 512 messages and second.
"""

from typing import Final

from qm.model.arrivals.incoming_streams import History, Stream
from qm.model.state.bindings import Bindings
from qm.model.state.ledger import Ledger
from qm.model.state.tables import Table
from qm.model.values.limits import (
    ALARM_HISTORY_EVICTED,
    HISTORY_ROWS_PER_SOURCE_MAX,
    SEQUENCE_KEPT_MS,
    SOURCES_MAX,
    SOURCES_PER_ADDRESS_MAX,
    STREAMS_PER_ADDRESS_MAX,
    STREAMS_PER_SOURCE_MAX,
    VERSION_OF_REFUSALS,
)
from qm.model.values.records import AddressUse, HistoryBucket, Restored, Source
from qm.model.values.rows import (
    BUCKET_BY_TIME_KEY,
    HISTORY_BITS,
    SEQUENCE_IN_ROW,
    LeaseKind,
    bucket_by_source_key,
    bucket_by_time_key,
    bucket_of,
    bucket_record_key,
    bucket_rows,
    buckets_of_source,
    high_of,
    history_key,
    number_in,
    number_key,
)
from qm.names.guid import GUID_SIZE_BYTES

ROWS_IN_HAND_MAX: Final = 16_384
"""Bitmaps, buckets and sequences kept decoded between entries."""
ROWS_FORGOTTEN_PER_STEP_MAX: Final = 1_024
_FORGET_GRAIN_MS: Final = 60_000
"""A bucket's end is rounded up to whole minutes, so that it moves rarely."""
_CLOCK_SKEW_MAX_MS: Final = 24 * 3600 * 1000
"""A SentTime further in the future than this does not prolong the memory."""
_BITMAP_BYTES: Final = (1 << HISTORY_BITS) // 8

SOURCE_PREFIX: Final = b"\x00"
"""Precedes a source's GUID in the key of its record."""
STREAM_PREFIX: Final = b"\x01"
"""Precedes a source's GUID and a name in the key of the row with the stream's number."""
STREAM_NAME: Final = b"\x02"
"""Precedes the stream id in the key of the row that names a stream."""
NAME_END: Final = b"\xff"
"""Follows a source's GUID above all names, which begin with their type."""
ADDRESS_PREFIX: Final = b"\x03"
"""Precedes an address in the key of its AddressUse record."""
_STREAM_ADDRESS: Final = b"\x04"
SOURCE_ADDRESS: Final = b"\x05"
"""Precedes a source's GUID in the key of the row that says at which address it is counted."""
META_RESTORED: Final = b"restored"
"""In META, once a StateRestored was applied."""


class Duplicates:
    """The history and the sequences of all streams."""

    def __init__(self, ledger: Ledger, bindings: Bindings) -> None:
        self._ledger = ledger
        self._bindings = bindings
        self._streams: dict[tuple[bytes, bytes], Stream] = {}
        self._streams_by_id: dict[int, Stream] = {}
        self._open: dict[History, None] = {}
        """Histories with a changed bitmap in memory."""
        self._bitmaps: dict[tuple[int, int, int], int] = {}
        self._buckets: dict[tuple[int, int], HistoryBucket] = {}
        self._sources: dict[bytes, Source] = {}
        self._dirty_bitmaps: dict[tuple[int, int, int], bool] = {}
        """Whether they are new: no rows yet."""
        self._dirty_sequences: dict[int, Stream] = {}
        self._dirty_buckets: dict[tuple[int, int], None] = {}
        self._dirty_sources: dict[bytes, None] = {}
        self._grown_sources: dict[bytes, None] = {}
        self._unused: dict[int, tuple[bytes, bytes]] = {}
        """Streams created by this entry of which nothing is remembered: source and name, by id.

        From VERSION_OF_REFUSALS on such a stream has only a temporary number below 0, and no row.
        """
        self._addresses: dict[int, str] = {}
        """Addresses of the sessions that brought them."""
        self._made_count = 0
        """Streams created by this entry."""
        self._unnumbered_buckets: list[tuple[int, int]] = []
        """Decoded buckets of such streams."""
        self._unnumbered_sources: dict[bytes, None] = {}
        """Sources whose streams are all of this kind and that have no number either."""

    def forget(self) -> None:
        """Drop everything derived; only rows remain. Only after `settle`."""
        assert not self._open, "histories that were not written back"
        self._streams.clear()
        self._streams_by_id.clear()
        self._ledger.version += 1
        self._bitmaps.clear()
        self._buckets.clear()
        self._sources.clear()

    # Streams -----------------------------------------------------------------------------

    def stream(self, source_guid: bytes, wire_name: bytes, address: str = "") -> Stream | None:
        """Return the stream of a source and a destination name as sent, created if new.

        A new stream counts at `address`, that of the session which brings it. None: the source has
        STREAMS_PER_SOURCE_MAX names, or there are too many sources, in all or at this address.
        """
        key = (source_guid, wire_name)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._load_stream(source_guid, wire_name, address)
            if stream is not None:
                self._streams[key] = stream
                self._streams_by_id[stream.stream_id] = stream
        return stream

    def _load_stream(self, source_guid: bytes, wire_name: bytes, address: str) -> Stream | None:
        ledger = self._ledger
        key = STREAM_PREFIX + source_guid + wire_name
        row = ledger.state.get(Table.STREAM, key)
        if row is not None:
            stream_id, _ = number_in(row)
            sequence = ledger.state.get(Table.SEQUENCE_IN, row)
            return Stream(source_guid, self._known_source(source_guid), stream_id, sequence)
        is_counted = ledger.behaviour >= VERSION_OF_REFUSALS
        if is_counted and not self._has_room(source_guid, address):
            return None
        source = self._source(source_guid)
        if source is None or source.stream_count >= STREAMS_PER_SOURCE_MAX:
            return None
        source.stream_count += 1
        self._made_count += 1
        stream = Stream(source_guid, source, -self._made_count, None)
        self._unused[stream.stream_id] = (source_guid, wire_name)
        self._addresses[stream.stream_id] = address
        if not is_counted:
            self._number(stream)
            self._unused[stream.stream_id] = (source_guid, wire_name)
        return stream

    def _number(self, stream: Stream) -> None:
        """Assign numbers to a stream and its source, now that something of it is remembered."""
        ledger, unnumbered = self._ledger, stream.stream_id
        source_guid, wire_name = self._unused.pop(unnumbered)
        address = self._addresses.pop(unnumbered)
        counters, source = ledger.counters, stream.source
        is_new = source_guid in self._unnumbered_sources
        if source_guid in self._unnumbered_sources:
            del self._unnumbered_sources[source_guid]
            counters.source_count += 1
            counters.source_id += 1
            source.source_id = counters.source_id
        counters.stream_id += 1
        stream.stream_id = counters.stream_id
        row = number_key(stream.stream_id)
        ledger.state.put(Table.STREAM, STREAM_PREFIX + source_guid + wire_name, row)
        ledger.state.put(Table.STREAM, STREAM_NAME + row, source_guid + wire_name)
        if ledger.behaviour >= VERSION_OF_REFUSALS:
            place = address.encode()
            ledger.state.put(Table.STREAM, _STREAM_ADDRESS + row, place)
            if is_new:
                ledger.state.put(Table.STREAM, SOURCE_ADDRESS + source_guid, place)
            self._count_at(place, is_new, 1)
        self._dirty_sources[source_guid] = None
        if self._streams_by_id.pop(unnumbered, None) is not None:
            self._streams_by_id[stream.stream_id] = stream
        if stream.history is not None:
            stream.history.numbered()
        for key in [key for key in self._unnumbered_buckets if key[0] == unnumbered]:
            self._unnumbered_buckets.remove(key)
            self._buckets[stream.stream_id, key[1]] = self._buckets.pop(key)

    def _use_at(self, address: bytes) -> AddressUse:
        key = ADDRESS_PREFIX + address
        return self._ledger.record(Table.STREAM, key, AddressUse) or AddressUse()

    def _has_room(self, source_guid: bytes, address: str) -> bool:
        use = self._use_at(address.encode())
        is_new = self._find_source(source_guid) is None
        return use.stream_count < STREAMS_PER_ADDRESS_MAX and not (
            is_new and use.source_count >= SOURCES_PER_ADDRESS_MAX
        )

    def _count_at(self, address: bytes, sources: int, streams: int) -> None:
        use = self._use_at(address)
        use.source_count += sources
        use.stream_count += streams
        if use.source_count or use.stream_count:
            self._ledger.put_record(Table.STREAM, ADDRESS_PREFIX + address, use)
        else:
            self._ledger.state.delete(Table.STREAM, ADDRESS_PREFIX + address)

    def _discharge(self, prefix_and_key: bytes, sources: int, streams: int) -> None:
        """Count one fewer at its address; those older than VERSION_OF_REFUSALS are not counted."""
        address = self._ledger.state.get(Table.STREAM, prefix_and_key)
        if address is not None:
            self._ledger.state.delete(Table.STREAM, prefix_and_key)
            self._count_at(address, sources, streams)

    def sequence_due(self, stream_id: int) -> None:
        """Forget a sequence that was silent for SEQUENCE_KEPT_MS; else check again later."""
        self.flush()
        state, row_key = self._ledger.state, number_key(stream_id)
        row = state.get(Table.SEQUENCE_IN, row_key)
        if row is None:
            return
        end_ms = SEQUENCE_IN_ROW.unpack(row)[3] + SEQUENCE_KEPT_MS
        if end_ms > self._ledger.now_ms:
            self._ledger.put_lease(end_ms, LeaseKind.SEQUENCE, row_key)
            return
        self._forget_sequence(stream_id)

    def _forget_sequence(self, stream_id: int) -> None:
        """Forget a sequence, and its stream if it has no history."""
        state, row_key = self._ledger.state, number_key(stream_id)
        state.delete(Table.SEQUENCE_IN, row_key)
        stream = self._streams_by_id.pop(stream_id, None)
        if stream is not None:
            if stream.history is not None:
                stream.history.leave()
            name = state.get(Table.STREAM, STREAM_NAME + row_key)
            assert name is not None, "a sequence without its stream"
            del self._streams[name[:GUID_SIZE_BYTES], name[GUID_SIZE_BYTES:]]
            self._ledger.version += 1
        self._forget_stream(stream_id)

    def forget_source(self, source_guid: bytes, row_count_max: int) -> bool:
        """Forget at most so many rows of a source; return whether there are more.

        Its messages are then new to this queue manager: what it sends again is delivered again.
        """
        self.flush()
        state = self._ledger.state
        low, high = STREAM_PREFIX + source_guid, STREAM_PREFIX + source_guid + NAME_END
        for _ in range(row_count_max):
            streams = state.scan(Table.STREAM, low, high, 1)
            if not streams:
                return False
            stream_id, _ = number_in(streams[0][1])
            first = bucket_record_key(stream_id, 0)
            last = bucket_record_key(stream_id, 0xFFFF_FFFF) + b"\0"
            buckets = state.scan(Table.HISTORY_BUCKET, first, last, 1)
            if buckets:
                sent_time = int.from_bytes(buckets[0][0][-4:], "big")
                self._forget_rows((stream_id, sent_time), 1)
                self.flush()
            else:
                self._forget_sequence(stream_id)
        return bool(state.scan(Table.STREAM, low, high, 1))

    def _used(self, stream: Stream) -> None:
        """Note that something of a stream is remembered."""
        if stream.stream_id < 0:
            self._number(stream)
        elif self._unused:
            self._unused.pop(stream.stream_id, None)

    def _forget_stream(self, stream_id: int) -> None:
        """Forget a stream of which nothing is remembered any more, to make room for others.

        A sequence is remembered for as long as its sender is active (`sequence_due`).
        """
        state, row = self._ledger.state, number_key(stream_id)
        low = bucket_record_key(stream_id, 0)
        high = bucket_record_key(stream_id, 0xFFFF_FFFF) + b"\0"
        has_history = state.scan(Table.HISTORY_BUCKET, low, high, 1)
        if has_history or state.get(Table.SEQUENCE_IN, row) is not None:
            return
        name = state.get(Table.STREAM, STREAM_NAME + row)
        assert name is not None, "a history without its stream"
        self._drop_stream(name[:GUID_SIZE_BYTES], name[GUID_SIZE_BYTES:], stream_id)
        # Code that holds the stream must look it up again: it would get another number.
        self._ledger.version += 1

    def _drop_stream(self, source_guid: bytes, wire_name: bytes, stream_id: int) -> None:
        """Remove a stream, and its source when that was the last one."""
        state = self._ledger.state
        self._streams.pop((source_guid, wire_name), None)
        self._streams_by_id.pop(stream_id, None)
        source = self._known_source(source_guid)
        source.stream_count -= 1
        if source_guid in self._unnumbered_sources:
            if not source.stream_count:
                del self._sources[source_guid], self._unnumbered_sources[source_guid]
            return
        self._dirty_sources[source_guid] = None
        if stream_id > 0:
            state.delete(Table.STREAM, STREAM_NAME + number_key(stream_id))
            state.delete(Table.STREAM, STREAM_PREFIX + source_guid + wire_name)
            self._discharge(_STREAM_ADDRESS + number_key(stream_id), 0, -1)
        if not source.stream_count:
            state.delete(Table.STREAM, SOURCE_PREFIX + source_guid)
            self._discharge(SOURCE_ADDRESS + source_guid, -1, 0)
            self._bindings.unbind(source_guid)
            del self._sources[source_guid], self._dirty_sources[source_guid]
            self._ledger.counters.source_count -= 1

    def admits(self, stream: Stream, sequence: int, number: int, previous: int) -> bool:
        """Whether a transactional message is the next one of its stream."""
        return stream.admits(sequence, number, previous) or self._resumes(stream, sequence, number)

    def _resumes(self, stream: Stream, sequence: int, number: int) -> bool:
        """Whether this is the first message that a sender has for a restored state.

        The lost state acknowledged more than this one knows; the sender has dropped that and begins
        with the oldest message that was not acknowledged. A stream unknown to this state may have
        begun in between, which is assumed for as long as duplicates are remembered.
        """
        restored = self._ledger.record(Table.META, META_RESTORED, Restored)
        manager = self._ledger.manager
        if restored is None or manager is None or stream.last_access_ms >= restored.restored_ms:
            return False
        is_known = stream.last_access_ms > 0
        if not is_known and self._ledger.now_ms - restored.restored_ms > (
            manager.duplicate_horizon_ms
        ):
            return False
        return number > 0 and (sequence, number) > (stream.sequence, stream.number)

    def advance(self, stream: Stream, sequence: int, number: int) -> None:
        """Use up the number of a message that was accepted, or refused for good."""
        self._used(stream)
        is_first = not stream.last_access_ms
        if is_first and self._ledger.behaviour >= VERSION_OF_REFUSALS:
            due_ms = self._ledger.now_ms + SEQUENCE_KEPT_MS
            self._ledger.put_lease(due_ms, LeaseKind.SEQUENCE, number_key(stream.stream_id))
        stream.sequence, stream.number, stream.rejects = sequence, number, 0
        stream.last_access_ms = self._ledger.now_ms
        self._dirty_sequences[stream.stream_id] = stream

    def reject(self, stream: Stream) -> None:
        """Count a message that is out of order; nothing else changes (QB-A3).

        It is not counted for a stream of which nothing else is remembered: refusals leave no trace.
        """
        if stream.stream_id < 0:
            return
        self._used(stream)
        stream.rejects = min(stream.rejects + 1, 0xFFFF_FFFF)
        stream.last_access_ms = self._ledger.now_ms
        self._dirty_sequences[stream.stream_id] = stream

    # History -----------------------------------------------------------------------------

    def history(self, stream: Stream) -> History:
        """Return the history of one stream."""
        if stream.history is None:
            stream.history = History(self, stream)
        return stream.history

    def load(self, key: tuple[int, int, int], bucket: HistoryBucket) -> int:
        """Return the bitmap of (stream id, SentTime, ordinal >> HISTORY_BITS)."""
        bitmap = self._bitmaps.get(key)
        if bitmap is None:
            bitmap = 0
            # Ordinals mostly rise, and then no row has to be looked up.
            if bucket.row_count and key[2] <= bucket.highest:
                row = self._ledger.state.get(Table.HISTORY, history_key(*key))
                bitmap = int.from_bytes(row, "little") if row else 0
        return bitmap

    def changed(self, history: History) -> None:
        """Prepare for a new ordinal in the current bitmap; its first ordinal makes it a row."""
        self._open[history] = None
        if history.bitmap:
            return
        self._used(history.stream)
        bucket, stream = history.bucket, history.stream
        if not bucket.row_count or history.high > bucket.highest:
            bucket.highest = history.high
        bucket.row_count += 1
        stream.source.history_row_count += 1
        self._dirty_bitmaps[history.key] = True
        self._dirty_buckets[history.bucket_key] = None
        self._dirty_sources[stream.source_guid] = None
        self._grown_sources[stream.source_guid] = None

    def store(self, history: History) -> None:
        """Store a changed bitmap."""
        del self._open[history]
        self._bitmaps[history.key] = history.bitmap
        self._dirty_bitmaps.setdefault(history.key, False)

    def keep(self, history: History, lifetime_ms: int) -> None:
        """Keep the current bucket for as long after its SentTime as the sender may repeat."""
        now_ms, bucket = self._ledger.now_ms, history.bucket
        begin_ms = min(max(history.sent_time * 1000, now_ms), now_ms + _CLOCK_SKEW_MAX_MS)
        end_ms = -(-(begin_ms + lifetime_ms) // _FORGET_GRAIN_MS) * _FORGET_GRAIN_MS
        if end_ms > bucket.forget_at_ms:
            self._move_bucket(history.stream.source_guid, history.bucket_key, bucket, end_ms)

    def bucket(self, stream: Stream, sent_time: int) -> HistoryBucket:
        """Return the bucket of one SentTime, created if there is none."""
        key = (stream.stream_id, sent_time)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = (
                self._ledger.record(Table.HISTORY_BUCKET, bucket_record_key(*key), HistoryBucket)
                if stream.stream_id > 0
                else None
            )
            if bucket is None:
                bucket = HistoryBucket(stream.source_guid, 0, 0)
            self._buckets[key] = bucket
            if stream.stream_id < 0:
                self._unnumbered_buckets.append(key)
        return bucket

    def _move_bucket(
        self, source_guid: bytes, key: tuple[int, int], bucket: HistoryBucket, forget_at_ms: int
    ) -> None:
        state = self._ledger.state
        source_id = self._known_source(source_guid).source_id
        if bucket.forget_at_ms:
            self._delete_indexes(source_id, key, bucket.forget_at_ms)
        bucket.forget_at_ms = forget_at_ms
        counters = self._ledger.counters
        counters.memories_from_ms = min(counters.memories_from_ms, forget_at_ms)
        self._dirty_buckets[key] = None
        state.put(Table.HISTORY_BUCKET, bucket_by_time_key(forget_at_ms, *key), b"")
        by_source = bucket_by_source_key(source_id, forget_at_ms, *key)
        state.put(Table.HISTORY_BUCKET, by_source, b"")

    def _delete_indexes(self, source_id: int, key: tuple[int, int], forget_at_ms: int) -> None:
        state = self._ledger.state
        state.delete(Table.HISTORY_BUCKET, bucket_by_time_key(forget_at_ms, *key))
        by_source = bucket_by_source_key(source_id, forget_at_ms, *key)
        state.delete(Table.HISTORY_BUCKET, by_source)

    # Sources and their limit -------------------------------------------------------------

    def _source(self, source_guid: bytes) -> Source | None:
        """Return a source, created if new; None if there are too many."""
        source = self._find_source(source_guid)
        if source is None:
            unnumbered = self._unnumbered_sources
            if self._ledger.counters.source_count + len(unnumbered) >= SOURCES_MAX:
                return None
            unnumbered[source_guid] = None
            source = self._sources[source_guid] = Source(0)
        return source

    def _find_source(self, source_guid: bytes) -> Source | None:
        source = self._sources.get(source_guid)
        if source is None:
            source = self._ledger.record(Table.STREAM, SOURCE_PREFIX + source_guid, Source)
            if source is not None:
                self._sources[source_guid] = source
        return source

    def _known_source(self, source_guid: bytes) -> Source:
        source = self._find_source(source_guid)
        assert source is not None, "a stream without its source"
        return source

    def _make_room(self, source_guid: bytes) -> None:
        """Forget the oldest rows of a source that has too many (DESIGN section 4)."""
        source = self._find_source(source_guid)
        if source is None:
            return
        excess = source.history_row_count - HISTORY_ROWS_PER_SOURCE_MAX
        if excess <= 0:
            return
        self._ledger.applied.alarms.append(ALARM_HISTORY_EVICTED)
        from_ms = self._ledger.counters.memories_from_ms
        low, high = buckets_of_source(source.source_id, from_ms)
        while excess > 0:
            rows = self._ledger.state.scan(Table.HISTORY_BUCKET, low, high, 1)
            if not rows:
                return
            low = rows[0][0]
            _, stream_id, sent_time = bucket_of(low)
            excess -= self._forget_rows((stream_id, sent_time), excess)

    def forget_due(self, row_count_max: int = ROWS_FORGOTTEN_PER_STEP_MAX) -> int:
        """Forget what no sender may repeat any more; return the number of deleted rows."""
        gone, counters = 0, self._ledger.counters
        low = BUCKET_BY_TIME_KEY.pack(b"\x00", counters.memories_from_ms, 0, 0)
        high = BUCKET_BY_TIME_KEY.pack(b"\x00", self._ledger.now_ms + 1, 0, 0)
        while gone < row_count_max:
            due = self._ledger.state.scan(Table.HISTORY_BUCKET, low, high, 1)
            if not due:
                counters.memories_from_ms = self._ledger.now_ms + 1
                break
            low = due[0][0]
            counters.memories_from_ms, stream_id, sent_time = bucket_of(low)
            gone += self._forget_rows((stream_id, sent_time), row_count_max - gone)
        return gone

    def _forget_rows(self, key: tuple[int, int], row_count_max: int) -> int:
        """Delete up to `row_count_max` bitmaps of a bucket, and the bucket when it is empty."""
        self.flush()
        state = self._ledger.state
        found = state.scan(Table.HISTORY, *bucket_rows(*key), row_count_max)
        for row_key, _ in found:
            state.delete(Table.HISTORY, row_key)
            self._bitmaps.pop((*key, high_of(row_key)), None)
        stream = self._streams_by_id.get(key[0])
        if stream is not None and stream.history is not None and stream.history.sent_time == key[1]:
            stream.history.leave()
        bucket = self._ledger.record(Table.HISTORY_BUCKET, bucket_record_key(*key), HistoryBucket)
        assert bucket is not None, "an index row without its bucket"
        bucket.row_count -= len(found)
        self._buckets.pop(key, None)
        source = self._known_source(bucket.source_guid)
        source.history_row_count -= len(found)
        self._dirty_sources[bucket.source_guid] = None
        if bucket.row_count == 0 or not found:
            state.delete(Table.HISTORY_BUCKET, bucket_record_key(*key))
            self._delete_indexes(source.source_id, key, bucket.forget_at_ms)
            self._forget_stream(key[0])
        else:
            self._ledger.put_record(Table.HISTORY_BUCKET, bucket_record_key(*key), bucket)
        return max(len(found), 1)

    # Writing back ------------------------------------------------------------------------

    def finish(self) -> frozenset[int]:
        """End an entry: keep every source within its limit.

        A stream created for messages of which nothing is remembered leaves no trace: refusals must
        not fill the state. Returns the ids of such streams.
        """
        unused = frozenset(self._unused)
        for stream_id, (source_guid, wire_name) in self._unused.items():
            self._drop_stream(source_guid, wire_name, stream_id)
        self._unused.clear()
        self._addresses.clear()
        self._made_count = 0
        for key in self._unnumbered_buckets:
            del self._buckets[key]
        self._unnumbered_buckets.clear()
        for source_guid in self._grown_sources:
            self._make_room(source_guid)
        self._grown_sources.clear()
        return unused

    def settle(self) -> None:
        """Write back what entries changed."""
        self.flush()
        in_hand = len(self._bitmaps) + len(self._buckets) + len(self._streams)
        if in_hand > ROWS_IN_HAND_MAX:
            self.forget()

    def flush(self) -> None:
        """Write rows back."""
        for history in list(self._open):
            history.close()
        ledger, state = self._ledger, self._ledger.state
        new_rows: dict[bytes, bytes] = {}
        for bitmap_key, is_new in self._dirty_bitmaps.items():
            row_key = history_key(*bitmap_key)
            bitmap = self._bitmaps[bitmap_key].to_bytes(_BITMAP_BYTES, "little")
            if is_new:
                new_rows[row_key] = bitmap
            else:
                state.put(Table.HISTORY, row_key, bitmap)
        state.put_rows(Table.HISTORY, new_rows)
        for bucket_key in self._dirty_buckets:
            ledger.put_record(
                Table.HISTORY_BUCKET,
                bucket_record_key(*bucket_key),
                self._buckets[bucket_key],
            )
        for source_guid in self._dirty_sources:
            ledger.put_record(Table.STREAM, SOURCE_PREFIX + source_guid, self._sources[source_guid])
        for stream in self._dirty_sequences.values():
            state.put(
                Table.SEQUENCE_IN,
                number_key(stream.stream_id),
                SEQUENCE_IN_ROW.pack(
                    stream.sequence, stream.number, stream.rejects, stream.last_access_ms
                ),
            )
        for dirty in (
            self._dirty_bitmaps,
            self._dirty_buckets,
            self._dirty_sources,
            self._dirty_sequences,
        ):
            dirty.clear()
