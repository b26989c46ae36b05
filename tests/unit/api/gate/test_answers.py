"""Answers that nobody takes hold a bounded amount of memory, and nobody else up."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from qm.api.gate import answers
from qm.api.gate.answers import Answers
from qm.pb import data_pb2
from tests.cluster.harness import run
from tests.unit.api.gate.half_sent import HalfSent
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import bodies, eventually, world

MIB = 1 << 20
PEEK = f"/{data_pb2.DESCRIPTOR.package}.Data/Peek"
MESSAGE_MIB = 2
LIMIT_MIB = 9
CALLS = 12


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "UNREAD_PER_PRINCIPAL_MAX_BYTES", LIMIT_MIB * MIB)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_reads_of_a_principal_wait_in_order_and_those_of_others_do_not() -> None:
    async def scenario() -> None:
        room = Answers()
        await room.take("carol", 8 * MIB)
        second = asyncio.create_task(room.take("carol", 5 * MIB))
        third = asyncio.create_task(room.take("carol", 1 * MIB))
        await turns()
        assert not second.done()
        assert not third.done(), "it would fit, and is not first"
        await room.take("dave", 20 * MIB)  # one may always be read
        room.give_back("carol", 8 * MIB)
        await asyncio.gather(second, third)

    play(scenario())


def test_who_does_not_wait_any_more_keeps_nobody_waiting() -> None:
    async def scenario() -> None:
        room = Answers()
        await room.take("carol", 9 * MIB)
        gone, next_one = (asyncio.create_task(room.take("carol", 9 * MIB)) for _ in range(2))
        await turns()
        gone.cancel()
        await turns()
        room.give_back("carol", 9 * MIB)
        await next_one
        last = asyncio.create_task(room.take("carol", 9 * MIB))
        await turns()
        room.give_back("carol", 9 * MIB)
        last.cancel()  # in the moment of its turn
        await asyncio.gather(last, return_exceptions=True)
        await room.take("carol", 9 * MIB)

    play(scenario())


def test_peeks_whose_answers_are_not_read_hold_few_of_them() -> None:
    async def scenario() -> None:
        async with world() as made:
            leader = await made.leader()
            async with made.client(leader) as client:
                await create(client)
                queue = await client.open(ORDERS)
                await client.send(ORDERS, bytes(MESSAGE_MIB * MIB))
                request = data_pb2.PeekRequest(client_id=client.client_id, handle=queue.handle)
                async with HalfSent.to(leader.address) as slow:
                    for _ in range(CALLS):
                        slow.ask(PEEK, request.SerializeToString())
                    few = LIMIT_MIB // MESSAGE_MIB

                    async def answered() -> int:
                        await slow.pour(0)
                        return len(slow.ended)

                    await eventually(answered, lambda count: count >= few)
                    assert await answered() == few
                # Its connection is gone, and with it what it was owed.
                reply = await client.peek(queue)
                assert len(bodies(reply)[0]) == MESSAGE_MIB * MIB

    run(scenario())
