"""A peer of a real cluster: the leader dies or stalls, its session stays (DESIGN 1.4)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from qm.model.state.tables import State, Table
from qm.model.values.rows import POSITION_KEY, unpack_position
from qm.node.config.schema import MSMQ_PORT
from qm.node.dev import pids
from qm.session import (
    AcksReceived,
    Closed,
    CloseReason,
    Established,
    FinalAckArrived,
    OrderAckArrived,
    Role,
    Session,
    SessionConfig,
)
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import COMPUTER_NAME, HarnessNode, cluster, run, until
from tests.cluster.messages import create_queue
from tests.cluster.test_processes import client, dev_cluster, leader_of, qm
from tests.unit.model.world import PEER, packet

HOST = COMPUTER_NAME.lower()
MESSAGES = 600
ROUND = 20


class Peer(asyncio.Protocol):
    """Another queue manager, with what it notices of the cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.acked: list[int] = []
        self.ordered = 0
        """The number in the last OrderAck."""
        self.final_acks: list[int] = []
        """MessageIDs that they are about."""
        self.remote_guid = b""
        """Who answered."""
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
        self.offer(numbers, [numbered(number) for number in numbers])

    def offer(self, numbers: Sequence[int], packets: list[bytes]) -> None:
        """Send packets."""
        self.session.offer(numbers, packets)
        self._attend()

    async def has(self, count: int) -> None:
        """Wait until this many are acknowledged."""
        await until(lambda: len(self.acked) >= count, lambda: (len(self.acked), self.closed))

    def _attend(self) -> None:
        while (event := self.session.next_event()) is not None:
            match event:
                case Established():
                    self.remote_guid = event.remote_guid
                    self.is_open = True
                case OrderAckArrived():
                    self.ordered = event.order_ack.tx_sequence_number
                    self.session.commit(event.position)
                case FinalAckArrived():
                    self.final_acks.append(event.final_ack.acknowledged_message_id)
                    self.session.commit(event.position)
                case AcksReceived():
                    self.acked += event.released + event.retained
                case Closed():
                    self.closed = event
        while data := self.session.take_outgoing(self._loop.time()):
            self.transport.write(data)


