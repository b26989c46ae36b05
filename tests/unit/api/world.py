"""Whole nodes in one loop, and callers of their API over real gRPC."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from qm.api.gate.identity import Role
from qm.api.server import ApiServer
from qm.node.config.schema import API_PORT, ApiSection
from qm.observe.metrics import Metrics
from qm.pb import control_pb2_grpc, data_pb2, data_pb2_grpc
from tests.cluster.harness import WAIT_S, Harness, HarnessNode, cluster, with_sections

T = TypeVar("T")

_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


@dataclass(frozen=True)
class ApiNode:
    """One node, as its callers see it."""

    node: HarnessNode

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def server(self) -> ApiServer:
        return self.node.service.api

    @property
    def metrics(self) -> Metrics:
        assert self.node.node is not None
        return self.node.node.metrics

    @property
    def waiting_readers(self) -> float:
        value: float = self.metrics.gauge("quorate_waiting_readers")._value.get()
        return value

    @property
    def address(self) -> str:
        return f"{self.node.host}:{API_PORT}"


@dataclass(frozen=True)
class World:
    """A cluster with its API."""

    harness: Harness
    is_secure: bool

    def __getitem__(self, name: str) -> ApiNode:
        return ApiNode(self.harness[name])

    async def leader(self) -> ApiNode:
        return ApiNode(await self.harness.leader())

    async def followers(self) -> list[ApiNode]:
        return [ApiNode(node) for node in await self.harness.followers()]

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
async def world(
    count: int = 1, *, is_secure: bool = False, is_provisioned: bool = True, **sections: Any
) -> AsyncIterator[World]:
    """Run a cluster; without `is_secure` its API asks for no certificates. `sections`: of each
    node's configuration.
    """
    change = with_sections(api=ApiSection(insecure=not is_secure), **sections)
    async with cluster(count, is_provisioned=is_provisioned, change=change) as harness:
        made = World(harness, is_secure)
        await harness.leader()
        await harness.followers()
        yield made


class Client:
    """Speaks the data plane, numbering its requests."""

    def __init__(self, channel: grpc.aio.Channel, client_id: str) -> None:
        self.channel = channel
        self.client_id = client_id
        self.number = 0
        self.confirmed_upto = 0
        self.data: Any = data_pb2_grpc.DataStub(channel)
        self.queues: Any = control_pb2_grpc.QueueControlStub(channel)
        self.directory: Any = control_pb2_grpc.DirectoryControlStub(channel)

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


async def eventually(
    look: Callable[[], Awaitable[T]], is_so: Callable[[T], object], wait_s: float = WAIT_S
) -> T:
    """Poll until it holds; fail with what was seen last."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while not is_so(seen := await look()):
        assert loop.time() < end, f"not within {wait_s} s; last seen: {seen}"
    return seen


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
