"""All connections of one leadership: by next hop, bounded, opened a few at a time."""

import asyncio
import errno
import random
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from typing_extensions import override

from qm.edge.outgoing.limits import (
    ADDRESSES_KEPT_MAX,
    BACKOFF_AFTER_COUNT,
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    CONNECT_TIMEOUT_S,
    CONNECTING_MAX,
    CONNECTING_NAMED_MAX,
    CONNECTIONS_MAX,
)
from qm.edge.outgoing.link.connection import Connection, ConnectionOwner
from qm.edge.outgoing.link.context import OutgoingContext
from qm.edge.outgoing.link.slots import Slots, Standing
from qm.edge.outgoing.link.user import User
from qm.session import CloseReason, ConnectionStatus, NextHop
from qm.wire.guid import GUID_NULL, Guid

_STATUS_OF_ERROR: Final = {
    errno.EADDRNOTAVAIL: ConnectionStatus.SOCKET_BIND_FAILURE,
    errno.EADDRINUSE: ConnectionStatus.SOCKET_BIND_FAILURE,
    errno.EMFILE: ConnectionStatus.SOCKET_CREATE_FAILURE,
    errno.ENFILE: ConnectionStatus.SOCKET_CREATE_FAILURE,
    errno.ENOBUFS: ConnectionStatus.LOW_RESOURCE,
    errno.ENOMEM: ConnectionStatus.LOW_RESOURCE,
}


