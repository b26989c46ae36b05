"""The transport between processes: gRPC streams over mutual TLS (DESIGN section 3).

A peer's identity comes from its certificate, never from its messages: a caller must have the role
of a node and no other, call itself by a node id whose name is a DNS name of its certificate, and be
a member as far as this node's owner knows; a dialed node must present the name that was dialed.
Other calls are refused and counted before any of their data is read.
"""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from raft.pb.peer_pb2 import SnapshotPart, SnapshotProgress
from raft.transport.metrics import Every
from raft.transport.peer import Stream
from raft.transport.refusal import refuse
from raft.transport.snapshot_stream import SnapshotCall, SnapshotService, receive_snapshot
from raft.transport.stream_transport import StreamTransport
from raft.transport.tls import PeerCertificate, TlsFiles, TlsIdentity, peer_certificate
from raft.transport.transport import TransportEvents, node_name
from raft.transport.wire_format import FRAME_MAX_BYTES, NODE_ID_MAX_BYTES
from raft.types import NodeId

logger = logging.getLogger(__name__)
# grpcio 1.85 logs from within its coroutines at DEBUG; under CPython 3.11 the stack frames that
# logging then inspects crash the garbage collector (seen in half of the test runs).
logging.getLogger("grpc").setLevel(logging.INFO)

SERVICE = "raft.pb.Peer"
METADATA_CLUSTER = "quorate-cluster"
METADATA_FROM = "quorate-from"
METADATA_TO = "quorate-to"

DIAL_TIMEOUT_MS = 3_000
PROBE_TIMEOUT_MS = 250
HANDSHAKE_TIMEOUT_MS = 5_000
KEEPALIVE_MS = 5_000
"""Time between pings of an idle connection, and for the answer to one."""
CONNECTIONS_MAX = 1_024
"""Connections open at once, including those in their handshake."""
METADATA_MAX_BYTES = 8_192
"""Size of a call's header."""
CALLS_MAX = 256
"""Calls open at once, all of them authenticated."""

REFUSALS_LOGGED_EVERY_MS = 1_000
"""At most one log line in this time; the counters include all refusals."""
_REVOKED = "the certificate was revoked"

_COMMON_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", FRAME_MAX_BYTES),
    ("grpc.max_send_message_length", FRAME_MAX_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),  # a minute by default, whatever the one above
)
_CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_COMMON_OPTIONS,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel reuses a broken connection
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_SERVER_OPTIONS: tuple[tuple[str, Any], ...] = (
    *_COMMON_OPTIONS,
    ("grpc.keepalive_permit_without_calls", 1),  # or what vanished between calls adds up
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.so_reuseport", 0),  # a second process on the same port must fail, not share it
)
_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """Settings of one node's transport."""

    cluster: bytes
    """16 bytes."""
    node: NodeId
    listen: str
    """`host:port`; port 0 means any free port, see `GrpcTransport.port`."""
    tls: TlsFiles
    admits: Callable[[str], bool]
    """Whether a node of this name may call, asked for each of its calls."""


