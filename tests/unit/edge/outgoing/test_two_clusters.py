"""Two whole clusters, one sending to the other, while leaders of both die."""

from __future__ import annotations

from typing import Any

import pytest

from qm.cluster.cluster import OutcomeUnknown, Unavailable
from qm.model.state.tables import Table
from qm.model.values import commands
from qm.model.values.attributes import encode_attribute
from qm.model.values.commands import Command, Request
from qm.model.values.effects import Outcome
from qm.model.values.elements import QueueAccessType
from qm.model.values.records import QueueManager
from qm.model.values.rows import POSITION_KEY, Position, unpack_position
from qm.store.bodies.body_places import BodyPlace
from qm.wire.message_class import MessageClass
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.cluster.harness import Harness, HarnessNode, cluster, run, until
from tests.unit.model.world import packet, results_of

MESSAGES = 240
ROUND = 10
CLIENT = "application"
CALLS_UNCONFIRMED = 8
"""A call that is repeated finds its first results as long as they are not confirmed."""
DAY_MS = 24 * 3600 * 1000


class Application:
    """Calls whichever node lives, with numbered requests, until it has an answer."""

    def __init__(self, nodes: Harness) -> None:
        self.nodes = nodes
        self.number = 0

    def request(self) -> Request:
        self.number += 1
        return Request(CLIENT, self.number, max(0, self.number - CALLS_UNCONFIRMED))

    async def call(self, *batch: Command) -> list[Outcome]:
        while True:
            try:
                outcomes = await self.nodes.up[0].cluster.propose(*batch)
            except (Unavailable, OutcomeUnknown):
                continue
            assert not any(outcome.status for outcome in outcomes), outcomes
            return list(outcomes)

    async def create(self, name: str, *, is_transactional: bool = True) -> int:
        identifier = name.encode().ljust(16, b"\0")
        values = {"transactional": encode_attribute(is_transactional)}
        (outcome,) = await self.call(
            commands.CreateQueue(
                Request("", 1, 0), identifier, identifier[::-1], f".\\{name}", values, b"", ()
            )
        )
        assert isinstance(outcome.value, int)
        return outcome.value

    async def send(self, destination: str, number: int, **fields: Any) -> None:
        """Send a message in its own transaction that asks for its end to be journaled."""
        transaction = (number + 1).to_bytes(16, "big")
        raw = packet(
            0, body=b"%d" % number, sequence=(1, 1, 0),
            has_positive_journaling=True, has_negative_journaling=True, **fields,
        )  # fmt: skip
        await self.call(
            commands.TxBegin(self.request(), transaction, True, "", 60_000),
            commands.Send.of(self.request(), [(destination, raw)], transaction=transaction),
            commands.TxCommit(self.request(), transaction),
        )  # fmt: skip

    async def receive_all(self, queue: str, queue_id: int) -> int:
        """Receive until the queue is empty; return how many messages there were."""
        (opened,) = await self.call(
            commands.OpenQueue(self.request(), queue, QueueAccessType.RECEIVE_ACCESS, 0, ())
        )
        assert isinstance(opened.value, tuple | list)
        handle, count = opened.value[0], 0
        while True:
            first = self.number + 1
            (outcome,) = await self.call(
                commands.ReceiveRun(CLIENT, handle, queue_id, first, 16, first - 1)
            )
            found = len(results_of(outcome.value))
            self.number += found
            count += found
            if not found:
                return count


def positions(node: HarnessNode, queue_id: int) -> list[Position]:
    bounds = (POSITION_KEY.pack(queue_id, 0), POSITION_KEY.pack(queue_id + 1, 0))
    rows = node.cluster.state.scan(Table.POSITION, *bounds, 1 << 20)
    return [unpack_position(row) for _, row in rows]


def messages(node: HarnessNode, queue_id: int) -> list[UserMessage]:
    found = []
    for one in positions(node, queue_id):
        place = BodyPlace(
            one.body_index, one.body_offset, one.body_length, one.body_ordinal, one.body_crc32
        )
        raw = node.cluster.read_body(place)
        found.append(parse_user_message(raw, 0, len(raw))[0])
    return found


def bodies(node: HarnessNode, queue_id: int) -> list[int]:
    return [int(message.properties.message_body) for message in messages(node, queue_id)]


def manager(node: HarnessNode) -> QueueManager:
    found = node.cluster.view.ledger.manager
    assert found is not None
    return found


async def replace_leader(nodes: Harness) -> None:
    """Kill the leader, wait for the next one, and start the killed node again."""
    leader = await nodes.leader()
    await nodes.kill(leader.name)
    await nodes.leader()
    await nodes.restart(leader.name)