class Connections(ConnectionOwner):
    """The connections of one leadership, by next hop."""

    def __init__(
        self, context: OutgoingContext, chance: Callable[[], float] = random.random
    ) -> None:
        """`chance` returns 0 to 1, for jitter."""
        self._context = context
        self._connections: dict[tuple[str, Guid], Connection] = {}
        self._chance = chance
        self._slots = {
            is_named: Slots(count, self._open, self._given_up)
            for is_named, count in ((False, CONNECTING_MAX), (True, CONNECTING_NAMED_MAX))
        }
        self._reached: dict[str, None] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """Address -> failures in a row, and when it may be tried again."""
        self._live: dict[Connection, None] = {}
        """Connections that connect or are connected; others wait for their turn."""
        self._is_named: dict[Connection, bool] = {}
        """Whether a connection was first requested for a destination that a peer named."""

    def acquire(self, hop: NextHop, user: User) -> None:
        """Let a user send over the connection to a hop, a new one if there is none.

        One that was made for a direct name also serves a queue manager whose GUID it has shown.
        """
        key = hop.address, hop.qm_guid
        connection = self._connections.get(key)
        if connection is None and hop.qm_guid != GUID_NULL:
            connection = self._proven(hop)
        if connection is not None:
            connection.join(user)
            return
        if self._is_left_alone(hop.address):
            # The user's own retry timer continues; no slot is taken and nothing is sent.
            self._count("left_alone")
            user.on_connect_failed(ConnectionStatus.SOCKET_CONNECT_FAILURE)
            return
        if len(self._live) >= CONNECTIONS_MAX and not self._make_room():
            self._count("limit")
            user.on_connect_failed(ConnectionStatus.CONNECTION_LIMIT_REACHED)
            return
        connection = self._connections[key] = Connection(self._context, self, hop)
        connection.join(user)
        self._is_named[connection] = user.is_named_by_peer
        self._ask(connection)

    def _ask(self, connection: Connection) -> None:
        """Request that a connection be opened when its turn comes."""
        address = connection.hop.address
        standing = Standing.FRESH
        if address in self._failures:
            standing = Standing.FAILED
        elif address in self._reached:
            standing = Standing.REACHED
        is_named = self._is_named.get(connection)
        if is_named is not None:
            self._slots[is_named].ask(connection, standing)

    def _is_left_alone(self, address: str) -> bool:
        """Whether an address has failed repeatedly, and lately."""
        _, not_before = self._failures.get(address, (0, 0.0))
        return self._context.clock() < not_before

    def _note(self, address: str, *, is_reached: bool) -> None:
        """Record whether an attempt reached the address."""
        count, _ = self._failures.pop(address, (0, 0.0))
        if is_reached:
            self._reached[address] = None
            if len(self._reached) > ADDRESSES_KEPT_MAX:
                del self._reached[next(iter(self._reached))]
            return
        count += 1
        wait_s = 0.0
        if count >= BACKOFF_AFTER_COUNT:
            doublings = min(count - BACKOFF_AFTER_COUNT, 16)
            longest = min(BACKOFF_FIRST_S * 2**doublings, BACKOFF_MAX_S)
            wait_s = longest * (0.5 + self._chance() / 2)
        self._failures[address] = count, self._context.clock() + wait_s
        if len(self._failures) > ADDRESSES_KEPT_MAX:
            del self._failures[next(iter(self._failures))]

    @override
    def on_over(self, connection: Connection) -> None:
        self._live.pop(connection, None)
        self._is_named.pop(connection, None)
        key = connection.hop.address, connection.hop.qm_guid
        if self._connections.get(key) is connection:
            del self._connections[key]

    def stop(self) -> None:
        """Close all; their users are told."""
        for slots in self._slots.values():
            slots.stop()
        for connection in list(self._connections.values()):
            connection.close(CloseReason.STOPPED, "this node does not lead any more")
        self._connections.clear()

    def _proven(self, hop: NextHop) -> Connection | None:
        connection = self._connections.get((hop.address, GUID_NULL))
        if connection is not None and connection.is_open and connection.remote_guid == hop.qm_guid:
            return connection
        return None

    def _make_room(self) -> bool:
        """Close the oldest connection that has nothing to do; return whether there was one.

        If there is none, the oldest one that has been used for long enough is asked to end.
        """
        for connection in self._connections.values():
            if connection.is_idle:
                connection.close(CloseReason.LIMIT, f"{CONNECTIONS_MAX} connections")
                return True
        now = self._context.clock()
        for connection in self._connections.values():
            if connection.is_stuck(now):
                connection.close(CloseReason.LIMIT, f"{CONNECTIONS_MAX} connections")
                return True
        for connection in self._connections.values():
            if connection.may_retire(now):
                connection.retire()
                break
        return False

    async def _open(self, connection: Connection) -> None:
        context, address = self._context, connection.hop.address
        if len(self._live) >= CONNECTIONS_MAX and not self._make_room():
            self._count("limit")
            connection.connect_failed(ConnectionStatus.CONNECTION_LIMIT_REACHED)
            return
        self._live[connection] = None
        try:
            await asyncio.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    address,
                    context.settings.port,
                    local_addr=self._local(address),
                ),
                CONNECT_TIMEOUT_S,
            )
        except OSError as error:
            self._note(address, is_reached=False)
            self._failed(connection, error)
            return
        except asyncio.CancelledError:
            if not any(slots.was_pushed(connection) for slots in self._slots.values()):
                raise
            self._note(address, is_reached=False)
            self._failed(connection, TimeoutError("no answer while others wait to connect"))
            return
        self._note(address, is_reached=True)
        self._count("connected")

    def _given_up(self, connection: Connection) -> None:
        self._count("limit")
        connection.connect_failed(ConnectionStatus.CONNECTION_LIMIT_REACHED)

    def _failed(self, connection: Connection, error: OSError) -> None:
        number = error.errno or 0
        status = _STATUS_OF_ERROR.get(number, ConnectionStatus.SOCKET_CONNECT_FAILURE)
        self._count("failed")
        self._context.lines.warning(
            "outgoing_connect_failed",
            "a queue manager cannot be reached; see that it runs and that the address is right",
            address=connection.hop.address,
            port=self._context.settings.port,
            error=str(error) or type(error).__name__,
        )
        connection.connect_failed(status)

    def _local(self, address: str) -> tuple[str, int] | None:
        """Return the address to bind to: the source address, if it is of the peer's family."""
        source = self._context.settings.source_address
        if not source or ip_address(source).version != ip_address(address).version:
            return None
        return source, 0

    def _count(self, result: str) -> None:
        self._context.metrics.counter("quorate_outgoing_connects_total").labels(result=result).inc()
