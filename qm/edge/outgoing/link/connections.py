"""All connections of one leadership: found again by next hop, bounded, opened a few at a time."""

import asyncio
import errno
from ipaddress import ip_address
from typing import Final

from typing_extensions import override

from qm.edge.outgoing.limits import CONNECT_TIMEOUT_S, CONNECTING_MAX, CONNECTIONS_MAX
from qm.edge.outgoing.link.connection import Connection, ConnectionOwner
from qm.edge.outgoing.link.context import OutgoingContext
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

    def __init__(self, context: OutgoingContext) -> None:
        self._context = context
        self._connections: dict[tuple[str, Guid], Connection] = {}
        self._gate = asyncio.Semaphore(CONNECTING_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def acquire(self, hop: NextHop, user: User) -> None:
        """Let a user send over the connection to a hop, a new one if there is none.

        One that was made for a direct name serves a queue manager whose GUID it has shown.
        """
        key = hop.address, hop.qm_guid
        connection = self._connections.get(key)
        if connection is None and hop.qm_guid != GUID_NULL:
            connection = self._proven(hop)
        if connection is not None:
            connection.join(user)
            return
        if len(self._connections) >= CONNECTIONS_MAX and not self._make_room():
            self._count("limit")
            user.on_connect_failed(ConnectionStatus.CONNECTION_LIMIT_REACHED)
            return
        connection = self._connections[key] = Connection(self._context, self, hop)
        connection.join(user)
        task = asyncio.get_running_loop().create_task(self._open(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @override
    def on_over(self, connection: Connection) -> None:
        key = connection.hop.address, connection.hop.qm_guid
        if self._connections.get(key) is connection:
            del self._connections[key]

    def stop(self) -> None:
        """Close all; users hear of it."""
        for task in list(self._tasks):
            task.cancel()
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

        If there is none, the oldest that has had its time is told to come to an end.
        """
        for connection in self._connections.values():
            if connection.is_idle:
                connection.close(CloseReason.LIMIT, f"{CONNECTIONS_MAX} connections")
                return True
        now = self._context.clock()
        for connection in self._connections.values():
            if connection.may_retire(now):
                connection.retire()
                break
        return False

    async def _open(self, connection: Connection) -> None:
        context = self._context
        async with self._gate:
            try:
                await asyncio.wait_for(
                    asyncio.get_running_loop().create_connection(
                        lambda: connection,
                        connection.hop.address,
                        context.settings.port,
                        local_addr=self._local(connection.hop.address),
                    ),
                    CONNECT_TIMEOUT_S,
                )
            except OSError as error:
                self._failed(connection, error)
                return
        self._count("connected")

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
        """Return what to bind to: the source address, if it is of the peer's family."""
        source = self._context.settings.source_address
        if not source or ip_address(source).version != ip_address(address).version:
            return None
        return source, 0

    def _count(self, result: str) -> None:
        self._context.metrics.counter("quorate_outgoing_connects_total").labels(result=result).inc()
