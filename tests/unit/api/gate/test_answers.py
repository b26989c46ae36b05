"""Answers that nobody takes hold a bounded amount of memory, and nobody else up."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qm.api.gate import answers
from qm.api.gate.answers import Answers
from qm.api.gate.turns import Turns
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


def test_all_principals_together_have_a_limit_and_nobody_is_kept_from_a_single_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "UNREAD_MAX_BYTES", 12 * MIB)

    async def scenario() -> None:
        room = Answers()
        await room.take("carol", 8 * MIB)
        await room.take("dave", 4 * MIB)
        more = [asyncio.create_task(room.take("dave", MIB)) for _ in range(3)]
        await turns()
        assert not any(one.done() for one in more)
        await room.take("erin", 4 * MIB)
        room.give_back("carol", 8 * MIB)
        await asyncio.gather(*more)
        for name, size in (("dave", 7), ("erin", 4)):
            room.give_back(name, size * MIB)
        assert not room._principals
        assert not room._waiting

    play(scenario())


def test_those_who_wait_for_room_of_all_have_their_turns_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "UNREAD_MAX_BYTES", 3 * MIB)

    async def scenario() -> None:
        room = Answers()
        for name in ("carol", "dave", "erin"):
            await room.take(name, MIB)
        greedy = [asyncio.create_task(room.take("carol", MIB)) for _ in range(3)]
        other = asyncio.create_task(room.take("dave", MIB))
        await turns()
        room.give_back("erin", MIB)
        await turns()
        assert [one.done() for one in (*greedy, other)] == [True, False, False, False]
        room.give_back("carol", MIB)
        await turns()
        assert other.done()

    play(scenario())


class Call:
    """A call's context."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[object], object]] = []

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


def test_calls_of_a_principal_have_turns_to_their_end() -> None:
    async def scenario() -> None:
        room = Turns(2)
        made = [Call() for _ in range(5)]
        for call in made[:2]:
            await room.take("carol", call)
        gone, third, fourth = (asyncio.create_task(room.take("carol", call)) for call in made[2:])
        await turns()
        assert not third.done()
        await room.take("dave", Call())
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        made[0].end()
        await third
        assert not fourth.done()
        made[1].end()
        await fourth
        for call in made[3:]:
            call.end()
        await room.take("carol", Call())

    play(scenario())
