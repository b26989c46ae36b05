"""The RPC ports of a node: what each offers, who may connect, and when idle clients go."""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from qm.edge.tcp.listeners import Listeners, bind
from qm.rpc.association.connection import Served
from qm.rpc.interface import Interface
from qm.rpc.limits import CONNECTIONS_FEW, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from qm.rpc.server.call import Dispatcher, Implementations
from qm.rpc.server.pace import Pace
from qm.rpc.server.rpc_metrics import RpcMetrics
from qm.rpc.server.tcp import Held, RpcConnection

SWEEP_EVERY_S: Final = 5.0
"""Period at which connections are looked at for idleness."""


class Port(msgspec.Struct, frozen=True):
    """One TCP port, on all addresses of the node."""

    number: int
    """0: the system chooses."""
    served: Served
    implementations: Implementations

    @property
    def interfaces(self) -> Sequence[Interface]:
        """What can be bound here."""
        return list(self.served.interfaces.values())


class RpcPorts:
    """Listening ports with their connections."""

    def __init__(
        self,
        addresses: Sequence[str],
        ports: Sequence[Port],
        metrics: RpcMetrics,
        bind: Callable[[str, int, socket.SocketKind], socket.socket] = bind,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics
        self._connections: set[RpcConnection] = set()
        self._by_address: Counter[str] = Counter()
        self._held = Held()
        self._pace = Pace()
        self._sweeping: asyncio.Task[None] | None = None
        self._ports = [
            (
                port,
                Dispatcher(port.implementations, metrics.failed),
                Listeners(addresses, port.number, self._loop, bind),
            )
            for port in ports
        ]

    async def start(self) -> None:
        """Listen. Raises OSError that names the address."""
        try:
            for _, _, listeners in self._ports:
                listeners.bind()
            for port, dispatcher, listeners in self._ports:
                await listeners.open(self._factory(port, dispatcher))
        except OSError:
            self._close_listeners()
            raise
        self._sweeping = asyncio.create_task(self._sweep(), name="rpc idle connections")

    def _factory(self, port: Port, dispatcher: Dispatcher) -> Callable[[], RpcConnection]:
        return lambda: RpcConnection(
            port.served,
            dispatcher,
            self._metrics,
            self._admit,
            self._left,
            self._held,
            self._pace,
            self._loop,
        )

    def endpoints(self, number: int) -> list[tuple[str, int]]:
        """Return addresses and ports, as bound, of the port that was configured as `number`."""
        return [
            each
            for port, _, listeners in self._ports
            if port.number == number
            for each in listeners.endpoints
        ]

    def _admit(self, connection: RpcConnection) -> str:
        self._connections.add(connection)
        self._by_address[connection.place] += 1
        own = self._by_address[connection.place]
        is_few = own <= CONNECTIONS_FEW
        if len(self._connections) > (CONNECTIONS_MAX if is_few else CONNECTIONS_MAX * 3 // 4):
            return "connections"
        if own > CONNECTIONS_PER_ADDRESS_MAX:
            return "connections_per_address"
        return ""

    def _left(self, connection: RpcConnection) -> None:
        self._connections.discard(connection)
        self._by_address[connection.place] -= 1
        if not self._by_address[connection.place]:
            del self._by_address[connection.place]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            now = self._loop.time()
            for connection in list(self._connections):
                connection.expire(now)

    def _close_listeners(self) -> None:
        for _, _, listeners in self._ports:
            listeners.close()

    async def stop(self) -> None:
        """End waits with an answer, close every connection and the ports."""
        self._close_listeners()
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping
        self._pace.stop()
        for connection in list(self._connections):
            connection.close()
        for _, dispatcher, _ in self._ports:
            await dispatcher.stop()
