"""Sockets that accept MSMQ peers, opened and closed as the edge can serve or not.

They are bound once when the edge starts, so that an address in use is an error then. A closed
listener frees its port: peers and load balancers are refused at once instead of waiting.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence

from qm.edge.limits import LISTEN_BACKLOG_COUNT


def bind(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    """Return a socket bound to a literal IPv4 or IPv6 address. Raises OSError that names it."""
    try:
        family, _, _, _, name = socket.getaddrinfo(
            address, port, type=kind, flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind)
        try:
            bound.setblocking(False)
            if kind is socket.SOCK_STREAM:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(name)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"cannot listen on {address} port {port}: {reason}") from error
    return bound


class Listeners:
    """The TCP side of an edge's addresses."""

    def __init__(
        self,
        addresses: Sequence[str],
        port: int,
        loop: asyncio.AbstractEventLoop,
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
    ) -> None:
        self._ports = dict.fromkeys(addresses, port)
        self._loop = loop
        self._bind = bind
        self._bound: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Address and port of each, as bound."""
        return list(self._ports.items())

    @property
    def is_open(self) -> bool:
        """Whether peers are accepted."""
        return bool(self._servers)

    def bind(self) -> None:
        """Take the addresses. Raises OSError."""
        try:
            for address, port in self._ports.items():
                bound = self._bind(address, port, socket.SOCK_STREAM)
                self._bound.append(bound)
                # A port that the system chose is used from then on.
                self._ports[address] = bound.getsockname()[1]
        except OSError:
            self.close()
            raise

    async def open(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """Accept peers. Raises OSError when an address cannot be had again."""
        if not self._bound:
            self.bind()
        while self._bound:
            bound = self._bound.pop(0)
            self._servers.append(
                await self._loop.create_server(factory, sock=bound, backlog=LISTEN_BACKLOG_COUNT)
            )

    def close(self) -> None:
        """Accept no more peers and free the ports; connections stay."""
        for server in self._servers:
            server.close()
        for bound in self._bound:
            bound.close()
        self._servers.clear()
        self._bound.clear()
