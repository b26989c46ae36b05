"""The port of a node: direct streams of nodes, and gRPC for everybody else.

A connection is peeked at until its ClientHello says which of the two it wants. Direct ones are
handed to their owner. The others are forwarded, still encrypted, to the gRPC server of this
process, which listens on a Unix socket: snapshots, and nodes of builds without direct streams.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

from typing_extensions import override

from raft.transport.accepting import Acceptor, Limits
from raft.transport.client_hello import CLIENT_HELLO_MAX_BYTES, offers, size_of
from raft.transport.tls import ALPN

LIMITS: Final = Limits(
    total=1_024, per_address=128, few=8, begun_per_s=256, begun_per_address_per_s=32
)
"""A node has a few connections to each other node, and dials again after a pause."""
HANDSHAKE_TIMEOUT_MS: Final = 5_000
LAST_BYTES_MAX_S: Final = 5.0
"""For the one end of a forwarded connection to take what the other said last."""
PEEK_AGAIN_MS: Final = 250
"""Between two looks at a ClientHello whose rest was waited for and did not come."""


class Door:
    """Accepts connections and hands each of them to who answers it."""

    def __init__(
        self,
        on_direct: Callable[[socket.socket, str], Awaitable[None]],
        forward_to: str,
        refuse: Callable[[str, str, str], None],
    ) -> None:
        """`on_direct` owns the socket it is given, with the caller's address, and returns when that
        is closed. `forward_to`: name of the abstract Unix socket for the others. `refuse` counts
        what is refused, by a reason, and may log it with the address and a text.
        """
        self._on_direct = on_direct
        self._forward_to = b"\0" + forward_to.encode()
        self._refuse = refuse
        self._acceptor = Acceptor(
            self._answer, LIMITS, lambda limit, address: refuse("connections", address, limit)
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._acceptor.port

    async def open(self, address: str) -> None:
        """Listen at `host:port`, of every address of the host; port 0 is any free one. Raises
        OSError.
        """
        host, _, port = address.rpartition(":")
        await self._acceptor.open(host.strip("[]"), int(port))

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        await self._acceptor.close()

    async def _answer(self, accepted: socket.socket, address: str) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                is_direct = await _wants_direct(accepted)
        except BaseException as error:
            accepted.close()
            if isinstance(error, OSError):
                self._refuse("handshake", address, f"no ClientHello: {error!r}")
                return
            raise
        if is_direct is None:
            accepted.close()
        elif is_direct:
            await self._on_direct(accepted, address)
        else:
            await self._forward(accepted, address)

    async def _forward(self, accepted: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_refused = await forward(accepted, self._forward_to)
        if is_refused and loop.time() - began < 2 * HANDSHAKE_TIMEOUT_MS / 1000:
            self._refuse("handshake", address, "gRPC ended it: no certificate that counts here")


async def _wants_direct(accepted: socket.socket) -> bool | None:
    """Return whether the client offers ALPN; its bytes stay unread. None: it closed without a
    byte, as nodes do that ask whether this one is alive. Raises OSError.
    """
    wanted = 1
    while True:
        await _readable(accepted)
        data = accepted.recv(CLIENT_HELLO_MAX_BYTES, socket.MSG_PEEK)
        if not data:
            return None
        is_direct = offers(data, ALPN)
        if is_direct is not None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            return is_direct
        if len(data) < wanted:  # it will send nothing more, or the kernel is short of memory
            await asyncio.sleep(PEEK_AGAIN_MS / 1000)
        # Readable only once all of it is there: what stays unread would wake this task for ever.
        wanted = size_of(data)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)


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
        self.ended_first = False

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
        self.ended_first = self.other is None or not self.other.ended.done()
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


async def forward(accepted: socket.socket, to: bytes) -> bool:
    """Connect an accepted socket to a Unix socket until one end closes; return whether that was
    the Unix socket's. Raises OSError.
    """
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
        ends = (near.ended, far.ended)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(ends, timeout=LAST_BYTES_MAX_S)  # what was still to be said
        return far.ended_first
    finally:
        for half in (near, far):
            if half.transport is not None:
                half.transport.abort()
