"""A snapshot on a stream of its own: chunks in flight, progress back, resume after a break.

The connection is its own as well: bulk data in the sockets of the ordinary traffic would
delay heartbeats and cause elections.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from raft.cancellation import raise_if_cancelled
from raft.machine import SnapshotSource
from raft.pb.peer_pb2 import SnapshotChunk, SnapshotOffer, SnapshotPart, SnapshotProgress
from raft.transport.metrics import PeerMetrics
from raft.transport.peer import BROKEN
from raft.transport.transport import TransportEvents
from raft.types import SNAPSHOT_REFUSED, Configuration, GroupId, NodeId, SnapshotMeta

logger = logging.getLogger(__name__)

SNAPSHOT_CHUNK_BYTES = 512 * 1024
SNAPSHOT_CHUNKS_IN_FLIGHT = 8
SNAPSHOT_IDENTITY_MAX_BYTES = 64
SNAPSHOT_ATTEMPTS_MAX = 5
"""Streams that may break in a row without any progress."""
SNAPSHOT_RETRY_MS = 200


class SnapshotCall:
    """The caller's end of the stream; `read` returns None at the end."""

    def __init__(
        self,
        read: Callable[[], Awaitable[SnapshotProgress | None]],
        write: Callable[[SnapshotPart], Awaitable[None]],
    ) -> None:
        self.read = read
        self.write = write


class SnapshotService:
    """The called node's end of the stream; `read` returns None at the end."""

    def __init__(
        self,
        read: Callable[[], Awaitable[SnapshotPart | None]],
        write: Callable[[SnapshotProgress], Awaitable[None]],
    ) -> None:
        self.read = read
        self.write = write


class SnapshotSender:
    """Sends one snapshot to one peer."""

    def __init__(
        self,
        group: GroupId,
        meta: SnapshotMeta,
        source: SnapshotSource,
        dial: Callable[[], AbstractAsyncContextManager[SnapshotCall]],
        metrics: PeerMetrics,
    ) -> None:
        self._offer = _offer(group, meta)
        self._size_bytes = meta.size_bytes
        self._source = source
        self._dial = dial
        self._metrics = metrics
        self._progress_bytes = 0

    async def run(self) -> bool:
        """Send all of it, over several streams if needed; return whether the peer has it."""
        attempts = 0
        while attempts < SNAPSHOT_ATTEMPTS_MAX:
            before = self._progress_bytes
            try:
                async with self._dial() as call:
                    return await self._transfer(call)
            except (*BROKEN, asyncio.CancelledError) as error:
                raise_if_cancelled()
                logger.info("snapshot stream broke at byte %d: %r", self._progress_bytes, error)
            attempts = 0 if self._progress_bytes > before else attempts + 1
            await asyncio.sleep(SNAPSHOT_RETRY_MS / 1000)
        return False

    async def _transfer(self, call: SnapshotCall) -> bool:
        await call.write(SnapshotPart(offer=self._offer))
        progress = await _progress(call)
        offset = progress.wanted_offset
        in_flight: deque[int] = deque()  # where each sent chunk ends
        while not progress.is_refused and progress.wanted_offset < self._size_bytes:
            while offset < self._size_bytes and len(in_flight) < SNAPSHOT_CHUNKS_IN_FLIGHT:
                offset += await self._send_chunk(call, offset)
                in_flight.append(offset)
            progress = await _progress(call)
            if progress.wanted_offset != in_flight.popleft() and not progress.is_refused:
                raise ConnectionError(f"the receiver wants byte {progress.wanted_offset}")
            self._progress_bytes = max(self._progress_bytes, progress.wanted_offset)
        return not progress.is_refused

    async def _send_chunk(self, call: SnapshotCall, offset: int) -> int:
        # In a thread: reading from disk may take milliseconds, which would delay heartbeats.
        data = await asyncio.to_thread(self._source.read, offset, SNAPSHOT_CHUNK_BYTES)
        if not data:
            raise EOFError(f"the snapshot ends at byte {offset} of {self._size_bytes}")
        await call.write(SnapshotPart(chunk=SnapshotChunk(offset=offset, data=data)))
        self._metrics.snapshot_bytes_sent_total += len(data)
        return len(data)


async def receive_snapshot(
    stream: SnapshotService, sender: NodeId, events: TransportEvents, metrics: PeerMetrics
) -> None:
    """Serve one SendSnapshot call. A part that is neither an offer nor in order ends it."""
    first = await stream.read()
    if first is None or first.WhichOneof("part") != "offer":
        return
    offer = first.offer
    meta = SnapshotMeta(
        offer.index,
        offer.term,
        Configuration(tuple(offer.voters), tuple(offer.learners), tuple(offer.retired)),
        offer.size_bytes,
        offer.identity[:SNAPSHOT_IDENTITY_MAX_BYTES],
    )
    offset, data = 0, b""
    while True:
        wanted = events.on_snapshot_chunk(offer.group, sender, meta, offset, data)
        is_refused = wanted == SNAPSHOT_REFUSED
        await stream.write(
            SnapshotProgress(wanted_offset=0 if is_refused else wanted, is_refused=is_refused)
        )
        part = await stream.read()
        if part is None or part.WhichOneof("part") != "chunk":
            return
        offset, data = part.chunk.offset, part.chunk.data
        metrics.snapshot_bytes_received_total += len(data)


def _offer(group: GroupId, meta: SnapshotMeta) -> SnapshotOffer:
    return SnapshotOffer(
        group=group,
        index=meta.index,
        term=meta.term,
        voters=meta.configuration.voters,
        learners=meta.configuration.learners,
        retired=meta.configuration.retired,
        size_bytes=meta.size_bytes,
        identity=meta.identity,
    )


async def _progress(call: SnapshotCall) -> SnapshotProgress:
    progress = await call.read()
    if progress is None:
        raise ConnectionError("the receiver ended the snapshot stream")
    return progress
