"""The gRPC server of a node: control and data plane, health, reflection."""

from ipaddress import ip_address
from typing import Any, Final, Protocol

import grpc
import grpc.aio
import msgspec
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from qm.api.control.register import Control
from qm.api.data.service import Data
from qm.api.gate import receiving
from qm.api.gate.calls import CallGate, Revocations
from qm.api.gate.delegation import Delegation
from qm.api.gate.events import EventLog
from qm.api.gate.identity import Principal
from qm.api.gate.local import LocalChannel, LocalServices
from qm.api.gate.operations import Console, Operations
from qm.cluster.cluster import Cluster
from qm.cluster.examining import Examining
from qm.cluster.membership import Membership
from qm.observe.metrics import Metrics
from qm.pb import control_pb2, data_pb2, data_pb2_grpc

ANSWER_MAX_BYTES: Final = 32 << 20
"""Size of one message to a caller; of one from a caller see `receiving`."""
CALLS_MAX: Final = 16_384
"""Calls open at once on a node, including waits and streams."""
STREAMS_PER_CONNECTION_MAX: Final = 4_096
CONNECTIONS_MAX: Final = 4_096
"""Connections open at once, including those in their handshake."""
HANDSHAKE_TIMEOUT_MS: Final = 5_000
METADATA_MAX_BYTES: Final = 16_384
"""Size of a call's header, which also carries errors."""
KEEPALIVE_MS: Final = 10_000
"""Interval of pings on an idle connection, so that it ends soon with the waits of a lost client."""
STOP_GRACE_S: Final = 2.0
"""Time for calls that run when the server stops; clients repeat the others elsewhere."""

_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    *receiving.SERVER_OPTIONS,
    ("grpc.max_send_message_length", ANSWER_MAX_BYTES),
    ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),  # a minute by default, whatever the one above
    # Or connections of clients that vanished between calls would add up to CONNECTIONS_MAX.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.so_reuseport", 0),  # a second process on the same port must fail, not share it
)


class ApiConfig(msgspec.Struct, frozen=True):
    """Where a node serves its API."""

    host: str
    port: int
    """0 takes any free port, see `ApiServer.port`."""
    is_insecure: bool = False
    """No certificates: every caller that reaches the port is an admin. Loopback addresses only."""


def is_loopback(host: str) -> bool:
    """Whether an address literal can be reached only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class ServerIdentity(Revocations, Protocol):
    """A server's certificates (`raft.transport.tls.TlsIdentity`)."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that require a certificate of every caller."""


class ApiServer:
    """The gRPC server of a node."""

    def __init__(
        self,
        config: ApiConfig,
        cluster: Cluster,
        membership: Membership,
        operations: Operations,
        metrics: Metrics,
        events: EventLog,
        console: Console,
        delegation: Delegation,
        examining: Examining,
        identity: ServerIdentity | None = None,
    ) -> None:
        """`identity`: of a server that requires certificates; None with `is_insecure` only.

        Raises ValueError for an insecure server that is not on a loopback address.
        """
        if config.is_insecure != (identity is None):
            raise ValueError("an API server has either certificates or the insecure mode")
        if config.is_insecure and not is_loopback(config.host):
            raise ValueError(
                f"the insecure API may listen on loopback addresses only, not on {config.host!r}"
            )
        self.port = 0
        self._config = config
        self._credentials = None if identity is None else identity.server_credentials()
        self._gate = CallGate(metrics, events, identity, delegation)
        self.data: Final = Data(cluster, metrics, examining)
        """The data plane, whose lines of readers remote read shares."""
        self._control = Control(cluster, membership, operations, events, self.data, console)
        self._local = LocalServices()
        self._register(self._local)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server: grpc.aio.Server | None = None
        self._is_stopped = False

    def _register(self, server: Any) -> None:
        data_pb2_grpc.add_DataServicer_to_server(self.data, server)
        self._control.register(server)

    def channel(self, who: Principal, address: str) -> LocalChannel:
        """Return a channel on which `who`, at an address, calls from within this process."""
        return LocalChannel(self._gate, self._local, who, address)

    async def start(self) -> None:
        """Listen. Raises OSError."""
        server = grpc.aio.server(
            interceptors=(self._gate,), options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX
        )
        self._register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        files = (data_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR)
        names = [one.full_name for file in files for one in file.services_by_name.values()]
        reflection.enable_server_reflection(
            [*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        address = f"{host}:{self._config.port}"
        try:
            if self._credentials is None:
                self.port = server.add_insecure_port(address)
            else:
                self.port = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await server.start()
        self._server = server
        await self.set_serving(is_serving=True)

    async def set_serving(self, *, is_serving: bool) -> None:
        """Tell clients by gRPC health whether to come here; calls are answered anyway."""
        status = health_pb2.HealthCheckResponse
        await self._health.set("", status.SERVING if is_serving else status.NOT_SERVING)

    async def stop(self, grace_s: float | None = STOP_GRACE_S) -> None:
        """End waits and streams, let calls finish briefly, close; None: end them all now."""
        if self._is_stopped:
            return
        self._is_stopped = True
        await self.set_serving(is_serving=False)
        self.data.stop()
        if self._server is not None:
            await self._server.stop(grace_s)
        await self.data.close()
