"""Accepting of connections, bounded before anything is read from them.

A connection counts from its start to its end, its handshake included: in total, per address, and
by how many begin in a second, since each handshake costs the event loop a part of a millisecond.
"""

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import msgspec

logger = logging.getLogger(__name__)

BACKLOG: Final = 512
ACCEPT_PAUSE_MS: Final = 100
"""After an error of accepting, such as too many open files."""
TOO_MANY: Final = "connections"
TOO_MANY_OF_ADDRESS: Final = "connections of one address"
TOO_FAST: Final = "connections in a second"
_SECOND: Final = 1.0
_HOST_PREFIX_BITS: Final = 64


class Limits(msgspec.Struct, frozen=True):
    """Of one listener. An address is an IPv4 address or an IPv6 /64, all of one host's."""

    total: int
    per_address: int
    few: int
    """The last quarter of `total` and of `begun_per_s` is for addresses with fewer than this."""
    begun_per_s: int
    begun_per_address_per_s: int


class Rate:
    """Counts what begins in a second, in total and per address."""

    def __init__(self, total: int, per_address: int, few: int, clock: Callable[[], float]) -> None:
        """`few`: as in `Limits`; `clock`: monotonic seconds."""
        self._total, self._per_address, self._few = total, per_address, few
        self._clock = clock
        self._began = -_SECOND
        self._counts: Counter[str] = Counter()
        """In this second; cleared with it, so that it stays small."""

    def take(self, place: str) -> bool:
        """Return whether another one may begin; count it then."""
        now = self._clock()
        if now - self._began >= _SECOND:
            self._began = now
            self._counts.clear()
        own = self._counts[place]
        if own >= self._per_address or _is_full(self._counts.total(), self._total, self._few, own):
            return False
        self._counts[place] += 1
        return True

    def left_s(self) -> float:
        """Return the seconds until others may begin."""
        return max(self._began + _SECOND - self._clock(), 0.0)


class Places:
    """Counts connections, and decides whether another may begin."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._limits = limits
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._begun = Rate(limits.begun_per_s, limits.begun_per_address_per_s, limits.few, clock)

    def enter(self, address: str) -> str:
        """Count a connection; return the limit that forbids it, "" if it may stay."""
        limits, place = self._limits, place_of(address)
        own = self._by_address[place]
        if _is_full(self._total, limits.total, limits.few, own):
            return TOO_MANY
        if own >= limits.per_address:
            return TOO_MANY_OF_ADDRESS
        if not self._begun.take(place):
            return TOO_FAST
        self._by_address[place] += 1
        self._total += 1
        return ""

    def leave(self, address: str) -> None:
        """A connection that entered has ended."""
        place = place_of(address)
        self._total -= 1
        self._by_address[place] -= 1
        if not self._by_address[place]:
            del self._by_address[place]


def _is_full(count: int, most: int, few: int, own: int) -> bool:
    return count >= (most if own < few else most * 3 // 4)


def place_of(address: str) -> str:
    """Return the unit that is limited."""
    if ":" not in address:
        return address
    literal = address.partition("%")[0]
    return str(ipaddress.IPv6Network((literal, _HOST_PREFIX_BITS), strict=False))


class Acceptor:
    """Listens, and has each connection that may stay served by a task."""

    def __init__(
        self,
        serve: Callable[[socket.socket, str], Awaitable[None]],
        limits: Limits,
        refuse: Callable[[str, str], None],
    ) -> None:
        """`serve` owns the socket that it is given, with the peer's address, and returns when that
        is closed; an OSError is an end like any other. `refuse` is told which limit closed a
        connection from which address.
        """
        self.port = 0
        self._serve = serve
        self._refuse = refuse
        self._places = Places(limits, monotonic)
        self._listeners: list[socket.socket] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Listen at every address of a host; port 0 is any free one. Raises OSError."""
        self.port = port
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, (at, *_) in dict.fromkeys(found):
                self._listen(family, str(at))
        except OSError:
            self.stop_listening()
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
        self.stop_listening()
        await asyncio.sleep(0)  # a task that is cancelled before it begins leaves its socket open
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def stop_listening(self) -> None:
        """Accept no more; connections stay."""
        loop = asyncio.get_running_loop()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            loop.remove_reader(listener)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, name = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            logger.warning("cannot accept a connection at port %d: %s", self.port, error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            loop.call_later(ACCEPT_PAUSE_MS / 1000, self._accept_again, listener)
            return
        address = plain_address(str(name[0]))
        reason = self._places.enter(address)
        if reason:
            accepted.close()
            self._refuse(reason, address)
            return
        accepted.setblocking(False)
        task = asyncio.create_task(self._attend(accepted, address), name="accepted connection")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def _accept_again(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _attend(self, accepted: socket.socket, address: str) -> None:
        try:
            await self._serve(accepted, address)
        except OSError as error:
            logger.debug("a connection of %s ended: %r", address, error)
        finally:
            self._places.leave(address)


def plain_address(address: str) -> str:
    """Return an IPv4 address as such where a listener for both kinds shows it mapped."""
    mapped = ipaddress.IPv6Address(address).ipv4_mapped if address.startswith("::ffff:") else None
    return address if mapped is None else str(mapped)
