from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import msgspec
import pytest

from qm.client import stream
from qm.client.client import Client
from qm.client.memory import Memory
from qm.client.message import Message
from tests.unit.client.world import (
    PLAIN,
    TRANSACTIONAL,
    Clients,
    abandon,
    scenario,
    turns,
    until,
)

COUNT = 600


@pytest.mark.spec("AC-2.2.2.10-02")
@scenario(3)
async def test_sends_happen_once_while_the_leader_dies(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    async with made.client(first=leader) as client:
        queue = await client.open_queue(PLAIN)
        sending = [
            asyncio.ensure_future(client.send(PLAIN, recoverable(number))) for number in range(100)
        ]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        await made.kill_leader()
        sending += [
            asyncio.ensure_future(client.send(PLAIN, recoverable(number)))
            for number in range(100, 200)
        ]
        await asyncio.gather(*sending)
        found = [message async for message in queue.browse()]
        assert all(message.is_recoverable for message in found)
        wanted = sorted(b"%d" % number for number in range(200))
        assert sorted(message.body for message in found) == wanted


@pytest.mark.spec("AC-2.2.2.10-02")
@scenario()
async def test_what_was_sent_outlives_the_only_node(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *[recoverable(number) for number in range(10)])
    name = await made.kill_leader()
    await made.harness.restart(name)
    async with made.client() as client:
        found = [message async for message in (await client.open_queue(PLAIN)).browse()]
        assert all(message.is_recoverable for message in found)
        assert [message.body for message in found] == [b"%d" % number for number in range(10)]


def recoverable(number: int) -> Message:
    return Message(body=b"%d" % number, recoverable=True)


@scenario(3)
async def test_a_stream_goes_on_at_another_node_and_gives_each_message_once(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    async with made.client(first=leader) as client, made.client(first=leader) as sender:
        queue = await client.open_queue(PLAIN)
        got: list[bytes] = []

        async def read() -> int:
            async with queue.stream(64) as stream:
                while len(got) < COUNT:
                    got.extend(message.body for message in await stream.batch())
                return stream.opened_count

        reading = asyncio.ensure_future(read())
        for first in range(0, COUNT, 50):
            messages = [Message(body=b"%d" % n) for n in range(first, first + 50)]
            await sender.send(PLAIN, *messages)
            if first == COUNT // 2:
                await made.kill_leader()
        assert await reading >= 2
        assert got == [b"%d" % number for number in range(COUNT)]


@scenario(3)
async def test_a_waiting_receive_goes_on_at_another_node(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    async with made.client(first=leader) as client:
        queue = await client.open_queue(PLAIN)
        waiting = asyncio.ensure_future(queue.receive(60))
        await made.until_read_waits()
        await made.kill_leader()
        await client.send(PLAIN, Message(body=b"late"))
        message = await waiting
        assert message is not None
        assert message.body == b"late"


@scenario(3)
async def test_transactions_survive_the_leader_and_take_effect_once(made: Clients) -> None:
    leader = (await made.harness.leader()).name
    async with made.client(first=leader) as client:
        async with client.transaction() as first:
            await first.send(TRANSACTIONAL, Message(body=b"1"), Message(body=b"2"))
            await made.kill_leader()
            await first.send(TRANSACTIONAL, Message(body=b"3"))
        queue = await client.open_queue(TRANSACTIONAL)
        async with client.transaction() as second:
            found = await second.receive_many(queue, 9, 10)
            assert [message.body for message in found] == [b"1", b"2", b"3"]
        assert await queue.peek() is None


@scenario()
async def test_a_killed_client_gets_its_unconfirmed_messages_again(made: Clients) -> None:
    with TemporaryDirectory() as folder:
        memory = Path(folder) / "memory"
        async with made.client() as sender:
            await sender.send(PLAIN, *[Message(body=b"%d" % n) for n in range(5)])
        killed = made.new("me", memory=memory)
        await killed.open()
        queue = await killed.open_queue(PLAIN, exclusive=True)
        first = await queue.receive(5)
        second = await queue.receive(5)  # confirms the first one
        assert first is not None
        assert second is not None
        await abandon(killed)

        async with made.client("me", memory=memory) as again:
            queue = await again.open_queue(PLAIN, exclusive=True)
            repeated = await queue.receive(5)
            assert repeated is not None
            assert (repeated.number, repeated.body) == (second.number, second.body)
            rest = [await queue.receive(5) for _ in range(3)]
            assert [m.body for m in rest if m is not None] == [b"2", b"3", b"4"]
            assert await queue.receive(0) is None


@scenario()
async def test_without_a_memory_the_cluster_s_numbers_are_enough(made: Clients) -> None:
    async with made.client() as sender:
        await sender.send(PLAIN, *[Message(body=b"%d" % n) for n in range(3)])
    killed = made.new("me")
    await killed.open()
    queue = await killed.open_queue(PLAIN)
    message = await queue.receive(5)
    assert message is not None
    await abandon(killed)
    async with made.client("me") as again:
        queue = await again.open_queue(PLAIN)
        bodies = []
        while found := await queue.receive(0):
            bodies.append(found.body)
        assert bodies == [b"0", b"1", b"2"]


@scenario()
async def test_a_killed_client_s_send_is_completed_once(made: Clients) -> None:
    with TemporaryDirectory() as folder:
        memory = Path(folder) / "memory"
        killed = made.new("me", memory=memory)
        await killed.open()
        await killed.send(PLAIN, Message(body=b"done"))
        # Killed between the answer's arrival and the note of it.
        with patch.object(Memory, "end_send"):
            await killed.send(PLAIN, Message(body=b"under way", label="w"))
        await abandon(killed)

        async with made.client("me", memory=memory) as again:
            assert [(r.labels, r.error) for r in again.recovered] == [(("w",), None)]
            queue = await again.open_queue(PLAIN)
            bodies = [message.body async for message in queue.browse()]
            assert bodies == [b"done", b"under way"]
        async with made.client("me", memory=memory) as third:
            assert third.recovered == []


@scenario()
async def test_a_killed_client_s_transaction_leaves_its_messages_in_the_queue(
    made: Clients,
) -> None:
    with TemporaryDirectory() as folder:
        memory = Path(folder) / "memory"
        async with made.client() as sender, sender.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"x"))
        killed = made.new("me", memory=memory)
        await killed.open()
        queue = await killed.open_queue(TRANSACTIONAL, exclusive=True)
        assert await killed.transaction().receive(queue, 5) is not None
        await abandon(killed)

        async with made.client("me", memory=memory) as again:
            queue = await again.open_queue(TRANSACTIONAL, exclusive=True)
            async with again.transaction() as transaction:
                found = await transaction.receive(queue, 5)
                assert found is not None
                assert found.body == b"x"
            assert await queue.peek() is None


class Proxy:
    """Passes bytes on until it hangs: connections stay open and nothing moves."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._moving = asyncio.Event()
        self._moving.set()
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hang(self) -> None:
        self._moving.clear()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        for source, target in ((reader, back), (there, writer)):
            pump = asyncio.create_task(self._pump(source, target))
            self._pumps.add(pump)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._moving.wait()
                target.write(data)
        finally:
            target.close()


@scenario()
async def test_a_stream_leaves_a_node_that_hangs(made: Clients) -> None:
    host, _, port = made.endpoints[0].rpartition(":")
    ways = [Proxy(host, int(port)), Proxy(host, int(port))]
    for way in ways:
        await way.start()
    tls = msgspec.structs.replace(made.tls, server_name="n1")
    with patch.object(stream, "PROBE_AFTER_S", 0.1), patch.object(stream, "ATTEMPT_S", 0.3):
        async with made.client() as sender:
            client = Client([way.endpoint for way in ways], tls=tls)
            await client.open()
            queue = await client.open_queue(PLAIN)
            async with queue.stream(8) as messages:
                await sender.send(PLAIN, Message(body=b"1"))
                assert [m.body for m in await messages.batch()] == [b"1"]
                waiting = asyncio.ensure_future(messages.batch())
                await turns(1)
                ways[0].hang()
                await sender.send(PLAIN, Message(body=b"2"))
                assert [m.body for m in await waiting] == [b"2"]
                assert messages.opened_count == 2
            await client.close()
    for way in ways:
        await way.stop()


@scenario()
async def test_a_stream_whose_read_and_question_fail_leaves_no_error_behind(made: Clients) -> None:
    """The caller gets one of them; asyncio must not report the other as missed."""
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    host, _, port = made.endpoints[0].rpartition(":")
    ways = [Proxy(host, int(port)), Proxy(host, int(port))]
    for way in ways:
        await way.start()
    tls = msgspec.structs.replace(made.tls, server_name="n1")
    asked = stream.Stream._probe

    async def ask_when_the_stream_has_failed(self: stream.Stream) -> None:
        call = self._call
        assert call is not None
        await ways[0].stop()
        await until(call.done)
        await turns(10)
        await asked(self)

    async with made.client() as sender:
        client = Client([way.endpoint for way in ways], tls=tls)
        await client.open()
        queue = await client.open_queue(PLAIN)
        async with queue.stream(8) as messages:
            with (
                patch.object(stream, "PROBE_AFTER_S", 0.1),
                patch.object(stream.Stream, "_probe", ask_when_the_stream_has_failed),
            ):
                await sender.send(PLAIN, Message(body=b"1"))
                assert [m.body for m in await messages.batch()] == [b"1"]
                waiting = asyncio.ensure_future(messages.batch())
                await until(lambda: messages.opened_count == 2)
            await sender.send(PLAIN, Message(body=b"2"))
            assert [m.body for m in await waiting] == [b"2"]
        await client.close()
    await ways[1].stop()
    gc.collect()
    assert reported == []
