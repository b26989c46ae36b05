"""Reads that wait, with and without cursors, as callers of the data plane see them.

[MS-MQDMPR] 3.1.7.1.10, .14, .15 and the timer of waiting reads, 3.1.2.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qm.pb import data_pb2
from qm.wire.codes import ErrorCode
from tests.cluster.harness import run, until
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import Client, bodies, world

NEXT = data_pb2.PEEK_NEXT
FOREVER = 0xFFFF_FFFF
LONG_MS, SHORT_MS = 60_000, 40
TIMEOUT = ErrorCode.MQ_ERROR_IO_TIMEOUT
ILLEGAL = ErrorCode.MQ_ERROR_ILLEGAL_CURSOR_ACTION
RECEIVED = ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
NOT_FOUND = ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND


class Reader:
    """A client with one open queue, and cursors on it."""

    def __init__(self, client: Client, queue: Any, waiting: Callable[[], float]) -> None:
        self.client = client
        self.queue = queue
        self._waiting = waiting

    async def cursor(self) -> int:
        request = data_pb2.CreateCursorRequest(
            client_id=self.client.client_id, handle=self.queue.handle
        )
        handle: int = (await self.client.data.CreateCursor(request)).cursor
        return handle

    def peek(self, **how: Any) -> Awaitable[Any]:
        return self.client.peek(self.queue, **how)

    def receive(self, **how: Any) -> Awaitable[Any]:
        return self.client.receive(self.queue, **how)

    async def waits(self, read: Awaitable[Any], count: int = 1) -> asyncio.Future[Any]:
        """Begin a read, and return once it waits."""
        begun = asyncio.ensure_future(read)
        await until(lambda: self._waiting() == count, self._waiting)
        return begun

    async def send(self, *sent: bytes) -> None:
        await self.client.send(ORDERS, *sent)


def reading(scenario: Callable[[Reader], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            leader = await made.leader()
            queue = await client.open(ORDERS)
            await scenario(Reader(client, queue, lambda: leader.waiting_readers))

    run(whole())


@pytest.mark.spec(
    "DM-3.1.7.1.10-04",
    "DM-3.1.7.1.10-05",
    "DM-3.1.7.1.10-06",
    "DM-3.1.7.1.10-07",
    "DM-3.1.7.1.10-08",
)
def test_receiving_through_a_cursor() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        assert (await reader.receive(cursor=cursor, timeout_ms=0)).status == NOT_FOUND
        assert (await reader.receive(cursor=cursor, timeout_ms=SHORT_MS)).status == TIMEOUT
        waiting = await reader.waits(reader.receive(cursor=cursor, timeout_ms=LONG_MS))
        await reader.send(b"a", b"b", b"c")
        assert bodies(await waiting) == [b"a"]
        assert bodies(await reader.peek(cursor=cursor)) == [b"b"], "the cursor went on"
        assert bodies(await reader.receive()) == [b"b"]
        assert (await reader.receive(cursor=cursor, timeout_ms=LONG_MS)).status == RECEIVED
        # What ended by its timeout left the cursor where it can go on.
        assert bodies(await reader.receive()) == [b"c"]
        other = await reader.cursor()
        assert (await reader.receive(cursor=other, timeout_ms=SHORT_MS)).status == TIMEOUT
        await reader.send(b"d")
        assert bodies(await reader.receive(cursor=other)) == [b"d"]

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.7.1.14-02", "DM-3.1.7.1.14-03", "DM-3.1.7.1.14-04", "DM-3.1.7.1.14-05", "DM-3.2.1.2-01"
)
def test_peeking_at_the_next_message() -> None:
    async def scenario(reader: Reader) -> None:
        first, second = await reader.cursor(), await reader.cursor()
        assert first != second
        assert (await reader.peek(cursor=first, action=NEXT)).status == ILLEGAL
        await reader.send(b"a", b"b")
        assert bodies(await reader.peek(cursor=first)) == [b"a"]
        assert bodies(await reader.peek(cursor=first, action=NEXT)) == [b"b"]
        late = await reader.peek(cursor=first, action=NEXT, timeout_ms=SHORT_MS)
        assert late.status == TIMEOUT
        # Both wait for the same message, and a receive behind them: all are served by it.
        assert bodies(await reader.peek(cursor=second)) == [b"a"]
        assert bodies(await reader.peek(cursor=second, action=NEXT)) == [b"b"]
        peeks = [
            await reader.waits(reader.peek(cursor=cursor, action=NEXT, timeout_ms=LONG_MS), count)
            for count, cursor in enumerate((first, second), start=1)
        ]
        assert bodies(await reader.receive()) == [b"a"]
        assert bodies(await reader.receive()) == [b"b"]
        taking = await reader.waits(reader.receive(timeout_ms=LONG_MS), 3)
        await reader.send(b"c")
        assert [bodies(one) for one in await asyncio.gather(*peeks, taking)] == [[b"c"]] * 3

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.15-02", "DM-3.1.7.1.15-03", "DM-3.1.7.1.15-05")
def test_peeking_at_the_current_message() -> None:
    async def scenario(reader: Reader) -> None:
        cursor = await reader.cursor()
        assert (await reader.peek(cursor=cursor, timeout_ms=SHORT_MS)).status == TIMEOUT
        assert (await reader.peek(timeout_ms=SHORT_MS)).status == TIMEOUT
        with_cursor = await reader.waits(reader.peek(cursor=cursor, timeout_ms=LONG_MS), 1)
        without = await reader.waits(reader.peek(timeout_ms=LONG_MS), 2)
        await reader.send(b"a")
        assert [bodies(one) for one in await asyncio.gather(with_cursor, without)] == [[b"a"]] * 2
        assert bodies(await reader.peek(cursor=cursor)) == [b"a"]
        assert bodies(await reader.receive()) == [b"a"]
        assert (await reader.peek(cursor=cursor)).status == RECEIVED

    reading(scenario)


@pytest.mark.spec(
    "DM-3.1.2.3-01", "DM-3.1.2.3-02", "DM-3.1.2.3-03", "DM-3.1.6.3-01", "DM-3.1.7.3.4-01"
)
def test_each_wait_has_its_own_time() -> None:
    async def scenario(reader: Reader) -> None:
        forever = await reader.waits(reader.receive(timeout_ms=FOREVER), 1)
        long = await reader.waits(reader.receive(timeout_ms=LONG_MS), 2)
        for _ in range(3):
            assert (await reader.receive(timeout_ms=SHORT_MS)).status == TIMEOUT
        assert not forever.done()
        assert not long.done()
        await reader.send(b"a", b"b")
        assert bodies(await forever) == [b"a"]
        assert bodies(await long) == [b"b"]

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.3.1-02")
def test_without_time_nothing_waits() -> None:
    async def scenario(reader: Reader) -> None:
        for read in (reader.receive, reader.peek):
            found = await read(timeout_ms=0)
            assert found.status in (NOT_FOUND, TIMEOUT)
            assert bodies(found) == []

    reading(scenario)


@pytest.mark.spec("DM-3.1.7.1.13-01")
def test_a_peek_is_never_part_of_a_transaction() -> None:
    assert "transaction" not in data_pb2.PeekRequest.DESCRIPTOR.fields_by_name
    assert "is_two_phase" not in data_pb2.PeekRequest.DESCRIPTOR.fields_by_name
    assert not data_pb2.ReceiveRequest().is_two_phase
