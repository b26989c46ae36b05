"""Real nodes in one loop, each with its API server, and callers over real gRPC."""

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from prometheus_client import CollectorRegistry

from qm.api.events import EventLog
from qm.api.operations import BackupPart, Health, Link
from qm.api.server import ApiConfig, ApiServer
from qm.node.roles import Role
from qm.observe.metrics import Metrics
from qm.pb import control_pb2_grpc, data_pb2, data_pb2_grpc
from raft.metrics import TransportMetrics
from raft.tls import TlsFiles, TlsIdentity
from tests.cluster.harness import Harness, HarnessNode, cluster

_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


class PlainOperations:
    """A process without disk alarms, links or drains."""

    version = "test"

    def __init__(self) -> None:
        self.drained: dict[str, bool] = {}
        self.resent: list[int] = []
        self.levels: dict[str, str] = {}
        self.known_links: dict[int, Link] = {}

    def health(self) -> Health:
        return Health(1 << 30, 1 << 31, (), is_draining=any(self.drained.values()), session_count=0)

    async def drain(self, node: str, *, is_draining: bool) -> Health:
        self.drained[node] = is_draining
        return self.health()

    async def links(self, queue_ids: Sequence[int]) -> Mapping[int, Link]:
        return {one: self.known_links[one] for one in queue_ids if one in self.known_links}

    async def resend(self, queue_id: int) -> None:
        self.resent.append(queue_id)

    def set_log_level(self, level: str, logger: str, expires_after_s: int) -> str:
        previous = self.levels.get(logger, "info")
        self.levels[logger] = level
        return previous

    async def backup(self) -> AsyncIterator[BackupPart]:
        for part in (b"one", b"two"):
            yield BackupPart(part, 6, 7)


@dataclass
class ApiNode:
    """One node's API server."""

    node: HarnessNode
    server: ApiServer
    events: EventLog
    metrics: Metrics
    operations: PlainOperations
    files: TlsFiles | None

    @property
    def address(self) -> str:
        return f"{self.node.host}:{self.server.port}"


