"""gRPC between nodes, for requests to the leader and other nodes: options and channels.

Mutual TLS: a node's certificate carries its name (DNS), which is checked here, and the role "node"
(URI), which `qm.node.relay.server` checks.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from qm.cluster.relay import RELAY_MAX_BYTES
from qm.pb.relay_pb2_grpc import RelayStub
from raft.cancellation import raise_if_cancelled
from raft.transport.tls import TlsIdentity

if TYPE_CHECKING:
    from qm.pb.relay_pb2_grpc import RelayAsyncStub

ReplyT = TypeVar("ReplyT")

FRAME_MAX_BYTES: Final = RELAY_MAX_BYTES + (1 << 20)
"""Limit of one gRPC message."""
FRAME_BYTES_SOFT: Final = 1 << 20
"""Waiting frames share a message up to this size."""
READY_TIMEOUT_MS: Final = 1_000
"""For connecting to another node; the connection is usually open already."""
KEEPALIVE_MS: Final = 5_000
CONNECTIONS_MAX: Final = 1_024
"""Connections that a node accepts at a time, those in their handshake included."""
METADATA_MAX_BYTES: Final = 8_192
"""Limit of a call's header."""

_COMMON_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", FRAME_MAX_BYTES),
    ("grpc.max_send_message_length", FRAME_MAX_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),  # a minute by default, whatever the one above
)
SERVER_OPTIONS: Final = (
    *_COMMON_OPTIONS,
    ("grpc.keepalive_permit_without_calls", 1),  # or what vanished between calls adds up
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),
    ("grpc.so_reuseport", 0),  # a second process on the same port must fail, not share it
)
_CHANNEL_OPTIONS: Final = (
    *_COMMON_OPTIONS,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)


class Unreachable(Exception):
    """There is no connection to the node: nothing was sent to it."""


async def reply_to(
    method: Callable[..., Awaitable[ReplyT]], request: object, *, timeout_s: float | None = None
) -> ReplyT:
    """Make a call with one answer. Raises AioRpcError, CANCELLED where another task closed the
    channel under it: gRPC cancels the task that waits then, as if it were to end.
    """
    try:
        return await method(request, timeout=timeout_s)
    except (grpc.aio.UsageError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
        raise_if_cancelled()
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.CANCELLED,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(),
            "the channel was closed under the call",
            None,
        ) from error


class Channels:
    """Channels to other nodes' relay ports, made when first needed and then kept."""

    def __init__(self, identity: TlsIdentity, address_of: Callable[[str], str | None]) -> None:
        """`address_of`: name of a node -> `host:port` of its relay endpoint, if known."""
        self._identity = identity
        self._address_of = address_of
        self._channels: dict[tuple[str, str], tuple[Any, RelayAsyncStub]] = {}

    async def stub(self, node: str, address: str | None = None) -> "RelayAsyncStub":
        """Return a connected stub, for a certain address if one is given.

        Raises Unreachable.
        """
        address = address or self._address_of(node)
        if address is None:
            raise Unreachable(f"the address of {node} is not known")
        channel, stub = self._channel(node, address)
        try:
            async with asyncio.timeout(READY_TIMEOUT_MS / 1000):
                await channel.channel_ready()
        except (TimeoutError, grpc.aio.UsageError) as error:
            # The next one reads the certificate files again.
            if self._channels.pop((node, address), None) is not None:
                await channel.close(None)
            raise Unreachable(f"{node} does not answer at {address}") from error
        return stub

    def _channel(self, node: str, address: str) -> "tuple[Any, RelayAsyncStub]":
        known = self._channels.get((node, address))
        if known is None:
            options = (*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", node))
            channel = grpc.aio.secure_channel(
                address, self._identity.channel_credentials(), options=options
            )
            # A stub of its own for each call would make an object for every method.
            known = self._channels[node, address] = channel, RelayStub(channel)
        return known

    async def close(self) -> None:
        """Close all channels; calls that run end with errors."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close(None) for channel, _ in channels.values()))
