"""Whole nodes in one loop, read by our own RPC client."""

import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from qm.names.format_name import parse_format_name
from qm.node.config.schema import ApiSection, NodeConfig, RpcSection
from qm.rpc.client import RpcClient
from qm.rpc.interface import Interface
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.queue_formats import format_of
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import REMOTE_READ
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.users_file import User
from qm.wire.packets.user_message import UserMessage, parse_user_message
from tests.cluster.harness import HarnessNode, cluster
from tests.unit.api.world import Client, World
from tests.unit.rpc.users import write_users

MAPPER_PORT = 11350
RPC_PORT = 11351
ADMINISTRATORS = "S-1-5-32-544"
ORDERS = r"DIRECT=OS:QUORATE\private$\orders"
RECEIVE, PEEK_CURRENT, PEEK_NEXT = 0, 0x8000_0000, 0x8000_0001
INFINITE = 0xFFFF_FFFF
ACK, NACK = 2, 1


class RpcWorld(World):
    """A cluster with its RPC ports."""

    async def reader(
        self, node: HarnessNode | None = None, user: str = "alice", group_id: int = 0
    ) -> "RemoteReader":
        node = node or (await self.harness.leader())
        client = await RpcClient().connect(node.host, RPC_PORT)
        provider = NtlmClient(user, "pw", "", secrets.token_bytes) if user else None
        await client.bind(
            REMOTE_READ,
            provider=provider,
            auth_type=AuthType.NTLM if user else 0,
            level=AuthLevel.PRIVACY if user else AuthLevel.NONE,
            group_id=group_id,
        )
        return RemoteReader(client)

    async def caller(self, interface: Interface, user: str = "alice") -> RpcClient:
        node = await self.harness.leader()
        client = await RpcClient().connect(node.host, RPC_PORT)
        provider = NtlmClient(user, "pw", "", secrets.token_bytes)
        await client.bind(
            interface, provider=provider, auth_type=AuthType.NTLM, level=AuthLevel.PRIVACY
        )
        return client


@contextlib.asynccontextmanager
async def rpc_world(
    count: int = 1,
    *,
    encrypt_bodies: Any = "none",
    users: Sequence[str] = (),
    is_provisioned: bool = True,
    **rpc: Any,
) -> AsyncIterator[RpcWorld]:
    """Nodes that serve RPC; alice is an administrator, bob and `users` are not."""
    with tempfile.TemporaryDirectory() as folder:
        accounts = Path(folder) / "users.toml"
        hash_ = nt_hash("pw").hex()
        others = [User(name, hash_) for name in ("bob", *users)]
        write_users(accounts, [User("alice", hash_, groups=(ADMINISTRATORS,)), *others])
        ports = {"mapper_port": MAPPER_PORT, "port_base": RPC_PORT}
        section = RpcSection(enabled=True, users_file=accounts, **(ports | rpc))

        def change(config: NodeConfig) -> NodeConfig:
            storage = msgspec.structs.replace(config.storage, encrypt_bodies=encrypt_bodies)
            api = ApiSection(insecure=True)
            return msgspec.structs.replace(config, api=api, rpc=section, storage=storage)

        async with cluster(count, change=change, is_provisioned=is_provisioned) as harness:
            made = RpcWorld(harness, False)
            await harness.leader()
            await harness.followers()
            yield made


class RemoteReader:
    """Calls remote read."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client
        self.requests = 0

    async def call(self, opnum: int, values: Any) -> Any:
        return await self.client.call(REMOTE_READ, opnum, values)

    async def open(
        self, name: str = ORDERS, access: int = 1, share: int = 0, *, for_move: bool = False
    ) -> Any:
        parsed: Any = parse_format_name(name)
        given = mqrr.OpenIn(format_of(parsed), access, share, bytes(16), 1, 6, 1, 7601, 1)
        result = await self.call(11 if for_move else 2, given)
        return result if for_move else result.handle

    def start_values(
        self,
        handle: bytes,
        action: int = RECEIVE,
        *,
        timeout_ms: int = 0,
        lookup: int = 0,
        cursor: int = 0,
        request: int = 0,
        body_max: int = INFINITE,
    ) -> mqrr.StartIn:
        self.requests += 1
        return mqrr.StartIn(
            handle, lookup, cursor, action, timeout_ms, request or self.requests, body_max, INFINITE
        )

    async def start(self, handle: bytes, action: int = RECEIVE, **more: Any) -> mqrr.StartOut:
        found: mqrr.StartOut = await self.call(7, self.start_values(handle, action, **more))
        return found

    async def end(self, handle: bytes, ack: int = ACK, request: int = 0) -> int:
        result = await self.call(9, mqrr.EndIn(handle, ack, request or self.requests))
        return int(result.status)

    async def receive(self, handle: bytes, **more: Any) -> bytes:
        """Receive a message and accept it."""
        found = await self.start(handle, **more)
        assert found.status == 0, hex(found.status)
        assert await self.end(handle) == 0
        return body(found)

    async def close(self, handle: bytes) -> int:
        return int((await self.call(3, mqrr.Handle(handle))).status)


def message(found: mqrr.StartOut) -> UserMessage:
    """The message of a whole answer, without the headers behind it."""
    assert found.sections is not None, hex(found.status)
    (section,) = found.sections
    assert section.data is not None
    packet = bytearray(section.data)
    packet[8:12] = (len(packet) - 188).to_bytes(4, "little")
    parsed, _ = parse_user_message(bytes(packet[:-188]), 0, len(packet) - 188)
    return parsed


def body(found: mqrr.StartOut) -> bytes:
    return message(found).properties.message_body


async def with_orders(client: Client, *bodies: bytes, **properties: Any) -> None:
    """A queue with messages."""
    from tests.unit.api.test_data import create

    await create(client)
    if bodies:
        await client.send(ORDERS, *bodies, **properties)
