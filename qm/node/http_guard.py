"""Limits on connections of the HTTP endpoint: their number, duration and time without a request.

aiohttp waits for a request's header without a limit. Here a connection is closed if it does not
bring a whole request within HEADER_MAX_S, or if its answer is not read within REQUEST_MAX_S.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import prometheus_client
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from qm.observe.logs import LimitedLog
from raft.transport.accepting import Acceptor, Limits, Rate, place_of

logger = logging.getLogger(__name__)

LIMITS: Final = Limits(
    total=512, per_address=64, few=8, begun_per_s=256, begun_per_address_per_s=64
)
"""A load balancer, a scraper, probes and browsers need a few connections each."""
REQUESTS_MAX_PER_S: Final = 512
"""Requests that are answered in a second; further ones wait, so that they leave the event loop to
others. The last quarter is for addresses that had few."""
REQUESTS_PER_ADDRESS_MAX_PER_S: Final = 64
HANDSHAKE_MAX_S: Final = 5.0
"""For a TLS handshake, where there is one."""
HEADER_MAX_S: Final = 5.0
"""From a connection's start, or the end of an answer, to a complete request."""
ERROR_MAX_CHARS: Final = 200
"""Characters of a bad request's description in a log line."""
REQUEST_MAX_S: Final = 30.0
"""For a request to be answered and the answer to be read."""


class Handler(Protocol):
    """What serves one connection, implemented by aiohttp."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is closed; `exc` is None after an orderly end."""

    def data_received(self, data: bytes) -> None:
        """The peer sent something."""

    def eof_received(self) -> None:
        """The peer sends nothing more."""

    def pause_writing(self) -> None:
        """Too much data waits for the peer to read it."""

    def resume_writing(self) -> None:
        """The peer has read enough of it."""


class HttpGuard:
    """One endpoint: listens, applies the limits and reports refusals."""

    def __init__(self, refused: prometheus_client.Counter) -> None:
        """`refused` is labelled by reason."""
        self._refused = refused
        self._log = LimitedLog(logger, asyncio.get_running_loop().time)
        self._acceptor = Acceptor(self._serve, LIMITS, self.refuse)
        self._rate = Rate(
            REQUESTS_MAX_PER_S, REQUESTS_PER_ADDRESS_MAX_PER_S, LIMITS.few, time.monotonic
        )
        self._make: Callable[[], Handler] | None = None
        self._tls: ssl.SSLContext | None = None
        self.connections: Final[dict[object, _Connection]] = {}
        """By transport."""

    @property
    def port(self) -> int:
        """The port that it listens on, once open."""
        return self._acceptor.port

    async def open(
        self,
        make: Callable[[], Handler],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Listen; `make` returns what serves a connection. Raises OSError."""
        self._make, self._tls = make, tls
        await self._acceptor.open(host, port)

    def stop_listening(self) -> None:
        """Accept no more; connections stay."""
        self._acceptor.stop_listening()

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        await self._acceptor.close()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        assert self._make is not None, "not open"
        connection = _Connection(self, self._make(), address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HANDSHAKE_MAX_S):
                await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls)
        except OSError as error:
            self.refuse("handshake", address, error=repr(error))
            with contextlib.suppress(OSError):  # it would wait for its peer
                accepted.shutdown(socket.SHUT_RDWR)
            return
        try:
            await connection.ended
        finally:
            connection.abort()

    def server_log(self) -> logging.Logger:
        """Return a logger for aiohttp that limits what peers can make it write."""
        return server_log(asyncio.get_running_loop().time)

    def refuse(self, reason: str, address: str, **fields: str) -> None:
        """Count and log that a connection is closed."""
        self._refused.labels(reason=reason).inc()
        text = f"an HTTP connection is closed: {reason}"
        self._log.warning(reason, text, peer=address, **fields)

    def place(self, transport: object) -> str:
        """Return the address, or the network of IPv6, that a connection comes from."""
        connection = self.connections.get(transport)
        return "" if connection is None else connection.place

    async def during(self, transport: object, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Answer a request that came over a transport, within the time limits."""
        connection = self.connections.get(transport)
        if connection is None:
            return await answer()
        connection.begin_answer()
        try:
            while not self._rate.take(connection.place):
                await asyncio.sleep(self._rate.left_s())
            return await answer()
        finally:
            connection.end_answer()


class ServerLog(logging.Handler):
    """Receives aiohttp's log: peers can cause it at will, with a traceback per bad request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._log = LimitedLog(logger, clock)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = " ".join(record.getMessage().splitlines())
        if error is None:
            self._log.warning("http", text)
        elif isinstance(error, HttpProcessingError):
            lines = str(error).split()
            self._log.warning("malformed", text, error=" ".join(lines)[:ERROR_MAX_CHARS])
        else:
            self._log.error("failed", text, error)


def server_log(clock: Callable[[], float]) -> logging.Logger:
    """Return a logger for aiohttp that limits how often lines of one kind are written."""
    made = logging.Logger("aiohttp.server", logging.WARNING)
    made.addHandler(ServerLog(clock))
    return made


class _Connection(asyncio.Protocol):
    """Passes everything on to a handler, and enforces the time limits."""

    def __init__(self, guard: HttpGuard, handler: Handler, address: str) -> None:
        self._guard = guard
        self._handler = handler
        self._address = address
        self.place: Final = place_of(address)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.ended: Final = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        self._transport = transport
        self._guard.connections[transport] = self
        self._arm(HEADER_MAX_S, "no request")
        self._handler.connection_made(transport)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._guard.connections.pop(self._transport, None)
        if not self.ended.done():
            self.ended.set_result(None)
        self._handler.connection_lost(exc)

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    @override
    def eof_received(self) -> None:
        self._handler.eof_received()

    @override
    def pause_writing(self) -> None:
        self._handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def begin_answer(self) -> None:
        self._arm(REQUEST_MAX_S, "no answer taken")

    def end_answer(self) -> None:
        # The answer may still wait to be read; the next request has its own time.
        self._arm(REQUEST_MAX_S if self._is_writing() else HEADER_MAX_S, "no request")

    def _is_writing(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def _arm(self, seconds: float, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._out_of_time, reason)

    def _out_of_time(self, reason: str) -> None:
        if self._transport is not None:
            self._guard.refuse(reason, self._address)
            self._transport.abort()
