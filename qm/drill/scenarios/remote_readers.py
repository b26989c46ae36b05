"""Programs that read by remote read while the node that serves them dies or is cut off.

No message may be lost. One may be read twice where the acknowledgement of its first reader had no
answer: Windows has given the message to its program by then [MS-MQRR 7].
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Final

from qm.client.client import Client
from qm.client.message import Message
from qm.drill.scenarios.scenario import Scenario, Stage
from qm.drill.targets.ability import Ability
from qm.names.format_name import parse_format_name
from qm.pb import control_pb2
from qm.rpc.client import RpcClient, RpcFailed
from qm.rpc.interface import Fault
from qm.rpc.queue_formats import format_of
from qm.rpc.remote_read.interface import REMOTE_READ, EndIn, OpenIn, StartIn
from qm.rpc.remote_read.sections import body_place
from qm.security.sid import ANONYMOUS, EVERYONE, sid_text
from qm.wire.codes import ErrorCode

READERS: Final = 3
BATCH: Final = 20
"""Messages that are sent in each part of the scenario."""
ISOLATED_S: Final = 4.0
SETTLE_S: Final = 150.0
"""For all to be read: what a node that died had lent comes back with its session's lease."""
_WAIT_MS: Final = 2_000
_CONNECT_S: Final = 5.0
_PAUSE_S: Final = 0.2
_POLL_S: Final = 0.05
_RECEIVE, _ACCESS_RECEIVE, _SHARE_ALL, _ACK = 0, 1, 0, 2
_ANY_BYTES: Final = 0xFFFF_FFFF


class RemoteReader:
    """A program: it reads and acknowledges at one node, and goes on at the next when that fails."""

    def __init__(self, queue: str, hosts: Sequence[str], port: int) -> None:
        self._queue = queue
        self._hosts = hosts
        self._port = port
        self.at = ""
        """The host that serves it now."""
        self.taken: list[str] = []
        self.doubtful: list[str] = []
        """What it has read and acknowledged without an answer."""

    async def run(self) -> None:
        """Read until cancelled."""
        for host in cycle(self._hosts):
            client = RpcClient()
            with contextlib.suppress(RpcFailed, Fault, TimeoutError, ValueError):
                try:
                    async with asyncio.timeout(_CONNECT_S):
                        handle = await self._open(client, host)
                    self.at = host
                    await self._read(client, handle)
                finally:
                    self.at = ""
                    client.close()
            await asyncio.sleep(_PAUSE_S)

    async def _open(self, client: RpcClient, host: str) -> bytes:
        await client.connect(host, self._port)
        await client.bind(REMOTE_READ)
        name: Any = parse_format_name(f"DIRECT=TCP:{host}\\private$\\{self._queue}")
        given = OpenIn(format_of(name), _ACCESS_RECEIVE, _SHARE_ALL, bytes(16), 1, 6, 1, 7601, 1)
        return bytes((await client.call(REMOTE_READ, 2, given)).handle)

    async def _read(self, client: RpcClient, handle: bytes) -> None:
        number = 0
        while True:
            number += 1
            given = StartIn(handle, 0, 0, _RECEIVE, _WAIT_MS, number, _ANY_BYTES, _ANY_BYTES)
            found = await client.call(REMOTE_READ, 7, given)
            if found.status == ErrorCode.MQ_ERROR_IO_TIMEOUT:
                continue
            if found.status:
                raise Fault(found.status)
            packet = b"".join(one.data or b"" for one in found.sections or ())
            start, size = body_place(packet)
            text = packet[start : start + size].decode()
            self.doubtful.append(text)
            end = EndIn(handle, _ACK, number)
            if not (await client.call(REMOTE_READ, 9, end)).status:
                self.doubtful.remove(text)
                self.taken.append(text)


