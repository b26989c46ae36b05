"""The end of the log, where records are written: all of a batch, or none of it."""

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from raft.log.files import Buffer, Directory
from raft.log.record import (
    LAST_ENTRY_KIND,
    RECORD_HEADER_BYTES,
    encode_header,
    padding,
    record_bytes,
)
from raft.log.segment import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAX_BYTES,
    Segment,
    SegmentHeader,
    encode_segment_header,
    segment_name,
)
from raft.log.spares import SparePool

Record: TypeAlias = tuple[int, int, int, bytes]
"""Kind, term, index, data."""


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The place of a record that was written."""

    segment: Segment
    offset: int
    kind: int
    term: int
    index: int
    data: bytes


class Tail:
    """The segment that is appended to, and the checksum that the next record links to."""

    def __init__(
        self,
        directory: Directory,
        spares: SparePool,
        segment: Segment,
        checksum: int,
        next_incarnation: int,
        reserve_bytes: int,
    ) -> None:
        self.segment = segment
        self.checksum = checksum
        """Checksum of the last record."""
        self._directory = directory
        self._spares = spares
        self._next_incarnation = next_incarnation
        self._reserve_bytes = reserve_bytes

    def write(
        self,
        records: Sequence[Record],
        synced: tuple[int, int],
        checkpoint: Record,
    ) -> list[Placed]:
        """Write records, in additional segments when they do not fit, and return their places.

        `synced` is the (index, position) known to be synced. Each additional segment begins with
        `checkpoint`, so that it does not depend on the earlier ones. Raises OSError; the log is
        then unchanged.
        """
        batch = _Batch(self, synced)
        try:
            for record in records:
                self._add(batch, record, checkpoint)
            batch.flush()
        except OSError:
            self._undo(batch)
            raise
        for segment, end in batch.filled:
            segment.end = end
        batch.segment.end = batch.end
        self.segment, self.checksum = batch.segment, batch.checksum
        return batch.placed

    def _add(self, batch: "_Batch", record: Record, checkpoint: Record) -> None:
        """Add a record to the current segment, or to a new one if it does not fit."""
        reserve = self._reserve_bytes if record[0] <= LAST_ENTRY_KIND else 0
        if batch.end + record_bytes(len(record[3])) + reserve > batch.size_bytes:
            batch.flush()
            self._roll(batch, record, checkpoint)
        batch.add(record)

    def _roll(self, batch: "_Batch", record: Record, checkpoint: Record) -> None:
        """Continue in a new segment that has room for the checkpoint and the record."""
        bytes_needed = SEGMENT_HEADER_BYTES + self._reserve_bytes
        for _, _, _, data in (checkpoint, record):
            bytes_needed += record_bytes(len(data))
        if bytes_needed > SEGMENT_MAX_BYTES:
            raise ValueError(f"a record of {len(record[3])} bytes is larger than any segment")
        spare = self._spares.take(bytes_needed)
        last = batch.segment.header
        header = SegmentHeader(
            group=last.group,
            incarnation=self._next_incarnation,
            base_position=last.base_position + last.size_bytes,
            size_bytes=spare.size_bytes,
            salt=last.salt,
            previous=batch.checksum,
        )
        try:
            self._directory.rename(spare.name, segment_name(header.incarnation))
        except OSError:
            self._spares.put(spare)
            raise
        self._next_incarnation += 1
        batch.continue_in(Segment(spare.file, header, first_index=0))
        batch.add(checkpoint)

    def _undo(self, batch: "_Batch") -> None:
        """Remove what a recovery would find of the batch."""
        for segment in batch.new_segments():
            self._spares.recycle(segment)
        # Errors do not matter: such records were never acknowledged, only unexpected.
        with contextlib.suppress(OSError):
            self.segment.file.pwrite(bytes(RECORD_HEADER_BYTES), self.segment.end)


class _Batch:
    """Records that are being written to the files."""

    def __init__(self, tail: Tail, synced: tuple[int, int]) -> None:
        self.segment = tail.segment
        self.size_bytes = tail.segment.header.size_bytes
        self.end = tail.segment.end
        self.checksum = tail.checksum
        self.placed: list[Placed] = []
        self.filled: list[tuple[Segment, int]] = []
        """Segments before the current one, and the ends of their records."""
        self._synced = synced
        self._buffers: list[Buffer] = []
        self._written_end = self.end

    def add(self, record: Record) -> None:
        """Add a record after the last one; the caller has checked that it fits."""
        kind, term, index, data = record
        segment, end, length = self.segment, self.end, len(data)
        header, self.checksum = encode_header(
            segment.keys, kind, term, index, data, self._synced, self.checksum
        )
        self._buffers += (header, data, padding(length))
        self.placed.append(Placed(segment, end, kind, term, index, data))
        self.end = end + record_bytes(length)

    def flush(self) -> None:
        """Write what waits. Raises OSError."""
        if self._buffers:
            self.segment.file.pwritev(self._buffers, self._written_end)
            self._buffers = []
            self._written_end = self.end

    def continue_in(self, segment: Segment) -> None:
        """Continue in a new segment; everything for the previous one is written."""
        self.filled.append((self.segment, self.end))
        self.segment = segment
        self.size_bytes = segment.header.size_bytes
        self._buffers = [encode_segment_header(segment.header)]
        self._written_end = 0
        self.end = segment.end

    def new_segments(self) -> list[Segment]:
        """Return the segments that this batch added."""
        segments = [segment for segment, _ in self.filled] + [self.segment]
        return segments[1:]
