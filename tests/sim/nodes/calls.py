"""One call of gRPC over the simulated network: what `grpc.aio` gives a client and a servicer.

The code of gRPC itself is not simulated. Messages are first in, first out; each way holds WINDOW
messages that the other side has not read. A silent other side is given up after KEEPALIVE_S.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from tests.sim.nodes.network import Link

if TYPE_CHECKING:
    from tests.sim.nodes.loop import SimLoop
    from tests.sim.nodes.rpc import Channel, Server

logger = logging.getLogger(__name__)

EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]
WINDOW: Final = 16
SNAPSHOTS: Final = "/SendSnapshot"
"""The end of the method's name."""
KEEPALIVE_S: Final = 10.0
EOF_SHARE: Final = 0.3
"""Of servicers whose client goes, so many see their stream end before they are cancelled."""
CANCEL_AFTER_S: Final = 0.001
Status = tuple[grpc.StatusCode, str, tuple[Any, ...]]


def _same(message: Any) -> Any:
    return message


class Aborted(grpc.aio.AbortError):
    """A servicer ended its call."""


class Details(grpc.HandlerCallDetails):
    """What interceptors and handlers are asked by."""

    def __init__(self, method: str, metadata: Sequence[Any]) -> None:
        self.method = method
        self.invocation_metadata = metadata  # type: ignore[assignment]


