"""Envelopes that wait for a peer's stream: limited in bytes, cut into frames."""

from collections import deque

from raft.transport.metrics import PeerMetrics
from raft.transport.wire_format import FRAME_BYTES_SOFT, FRAME_ENVELOPES_MAX, size_bytes
from raft.types import Append, Envelope, GroupId, Heartbeat

SEND_QUEUE_MAX_BYTES = 32 << 20
"""Limit per peer. A slow peer's further envelopes are dropped: Raft repeats what matters."""

assert SEND_QUEUE_MAX_BYTES >= 2 * FRAME_BYTES_SOFT


class SendQueue:
    """The envelopes that wait for one peer."""

    def __init__(self, metrics: PeerMetrics, limit_bytes: int = SEND_QUEUE_MAX_BYTES) -> None:
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[Envelope, int]] = deque()
        self._read_context = 0
        """The read barrier in the last heartbeat sent. Each leadership counts from the start."""

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._waiting)

    def put(self, envelope: Envelope) -> None:
        """Queue the envelope, or drop and count it; an empty queue accepts any size."""
        if type(envelope.body) is Append:
            self._supersede(envelope.group)
        size = size_bytes(envelope)
        metrics = self._metrics
        if self._waiting and metrics.queued_bytes + size > self._limit_bytes:
            self._count_drop(size)
            return
        self._waiting.append((envelope, size))
        metrics.queued_bytes += size

    def _supersede(self, group: GroupId) -> None:
        """Drop heartbeats at the end of the queue: the Append that follows carries the same.

        But its answer waits for a disk, so the first heartbeat with a new read barrier is kept.
        """
        while self._waiting:
            last, size = self._waiting[-1]
            body = last.body
            if type(body) is not Heartbeat or last.group != group:
                return
            if body.read_context != self._read_context:
                return
            self._waiting.pop()
            self._metrics.queued_bytes -= size

    def take(self) -> list[Envelope]:
        """Remove and return what fits into the next frame, at least one envelope."""
        frame: list[Envelope] = []
        frame_bytes = 0
        while self._waiting and frame_bytes < FRAME_BYTES_SOFT and len(frame) < FRAME_ENVELOPES_MAX:
            envelope, size = self._waiting.popleft()
            body = envelope.body
            if type(body) is Heartbeat:
                self._read_context = body.read_context
            frame.append(envelope)
            frame_bytes += size
        self._metrics.queued_bytes -= frame_bytes
        return frame

    def drop(self, envelope: Envelope) -> None:
        """Count an envelope that is dropped because there is no stream."""
        self._count_drop(size_bytes(envelope))

    def clear(self) -> None:
        """Drop and count everything, because the stream broke."""
        for _, size in self._waiting:
            self._count_drop(size)
        self._waiting.clear()
        self._metrics.queued_bytes = 0

    def _count_drop(self, size: int) -> None:
        self._metrics.envelopes_dropped_total += 1
        self._metrics.bytes_dropped_total += size
