"""A caller that begins requests and does not end them: HTTP/2 by hand."""

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator

_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_IDLE_TURNS = 20
_TURN_S = 0.005
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_INITIAL_WINDOW = 4
_FRAME_MAX_BYTES = 16_384
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class HalfSent:
    """One connection. Stream identifiers are 1, 3, 5, ..."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._windows = {0: 65_535}
        self._initial = 65_535
        self.sent: dict[int, int] = {}
        """Bytes that the server took, by stream."""
        self._listening: asyncio.Task[None] | None = None
        self.ended: set[int] = set()
        """Streams that the server answered, if only with a status."""

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator["HalfSent"]:
        """Connect."""
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        made = cls(reader, writer)
        writer.write(_GREETING + _frame(_SETTINGS, 0, 0, b""))
        listening = made._listening = asyncio.create_task(made._listen())
        try:
            yield made
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            writer.transport.abort()

    def begin(self, path: str, size: int) -> int:
        """Begin a call with one message of `size` bytes; return its stream."""
        stream = self._call(path)
        self._send(stream, b"\0" + struct.pack(">I", size))
        return stream

    def ask(self, path: str, request: bytes) -> None:
        """Make a whole call of a small request. Its answer gets no more room than there is."""
        stream = self._call(path)
        self._send(stream, b"\0" + struct.pack(">I", len(request)) + request, _END_STREAM)

    def _call(self, path: str) -> int:
        stream = 1 + 2 * len(self.sent)
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "node",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._windows[stream] = self._initial
        self.sent[stream] = 0
        return stream

    async def pour(self, wanted: int) -> int:
        """Send up to `wanted` bytes of each request, until the server has taken nothing for a
        while; return how many it took of all. Raises ConnectionError.
        """
        idle = 0
        while idle < _IDLE_TURNS:
            if self._listening is None or self._listening.done():
                raise ConnectionResetError("the server has closed the connection")
            moved = False
            for stream, taken in self.sent.items():
                room = min(self._windows[0], self._windows[stream], wanted - taken)
                if room > 0 and stream not in self.ended:
                    self._send(stream, bytes(min(room, _FRAME_MAX_BYTES)))
                    moved = True
            await asyncio.sleep(0 if moved else _TURN_S)
            idle = 0 if moved else idle + 1
        return sum(self.sent.values())

    def _send(self, stream: int, data: bytes, flags: int = 0) -> None:
        self._writer.write(_frame(_DATA, flags, stream, data))
        self._windows[0] -= len(data)
        self._windows[stream] -= len(data)
        self.sent[stream] += len(data)

    async def _listen(self) -> None:
        while True:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == _SETTINGS and not flags & _ACK:
                self._settle(payload)
            elif kind == _WINDOW_UPDATE:
                grown = int.from_bytes(payload, "big")
                self._windows[stream] = self._windows.get(stream, self._initial) + grown
            elif kind == _PING:
                self._writer.write(_frame(_PING, _ACK, 0, payload))
            elif kind == _HEADERS:
                self.ended.add(stream)

    def _settle(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _INITIAL_WINDOW:
                for stream in self.sent:
                    self._windows[stream] += value - self._initial
                self._initial = value
        self._writer.write(_frame(_SETTINGS, _ACK, 0, b""))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags))
    return head + struct.pack(">I", stream) + payload


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()
