"""Bodies stored encrypted: nothing of them is in any file, and every door opens them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from qm.api.gate.identity import Role
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.model.state.tables import Table
from qm.model.values.elements import SealedBodies
from qm.model.values.rows import POSITION_KEY, unpack_position
from qm.node.config.schema import API_PORT, NodeConfig
from qm.node.membership.body_seals import BodySeals
from qm.pb import control_pb2 as pb
from qm.security.body_seals import SEAL_BYTES
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import COMPUTER_NAME, Harness, HarnessNode, cluster, run, until
from tests.cluster.messages import create_queue
from tests.cluster.test_edge import connect
from tests.unit.model.world import packet

ORDERS = ".\\private$\\orders"
SECRET = b"the launch code is 0000"
HOST = COMPUTER_NAME.lower()


def storing(encrypt: str) -> object:
    def change(config: NodeConfig) -> NodeConfig:
        return replace(config, storage=replace(config.storage, encrypt_bodies=encrypt))

    return change


def seals(node: HarnessNode) -> BodySeals:
    found = node.cluster.seals
    assert isinstance(found, BodySeals)
    return found


async def in_force(nodes: Harness, which: SealedBodies) -> None:
    """Wait until every node does to bodies what the configuration says, and has the key for it."""

    def known() -> list[bool]:
        return [seals(node).which is which and node.service.keys.version > 0 for node in nodes.up]

    await until(lambda: all(known()), known)


@asynccontextmanager
async def client(nodes: Harness, name: str = "alice") -> AsyncIterator[Client]:
    files = nodes.certificate(name, Role.ADMIN)
    endpoints = [f"{node.host}:{API_PORT}" for node in nodes.up]
    async with Client(endpoints, tls=Tls(files.authority, files.certificate, files.key)) as made:
        yield made


def files_with(folder: Path, text: bytes) -> list[str]:
    """Return the files below a folder that contain bytes."""
    return [
        str(file.relative_to(folder))
        for file in sorted(folder.rglob("*"))
        if file.is_file() and text in file.read_bytes()
    ]


async def bodies(client: Client, queue: str = ORDERS) -> list[bytes]:
    """Return the bodies in a queue, by browsing."""
    opened = await client.open_queue(queue)
    return [message.body async for message in opened.browse()]


def peers_packet(number: int, **fields: object) -> bytes:
    to = DirectQueueFormatName(f"OS:{HOST}\\private$\\orders")
    return packet(number, to=to, body=SECRET + b" %d" % number, **fields)  # type: ignore[arg-type]


def test_no_file_has_a_body_and_each_door_opens_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(3, folder=tmp_path, change=storing("all")) as nodes:  # type: ignore[arg-type]
            leader = await nodes.leader()
            queue_id = await create_queue(leader, "orders", journaling=True)
            await in_force(nodes, SealedBodies.ALL)
            follower, _ = await nodes.followers()
            peer = await connect(follower)
            numbers = range(1, 41)
            peer.offer(numbers, [peers_packet(number) for number in numbers])
            await peer.has(len(numbers))
            async with client(nodes) as alice:
                await alice.send(ORDERS, Message(body=SECRET + b" of alice", label="readable"))
                await nodes.agree()
                found = await bodies(alice)
                assert found == [SECRET + b" %d" % n for n in numbers] + [SECRET + b" of alice"]
                queue = await alice.open_queue(ORDERS)
                peeked = await queue.peek(timeout_s=5)
                assert peeked is not None
                assert peeked.body == SECRET + b" 1"
                (one,) = [await queue.receive(timeout_s=5)]
                assert one is not None
                assert one.body == SECRET + b" 1"
                many = await queue.receive_many(10, timeout_s=5)
                assert [each.body for each in many] == [SECRET + b" %d" % n for n in range(2, 12)]
                async with queue.stream(5) as stream:
                    messages = aiter(stream)
                    streamed = [(await anext(messages)).body for _ in range(5)]
                assert streamed == [SECRET + b" %d" % n for n in range(12, 17)]
                journal = await bodies(alice, f"{ORDERS};JOURNAL")
                assert journal[:2] == [SECRET + b" 1", SECRET + b" 2"]
            await nodes.agree()
            for node in nodes.up:
                row = node.cluster.state.scan(
                    Table.POSITION,
                    POSITION_KEY.pack(queue_id, 0),
                    POSITION_KEY.pack(queue_id + 1, 0),
                    1,
                )[0][1]
                position = unpack_position(row)
                assert position.body_length - position.stored_size_bytes == SEAL_BYTES
                node.cluster.machine.store.flush()
            peer.transport.abort()
            for node in list(nodes.up):
                await node.stop()
            assert files_with(tmp_path, b"readable".decode().encode("utf-16-le"))
            assert not files_with(tmp_path, SECRET)
            for name in nodes.nodes:
                await nodes.restart(name)
            await nodes.leader()
            async with client(nodes) as alice:
                assert (await bodies(alice))[-1] == SECRET + b" of alice"

    run(scenario())


def test_the_setting_and_the_keys_change_while_bodies_are_there(tmp_path: Path) -> None:
    """Old bodies stay as they are, and readable: plain ones and those under older keys."""

    async def scenario() -> None:
        async with cluster(1, folder=tmp_path) as nodes:
            await create_queue(await nodes.leader(), "orders")
            await in_force(nodes, SealedBodies.NONE)
            async with client(nodes) as alice:
                await alice.send(ORDERS, Message(body=b"plain"))
            node = nodes["n1"]
            await node.stop()
            node.config = storing("all")(node.config)  # type: ignore[operator]
            await node.start()
            await nodes.leader()
            await in_force(nodes, SealedBodies.ALL)
            async with client(nodes) as alice:
                await alice.send(ORDERS, Message(body=SECRET))
                before = seals(node).sealer().generation
                await alice.main.wire.call(
                    lambda stubs: stubs.keys.ReplaceKeys, pb.ReplaceKeysRequest()
                )
                await until(
                    lambda: (seals(node).which, seals(node).sealer().generation)[1] > before,
                    lambda: before,
                )
                await alice.send(ORDERS, Message(body=SECRET + b" again"))
            await node.stop()
            assert not files_with(tmp_path, SECRET)
            node.config = storing("none")(node.config)  # type: ignore[operator]
            await node.start()
            await nodes.leader()
            await in_force(nodes, SealedBodies.NONE)
            async with client(nodes) as alice:
                await alice.send(ORDERS, Message(body=b"plain again"))
                found = await bodies(alice)
                assert found == [b"plain", SECRET, SECRET + b" again", b"plain again"]
                assert seals(node).sealer().generation == before + 1

    run(scenario())