@dataclass
class World:
    """A cluster with its API."""

    harness: Harness
    is_secure: bool
    apis: dict[str, ApiNode] = field(default_factory=dict)

    async def serve(self, node: HarnessNode) -> None:
        events = EventLog(lambda: time.time_ns() // 1_000_000)
        metrics = Metrics(CollectorRegistry())
        operations = PlainOperations()
        tls = node.config.tls
        files = TlsFiles(tls.authority, tls.certificate, tls.key) if self.is_secure else None
        credentials = None
        if files is not None:
            credentials = TlsIdentity(files, TransportMetrics()).server_credentials()
        assert node.node is not None
        assert node.node.service is not None
        server = ApiServer(
            ApiConfig(node.host, 0, is_insecure=not self.is_secure),
            node.cluster,
            node.node.service.members,
            operations,
            metrics,
            events,
            credentials,
        )
        await server.start()
        self.apis[node.name] = ApiNode(node, server, events, metrics, operations, files)

    async def kill(self, name: str) -> None:
        """Let a node and its API die as a crash would."""
        api = self.apis.pop(name)
        await api.server.stop(None)
        await self.harness.kill(name)

    async def leader(self) -> ApiNode:
        return self.apis[(await self.harness.leader()).name]

    async def follower(self) -> ApiNode:
        return self.apis[(await self.harness.followers())[0].name]

    @contextlib.asynccontextmanager
    async def channel(
        self, api: ApiNode, name: str = "", role: Role = Role.ADMIN
    ) -> AsyncIterator[grpc.aio.Channel]:
        """Dial a node; over TLS as principal `name`."""
        if self.is_secure:
            files = self.harness.certificate(name or role.value, role)
            credentials = grpc.ssl_channel_credentials(
                files.authority.read_bytes(),
                files.key.read_bytes(),
                files.certificate.read_bytes(),
            )
            dialed = grpc.aio.secure_channel(api.address, credentials, options=_OPTIONS)
        else:
            dialed = grpc.aio.insecure_channel(api.address, options=_OPTIONS)
        async with dialed as channel:
            yield channel

    @contextlib.asynccontextmanager
    async def client(
        self, api: ApiNode, client_id: str = "", *, name: str = "", role: Role = Role.ADMIN
    ) -> AsyncIterator["Client"]:
        """A client with an open session."""
        async with self.channel(api, name, role) as channel:
            client = Client(channel, client_id or secrets.token_hex(4))
            await client.open_session()
            yield client


@contextlib.asynccontextmanager
async def world(count: int = 1, *, is_secure: bool = False) -> AsyncIterator[World]:
    async with cluster(count) as harness:
        made = World(harness, is_secure)
        await harness.leader()
        for node in harness.up:
            await made.serve(node)
        try:
            yield made
        finally:
            for api in made.apis.values():
                await api.server.stop(None)


class Client:
    """Speaks the data plane, numbering its requests."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.number = 0
        self.confirmed_upto = 0
        self.data: Any = data_pb2_grpc.DataStub(channel)
        self.queues: Any = control_pb2_grpc.QueueControlStub(channel)

    def moved_to(self, channel: grpc.aio.Channel) -> "Client":
        """The same client at another node."""
        moved = Client(channel, self.client_id)
        moved.number, moved.confirmed_upto = self.number, self.confirmed_upto
        return moved

    async def open_session(self, lease_ms: int = 0) -> data_pb2.OpenSessionReply:
        request = data_pb2.OpenSessionRequest(client_id=self.client_id, lease_ms=lease_ms)
        reply: data_pb2.OpenSessionReply = await self.data.OpenSession(request)
        return reply

    def next(self, count: int = 1) -> data_pb2.RequestNumber:
        first = self.number + 1
        self.number += count
        return self.numbered(first)

    def numbered(self, number: int) -> data_pb2.RequestNumber:
        return data_pb2.RequestNumber(
            client_id=self.client_id, number=number, confirmed_upto=self.confirmed_upto
        )

    async def open(
        self, queue: str, access: Any = data_pb2.RECEIVE_ACCESS, share_mode: Any = 0
    ) -> data_pb2.OpenQueueReply:
        reply: data_pb2.OpenQueueReply = await self.data.OpenQueue(
            data_pb2.OpenQueueRequest(
                request=self.next(), queue=queue, access=access, share_mode=share_mode
            )
        )
        return reply

    async def send(
        self, queue: str, *bodies: bytes, transaction: bytes = b"", **properties: Any
    ) -> list[data_pb2.SendResult]:
        messages = [
            data_pb2.OutgoingMessage(
                targets=[queue], properties=data_pb2.Properties(body=body, **properties)
            )
            for body in bodies
        ]
        request = data_pb2.SendRequest(
            request=self.next(len(bodies)), messages=messages, transaction=transaction
        )
        reply = await self.data.Send(request)
        return list(reply.results)

    async def receive(
        self, opened: data_pb2.OpenQueueReply, count: int = 1, **more: Any
    ) -> data_pb2.ReceiveReply:
        more.setdefault("view", data_pb2.PACKETS_AND_PROPERTIES)
        number = more.pop("request", None) or self.next(count)
        reply: data_pb2.ReceiveReply = await self.data.Receive(
            data_pb2.ReceiveRequest(request=number, handle=opened.handle, count=count, **more)
        )
        return reply

    async def peek(self, opened: data_pb2.OpenQueueReply, **more: Any) -> data_pb2.PeekReply:
        more.setdefault("view", data_pb2.PROPERTIES)
        reply: data_pb2.PeekReply = await self.data.Peek(
            data_pb2.PeekRequest(client_id=self.client_id, handle=opened.handle, **more)
        )
        return reply


def bodies(reply: data_pb2.ReceiveReply | data_pb2.PeekReply) -> list[bytes]:
    return [properties.body for properties in reply.messages.properties]


@contextlib.contextmanager
def refused(code: grpc.StatusCode, reason: str = "", *, field: str = "") -> Iterator[None]:
    """Expect a call to end with a status; `reason` is the MQ code's name."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        assert error.code() is code, f"{error.code()}: {error.details()}"
        details = _details(error)
        if reason:
            info = next(one for one in details if isinstance(one, error_details_pb2.ErrorInfo))
            assert (info.reason, info.domain) == (reason, "msmq"), info
        if field:
            bad = next(one for one in details if isinstance(one, error_details_pb2.BadRequest))
            assert bad.field_violations[0].field == field, bad
    else:
        raise AssertionError(f"the call succeeded; {code} was expected")


def _details(error: grpc.aio.AioRpcError) -> list[Message]:
    call: Any = error
    status = rpc_status.from_call(call)
    found: list[Message] = []
    for packed in status.details if status is not None else ():
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest):
            if packed.Is(kind.DESCRIPTOR):
                detail = kind()
                packed.Unpack(detail)
                found.append(detail)
    return found
