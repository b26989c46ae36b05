"""Sessions of attackers: floods that keep the rules, and raw connections that keep none."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from typing_extensions import override

from qm.load.connection import Connection, ConnectionEvents
from qm.node.config.schema import MSMQ_PORT
from qm.session import CloseReason, SessionConfig
from qm.wire.guid import Guid
from qm.wire.packets.ack import FinalAck, OrderAck
from tests.hostile.packets import handshake, parameters
from tests.hostile.victim import Count

Make = Callable[[int], bytes]
"""Returns the packet of message number n."""
CONNECT_MAX_S = 5.0
AGAIN_S = 0.2
"""Between two connections of one attacker."""
_ANSWER_BYTES = 572 + 32
_ANSWER_MAX_S = 5.0


class Flood(ConnectionEvents):
    """Sends as fast as the window allows, for ever, and forgets what it sent."""

    def __init__(
        self, guid: Guid, host: str, source: str, make: Make, count: Count, *, per_session: int = 0
    ) -> None:
        """`per_session`: messages after which it begins another session; 0: no limit."""
        self._guid, self._host, self._source = guid, host, source
        self._make, self._count, self._per_session = make, count, per_session
        self._connection: Connection | None = None
        self._number = self._left = 0
        self.new_guid: Callable[[], Guid] | None = None
        """Names the GUID of each session after the first."""

    async def run(self) -> None:
        """Connect again and again."""
        loop = asyncio.get_running_loop()
        while True:
            connection = Connection(SessionConfig().check(), self._guid, self)
            self._connection, self._left = connection, self._per_session
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(
                    loop.create_connection(
                        lambda it=connection: it,  # type: ignore[misc]
                        self._host,
                        MSMQ_PORT,
                        local_addr=(self._source, 0),
                    ),
                    CONNECT_MAX_S,
                )
                await connection.ended.wait()
            if self.new_guid is not None:
                self._guid = self.new_guid()
            await asyncio.sleep(0 if self._per_session else AGAIN_S)

    @override
    def on_established(self, peer: Guid) -> None:
        del peer

    @override
    def fill(self, room: int, now: float) -> tuple[Sequence[int], Sequence[bytes]]:
        del now
        wanted = min(room, self._left) if self._per_session else room
        first = self._number + 1
        self._number += wanted
        self._left -= wanted
        self._count(wanted)
        numbers = range(first, first + wanted)
        return list(numbers), [self._make(number) for number in numbers]

    @override
    def on_acks(self, released: list[int], retained: list[int], in_flight: int) -> None:
        if self._per_session and not self._left and not in_flight and self._connection is not None:
            asyncio.get_running_loop().call_soon(self._connection.close)

    @override
    def on_order_ack(self, ack: OrderAck) -> None:
        pass

    @override
    def on_final_ack(self, ack: FinalAck) -> None:
        pass

    @override
    def on_closed(self, reason: CloseReason, detail: str) -> None:
        pass


class Raw:
    """A connection that sends whatever bytes it is given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(
        cls, host: str, port: int, source: str, *, receive_bytes: int = 0
    ) -> AsyncIterator[Raw]:
        """Connect; `receive_bytes` makes the receiving buffer small. Raises OSError."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            sock.bind((source, 0))
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.sock_connect(sock, (host, port)), CONNECT_MAX_S)
            reader, writer = await asyncio.open_connection(sock=sock, limit=receive_bytes or 65_536)
        except BaseException:
            sock.close()
            raise
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def open_session(self, guid: Guid) -> None:
        """Shake hands as an honest peer does. Raises OSError, also when it is refused."""
        await self.send(handshake(guid))
        await self._read(_ANSWER_BYTES - 32)
        await self.send(parameters())
        await self._read(32)

    async def _read(self, size: int) -> None:
        try:
            await asyncio.wait_for(self.reader.readexactly(size), _ANSWER_MAX_S)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("refused") from error

    async def send(self, data: bytes) -> None:
        """Send bytes and wait until the socket takes them. Raises OSError."""
        self._writer.write(data)
        await self._writer.drain()

    async def until_closed(self, wait_s: float) -> None:
        """Read and forget what the victim says until it ends the connection or time is up."""
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(wait_s):
                while await self.reader.read(65_536):
                    pass


async def again_and_again(once: Callable[[], Awaitable[object]]) -> None:
    """Await `once()` for ever; whatever the victim does to a connection, the next one follows."""
    while True:
        try:
            await once()
        except (OSError, EOFError, TimeoutError, RuntimeError):
            # A RuntimeError: uvloop's, for a transport that the victim has closed.
            await asyncio.sleep(AGAIN_S)