def test_transactional_messages_cross_once_and_in_order_while_leaders_of_both_sides_die() -> None:
    async def scenario() -> None:
        async with cluster(3) as sending, cluster(3) as receiving:
            sender, receiver = Application(sending), Application(receiving)
            for application in (sender, receiver):
                await application.call(commands.OpenClient(CLIENT, "principal", DAY_MS))
            orders = await receiver.create("orders")
            entrance, _ = await receiving.followers()
            destination = f"DIRECT=TCP:{entrance.host}\\orders"

            def arrived() -> int:
                return len(positions(receiving.up[0], orders))

            for first in range(0, MESSAGES, ROUND):
                for number in range(first, first + ROUND):
                    await sender.send(destination, number)
                if first == MESSAGES // 4:
                    await replace_leader(sending)
                elif first == MESSAGES // 2:
                    await replace_leader(receiving)
                elif first == MESSAGES * 3 // 4:
                    await receiving.kill(entrance.name)
                    await receiving.restart(entrance.name)
            await until(lambda: arrived() >= MESSAGES, arrived, wait_s=60)
            await receiving.agree()
            for node in receiving.up:
                assert bodies(node, orders) == list(range(MESSAGES))

            # Each outcome is reported to the sender, which keeps what it sent until then.
            assert await receiver.receive_all("DIRECT=OS:quorate\\orders", orders) == MESSAGES
            node = sending.up[0]
            journal = manager(node).system_journal_queue
            await until(
                lambda: len(positions(node, journal)) >= MESSAGES,
                lambda: len(positions(node, journal)),
                wait_s=60,
            )
            assert sorted(bodies(node, journal)) == list(range(MESSAGES))
            for which in ("system_deadletter_queue", "system_transactional_deadletter_queue"):
                assert not positions(node, getattr(manager(node), which))

            def owed() -> int:
                return len(receiving.up[0].cluster.state.scan(Table.OUTBOX, b"", b"\xff" * 9, 9999))

            await until(lambda: not owed(), owed)
            await sending.agree()

    run(scenario())


@pytest.mark.spec("QB-1.3.2.1.2-01")
def test_recoverable_messages_leave_when_their_sender_is_opened_again() -> None:
    async def scenario() -> None:
        async with cluster(1) as sending, cluster(1) as receiving:
            sender, receiver = Application(sending), Application(receiving)
            await sender.call(commands.OpenClient(CLIENT, "principal", DAY_MS))
            orders = await receiver.create("orders", is_transactional=False)
            (source,), (target,) = sending.up, receiving.up
            destination = f"DIRECT=TCP:{target.host}\\orders"
            await receiving.kill(target.name)
            for number in range(ROUND):
                raw = packet(0, body=b"%d" % number, is_recoverable=True)
                await sender.call(commands.Send.of(sender.request(), [(destination, raw)]))
            await sending.kill(source.name)
            await receiving.restart(target.name)
            assert not positions(target, orders)
            await sending.restart(source.name)

            def arrived() -> set[int]:
                return set(bodies(target, orders))

            # Each at least once, in any order.
            await until(lambda: len(arrived()) == ROUND, arrived, wait_s=60)
            assert arrived() == set(range(ROUND))
            await receiving.kill(target.name)
            await receiving.restart(target.name)
            await until(lambda: len(arrived()) == ROUND, arrived, wait_s=60)

    run(scenario())


def test_what_the_other_side_refuses_purges_or_misses_is_a_dead_letter_and_is_reported() -> None:
    async def scenario() -> None:
        async with cluster(1) as sending, cluster(1) as receiving:
            sender, receiver = Application(sending), Application(receiving)
            await sender.call(commands.OpenClient(CLIENT, "principal", DAY_MS))
            here, there = await sending.leader(), await receiving.leader()
            administration = await sender.create("reports", is_transactional=False)
            orders = await receiver.create("orders")
            asking = {
                "admin_queue": DirectQueueFormatName(f"TCP:{here.host}\\reports"),
                "properties": {"flags": 0x0F},
            }
            host = f"DIRECT=TCP:{there.host}"
            await sender.send(f"{host}\\absent", 0, **asking)
            await sender.send(f"{host}\\orders", 1, **asking)
            await until(lambda: len(positions(there, orders)) == 1)
            await receiver.call(commands.PurgeQueue(Request("", 1, 0), orders, ()))
            # Nothing listens there, and the message cannot wait.
            nowhere = there.host.rpartition(".")[0] + ".99"
            await sender.send(f"DIRECT=TCP:{nowhere}\\q", 2, time_to_reach_queue=1, **asking)

            letters = manager(here).system_transactional_deadletter_queue
            await until(lambda: len(positions(here, letters)) == 3)
            assert sorted(bodies(here, letters)) == [0, 1, 2]
            assert not positions(here, manager(here).system_journal_queue)
            expected = {
                (0, MessageClass.NACK_BAD_DST_Q),
                (1, MessageClass.ACK_REACH_QUEUE),
                (1, MessageClass.NACK_Q_PURGED),
                (2, MessageClass.NACK_REACH_QUEUE_TIMEOUT),
            }

            def reports() -> set[tuple[int, int]]:
                ordinals = sorted(one.message_ordinal for one in positions(here, letters))
                return {
                    (
                        ordinals.index(
                            int.from_bytes(one.properties.correlation_id[16:], "little")
                        ),
                        one.properties.message_class,
                    )
                    for one in messages(here, administration)
                }

            # An unknown sender does not learn that a queue does not exist.
            expected.discard((0, MessageClass.NACK_BAD_DST_Q))
            await until(lambda: reports() == expected, reports)

    run(scenario())