def numbered(number: int) -> bytes:
    if number % 2:
        return packet(
            number, to=DirectQueueFormatName(f"OS:{HOST}\\private$\\odd"), is_recoverable=True
        )
    return transactional(number, number // 2)


def transactional(number: int, place: int, queue: str = "even") -> bytes:
    to = DirectQueueFormatName(f"OS:{HOST}\\private$\\{queue}")
    return packet(number, to=to, sequence=(1, place, place - 1), body=str(number).encode())


def ids(state: State, queue_id: int) -> list[int]:
    bounds = (POSITION_KEY.pack(queue_id, 0), POSITION_KEY.pack(queue_id + 1, 0))
    rows = state.scan(Table.POSITION, *bounds, 1 << 20)
    return [unpack_position(row).message_ordinal for _, row in rows]


async def connect(node: HarnessNode) -> Peer:
    running = node.node
    assert running is not None
    await until(lambda: running.not_ready_reason() is None, running.not_ready_reason)
    return await connect_to(node.host)


async def connect_to(host: str) -> Peer:
    _, peer = await asyncio.get_running_loop().create_connection(Peer, host, MSMQ_PORT)
    await until(lambda: peer.is_open, lambda: peer.closed)
    return peer


def test_a_session_outlives_the_leader() -> None:
    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            odd = await create_queue(leader, "odd")
            even = await create_queue(leader, "even", transactional=True)
            follower, _ = await nodes.followers()
            peer = await connect(follower)
            port = peer.transport.get_extra_info("sockname")
            for first in range(1, MESSAGES, ROUND):
                peer.send(first, ROUND)
                if first > MESSAGES // 2 and leader.is_up:
                    await nodes.kill(leader.name)
                await peer.has(first - 5 * ROUND)
            await peer.has(MESSAGES)
            await until(lambda: peer.ordered == MESSAGES // 2, lambda: peer.ordered)
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


def test_a_peer_whose_node_dies_goes_on_at_another() -> None:
    """It sends again what was not acknowledged, and every message is there once, in order."""

    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            odd = await create_queue(leader, "odd")
            even = await create_queue(leader, "even", transactional=True)
            first, second = await nodes.followers()
            peer = await connect(first)
            peer.send(1, MESSAGES // 2)
            await peer.has(MESSAGES // 10)
            await nodes.kill(first.name)
            await until(lambda: peer.closed is not None, lambda: len(peer.acked))
            again = await connect(second)
            left = [number for number in range(1, MESSAGES + 1) if number not in peer.acked]
            again.offer(left, [numbered(number) for number in left])
            await again.has(len(left))
            await nodes.agree()
            for node in nodes.up:
                assert sorted(ids(node.cluster.state, odd)) == list(range(1, MESSAGES + 1, 2))
                assert ids(node.cluster.state, even) == list(range(2, MESSAGES + 1, 2))
            again.transport.abort()

    run(scenario())


def test_acknowledgements_follow_a_peer_that_left_a_session_half_open() -> None:
    """Its old node still holds the session; the leader sends to where the peer is now."""

    async def scenario() -> None:
        async with cluster(3) as nodes:
            leader = await nodes.leader()
            first, second = await nodes.followers()
            gone = await connect(first)
            gone.transport.pause_reading()
            gone.offer([1], [transactional(1, 1, "absent")])
            await until(lambda: has_outbox(leader), lambda: leader.name)
            peer = await connect(second)
            await until(lambda: peer.final_acks == [1], lambda: peer.final_acks)
            assert len(leader.cluster.relay_hub.sessions(PEER)) == 2
            await nodes.kill(leader.name)
            fresh = await nodes.leader()
            hub = fresh.cluster.relay_hub
            await until(lambda: len(hub.sessions(PEER)) == 2, lambda: hub.sessions(PEER))
            peer.offer([2], [transactional(2, 2, "absent")])
            await until(lambda: peer.final_acks == [1, 2], lambda: peer.final_acks)
            assert len(hub.sessions(PEER)) == 2
            gone.transport.abort()
            peer.transport.abort()

    run(scenario())


def has_outbox(node: HarnessNode) -> bool:
    return bool(node.cluster.state.scan(Table.OUTBOX, b"", b"\xff" * 9, 1))


@pytest.mark.timeout(300)
def test_a_session_outlives_a_leader_that_stands_still(tmp_path: Path) -> None:
    """Real processes: the leader is stopped by a signal, and wakes up deposed."""

    async def scenario() -> None:
        async with dev_cluster(tmp_path) as (layout, nodes):
            created = await qm(
                *("queue", "create", ".\\private$\\even", "--transactional"),
                *("--endpoint", nodes[0].api),
                *("--tls-authority", str(layout.pki / "authority.pem")),
                *("--tls-certificate", str(layout.pki / "admin.pem")),
                *("--tls-key", str(layout.pki / "admin.key")),
            )
            assert created[0] == 0, created[1]
            leader = await leader_of(nodes)
            follower = next(node for node in nodes if node != leader)
            peer = await connect_to(follower.host)
            port = peer.transport.get_extra_info("sockname")

            def send(first: int) -> None:
                numbers = range(first, first + 100)
                peer.offer(numbers, [transactional(number, number) for number in numbers])

            send(1)
            await peer.has(100)
            pids.send(layout.pid(leader.name), signal.SIGSTOP)
            send(101)
            await peer.has(200)
            pids.send(layout.pid(leader.name), signal.SIGCONT)
            send(201)
            await peer.has(300)
            assert peer.closed is None
            assert peer.transport.get_extra_info("sockname") == port
            async with client(layout, nodes) as receiver:
                queue = await receiver.open_queue(".\\private$\\even")
                received = [await queue.receive(timeout_s=10) for _ in range(300)]
                bodies = [int(message.body) for message in received if message is not None]
                assert bodies == list(range(1, 301))
                assert await queue.receive(timeout_s=0) is None
            peer.transport.abort()

    run(scenario())
