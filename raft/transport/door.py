"""The port of a node: direct streams of nodes, and gRPC for everybody else.

A connection is peeked at until its ClientHello says which of the two it wants. Direct ones are
handed to their owner. The others are forwarded, still encrypted, to the gRPC server of this
process, which listens on a Unix socket: snapshots, and nodes of builds without direct streams.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

from typing_extensions import override

from raft.transport.client_hello import CLIENT_HELLO_MAX_BYTES, offers
from raft.transport.tls import ALPN

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1_024
"""Connections open at once, including those in their handshake."""
HANDSHAKE_TIMEOUT_MS: Final = 5_000
BACKLOG: Final = 512
PEEK_AGAIN_MS: Final = 5
"""Between two looks at a ClientHello that arrives in parts."""
ACCEPT_PAUSE_MS: Final = 100
"""After an error of accepting, such as too many open files."""


class Door:
    """Accepts connections and hands each of them to who answers it."""

    def __init__(
        self, on_direct: Callable[[socket.socket], Awaitable[None]], forward_to: str
    ) -> None:
        """`on_direct` owns the socket it is given and returns when that is closed. `forward_to`:
        name of the abstract Unix socket for the others.
        """
        self.port = 0
        self._on_direct = on_direct
        self._forward_to = b"\0" + forward_to.encode()
        self._listeners: list[socket.socket] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, address: str) -> None:
        """Listen at `host:port`, of every address of the host; port 0 is any free one. Raises
        OSError.
        """
        host, _, port = address.rpartition(":")
        self.port = int(port)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host.strip("[]") or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, (at, *_) in dict.fromkeys(found):
                self._listen(family, str(at))
        except OSError:
            self._close_listeners()
            raise
        for listener in self._listeners:
            loop.add_reader(listener, self._accept, listener)

    def _listen(self, family: int, host: str) -> None:
        is_any_v6 = family == socket.AF_INET6 and host == "::"
        listener = socket.create_server(
            (host, self.port),
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=is_any_v6 and socket.has_dualstack_ipv6(),
        )
        listener.setblocking(False)
        self._listeners.append(listener)
        self.port = listener.getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        self._close_listeners()
        await asyncio.sleep(0)  # a task that is cancelled before it begins leaves its socket open
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _close_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            loop.remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.warning("cannot accept a connection of a node: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(ACCEPT_PAUSE_MS / 1000, self._accept_again, listener)
            return
        if len(self._connections) >= CONNECTIONS_MAX:
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.create_task(self._answer(accepted), name="raft connection")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _answer(self, accepted: socket.socket) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                is_direct = await _wants_direct(accepted)
        except BaseException as error:
            accepted.close()
            if not isinstance(error, OSError):
                raise
            logger.debug("a connection said nothing of use: %r", error)
            return
        try:
            if is_direct:
                await self._on_direct(accepted)
            else:
                await forward(accepted, self._forward_to)
        except OSError as error:
            logger.debug("a connection ended: %r", error)


async def _wants_direct(accepted: socket.socket) -> bool:
    """Return whether the client offers ALPN; its bytes stay unread. Raises OSError."""
    while True:
        await _readable(accepted)
        data = accepted.recv(CLIENT_HELLO_MAX_BYTES, socket.MSG_PEEK)
        if not data:
            raise ConnectionResetError("closed before its ClientHello")
        is_direct = offers(data, ALPN)
        if is_direct is not None:
            return is_direct
        await asyncio.sleep(PEEK_AGAIN_MS / 1000)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def found() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, found)
    try:
        await ready
    finally:
        loop.remove_reader(connection)


class _Half(asyncio.Protocol):
    """Passes on what one end sends, to the other half."""

    def __init__(self) -> None:
        self.other: _Half | None = None
        self.transport: asyncio.Transport | None = None
        self.ended = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    @override
    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    @override
    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


async def _connect(half: _Half, to: bytes) -> None:
    loop = asyncio.get_running_loop()
    onward = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    onward.setblocking(False)
    try:
        await loop.sock_connect(onward, to)
    except BaseException:
        onward.close()
        raise
    await loop.create_unix_connection(lambda: half, sock=onward)


async def forward(accepted: socket.socket, to: bytes) -> None:
    """Connect an accepted socket to a Unix socket until one end closes. Raises OSError."""
    loop = asyncio.get_running_loop()
    near, far = _Half(), _Half()
    near.other, far.other = far, near
    try:
        try:
            await _connect(far, to)
        except BaseException:
            accepted.close()
            raise
        await loop.connect_accepted_socket(lambda: near, accepted)
        await asyncio.wait((near.ended, far.ended))
    finally:
        for half in (near, far):
            if half.transport is not None:
                half.transport.abort()
