"""Limits on connections of the HTTP endpoint: their number, duration and time without a request.

aiohttp waits for a request's header without a limit. Here a connection is closed if it does not
bring a whole request within HEADER_MAX_S, or if its answer is not read within REQUEST_MAX_S.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import prometheus_client
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from qm.observe.logs import LimitedLog

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 512
"""Connections open at a time; a further one is closed."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 64
"""Connections from one address: a load balancer, a scraper and probes need a few each."""
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
    """Applies the limits of one endpoint and reports refusals."""

    def __init__(self, refused: prometheus_client.Counter) -> None:
        """`refused` is labelled by reason."""
        self._refused = refused
        self._log = LimitedLog(logger, asyncio.get_running_loop().time)
        self.connections: Final[dict[object, _Connection]] = {}
        """By transport."""
        self.addresses: Final[Counter[str]] = Counter()

    def protocol(self, handler: Handler) -> asyncio.Protocol:
        """Return the protocol for a connection that was just accepted."""
        return _Connection(self, handler)

    def admits(self, address: str) -> bool:
        """Return whether one more connection from an address may stay; count a refusal."""
        if len(self.connections) >= CONNECTIONS_MAX:
            self.refuse("connections", address)
            return False
        if self.addresses[address] >= CONNECTIONS_PER_ADDRESS_MAX:
            self.refuse("connections of one address", address)
            return False
        return True

    def refuse(self, reason: str, address: str) -> None:
        """Count and log that a connection is closed."""
        self._refused.labels(reason=reason).inc()
        self._log.warning(reason, f"an HTTP connection is closed: {reason}", peer=address)

    async def during(self, transport: object, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Answer a request that came over a transport, within the time limits."""
        connection = self.connections.get(transport)
        if connection is None:
            return await answer()
        connection.begin_answer()
        try:
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

    def __init__(self, guard: HttpGuard, handler: Handler) -> None:
        self._guard = guard
        self._handler: Handler | None = handler
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if not self._guard.admits(self._address):
            self._handler = None
            transport.abort()
            return
        self._transport = transport
        self._guard.connections[transport] = self
        self._guard.addresses[self._address] += 1
        self._arm(HEADER_MAX_S, "no request")
        if self._handler is not None:
            self._handler.connection_made(transport)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._guard.connections.pop(self._transport, None) is None:
            return
        self._guard.addresses[self._address] -= 1
        if not self._guard.addresses[self._address]:
            del self._guard.addresses[self._address]
        if self._handler is not None:
            self._handler.connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._handler is not None:
            self._handler.data_received(data)

    @override
    def eof_received(self) -> None:
        if self._handler is not None:
            self._handler.eof_received()

    @override
    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._handler is not None:
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
