"""One stream in memory: its sequence, and the bitmap of its history being read and set.

`qm.model.arrivals.duplicates` stores the rows behind both.
"""

from typing import Final, Protocol

from qm.model.values.records import HistoryBucket, Source
from qm.model.values.rows import HISTORY_BITS, SEQUENCE_IN_ROW

ORDINAL_MASK: Final = (1 << HISTORY_BITS) - 1
"""Mask of the ordinal's bit number in its bitmap."""


class Stream:
    """One decoded stream."""

    __slots__ = (
        "history",
        "last_access_ms",
        "number",
        "rejects",
        "sequence",
        "source",
        "source_guid",
        "stream_id",
    )

    sequence: int
    number: int
    rejects: int
    last_access_ms: int

    def __init__(
        self, source_guid: bytes, source: Source, stream_id: int, row: bytes | None
    ) -> None:
        """`row`: its SEQUENCE_IN row, if there is one."""
        self.source_guid = source_guid
        self.source = source
        self.stream_id = stream_id
        self.history: History | None = None
        self.sequence, self.number, self.rejects, self.last_access_ms = SEQUENCE_IN_ROW.unpack(
            row or bytes(SEQUENCE_IN_ROW.size)
        )

    def admits(self, sequence: int, number: int, previous: int) -> bool:
        """Apply the acceptance test of [MS-MQQB] 3.1.5.8.6; gaps are legal (DESIGN section 8)."""
        if sequence == self.sequence:
            return previous <= self.number < number
        return sequence > self.sequence and previous == 0 and number > 0


class HistoryRows(Protocol):
    """The rows of all histories, as a decoded history reads and writes them."""

    def bucket(self, stream: Stream, sent_time: int) -> HistoryBucket:
        """Return the bucket of a SentTime."""

    def load(self, key: tuple[int, int, int], bucket: HistoryBucket) -> int:
        """Return a bitmap, empty if there is no row."""

    def changed(self, history: "History") -> None:
        """Note that the current bitmap is about to change."""

    def keep(self, history: "History", lifetime_ms: int) -> None:
        """Keep the current bucket for as long as the sender may repeat."""

    def store(self, history: "History") -> None:
        """Store the current bitmap."""


class History:
    """The non-transactional messages of one stream that were accepted before.

    Holds one bitmap, since ordinals mostly follow one another; it is stored before another one is
    loaded and before rows are written. The fast lane (`qm.model.arrivals.fast_arrivals`) reads and
    sets the attributes itself, in the order in which `is_known` and `remember` do.
    """

    __slots__ = (
        "_rows",
        "bitmap",
        "bucket",
        "bucket_key",
        "forget_at_ms",
        "high",
        "is_dirty",
        "key",
        "sent_time",
        "stream",
    )

    def __init__(self, rows: HistoryRows, stream: Stream) -> None:
        self._rows = rows
        self.stream = stream
        self.bucket = HistoryBucket(stream.source_guid, 0, 0)
        self.bucket_key = (stream.stream_id, -1)
        self.key = (stream.stream_id, -1, -1)
        """(stream id, SentTime, ordinal >> HISTORY_BITS) of the current bitmap."""
        self.sent_time = -1
        self.high = -1
        """Ordinal >> HISTORY_BITS of the current bitmap."""
        self.bitmap = 0
        self.forget_at_ms = 0
        """Cluster time until which the current bucket is kept."""
        self.is_dirty = False

    def numbered(self) -> None:
        """Note that the stream has a number now; no bitmap of it was stored before."""
        stream_id = self.stream.stream_id
        self.bucket_key = (stream_id, self.bucket_key[1])
        self.key = (stream_id, *self.key[1:])

    def is_known(self, sent_time: int, ordinal: int) -> bool:
        """Whether this message was accepted before."""
        high = ordinal >> HISTORY_BITS
        if self.high != high or self.sent_time != sent_time:
            self.turn_to(sent_time, high)
        return bool(self.bitmap >> (ordinal & ORDINAL_MASK) & 1)

    def remember(self, ordinal: int, lifetime_ms: int) -> None:
        """Record the message last passed to `is_known`, which was accepted or refused for good.

        `lifetime_ms`: how long after SentTime the sender may repeat it.
        """
        if not self.is_dirty:
            self.touch()
        self.bitmap |= 1 << (ordinal & ORDINAL_MASK)
        self.keep(lifetime_ms)

    def turn_to(self, sent_time: int, high: int) -> None:
        """Load another bitmap."""
        self.close()
        if self.sent_time != sent_time:
            self.bucket = self._rows.bucket(self.stream, sent_time)
            self.bucket_key = (self.stream.stream_id, sent_time)
            self.forget_at_ms = self.bucket.forget_at_ms
        self.sent_time, self.high = sent_time, high
        self.key = (self.stream.stream_id, sent_time, high)
        self.bitmap = self._rows.load(self.key, self.bucket)

    def touch(self) -> None:
        """Note that the current bitmap is about to change; an empty one will become a row."""
        self.is_dirty = True
        self._rows.changed(self)

    def keep(self, lifetime_ms: int) -> None:
        """Keep the current bucket for as long as the sender may repeat."""
        self._rows.keep(self, lifetime_ms)
        self.forget_at_ms = self.bucket.forget_at_ms

    def close(self) -> None:
        """Store the current bitmap; it stays current."""
        if self.is_dirty:
            self.is_dirty = False
            self._rows.store(self)

    def leave(self) -> None:
        """Drop the current bitmap and bucket, whose rows are gone."""
        self.sent_time = self.high = -1
