"""Direct streams over the simulated network: without TLS, certificates say what processes are."""

import asyncio
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from raft.transport.accepting import Acceptor
from raft.transport.direct import FrameConnection
from raft.transport.direct_transport import DirectTransport
from raft.transport.grpc_transport import GrpcConfig, GrpcTransport
from raft.transport.tls import PeerCertificate
from raft.transport.transport import TransportEvents
from raft.types import NodeId
from tests.sim.nodes.network import StreamServer, StreamTransport

DIRECT_PORTS: Final = 10_000
"""Direct streams are accepted at so much above gRPC's port, as nothing tells the two apart here."""


class NoListener(Acceptor):
    """An `Acceptor` of HTTP, which nobody calls here: it opens no real socket."""

    @override
    async def open(self, host: str, port: int) -> None:
        self.port = port


class SimDirectTransport(DirectTransport):
    """A `DirectTransport` that leaves out its door and TLS."""

    def __init__(
        self, config: GrpcConfig, events: TransportEvents, random: Callable[[int], int]
    ) -> None:
        GrpcTransport.__init__(self, config, events, random)
        self._at = _direct(config.listen)
        self._accepted: StreamServer | None = None
        self._welcomed: set[asyncio.Task[None]] = set()

    @override
    async def _listen(self) -> None:
        await GrpcTransport._listen(self)
        loop = asyncio.get_running_loop()
        self._accepted = await loop.create_server(self._new_connection, *self._at)  # type: ignore[assignment]

    @override
    async def _stop_listening(self) -> None:
        if self._accepted is not None:
            self._accepted.close()
        for task in list(self._welcomed):
            task.cancel()
        await asyncio.gather(*self._welcomed, return_exceptions=True)
        await GrpcTransport._stop_listening(self)

    def _new_connection(self) -> FrameConnection:
        return _Accepted(self._begin)

    def _begin(self, connection: FrameConnection) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_accepted(connection))
        self._welcomed.add(task)
        task.add_done_callback(self._welcomed.discard)

    async def _serve_accepted(self, connection: FrameConnection) -> None:
        caller = connection.transport
        assert isinstance(caller, StreamTransport)
        try:
            await self.welcome(connection, _certificate(caller), caller.peer.loop.host)
        except OSError:
            pass  # the caller is gone
        finally:
            connection.abort()

    @override
    async def secure(
        self, connection: FrameConnection, peer: NodeId, address: str
    ) -> PeerCertificate:
        loop = asyncio.get_running_loop()
        called, _ = await loop.create_connection(lambda: connection, *_direct(address))
        assert isinstance(called, StreamTransport)
        return _certificate(called)


class _Accepted(FrameConnection):
    """Tells its owner when it is connected."""

    def __init__(self, begin: Callable[[FrameConnection], None]) -> None:
        super().__init__()
        self._begin = begin

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._begin(self)


def _direct(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) + DIRECT_PORTS


def _certificate(end: StreamTransport) -> PeerCertificate:
    """Return that of the process at the other end."""
    other = end.peer.loop
    return PeerCertificate((other.name,), (f"quorate:role/{other.role}",), b"")
