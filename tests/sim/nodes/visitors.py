"""What strangers and operators do to nodes that run: hostile peers, backups, removed members."""

import asyncio
import logging
import shutil
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from qm.api.gate.operations import NotOffered
from qm.client.client import Client
from qm.client.errors import ClientError
from qm.node.config.schema import API_PORT, MSMQ_PORT
from qm.pb import control_pb2
from qm.store.backup import BackupError, BackupHead, BackupWriter, verify_backup
from tests.sim.nodes.machines import HOSTS, Machine

if TYPE_CHECKING:
    import random

    from tests.sim.nodes.cluster import SimCluster

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 12
PATIENCE_S: Final = (0.0, 2.0)
"""How long a hostile peer keeps its connection."""
STRANGE_MAX_BYTES: Final = 20_000
BASE_HEADER: Final = struct.Struct("<BBH4sII")
"""Version, reserved, flags, signature, packet size, time to reach the queue: [MS-MQMQ] 2.2.19.1."""
REMOVED_S: Final = (0.0, 2.0)
"""How long a node runs on whose member was removed."""
ASK_EVERY_S: Final = 0.2
VERSION: Final = 0x10
SIZES: Final = (0, 1, 15, 16, 17, 300, 4 << 20, (4 << 20) + 1, 0xFFFF_FFFF)


class _Stranger(asyncio.Protocol):
    """Sends what it was given, and reads whatever comes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._data)


def hostile_bytes(chance: "random.Random") -> bytes:
    """Return what is not a session, from nothing to headers that promise more than follows."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randrange(STRANGE_MAX_BYTES))
    header = BASE_HEADER.pack(
        VERSION,
        chance.choice((0, 0xFF)),
        chance.randrange(1 << 16),
        b"LIOR",
        chance.choice(SIZES),
        0,
    )
    if kind == 1:
        return header[: chance.randrange(len(header))]
    rest = chance.randbytes(chance.randrange(STRANGE_MAX_BYTES))
    return header + (rest if kind == 2 else header * (len(rest) // len(header)))


def intrude(cluster: "SimCluster", machine: Machine) -> bool:
    """Open a few connections to a node and send what no queue manager sends."""
    loop, chance = cluster.client, cluster.world.chance("hostile")
    if loop is None:
        return False
    pieces = [hostile_bytes(chance) for _ in range(chance.randint(1, CONNECTIONS_MAX))]
    patience_s = chance.uniform(*PATIENCE_S)

    async def one(data: bytes) -> None:
        with suppress(OSError):
            transport, _ = await loop.create_connection(
                lambda: _Stranger(data), machine.host, MSMQ_PORT
            )
            await asyncio.sleep(patience_s)
            transport.close()

    for data in pieces:
        loop.call_soon(lambda data=data: cluster.keep(loop.create_task(one(data))))  # type: ignore[misc]
    return True


def back_up(cluster: "SimCluster", machine: Machine) -> bool:
    """Make a backup of a node; if that succeeds, what it holds must be whole."""
    loop, node = machine.loop, machine.node
    if loop is None or node is None or node.service is None:
        return False
    operations = node.service.operations
    cluster.backups += 1
    folder = cluster.folder / f"backup-{cluster.backups}"

    async def take() -> None:
        head: BackupHead | None = None
        try:
            with BackupWriter(folder) as writer:
                async for part in operations.backup():
                    writer.write(part.data)
                    head = part.head
                assert head is not None
                writer.finish(head)
        except (NotOffered, OSError) as error:
            cluster.world.say("no backup", machine.name, str(error)[:100])
            return
        cluster.backups_made += 1
        cluster.world.say("backup", machine.name, head.index)
        try:
            verify_backup(folder, cluster.folder)
        except (BackupError, OSError) as error:
            cluster.find(f"backup: of {machine.name} at entry {head.index}: {error}")
        cluster.probes.on_committed(
            head.index, int.from_bytes(bytes.fromhex(head.digest), "little")
        )
        shutil.rmtree(folder)

    machine.call(lambda: cluster.keep(loop.create_task(take())))
    return True


def remove(cluster: "SimCluster", machine: Machine) -> bool:
    """Remove a member by hand, and have its machine join again with an empty disk; once, as it may
    be the second disk that is lost.
    """
    loop = cluster.client
    if loop is None or any(each.has_lost_its_disk for each in cluster.machines.values()):
        return False
    machine.has_lost_its_disk = True
    runs_on_s = cluster.world.chance("removed").uniform(*REMOVED_S)
    request = control_pb2.RemoveMemberRequest(name=machine.name)

    async def ask() -> None:
        client = Client([f"{host}:{API_PORT}" for host in HOSTS.values()])
        while True:
            try:
                await client.wire.call(lambda stubs: stubs.cluster.RemoveMember, request)
                break
            except ClientError:
                await asyncio.sleep(ASK_EVERY_S)
        await client.wire.close()
        cluster.world.say("removed", machine.name)
        await asyncio.sleep(runs_on_s)
        while not machine.is_up:
            await asyncio.sleep(ASK_EVERY_S)
        machine.lose_disk()

    loop.call_soon(lambda: cluster.keep(loop.create_task(ask())))
    return True
