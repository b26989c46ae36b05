"""Messages that are accepted or returned by how the work on them ends."""

from __future__ import annotations

import asyncio

import pytest

from qm.client.errors import QueueNotFound
from qm.client.handling import Rejected
from qm.client.message import Message, ReceivedMessage
from qm.client.queue import Queue
from qm.pb import control_pb2
from tests.unit.client.world import PLAIN, Clients, scenario, until


class Broken(Exception):
    """Of the work."""


def numbered(count: int) -> list[Message]:
    return [Message(body=b"%d" % number) for number in range(count)]


async def _fail_at(queue: Queue, body: bytes) -> None:
    async with queue.messages(prefetch=2) as messages:
        async for message in messages:
            if message.body == body:
                raise Broken


async def left(made: Clients, queue: str = PLAIN) -> list[bytes]:
    async with made.client() as client:
        opened = await client.open_queue(queue)
        return [message.body async for message in opened.browse()]


@scenario()
async def test_a_message_is_accepted_when_the_next_one_is_asked_for(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(5))
        queue = await client.open_queue(PLAIN)
        got = []
        async with queue.messages() as messages:
            async for message in messages:
                got.append(message.body)
                if len(got) == 3:
                    break
        assert got == [b"0", b"1", b"2"]
    # What was lent beyond is back in its place at once.
    assert await left(made) == [b"3", b"4"]


@scenario()
async def test_what_fails_is_returned_and_the_error_goes_on(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(3))
        queue = await client.open_queue(PLAIN)
        with pytest.raises(Broken):
            await _fail_at(queue, b"1")
        assert await left(made) == [b"1", b"2"]
        async with queue.messages() as messages:
            message = await anext(messages)
            assert (message.body, message.returns) == (b"1", 1)
            await messages.reject(message)
            message = await anext(messages)
            assert message.body == b"2"
            await messages.give_back(message)
            with pytest.raises(ValueError, match="in work"):
                await messages.reject(message)
        async with queue.messages() as messages:
            async for _ in messages:
                raise Rejected
    assert await left(made) == []


@scenario()
async def test_a_block_is_needed(made: Clients) -> None:
    async with made.client() as client:
        queue = await client.open_queue(PLAIN)
        with pytest.raises(RuntimeError, match="async with"):
            await anext(queue.messages())
        with pytest.raises(ValueError, match="prefetch"):
            queue.messages(0)


@scenario(3)
async def test_what_is_lent_survives_the_death_of_the_leader(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    async with made.client(first=leader) as client:
        await client.send(PLAIN, *numbered(30))
        queue = await client.open_queue(PLAIN)
        got = []
        async with queue.messages() as messages:
            async for message in messages:
                got.append(message.body)
                if len(got) == 10:
                    await made.kill_leader()
                if len(got) == 30:
                    break
        assert got == [b"%d" % number for number in range(30)]
    assert await left(made) == []


@scenario()
async def test_a_runner_works_on_several_messages_and_stops_gracefully(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *numbered(40))
        queue = await client.open_queue(PLAIN)
        at_once = most = 0
        done: list[bytes] = []
        go = asyncio.Event()

        async def work(message: ReceivedMessage) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                await go.wait()
                if message.body == b"7" and message.returns < 2:
                    raise Broken
                if message.body == b"9":
                    raise Rejected
                done.append(message.body)
            finally:
                at_once -= 1

        runner = queue.runner(work, concurrency=4)
        running = asyncio.create_task(runner.run())
        await until(lambda: at_once == 4, lambda: at_once)
        go.set()
        await until(lambda: len(done) == 39, lambda: done)
        await until(lambda: runner.handled == 39, lambda: runner.handled)
        assert most == 4
        assert sorted(done, key=int) == [b"%d" % n for n in range(40) if n != 9]
        assert runner.returned == 3
        go.clear()
        await client.send(PLAIN, *numbered(10))
        await until(lambda: at_once == 4, lambda: at_once)
        runner.stop()
        await asyncio.sleep(0)
        assert not running.done()
        go.set()
        await running
        assert runner.handled == 43
    assert await left(made) == [b"%d" % n for n in range(4, 10)]


@scenario()
async def test_work_that_does_not_end_in_time_is_returned(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, Message(body=b"long"))
        queue = await client.open_queue(PLAIN)
        begun = asyncio.Event()

        async def work(message: ReceivedMessage) -> None:
            begun.set()
            await asyncio.Event().wait()

        runner = queue.runner(work, grace_s=0.05)
        running = asyncio.create_task(runner.run())
        await begun.wait()
        runner.stop()
        await running
        assert runner.returned == 1
    assert await left(made) == [b"long"]


@scenario()
async def test_a_runner_says_that_its_queue_is_gone(made: Clients) -> None:
    async with made.client() as client:
        queue = await client.open_queue(PLAIN)

        async def work(message: ReceivedMessage) -> None:
            raise AssertionError("there is no message")

        running = asyncio.create_task(queue.runner(work).run())
        await made.until_read_waits()
        await client.wire.call(
            lambda stubs: stubs.queues.DeleteQueue,
            control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=PLAIN)),
        )
        with pytest.raises(QueueNotFound):
            await running
