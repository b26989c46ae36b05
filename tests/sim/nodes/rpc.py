"""`grpc.aio` as the product uses it: servers and channels, in place of the real ones."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

import qm.node.http_guard
import raft.transport.tls
from tests.sim.nodes.calls import Call, Details
from tests.sim.nodes.direct import NoListener
from tests.sim.nodes.network import Address, Network

if TYPE_CHECKING:
    from tests.sim.nodes.loop import SimLoop

CONNECT_EVERY_NS: Final = 50_000_000
"""A channel's attempts: everybody who waits for it hears at once."""
NO_CREDENTIALS: Final = object()


def parse(address: str) -> Address:
    """Read `host:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Server:
    """What `grpc.aio.server` returns."""

    def __init__(self, network: Network, interceptors: Any = ()) -> None:
        self.calls: dict[Call, None] = {}
        self._network = network
        self._interceptors = tuple(interceptors or ())
        self._handlers: list[Any] = []
        self._addresses: list[Address] = []
        self._loop: SimLoop = asyncio.get_running_loop()  # type: ignore[assignment]

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The generic ones do."""

    def add_secure_port(self, address: str, credentials: Any) -> int:
        self._addresses.append(parse(address))
        return self._addresses[-1][1]

    def add_insecure_port(self, address: str) -> int:
        return self.add_secure_port(address, None)

    async def start(self) -> None:
        for address in self._addresses:
            self._network.claim(self._loop, address, self)

    async def stop(self, grace: float | None = None) -> None:
        for address in self._addresses:
            self._network.listeners.pop(address, None)
        if grace:
            await self._wait(grace)
        for call in self.calls:
            if call.task is not None:
                call.task.cancel()
        await self._wait(None)

    async def _wait(self, timeout: float | None) -> None:
        tasks = [call.task for call in self.calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    async def handler(self, details: Details) -> Any:
        """Return who serves a method, after the interceptors' say."""

        async def last(asked: Any) -> Any:
            for each in self._handlers:
                found = each.service(asked)
                if found is not None:
                    return found
            return None

        continuation: Callable[[Any], Any] = last
        for interceptor in reversed(self._interceptors):
            continuation = _intercepted(interceptor, continuation)
        return await continuation(details)


def _intercepted(interceptor: Any, inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda details: interceptor.intercept_service(inner, details)


class Channel:
    """What `grpc.aio.secure_channel` returns."""

    def __init__(self, network: Network, address: str) -> None:
        self.network = network
        self.address = parse(address)
        self.loop: SimLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self.calls: dict[Call, None] = {}
        self._is_closed = False

    def _multicallable(
        self, method: str, codec: tuple[Any, Any], *, has_request: bool
    ) -> Callable[..., Call]:
        def call(
            request: Any = None, *, timeout: float | None = None, metadata: Any = None, **_: Any
        ) -> Call:
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            first = request if has_request else None
            return Call(self, method, codec, metadata, timeout, first)

        return call

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Callable[..., Call]:
        codec = (request_serializer, response_deserializer)
        return self._multicallable(method, codec, has_request=True)

    unary_stream = unary_unary

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Callable[..., Call]:
        codec = (request_serializer, response_deserializer)
        return self._multicallable(method, codec, has_request=False)

    stream_unary = stream_stream

    async def channel_ready(self) -> None:
        network, host = self.network, self.address[0]
        while True:
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            own = self.loop.host
            is_cut = network.is_cut(own, host) or network.is_cut(host, own)
            if not is_cut and self.address in network.listeners:
                return
            now_ns = network.world.time_ns
            await asyncio.sleep((CONNECT_EVERY_NS - now_ns % CONNECT_EVERY_NS) / 1e9)

    async def close(self, grace: float | None = None) -> None:
        self._is_closed = True
        for call in list(self.calls):
            call.cancel()

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def install(network: Network) -> None:
    """Replace gRPC's names, and HTTP's listener; who calls is told by the simulated process, not by
    a certificate.
    """

    def server(*_: Any, interceptors: Any = (), **__: Any) -> Server:
        return Server(network, interceptors)

    def channel(address: str, *_: Any, **__: Any) -> Channel:
        return Channel(network, address)

    guard: Any = qm.node.http_guard
    guard.Acceptor = NoListener
    grpc.aio.server = server  # type: ignore[assignment]
    grpc.aio.secure_channel = channel  # type: ignore[assignment]
    grpc.aio.insecure_channel = channel  # type: ignore[assignment]
    for name in ("channel_credentials", "server_credentials"):
        setattr(raft.transport.tls.TlsIdentity, name, lambda self: NO_CREDENTIALS)
