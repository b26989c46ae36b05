"""Direct streams: frames over one TLS connection, without gRPC.

    TLS 1.3 with both ends' certificates, ALPN `quorate-raft/1`
    frame     length u32, little-endian | that many bytes
    hello     the caller's first frame: cluster 16 bytes | caller | called node
              (each: length u8, UTF-8)
    answer    the called node's first frame: empty if it accepts, else the reason of its refusal
    then      frames of `raft.transport.wire_format` in both directions

A gRPC stream takes several wake-ups, copies and threads for each of them.
"""

import asyncio
import socket
from collections.abc import Callable
from struct import Struct
from typing import Final, cast

import msgspec
from typing_extensions import override

from raft.transport.wire_format import CLUSTER_ID_BYTES, FRAME_MAX_BYTES, NODE_ID_MAX_BYTES
from raft.types import NodeId

HELLO_MAX_BYTES: Final = CLUSTER_ID_BYTES + 2 * (1 + NODE_ID_MAX_BYTES)
ANSWER_MAX_BYTES: Final = 1_024
LOST_AFTER_MS: Final = 10_000
"""Without an acknowledgement for bytes or keepalive probes, TCP gives the connection up."""
KEEPALIVE_S: Final = 5
_LENGTH: Final = Struct("<I")


class Hello(msgspec.Struct, frozen=True):
    """Who calls whom."""

    cluster: bytes
    sender: NodeId
    to: NodeId

    def pack(self) -> bytes:
        """Return the frame."""
        names = (name.encode() for name in (self.sender, self.to))
        return self.cluster + b"".join(bytes((len(name),)) + name for name in names)


def read_hello(frame: bytes) -> Hello:
    """Return what a caller says of itself. Raises ValueError."""
    names, at = [], CLUSTER_ID_BYTES
    for _ in range(2):
        if at >= len(frame):
            raise ValueError("a hello that ends too early")
        names.append(frame[at + 1 : at + 1 + frame[at]].decode())
        at += 1 + frame[at]
    if at != len(frame):
        raise ValueError("a hello of another length")
    return Hello(frame[:CLUSTER_ID_BYTES], *names)


class FrameConnection(asyncio.Protocol):
    """Cuts what arrives into frames, and hands each over in the call that completes it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.limit_bytes = ANSWER_MAX_BYTES
        """Size of a frame that may come now."""
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        """Chunks of frames that are not complete."""
        self._held_bytes = 0
        self._wanted_bytes = _LENGTH.size
        self._take: Callable[[bytes], None] | None = None
        self._first: asyncio.Future[bytes] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._room: asyncio.Future[None] | None = None

    # asyncio.Protocol

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= self._wanted_bytes and (
            self._take is not None or not self._first.done()
        ):
            self._cut()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        error = ConnectionResetError(str(exc or "the connection was closed"))
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # nobody may be waiting for it
        if not self._ended.done():
            self._ended.set_result(None)

    @override
    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._loop.create_future()

    @override
    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # For the owner

    async def first(self, limit_bytes: int) -> bytes:
        """Return the first frame. Raises ConnectionResetError."""
        self.limit_bytes = limit_bytes
        return await self._first

    async def run(self, take: Callable[[bytes], None]) -> None:
        """Hand over every frame after the first one, until the connection ends."""
        self.limit_bytes = FRAME_MAX_BYTES
        self._take = take
        if self.transport is not None:
            self.transport.resume_reading()
        if self._held_bytes >= self._wanted_bytes:
            self._cut()
        await asyncio.shield(self._ended)

    async def write(self, frame: bytes) -> None:
        """Write a frame; wait while the socket's buffer is full. Raises ConnectionResetError."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._ended.done():
            raise ConnectionResetError("the connection was closed")
        transport.writelines((_LENGTH.pack(len(frame)), frame))
        if self._room is not None:
            await self._room

    def write_now(self, frame: bytes) -> bool:
        """Write a frame; return False, having done nothing, if `write` would wait or raise."""
        transport = self.transport
        if self._room is not None or transport is None or transport.is_closing():
            return False
        transport.writelines((_LENGTH.pack(len(frame)), frame))
        return True

    async def leave(self) -> None:
        """Close the connection once everything is written."""
        if self.transport is not None:
            self.transport.close()
        await asyncio.shield(self._ended)

    def abort(self) -> None:
        """End the connection now."""
        if self.transport is not None:
            self.transport.abort()

    # Frames

    def _cut(self) -> None:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        at, end = 0, len(data)
        self._wanted_bytes = _LENGTH.size
        while end - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, at)
            if length > self.limit_bytes:
                self.abort()
                break
            stop = at + _LENGTH.size + length
            if stop > end:
                self._wanted_bytes = stop - at
                break
            frame, at = data[at + _LENGTH.size : stop], stop
            if self._take is not None:
                self._take(frame)
            elif not self._first.done():
                self._first.set_result(frame)
                if self.transport is not None:
                    self.transport.pause_reading()  # the next ones are for `run`
                break
        rest = data[at:]
        self._parts = [rest] if rest else []
        self._held_bytes = len(rest)


def prepare(connection: socket.socket) -> None:
    """Send small frames at once, and notice an end that is gone without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_MS)
