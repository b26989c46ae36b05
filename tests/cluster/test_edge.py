"""A peer of a real cluster: the leader goes, its session stays (DESIGN 1.4)."""

from __future__ import annotations

import asyncio
from typing import cast

from qm.model import commands
from qm.model.attributes import encode_attribute
from qm.model.rows import POSITION_KEY, unpack_position
from qm.model.state import State, Table
from qm.session import AcksReceived, Closed, CloseReason, Established, Role, Session, SessionConfig
from qm.wire.queue_name import DirectQueueFormatName
from tests.cluster.harness import COMPUTER_NAME, HarnessNode, cluster, run, until
from tests.unit.model.world import PEER, packet

PORT = 1801
HOST = COMPUTER_NAME.lower()
MESSAGES = 600
ROUND = 20


class Peer(asyncio.Protocol):
    """Another queue manager, with what it notices of the cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.acked: list[int] = []
        self.is_open = False
        self.closed: Closed | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.session = Session(
            SessionConfig(window_size=0x1000),
            Role.INITIATOR,
            PEER,
            self._loop.time(),
        )
        self._attend()

    def data_received(self, data: bytes) -> None:
        self.session.receive(data, self._loop.time())
        self._attend()

    def connection_lost(self, exc: Exception | None) -> None:
        self.session.close(CloseReason.DISCONNECTED)
        self._attend()

    def send(self, first: int, count: int) -> None:
        """Send numbered messages, every other one transactional and so in its sequence."""
        numbers = range(first, first + count)
        self.session.offer(numbers, [numbered(number) for number in numbers])
        self._attend()

    async def has(self, count: int) -> None:
        """Wait until so many are acknowledged."""
        await until(lambda: len(self.acked) >= count, lambda: (len(self.acked), self.closed))

    def _attend(self) -> None:
        while (event := self.session.next_event()) is not None:
            match event:
                case Established():
                    self.is_open = True
                case AcksReceived():
                    self.acked += event.released + event.retained
                case Closed():
                    self.closed = event
        while data := self.session.take_outgoing(self._loop.time()):
            self.transport.write(data)


def numbered(number: int) -> bytes:
    if number % 2:
        return packet(number, to=DirectQueueFormatName(f"OS:{HOST}\\odd"), is_recoverable=True)
    place = number // 2
    to = DirectQueueFormatName(f"OS:{HOST}\\even")
    return packet(number, to=to, sequence=(1, place, place - 1))


async def create(node: HarnessNode, name: str, **attributes: object) -> int:
    identifier = name.encode().ljust(16, b"\0")
    values = {key: encode_attribute(value) for key, value in attributes.items()}
    request = commands.Request("", 1, 0)
    command = commands.CreateQueue(
        request, identifier, identifier[::-1], f".\\{name}", values, b"", ()
    )
    (outcome,) = await node.cluster.propose(command)
    assert isinstance(outcome.value, int), hex(outcome.status)
    return outcome.value


def ids(state: State, queue_id: int) -> list[int]:
    bounds = (POSITION_KEY.pack(queue_id, 0), POSITION_KEY.pack(queue_id + 1, 0))
    rows = state.scan(Table.POSITION, *bounds, 1 << 20)
    return [unpack_position(row).message_ordinal for _, row in rows]


async def connect(node: HarnessNode) -> Peer:
    running = node.node
    assert running is not None
    await until(lambda: running.not_ready_reason() is None, running.not_ready_reason)
    _, peer = await asyncio.get_running_loop().create_connection(Peer, node.host, PORT)
    await until(lambda: peer.is_open, lambda: peer.closed)
    return peer


def test_a_session_outlives_the_leader() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            odd = await create(leader, "odd")
            even = await create(leader, "even", transactional=True)
            follower, _ = await nodes.followers()
            peer = await connect(follower)
            port = peer.transport.get_extra_info("sockname")
            for first in range(1, MESSAGES, ROUND):
                peer.send(first, ROUND)
                if first > MESSAGES // 2 and leader.is_up:
                    await nodes.kill(leader.name)
                await peer.has(first - 5 * ROUND)
            await peer.has(MESSAGES)
            assert peer.closed is None
            assert peer.transport.get_extra_info("sockname") == port
            assert sorted(peer.acked) == list(range(1, MESSAGES + 1))
            await nodes.restart(leader.name)
            await nodes.agree()
            for node in nodes.up:
                assert ids(node.cluster.state, odd) == list(range(1, MESSAGES + 1, 2))
                assert ids(node.cluster.state, even) == list(range(2, MESSAGES + 1, 2))
            peer.transport.abort()

    run(scenario())
