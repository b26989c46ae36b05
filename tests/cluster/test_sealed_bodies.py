"""Bodies stored encrypted: nothing of them is in any file, and every door opens them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from click.testing import CliRunner
from msgspec.structs import replace

from qm.api.gate.identity import Role
from qm.cli.main import main
from qm.client.calls import Tls
from qm.client.client import Client
from qm.client.message import Message
from qm.model.state.tables import Table
from qm.model.values.elements import SealedBodies
from qm.model.values.rows import POSITION_KEY, unpack_position
from qm.node.config.schema import API_PORT, ArchiveSection, NodeConfig
from qm.node.membership.body_seals import BodySeals
from qm.pb import control_pb2 as pb
from qm.security.body_seals import SEAL_BYTES
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.archives import all_exported
from tests.cluster.harness import COMPUTER_NAME, Harness, HarnessNode, cluster, run, until
from tests.cluster.messages import create_queue
from tests.cluster.test_edge import connect
from tests.unit.model.world import packet

ORDERS = ".\\private$\\orders"
DEAD_LETTERS = f"DIRECT=OS:{COMPUTER_NAME}\\SYSTEM$;DEADLETTER"
UNREACHABLE = "DIRECT=TCP:127.255.255.1\\private$\\far"
SECRET = b"the launch code is 0000"
IN_CLEAR = b"everybody may read this"
HOST = COMPUTER_NAME.lower()


def storing(encrypt: Any) -> Callable[[NodeConfig], NodeConfig]:
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
        async with cluster(3, folder=tmp_path, change=storing("all")) as nodes:
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
                await alice.send(ORDERS, Message(body=IN_CLEAR))
            node = nodes["n1"]
            await node.stop()
            node.config = storing("all")(node.config)
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
            assert files_with(tmp_path, IN_CLEAR)
            assert not files_with(tmp_path, SECRET)
            node.config = storing("none")(node.config)
            await node.start()
            await nodes.leader()
            await in_force(nodes, SealedBodies.NONE)
            async with client(nodes) as alice:
                await alice.send(ORDERS, Message(body=b"plain again"))
                found = await bodies(alice)
                assert found == [IN_CLEAR, SECRET, SECRET + b" again", b"plain again"]
                assert seals(node).sealer().generation == before + 1

    run(scenario())


async def qm(nodes: Harness, *arguments: str) -> Any:
    """Run `qm` as an admin while the nodes run; return its JSON output."""
    files = nodes.certificate("admin")
    environment = {
        "QM_ENDPOINT": ",".join(f"{node.host}:{API_PORT}" for node in nodes.up),
        "QM_TLS_AUTHORITY": str(files.authority),
        "QM_TLS_CERTIFICATE": str(files.certificate),
        "QM_TLS_KEY": str(files.key),
    }
    result = await asyncio.to_thread(
        CliRunner().invoke, main, [*arguments, "-o", "json"], env=environment
    )
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return json.loads(result.stdout)


def columns_with(archive: Path, text: bytes) -> list[str]:
    """Return the columns of an archive's files that contain bytes: the files are compressed."""
    found = []
    for file in sorted(archive.rglob("*.parquet")):
        table = pq.read_table(file)
        for name in table.column_names:
            values = table[name].to_pylist()
            if any(text in value for value in values if isinstance(value, bytes)):
                found.append(f"{file.name} {name}")
    return found


def test_backup_and_archive_hold_no_body_and_what_leaves_is_opened(tmp_path: Path) -> None:
    """Dead letters too; the receiver, another cluster, seals with a key of its own."""

    async def scenario() -> None:
        near_folder, far_folder, archive = (tmp_path / name for name in ("near", "far", "archive"))

        def exporting(config: NodeConfig) -> NodeConfig:
            section = ArchiveSection(url=str(archive), range_s=1, busy_wait_s=0)
            return replace(storing("all")(config), archive=section)

        async with (
            cluster(1, folder=near_folder, change=exporting) as near,
            cluster(1, folder=far_folder, change=storing("all")) as far,
        ):
            await create_queue(await near.leader(), "orders")
            await create_queue(await far.leader(), "orders")
            await in_force(near, SealedBodies.ALL)
            await in_force(far, SealedBodies.ALL)
            async with client(near) as sender, client(far, "bob") as receiver:
                await sender.send(
                    f"DIRECT=TCP:{far['n1'].host}\\private$\\orders",
                    Message(body=SECRET + b" leaves"),
                )
                await sender.send(UNREACHABLE, Message(body=SECRET + b" waits", label="readable"))
                orders = await receiver.open_queue(ORDERS)
                found = await orders.peek(timeout_s=30)
                assert found is not None
                assert found.body == SECRET + b" leaves"
                await sender.send(
                    ORDERS,
                    Message(body=SECRET + b" dies", time_to_be_received_s=1, dead_letter=True),
                )
                dead = await (await sender.open_queue(DEAD_LETTERS)).peek(timeout_s=30)
                assert dead is not None
                assert dead.body == SECRET + b" dies"
            await qm(near, "backup", "create", str(tmp_path / "backup"))
            assert (await qm(near, "backup", "verify", str(tmp_path / "backup")))["sound"]
            await all_exported(near, archive)
            for nodes in (near, far):
                await nodes["n1"].stop()
            label = "readable".encode("utf-16-le")
            assert files_with(tmp_path / "backup", label)
            assert columns_with(archive, label)
            assert not files_with(tmp_path, SECRET)
            assert not columns_with(archive, SECRET)

    run(scenario())
