"""Relay streams at the edge: `qm.cluster.relay.RelayStream` to a leader on this or another node."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from typing_extensions import override

from qm.cluster.relay import (
    OVERLAP_MIN_BYTES,
    RELAY_BATCHES_MAX,
    RELAY_MAX_BYTES,
    LatePackets,
    RelayEvents,
    RelayStream,
    SessionFacts,
)
from qm.model.values.effects import Outcome
from qm.node.relay.channels import Unreachable
from qm.node.relay.frame_writer import FrameWriter
from qm.node.relay.leader_stream import LeaderStreams, StreamOver
from qm.node.relay.outcome_codec import decode_outcome
from qm.pb import relay_pb2
from qm.store.codec import inspect
from raft.cancellation import raise_if_cancelled

if TYPE_CHECKING:
    from qm.pb.relay_pb2_grpc import RelayAsyncStub

BROKEN: Final = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, OSError)
"""What opening, reading or writing raises when the stream has ended."""
_EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]


class Room:
    """How much a stream may still send."""

    def __init__(self) -> None:
        self._sizes: deque[int] = deque()
        self._bytes = 0

    def left(self) -> int:
        """Return how many more batches may be sent."""
        return 0 if self._bytes >= RELAY_MAX_BYTES else RELAY_BATCHES_MAX - len(self._sizes)

    @property
    def unanswered(self) -> int:
        """Number of batches without an outcome."""
        return len(self._sizes)

    def take(self, size: int) -> None:
        """A batch is sent."""
        self._sizes.append(size)
        self._bytes += size

    def give_back(self) -> None:
        """The oldest batch has its outcome."""
        self._bytes -= self._sizes.popleft()


class LocalStream(RelayStream):
    """The direct stream of the edge on the leader's own node. Every call of its events comes from
    the event loop, never from within one of its own methods.
    """

    def __init__(self, streams: LeaderStreams, edge: str, events: RelayEvents) -> None:
        self._events = events
        self._room = Room()
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._is_leader_free = streams.is_free
        self._stream = streams.open(edge, self)

    @property
    @override
    def room(self) -> int:
        return self._room.left()

    @property
    @override
    def least_bytes(self) -> int:
        return 0 if self._is_leader_free() else OVERLAP_MIN_BYTES

    @override
    def send(self, number: int, payload: bytes) -> None:
        self._room.take(len(payload))
        self._guarded(self._stream.send, number, inspect(payload))

    @override
    def session_opened(self, session: SessionFacts) -> None:
        self._guarded(self._stream.session_opened, session)

    @override
    def session_closed(self, number: int) -> None:
        self._stream.session_closed(number)

    @override
    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        self._stream.late_result(session, tokens, is_delivered=is_delivered)

    @override
    def close(self) -> None:
        self._is_over = True
        self._stream.close()

    def _guarded(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except StreamOver as error:
            self._stream.end(str(error))

    # RelayEvents, from the leader's end

    def on_free(self) -> None:
        """Pass it on."""
        if not self._is_over:
            self._events.on_free()

    def on_outcome(self, number: int, index: int, outcome: Outcome) -> None:
        """Pass it on; the leader's end calls from a task of its own."""
        if not self._is_over:
            self._room.give_back()
            self._events.on_outcome(number, index, outcome)

    def on_late_packets(self, packets: LatePackets) -> None:
        """Pass it on, but later: the edge may be within a call now."""
        self._loop.call_soon(self._tell_late_packets, packets)

    def _tell_late_packets(self, packets: LatePackets) -> None:
        if not self._is_over:
            self._events.on_late_packets(packets)

    def on_end(self, reason: str) -> None:
        """Pass it on later, too."""
        self._loop.call_soon(self._tell_end, reason)

    def _tell_end(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._events.on_end(reason)


class RemoteStream(RelayStream):
    """A stream to the leader on another node. Waiting frames are written together."""

    def __init__(
        self,
        edge: str,
        term: int,
        stub: Callable[[], Awaitable["RelayAsyncStub"]],
        events: RelayEvents,
        on_over: Callable[["RemoteStream"], None],
    ) -> None:
        self.term: Final = term
        self._events = events
        self._on_over = on_over
        self._room = Room()
        self._early: list[_Frame] = []
        """Frames written before the call exists."""
        self._writer: FrameWriter[_Frame] | None = None
        self._is_over = False
        hello = relay_pb2.Hello(edge=edge, term=term)
        self._write(relay_pb2.EdgeFrame(hello=hello))
        self._task = asyncio.create_task(self._run(stub), name=f"relay stream in term {term}")

    @property
    @override
    def room(self) -> int:
        return self._room.left()

    @property
    @override
    def least_bytes(self) -> int:
        """Always the same: what is in flight at the leader is not known here."""
        return self._room.unanswered * OVERLAP_MIN_BYTES

    @override
    def send(self, number: int, payload: bytes) -> None:
        self._room.take(len(payload))
        self._write((number, payload))

    @override
    def session_opened(self, session: SessionFacts) -> None:
        opened = relay_pb2.SessionOpened(
            number=session.number,
            queue_manager=session.queue_manager,
            address=session.address,
            opened_ms=session.opened_ms,
        )
        self._write(relay_pb2.EdgeFrame(session_opened=opened))

    @override
    def session_closed(self, number: int) -> None:
        closed = relay_pb2.SessionClosed(number=number)
        self._write(relay_pb2.EdgeFrame(session_closed=closed))

    @override
    def late_result(self, session: int, tokens: Sequence[int], *, is_delivered: bool) -> None:
        result = relay_pb2.LateResult(session=session, tokens=tokens, is_delivered=is_delivered)
        self._write(relay_pb2.EdgeFrame(late_result=result))

    @override
    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._task.cancel()
            self._on_over(self)

    def end(self, reason: str) -> None:
        """Another leader or term has begun: this stream brings nothing any more."""
        if not self._is_over:
            self.close()
            self._events.on_end(reason)

    # Frames

    def _write(self, frame: "_Frame") -> None:
        if self._is_over:
            return
        if self._writer is None:
            self._early.append(frame)
        else:
            self._writer.add(frame)

    async def _run(self, stub: Callable[[], Awaitable["RelayAsyncStub"]]) -> None:
        try:
            call = (await stub()).Exchange(None)
        except (Unreachable, *BROKEN, asyncio.CancelledError) as error:
            raise_if_cancelled()
            self.end(str(error) or repr(error))
            return
        writer = self._writer = FrameWriter(
            lambda frames: call.write(_together(frames)),
            _payload_bytes,
            lambda _: _cancel(call),
        )
        for frame in self._early:
            writer.add(frame)
        self._early.clear()
        try:
            reason = await self._read_frames(call)
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        except (*BROKEN, asyncio.CancelledError) as error:
            # The call was cancelled because its channel was closed, unless it was this task.
            raise_if_cancelled()
            reason = "the channel was closed" if not str(error) else repr(error)
        finally:
            writer.stop()
            call.cancel()
        self.end(reason)

    async def _read_frames(self, call: Any) -> str:
        while True:
            message = await call.read()
            if message is _EOF:
                return f"{(await call.code()).name}: {await call.details()}"
            for frame in message.frames:
                self._take(frame)
                if self._is_over:
                    return "closed"

    def _take(self, frame: relay_pb2.LeaderFrame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "outcome":
            self._room.give_back()
            outcome = decode_outcome(frame.outcome.outcome)
            self._events.on_outcome(frame.outcome.number, frame.outcome.index, outcome)
        elif kind == "late":
            late = frame.late
            packets = LatePackets(late.session, tuple(late.tokens), tuple(late.packets))
            self._events.on_late_packets(packets)


_Frame = relay_pb2.EdgeFrame | tuple[int, bytes]
"""Batches are (number, payload): a message around each would copy it."""


def _cancel(call: Any) -> None:
    """Cancel a call; its reader notices that, or an earlier end, which has a better reason."""
    call.cancel()


def _payload_bytes(frame: _Frame) -> int:
    return len(frame[1]) if isinstance(frame, tuple) else 0


def _together(frames: Sequence[_Frame]) -> relay_pb2.EdgeFrames:
    together = relay_pb2.EdgeFrames()
    for frame in frames:
        if isinstance(frame, tuple):
            batch = together.frames.add().batch
            batch.number, batch.payload = frame
        else:
            together.frames.append(frame)
    return together