class GrpcTransport(StreamTransport):
    """Implements `raft.transport.transport.Transport`."""

    def __init__(
        self, config: GrpcConfig, events: TransportEvents, random: Callable[[int], int]
    ) -> None:
        """`random(n)` gives 0 to n - 1, for jitter. Raises TlsError."""
        super().__init__(config.cluster, config.node, events, random)
        self.port = 0
        self._listen_at = config.listen
        self._admits = config.admits
        self._identity = TlsIdentity(config.tls, self.metrics)
        self._server: Any = None
        self._refusals: dict[str, Every] = {}
        """By kind: one kind does not hide another."""

    @override
    async def _listen(self) -> None:
        self._server = grpc.aio.server(options=_SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        handlers: dict[str, Any] = {
            "Exchange": grpc.stream_stream_rpc_method_handler(self._on_exchange),
            "SendSnapshot": grpc.stream_stream_rpc_method_handler(
                self._on_snapshot,
                response_serializer=SnapshotProgress.SerializeToString,
            ),
        }
        service: Any = grpc.method_handlers_generic_handler(SERVICE, handlers)
        self._server.add_generic_rpc_handlers((service,))
        credentials = self._identity.server_credentials()
        try:
            self.port = self._server.add_secure_port(self._listen_at, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen_at}: {error}") from error
        await self._server.start()

    @override
    async def _stop_listening(self) -> None:
        await self._server.stop(grace=None)

    # Calls to peers

    @override
    @asynccontextmanager
    async def open_stream(self, peer: NodeId, address: str) -> AsyncIterator[Stream]:
        """Dial for ordinary traffic. Frames are bytes here: `raft.transport.wire_format` encodes
        them as protobuf.
        """
        async with self._call(peer, address, "Exchange", None, None) as call:
            yield Stream(_reader(call), call.write, call.cancel, is_dialed=True)

    @override
    @asynccontextmanager
    async def open_snapshot(self, peer: NodeId, address: str) -> AsyncIterator[SnapshotCall]:
        """Dial for a snapshot."""
        serializers = SnapshotPart.SerializeToString, SnapshotProgress.FromString
        async with self._call(peer, address, "SendSnapshot", *serializers) as call:
            yield SnapshotCall(_reader(call), call.write)

    @asynccontextmanager
    async def _call(
        self, peer: NodeId, address: str, method: str, serializer: Any, deserializer: Any
    ) -> AsyncIterator[Any]:
        """Open a call; the peer has accepted it when it enters."""
        options = (*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", node_name(peer)))
        channel: Any = grpc.aio.secure_channel(
            address, self._identity.channel_credentials(), options=options
        )
        metadata = (
            (METADATA_CLUSTER, self.cluster.hex()),
            (METADATA_FROM, self.node),
            (METADATA_TO, peer),
        )
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_MS / 1000):
                call = channel.stream_stream(f"/{SERVICE}/{method}", serializer, deserializer)(
                    metadata=metadata
                )
                answer = await call.initial_metadata()
                if METADATA_FROM not in answer:
                    raise ConnectionError(f"{await call.code()}: {await call.details()}")
            yield call
        finally:
            await channel.close(None)

    @override
    async def resolve(self, address: str) -> tuple[socket.AddressFamily, Any]:
        """Look up the address now, so that a probe need not."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        return found[0][0], found[0][4]

    @override
    async def is_refused(self, place: object) -> bool:
        """Connect without TLS or gRPC, whose own retries would cost milliseconds."""
        assert isinstance(place, tuple)
        family, address = place
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                    await asyncio.get_running_loop().sock_connect(probe, address)
            except ConnectionRefusedError:
                return True
        return False

    # Calls from peers

    async def _on_exchange(self, _: Any, context: Any) -> None:
        peer, certificate = await self._accept(context)
        task = asyncio.current_task()
        assert task is not None
        stream = Stream(_reader(context), context.write, task.cancel, is_dialed=False)
        forget = self._identity.watch(certificate, task.cancel)
        try:
            await self._serve(peer, stream)
        except asyncio.CancelledError:
            # If the handler were only cancelled, a live caller would get no answer.
            task.uncancel()
            if self._identity.is_revoked(certificate):
                self.metrics.revoked_total += 1
                await self._refuse(context, peer, _REVOKED)
            await context.abort(grpc.StatusCode.CANCELLED, "another stream took its place")
        finally:
            forget()

    async def _on_snapshot(self, _: Any, context: Any) -> None:
        peer, certificate = await self._accept(context)
        task = asyncio.current_task()
        assert task is not None
        forget = self._identity.watch(certificate, task.cancel)
        read = _reader(context)

        async def read_part() -> SnapshotPart | None:
            data = await read()
            return None if data is None else SnapshotPart.FromString(data)

        service = SnapshotService(read_part, context.write)
        try:
            await receive_snapshot(service, peer, self._events, self.metrics.peer(peer))
        except DecodeError as error:
            self.metrics.malformed_total += 1
            await self._refuse(context, peer, str(error), grpc.StatusCode.INVALID_ARGUMENT)
        finally:
            forget()

    async def _accept(self, context: Any) -> tuple[NodeId, bytes]:
        """Return the caller and its certificate, or refuse the call and count it."""
        metadata = dict(context.invocation_metadata() or ())
        sender = str(metadata.get(METADATA_FROM, ""))
        certificate = peer_certificate(context.auth_context())
        reason = self._refusal(
            certificate,
            sender,
            str(metadata.get(METADATA_CLUSTER, "")),
            str(metadata.get(METADATA_TO, "")),
        )
        if reason:
            await self._refuse(context, sender, reason)
        await context.send_initial_metadata(((METADATA_FROM, self.node),))
        return sender, certificate.pem

    def _refusal(self, certificate: PeerCertificate, sender: str, cluster: str, to: str) -> str:
        """Return why a caller may not speak, and count it; "" if it may.

        `cluster` in hexadecimal, `sender` and `to` are what the caller says.
        """
        name, metrics = node_name(sender), self.metrics
        if not certificate.is_peer or name not in certificate.dns_names:
            metrics.forged_sender_total += 1
            return (
                f"the certificate has roles {certificate.roles} and names {certificate.dns_names}"
            )
        if len(sender) > NODE_ID_MAX_BYTES:
            metrics.forged_sender_total += 1
            return f"a node id has at most {NODE_ID_MAX_BYTES} bytes"
        if self._identity.is_revoked(certificate.pem):
            metrics.revoked_total += 1
            return _REVOKED
        if cluster != self.cluster.hex():
            metrics.foreign_cluster_total += 1
            return "this is another cluster"
        if not self._admits(name):
            metrics.stranger_total += 1
            return f"{name} is not a member, as far as this node knows"
        if to != self.node:
            metrics.misdirected_total += 1
            return f"this node is {self.node}"
        return ""

    def _log_refusal(self, sender: str, place: str, reason: str, kind: str = "call") -> None:
        period_s = REFUSALS_LOGGED_EVERY_MS / 1000
        if self._refusals.setdefault(kind, Every(period_s, time.monotonic)).is_due():
            logger.warning("refused a %s of %.80r from %s: %s", kind, sender, place, reason)

    async def _refuse(
        self,
        context: Any,
        sender: str,
        reason: str,
        code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED,
    ) -> NoReturn:
        self._log_refusal(sender, context.peer(), reason)
        await refuse(context, code, reason)


def _reader(call: Any) -> Callable[[], Awaitable[Any]]:
    read = call.read

    async def read_or_none() -> Any:
        message = await read()
        return None if message is _EOF else message

    return read_or_none