class _Readers:
    """All readers of the scenario, and what was sent to them."""

    def __init__(
        self, stage: Stage, client: Client, path: str, readers: list[RemoteReader]
    ) -> None:
        self._stage = stage
        self._client = client
        self._path = path
        self.readers = readers
        self.sent: list[str] = []

    async def send(self) -> None:
        """Send a batch."""
        for _ in range(BATCH):
            text = f"{len(self.sent):06d}"
            await self._client.send(self._path, Message(body=text.encode()))
            self.sent.append(text)

    def seen(self) -> set[str]:
        """Return what was read."""
        return {text for one in self.readers for text in (*one.taken, *one.doubtful)}

    async def read(self, count: int) -> bool:
        """Wait until so many were read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while len(self.seen()) < count:
                    await asyncio.sleep(_POLL_S)
                return True
        return False

    async def holder(self) -> str:
        """Return the node that serves a reader."""
        async with asyncio.timeout(SETTLE_S):
            while True:
                at = next((one.at for one in self.readers if one.at), "")
                name = next((n.name for n in self._stage.target.nodes if n.host == at), "")
                if name:
                    return name
                await asyncio.sleep(_POLL_S)

    def judge(self) -> None:
        """Say what was lost, and what came twice although its reader knew that it had it."""
        lost = set(self.sent) - self.seen()
        if lost:
            self._stage.wrong(f"remote readers lost {len(lost)} messages, {min(lost)} first")
        taken = Counter(text for one in self.readers for text in one.taken)
        doubled = [text for text, count in taken.items() if count > 1]
        if doubled:
            self._stage.wrong(f"remote readers took {len(doubled)} messages twice")


async def _remote_readers(stage: Stage) -> None:
    target = stage.target
    name = f"drill.readers.{stage.chance.randrange(1 << 32):08x}"
    client = Client([node.api for node in target.nodes], tls=target.tls)
    await client.open()
    path = f"{client.computer_name}\\private$\\{name}"
    create = control_pb2.CreateQueueRequest(path_name=path, if_not_exists=True)
    await client.wire.call(lambda stubs: stubs.queues.CreateQueue, create)
    queue = control_pb2.QueueName(name=path)
    readers = control_pb2.Ace(sid=sid_text(ANONYMOUS), rights=["receive_message"])
    writers = control_pb2.Ace(sid=sid_text(EVERYONE), rights=["write_message", "delete_queue"])
    access = control_pb2.SetAclRequest(queue=queue, entries=[readers, writers])
    await client.wire.call(lambda stubs: stubs.queues.SetAcl, access)
    hosts = [node.host for node in target.nodes]
    made = [
        RemoteReader(name, hosts[k % len(hosts) :] + hosts[: k % len(hosts)], target.rpc_port)
        for k in range(READERS)
    ]
    reading = [asyncio.create_task(one.run(), name="remote reader") for one in made]
    try:
        await _strike(stage, _Readers(stage, client, path, made))
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    delete = control_pb2.DeleteQueueRequest(queue=queue)
    await client.wire.call(lambda stubs: stubs.queues.DeleteQueue, delete)
    await client.close()


async def _strike(stage: Stage, load: _Readers) -> None:
    """Kill the leader, cut a reader's node off, kill it; then count."""
    await load.send()
    await load.read(BATCH // 2)
    leader = await stage.leader()
    stage.fault(f"SIGKILL of {leader}, the leader, under remote readers", leader)
    await stage.target.kill(leader)
    await load.send()
    await stage.heal()
    if Ability.NETWORK in stage.target.abilities:
        holder = await load.holder()
        others = [node.name for node in stage.target.nodes if node.name != holder]
        stage.fault(f"{holder}, which serves a remote reader, is cut off", holder)
        await stage.target.partition([holder], others)
        await asyncio.sleep(ISOLATED_S)
        await stage.heal()
        await load.send()
    holder = await load.holder()
    stage.fault(f"SIGKILL of {holder}, which serves a remote reader", holder)
    await stage.target.kill(holder)
    await load.send()
    await stage.heal()
    await load.read(len(load.sent))
    load.judge()


REMOTE_READERS: Final = (
    Scenario(
        "remote-readers",
        "Nodes die and are cut off under Windows programs that read",
        _remote_readers,
        frozenset({Ability.PROCESSES, Ability.REMOTE_READ}),
    ),
)