class Side:
    """One end of a call: what has arrived, and how much of ours the other has not read."""

    def __init__(self, loop: "SimLoop") -> None:
        self.loop = loop
        self.inbox: deque[Any] = deque()
        self.unread = 0
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Something has changed."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def wake_soon(self) -> None:
        """As `wake`, from elsewhere."""
        if not self.loop.is_dead:
            self.loop.call_soon(self.wake)

    async def changed(self) -> None:
        """Wait until something has changed."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(future)
        await future


class Call:
    """The client's end. The server's is a `Context`."""

    def __init__(
        self,
        channel: "Channel",
        method: str,
        codec: tuple[Any, Any],
        metadata: Any,
        timeout: float | None,
        request: Any,
    ) -> None:
        """`request`: None of a call that streams them."""
        self.loop = loop = channel.loop
        self.method = method
        self.metadata = tuple(metadata or ())
        self.status: Status | None = None
        self.side = Side(loop)
        self.far: Context | None = None
        self.task: asyncio.Task[None] | None = None
        self.was_given_up = False
        """The client went before the server began."""
        self.address = channel.address
        self.network = channel.network
        self.link = Link(self.network, loop.host, channel.address[0], self)
        self._channel = channel
        self._encode: Callable[[Any], Any] = codec[0] or _same
        self._decode: Callable[[Any], Any] = codec[1] or _same
        self._done: asyncio.Future[None] = loop.create_future()
        self._initial: asyncio.Future[Any] = loop.create_future()
        channel.calls[self] = None
        raw = None if request is None else self._encode(request)
        self.side.unread = int(raw is not None)
        self.link.send(lambda: self._arrive(raw), to_server=True)
        self._deadline: asyncio.TimerHandle | None = None
        if timeout is not None:
            late = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            self._deadline = loop.call_later(timeout, self.give_up, *late)
        loop.call_later(KEEPALIVE_S, self._look)

    def _look(self) -> None:
        if self.status is not None:
            return
        own, far = self.link.client, self.link.server
        network = self.network
        if network.is_cut(own, far) or network.is_cut(far, own) or network.is_silent(far):
            self.give_up(grpc.StatusCode.UNAVAILABLE, "keepalive watchdog timeout")
        else:
            self.loop.call_later(KEEPALIVE_S, self._look)

    # At the server's host

    def _arrive(self, raw: Any) -> None:
        from tests.sim.nodes.rpc import Server  # they know each other

        host = self.address[0]
        if self.network.is_silent(host):
            self.network.when_on(host, self._refused)
            return
        loop, server = self.network.listeners.get(self.address, (None, None))
        if loop is None or not isinstance(server, Server):
            self._refused()
            return
        if self.was_given_up:
            return
        context = self.far = Context(self, server, loop)

        def begin() -> None:
            self.task = loop.create_task(context.serve(raw))
            server.calls[self] = None

        loop.call_soon(begin)

    def _refused(self) -> None:
        self.to_client(self.finish, grpc.StatusCode.UNAVAILABLE, "connection refused")
        self.link.close()

    def _client_gone(self) -> None:
        self.link.close()
        if self.far is None:
            self.was_given_up = True
        else:
            self.far.client_gone()

    def to_client(self, action: Callable[..., None], *args: Any) -> None:
        """Have something happen at the client, after what was sent there before."""

        def arrive() -> None:
            if not self.loop.is_dead:
                self.loop.call_soon(action, *args)

        self.link.send(arrive, to_server=False)

    def on_gone(self, loop: "SimLoop") -> None:
        """See Ended."""
        if loop is self.loop:
            self.link.send(self._client_gone, to_server=True)
        elif self.far is not None and self.far.side.loop is loop:
            reset = (grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")
            self.to_client(self.finish, *reset)
            self.link.close()

    # The end

    def give_up(self, code: grpc.StatusCode, details: str) -> None:
        """End it here and now; the server hears of it."""
        if self.status is None:
            self.finish(code, details)
            self.link.send(self._client_gone, to_server=True)

    def finish(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...] = ()) -> None:
        """It is over; what has arrived can still be read if it ended well."""
        if self.status is not None:
            return
        self.status = (code, details, trailing)
        if self._deadline is not None:
            self._deadline.cancel()
        self._channel.calls.pop(self, None)
        if not self._initial.done():
            self._initial.set_result({})
        if not self._done.done():
            self._done.set_result(None)
        self.side.wake()

    def begun(self, metadata: Any) -> None:
        """The server has sent what comes first."""
        if not self._initial.done():
            self._initial.set_result(metadata)

    def _raise(self) -> None:
        assert self.status is not None
        code, details, trailing = self.status
        if code is grpc.StatusCode.CANCELLED and details.startswith("Locally"):
            raise asyncio.CancelledError
        metadata = grpc.aio.Metadata(*trailing)
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details, "")

    # What grpc.aio's calls have

    async def initial_metadata(self) -> Any:
        await asyncio.shield(self._initial)
        return self._initial.result()

    async def _ended(self) -> Status:
        await asyncio.shield(self._done)
        assert self.status is not None
        return self.status

    async def code(self) -> grpc.StatusCode:
        return (await self._ended())[0]

    async def details(self) -> str:
        return (await self._ended())[1]

    async def trailing_metadata(self) -> Any:
        return (await self._ended())[2]

    def done(self) -> bool:
        return self.status is not None

    def cancelled(self) -> bool:
        return self.status is not None and self.status[0] is grpc.StatusCode.CANCELLED

    def cancel(self) -> bool:
        if self.status is not None:
            return False
        self.give_up(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def add_done_callback(self, callback: Callable[["Call"], None]) -> None:
        self._done.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, Any]:
        return self._unary().__await__()

    async def _unary(self) -> Any:
        try:
            code, _, _ = await self._ended()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if code is not grpc.StatusCode.OK:
            self._raise()
        return self._decode(self.side.inbox.popleft())

    async def read(self) -> Any:
        side = self.side
        while not side.inbox:
            if self.status is not None:
                if self.status[0] is not grpc.StatusCode.OK:
                    self._raise()
                return EOF
            await side.changed()
        raw = side.inbox.popleft()
        if self.far is not None:
            self.link.send(self.far.taken, to_server=True)
        return self._decode(raw)

    async def write(self, message: Any) -> None:
        await self._write(self._encode(message))

    async def done_writing(self) -> None:
        await self._write(EOF)

    async def _write(self, raw: Any) -> None:
        if self.status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        await asyncio.sleep(0)
        while self.side.unread >= WINDOW and self.status is None:
            await self.side.changed()
        if self.done():
            self._raise()
        self.side.unread += 1
        if self.method.endswith(SNAPSHOTS) and raw is not EOF:
            raw = self.network.bend(self.loop.host, self.address[0], raw)
        self._mark("to server", raw)
        self.link.send(lambda: self.far.arrive(raw) if self.far else None, to_server=True)

    def _mark(self, way: str, raw: Any) -> None:
        # Maps of protobuf are written in another order each time.
        what = (0, 0) if raw is EOF else (len(raw), sum(raw))
        self.network.world.mark("message", self.method, way, *what)

    def arrive(self, raw: Any) -> None:
        """A message has come."""
        self._mark("to client", raw)
        self.side.inbox.append(raw)
        self.side.wake_soon()

    def taken(self) -> None:
        """The server has read one."""
        self.side.unread -= 1
        self.side.wake_soon()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not EOF:
            yield message


class Context:
    """The server's end: what a servicer is given."""

    def __init__(self, call: Call, server: "Server", loop: "SimLoop") -> None:
        self.call = call
        self.side = Side(loop)
        self._server = server
        self._encode: Callable[[Any], Any] = _same
        self._decode: Callable[[Any], Any] = _same
        self._trailing: tuple[Any, ...] = ()
        self._has_begun = False
        self._is_client_gone = False
        self._chance = call.network.world.chance("cancelled calls")

    def invocation_metadata(self) -> Any:
        return self.call.metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        """What the certificate of the calling process says."""
        caller = self.call.loop
        name = caller.name.encode()
        return {
            "x509_common_name": [name],
            "peer_dns": [name],
            "peer_uri": [f"quorate:role/{caller.role}".encode()],
        }

    def peer(self) -> str:
        return f"ipv4:{self.call.loop.host}:1"

    def time_remaining(self) -> float | None:
        return None

    def cancelled(self) -> bool:
        return self._is_client_gone

    def done(self) -> bool:
        return self._is_client_gone

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        assert self.call.task is not None
        self.call.task.add_done_callback(lambda _: callback(self))

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    async def send_initial_metadata(self, metadata: Any) -> None:
        self._has_begun = True
        self.call.to_client(self.call.begun, dict(metadata))

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> None:
        self._trailing = tuple(trailing_metadata or ())
        raise Aborted(code, details)

    async def abort_with_status(self, status: Any) -> None:
        await self.abort(status.code, status.details, status.trailing_metadata)

    async def read(self) -> Any:
        while not self.side.inbox:
            await self.side.changed()
        raw = self.side.inbox.popleft()
        if raw is EOF:
            self.side.inbox.append(EOF)
            return EOF
        self.call.link.send(self.call.taken, to_server=False)
        return self._decode(raw)

    async def requests(self) -> AsyncIterator[Any]:
        """What the client streams."""
        while (message := await self.read()) is not EOF:
            yield message

    async def write(self, message: Any) -> None:
        if not self._has_begun:
            await self.send_initial_metadata(())
        await asyncio.sleep(0)
        while self.side.unread >= WINDOW and not self._is_client_gone:
            await self.side.changed()
        if self._is_client_gone:
            raise grpc.aio.UsageError("RPC already finished.")
        self.side.unread += 1
        raw = self._encode(message)
        self.call.link.send(lambda: self.call.arrive(raw), to_server=False)

    def arrive(self, raw: Any) -> None:
        """A message has come."""
        self.side.inbox.append(raw)
        self.side.wake_soon()

    def taken(self) -> None:
        """The client has read one."""
        self.side.unread -= 1
        self.side.wake_soon()

    def client_gone(self) -> None:
        """Nobody waits for this any more: a read that waits ends, or is cancelled, as it comes."""
        loop = self.side.loop

        def cancel() -> None:
            if self.call.task is not None:
                self.call.task.cancel()

        def gone() -> None:
            self._is_client_gone = True
            self.side.inbox.append(EOF)
            self.side.wake()
            if self._chance.random() < EOF_SHARE:
                loop.call_later(CANCEL_AFTER_S, cancel)
            else:
                cancel()

        if not loop.is_dead:
            loop.call_soon(gone)

    async def serve(self, raw: Any) -> None:
        """Run the servicer; tell the client how it ended.

        `raw`: the request of a client that sends one. A servicer may take it for a stream of one.
        """
        if raw is not None:
            self.side.inbox.extend((raw, EOF))
        code, details = grpc.StatusCode.OK, ""
        try:
            await self._serve(raw)
        except Aborted as end:
            code, details = end.args
        except asyncio.CancelledError:
            code, details = grpc.StatusCode.CANCELLED, "cancelled"
        except Exception as error:  # as gRPC does
            logger.exception("%s: a servicer raised", self.side.loop.name)
            self.side.loop.errors.append(f"{self.call.method}: {error!r}")
            code, details = grpc.StatusCode.UNKNOWN, repr(error)
        finally:
            self._server.calls.pop(self.call, None)
        self.call.to_client(self.call.finish, code, details, self._trailing)
        self.call.link.close()

    async def _serve(self, raw: Any) -> None:
        handler = await self._server.handler(Details(self.call.method, self.call.metadata))
        if handler is None:
            raise Aborted(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self._decode = handler.request_deserializer or _same
        self._encode = handler.response_serializer or _same
        if handler.request_streaming and raw is not None:
            self.side.inbox += (raw, EOF)  # the gates take all requests for streams
        request = self.requests() if handler.request_streaming else self._decode(raw)
        answer = _behaviour(handler)(request, self)
        if hasattr(answer, "__aiter__"):
            async for each in answer:
                try:
                    await self.write(each)
                except grpc.aio.UsageError:
                    # An answer that gRPC has no client for any more is not the servicer's error.
                    await answer.aclose()
                    return
            return
        result = await answer
        if not handler.response_streaming:
            # gRPC drops the answer to a client that waits no more, and says nothing.
            with suppress(grpc.aio.UsageError):
                await self.write(result)


def _behaviour(handler: Any) -> Any:
    if handler.response_streaming:
        return handler.stream_stream if handler.request_streaming else handler.unary_stream
    return handler.stream_unary if handler.request_streaming else handler.unary_unary
