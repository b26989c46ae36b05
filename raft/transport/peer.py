"""One peer as a transport sees it: its streams, its send queue, its state.

Each node dials every peer whose address it knows, and answers on the streams that peers dialed. So
there are two streams between two nodes, and one is enough: a node whose configuration is too old to
know its leader can still answer it. Both ends write on the stream that the smaller id dialed while
it lasts, since data and replies on one connection share its packets and acknowledgements.

The state is LOST when no stream is left. Then the peer's port is probed with a bare connection:
only a refusal there, by the peer's own kernel, is evidence that the process is gone. Probes are
repeated for a moment, because a dying process closes its streams before its listening socket.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import grpc
import grpc.aio

from raft.cancellation import raise_if_cancelled
from raft.transport.eager import EagerCall
from raft.transport.metrics import PeerMetrics
from raft.transport.send_queue import SendQueue
from raft.transport.transport import TransportEvents
from raft.transport.wire_format import FrameDecoder, FrameEncoder, FrameError
from raft.types import Envelope, Heartbeat, HeartbeatReply, NodeId, PeerState

logger = logging.getLogger(__name__)

PROBE_DELAYS_MS = (0, 1, 2, 4, 8, 16, 32, 64)
DIAL_BACKOFF_FIRST_MS = 20
DIAL_BACKOFF_MAX_MS = 1_000
RIDE_MS = 2
"""How long a heartbeat or its answer waits for another frame to go along with. A frame of its own
costs both ends as much as one of 64 KiB, and a busy leader sends a new commit index per batch."""

QUIET_MS = 20
"""After so long without other envelopes none is expected, and a heartbeat does not wait: it would
only wake an idle node up."""

BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, OSError)
"""The errors of opening, reading or writing when a stream ends meanwhile."""


class Stream:
    """One end of a stream of frames in both directions."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes | None]] | None,
        write: Callable[[bytes], Coroutine[Any, Any, None]],
        cancel: Callable[[], object],
        *,
        is_dialed: bool,
        run: Callable[[Callable[[bytes], None]], Awaitable[None]] | None = None,
        write_now: Callable[[bytes], bool] = lambda frame: False,
    ) -> None:
        """`read` returns None at the end; `cancel` makes both raise, or cancels their callers.

        `run(take)` calls `take` with each frame, until the end; without it `read` is called.
        `write_now` writes a frame without waiting; if that cannot be it returns False.
        """
        self._read = read
        self.run = run or self._read_all
        self.write = write
        self.write_now = write_now
        self.cancel = cancel
        self.is_dialed = is_dialed

    async def _read_all(self, take: Callable[[bytes], None]) -> None:
        assert self._read is not None
        while (frame := await self._read()) is not None:
            take(frame)


class Connector(Protocol):
    """How a peer is reached."""

    def open_stream(self, peer: NodeId, address: str) -> AbstractAsyncContextManager[Stream]:
        """Dial; the peer has accepted when the context enters. Raises what BROKEN lists."""

    async def resolve(self, address: str) -> object:
        """Resolve the address for `is_refused`. Raises OSError."""

    async def is_refused(self, place: object) -> bool:
        """Try a bare connection; return whether the peer's kernel refused it. Raises OSError."""


class Peer:
    """A peer, from its first mention until the transport closes."""

    def __init__(
        self,
        node: NodeId,
        own_id: NodeId,
        encoder: FrameEncoder,
        decoder: FrameDecoder,
        events: TransportEvents,
        connector: Connector,
        metrics: PeerMetrics,
        count_fault: Callable[[NodeId, FrameError], None],
    ) -> None:
        self.node = node
        self.address = ""
        self.metrics = metrics
        self._dials_shared_stream = own_id < node
        self._encoder = encoder
        self._decoder = decoder
        self._events = events
        self._connector = connector
        self._count_fault = count_fault
        self._queue = SendQueue(metrics)
        self._streams: list[Stream] = []
        self._writing: Stream | None = None
        self._state: PeerState | None = None
        self._is_due = False
        """The queue is to be sent now, without waiting for other envelopes to go along with."""
        self._is_writing = False
        self._loop = asyncio.get_running_loop()
        self._ride: asyncio.TimerHandle | None = None
        self._busy_until = 0.0
        self._read_context = 0
        self._probe_task: asyncio.Task[None] | None = None
        self._dial_task: asyncio.Task[None] | None = None
        self._place: object = None

    @property
    def is_idle(self) -> bool:
        """Whether it is neither connected nor dialed, so that the peer may be forgotten."""
        return not self._streams and not self.address

    # Sending

    def send(self, envelope: Envelope) -> None:
        """Queue an envelope for the next `flush`. Without a stream it is dropped: Raft sends a
        newer one later.
        """
        if self._writing is None:
            self._queue.drop(envelope)
            return
        self._queue.put(envelope)
        body = envelope.body
        if type(body) is not Heartbeat and type(body) is not HeartbeatReply:
            self._is_due = True
            self._busy_until = self._loop.time() + QUIET_MS / 1000
        elif body.read_context != self._read_context:
            self._read_context = body.read_context  # a read waits for this
            self._is_due = True
        elif self._loop.time() >= self._busy_until:
            self._is_due = True
        elif self._ride is None:
            self._ride = self._loop.call_later(RIDE_MS / 1000, self._end_ride)

    def _end_ride(self) -> None:
        self._ride = None
        self._is_due = True
        self.flush()

    def flush(self) -> None:
        """Write a frame of what is due, now or when the current write ends."""
        stream = self._writing
        if not self._is_due or self._is_writing or stream is None:
            return
        envelopes = self._queue.take()
        self._is_due = bool(self._queue)
        if not envelopes:  # they went along with an earlier frame
            return
        frame = self._encoder.encode(envelopes)
        self._is_writing = True
        if stream.write_now(frame):
            self._count(len(frame), len(envelopes))
            self._loop.call_soon(self._go_on)  # with what this round of the loop adds
            return

        def written(error: BaseException | None) -> None:
            if error is None:
                self._count(len(frame), len(envelopes))
            else:
                self._write_failed(stream, envelopes, error)
            self._go_on()

        EagerCall(stream.write(frame), written)

    def _count(self, size_bytes: int, envelopes: int) -> None:
        self.metrics.frames_sent_total += 1
        self.metrics.bytes_sent_total += size_bytes
        self.metrics.envelopes_sent_total += envelopes

    def _go_on(self) -> None:
        self._is_writing = False
        self.flush()

    def _write_failed(
        self, stream: Stream, envelopes: Sequence[Envelope], error: BaseException
    ) -> None:
        if not isinstance(error, (*BROKEN, asyncio.CancelledError)):
            logger.error("writing to %s failed", self.node, exc_info=error)
        for envelope in envelopes:
            self._queue.drop(envelope)
        self._detach(stream)
        stream.cancel()

    # Receiving

    async def serve(self, stream: Stream) -> None:
        """Read frames until the stream ends or is cancelled."""
        self._attach(stream)
        try:
            await stream.run(self._take)
        except (*BROKEN, asyncio.CancelledError) as error:
            raise_if_cancelled()
            logger.debug("stream with %s ended: %r", self.node, error)
        finally:
            self._detach(stream)

    def _take(self, frame: bytes) -> None:
        self.metrics.frames_received_total += 1
        self.metrics.bytes_received_total += len(frame)
        try:
            envelopes = self._decoder.decode(frame)
        except FrameError as error:
            self._count_fault(self.node, error)
            return
        self.metrics.envelopes_received_total += len(envelopes)
        self._events.on_envelopes(envelopes)

    def _attach(self, stream: Stream) -> None:
        for old in list(self._streams):
            if old.is_dialed == stream.is_dialed:  # the other end has given up the old one
                self._remove(old)
                old.cancel()
        self._streams.append(stream)
        self.metrics.streams_opened_total += 1
        self._choose()
        if self._state is not PeerState.CONNECTED:
            self._change_state(PeerState.CONNECTED)

    def _detach(self, stream: Stream) -> None:
        if stream not in self._streams:
            return
        self._remove(stream)
        self._choose()
        if self._writing is None:
            self._queue.clear()
            self._change_state(PeerState.LOST)
            self._probe()

    def _remove(self, stream: Stream) -> None:
        self._streams.remove(stream)
        self.metrics.streams_lost_total += 1

    def _choose(self) -> None:
        """Choose the stream to write on: the shared one, else any."""
        self._writing = None
        for stream in self._streams:
            if self._writing is None or stream.is_dialed == self._dials_shared_stream:
                self._writing = stream
        self.flush()

    # Dialing

    def dial(self, address: str, random: Callable[[int], int]) -> None:
        """Keep a stream open to `address` instead of the previous one; "" ends dialing."""
        if address == self.address:
            return
        self.address = address
        self._place = None
        if self._dial_task is not None:
            self._dial_task.cancel()
            self._dial_task = None
        if address:
            self._dial_task = asyncio.create_task(
                self._dial(address, random), name=f"raft dial {self.node}"
            )

    async def _dial(self, address: str, random: Callable[[int], int]) -> None:
        failures = 0
        while True:
            try:
                self._place = await self._connector.resolve(address)
                async with self._connector.open_stream(self.node, address) as stream:
                    failures = 0
                    await self.serve(stream)
            except (*BROKEN, asyncio.CancelledError) as error:
                raise_if_cancelled()
                failures += 1
                self.metrics.dials_failed_total += 1
                logger.debug("dialing %s at %s: %r", self.node, address, error)
                self._probe()
            backoff_ms = min(DIAL_BACKOFF_FIRST_MS << min(failures, 16), DIAL_BACKOFF_MAX_MS)
            await asyncio.sleep((backoff_ms // 2 + random(backoff_ms)) / 1000)

    # State

    def _change_state(self, state: PeerState) -> None:
        self._state = state
        if state is PeerState.REFUSED:
            self.metrics.refusals_seen_total += 1
        logger.info("peer %s: %s", self.node, state.name.lower())
        self._events.on_peer(self.node, state)

    def _probe(self) -> None:
        is_probing = self._probe_task is not None and not self._probe_task.done()
        if self._state is PeerState.LOST and self._place is not None and not is_probing:
            self._probe_task = asyncio.create_task(
                self._look_for_refusal(self._place), name=f"raft probe {self.node}"
            )

    async def _look_for_refusal(self, place: object) -> None:
        for delay_ms in PROBE_DELAYS_MS:
            await asyncio.sleep(delay_ms / 1000)
            if self._state is not PeerState.LOST:
                return
            try:
                is_refused = await self._connector.is_refused(place)
            except OSError as error:
                logger.debug("probing %s: %r", self.node, error)  # this is no evidence of death
                return
            if is_refused and self._state is PeerState.LOST:
                self._change_state(PeerState.REFUSED)
                return

    async def close(self) -> None:
        """End every task and stream; no event follows."""
        tasks = [self._dial_task, self._probe_task]
        for task in tasks:
            if task is not None:
                task.cancel()
        if self._ride is not None:
            self._ride.cancel()
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.cancel()
        self._writing = None
        self._queue.clear()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
