"""Cursors and waits of remote readers, by the events of [MS-MQDMPR] that their calls raise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from qm.pb import control_pb2
from qm.rpc.remote_read import interface as mqrr
from qm.rpc.remote_read.interface import StartOut
from tests.cluster.harness import until
from tests.unit.api.world import Client
from tests.unit.rpc.reading import (
    INFINITE,
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RemoteReader,
    RpcWorld,
    body,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world, waits

CANCELLED, TIMEOUT, RECEIVED = 0xC00E_0008, 0xC00E_001B, 0xC00E_001D
NOT_AVAILABLE, TRANSACTION_USAGE = 0xC00E_004B, 0xC00E_0050
NT_INVALID_HANDLE = 0xC000_0008
SHORT_MS = 40
LONG_MS = 60_000


async def new_cursor(reader: RemoteReader, handle: bytes) -> int:
    return int((await reader.call(4, mqrr.Handle(handle))).cursor)


async def close_cursor(reader: RemoteReader, handle: bytes, cursor: int) -> int:
    return int((await reader.call(5, mqrr.CursorIn(handle, cursor))).status)


async def waiting(
    world: RpcWorld, count: int, start: Awaitable[StartOut]
) -> asyncio.Future[StartOut]:
    """Begin a read, and return once so many wait."""
    begun = asyncio.ensure_future(start)
    await until(lambda: waits(world)._count == count)
    return begun


@pytest.mark.spec("DM-3.2.7.1-02", "DM-3.2.7.2-03", "DM-3.1.7.1.15-02", "DM-3.1.7.1.10-05")
def test_a_cursor_begins_at_the_start_and_misses_its_own() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, rival = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await rival.open()
        cursors = [await new_cursor(reader, handle) for _ in range(3)]
        assert len({*cursors}) == 3
        assert 0 not in cursors
        for cursor in cursors[:2]:
            for _ in range(2):
                found = await reader.start(handle, PEEK_CURRENT, cursor=cursor)
                assert body(found) == b"one", "it does not move"
        assert body(await rival.start(theirs)) == b"one"
        for action in (PEEK_CURRENT, RECEIVE):
            for timeout_ms in (0, LONG_MS):
                more = {"cursor": cursors[0], "timeout_ms": timeout_ms}
                gone = await reader.start(handle, action, **more)
                assert (gone.status, gone.sections) == (RECEIVED, None)
        # One that was never read is at the start of what there is.
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursors[2])) == b"two"
        assert await rival.end(theirs, NACK) == 0
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursors[0])) == b"one"
        assert await reader.receive(handle, cursor=cursors[0]) == b"one"
        for action in (PEEK_CURRENT, RECEIVE):
            gone = await reader.start(handle, action, cursor=cursors[1])
            assert (gone.status, gone.sections) == (RECEIVED, None)

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.10-04", "DM-3.1.7.1.14-05")
def test_a_cursor_that_found_nothing_is_where_it_was_unless_it_waited_to_receive() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two")
        reader, rival = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await rival.open()
        cursor = await new_cursor(reader, handle)
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursor)) == b"one"
        two = (await reader.start(handle, 0x4000_0012, lookup=(1 << 64) - 1)).sequence | 4 << 56
        for timeout_ms in (0, SHORT_MS):
            lent = await rival.start(theirs, 0x4000_0020, lookup=two)
            assert body(lent) == b"two"
            more = {"cursor": cursor, "timeout_ms": timeout_ms}
            late = await reader.start(handle, PEEK_NEXT, **more)
            assert (late.status, late.sections) == (TIMEOUT, None)
            assert await rival.end(theirs, NACK) == 0
            assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursor)) == b"one"
        cancelled = await waiting_for_two(world, reader, handle, cursor, rival, theirs, two)
        assert cancelled.status == CANCELLED
        assert body(await reader.start(handle, PEEK_NEXT, cursor=cursor)) == b"two"
        # A receive that would not wait leaves it, too, and one that waited moves it to the end.
        cursor = await new_cursor(reader, handle)
        assert await reader.receive(handle) == b"one"
        for timeout_ms, found in ((0, b"two"), (SHORT_MS, b"three")):
            lent = await rival.start(theirs)
            assert body(lent) == b"two"
            late = await reader.start(handle, cursor=cursor, timeout_ms=timeout_ms)
            assert (late.status, late.sections) == (TIMEOUT, None)
            assert await rival.end(theirs, NACK) == 0
            if timeout_ms:
                await client.send(ORDERS, b"three")
            taken = await reader.start(handle, cursor=cursor)
            assert body(taken) == found
            assert await reader.end(handle, NACK) == 0
            cursor = await new_cursor(reader, handle)

    in_world(scenario)


async def waiting_for_two(
    world: RpcWorld,
    reader: RemoteReader,
    handle: bytes,
    cursor: int,
    rival: RemoteReader,
    theirs: bytes,
    two: int,
) -> StartOut:
    """How a peek at the next message ends that is cancelled while that one is lent."""
    assert body(await rival.start(theirs, 0x4000_0020, lookup=two)) == b"two"
    given = reader.start_values(handle, PEEK_NEXT, cursor=cursor, timeout_ms=INFINITE)
    peek = await waiting(world, 1, reader.call(7, given))
    assert (await reader.call(8, mqrr.RequestIn(handle, given.request))).status == 0
    assert await rival.end(theirs, NACK) == 0
    return await peek


def five(reader: RemoteReader, handle: bytes, cursors: list[int]) -> list[Awaitable[StartOut]]:
    """Reads of every kind, which wait for ever: without a cursor, at the first, at the others."""
    at = [{"cursor": cursor, "timeout_ms": INFINITE} for cursor in cursors]
    return [
        reader.start(handle, timeout_ms=INFINITE),
        reader.start(handle, PEEK_CURRENT, timeout_ms=INFINITE),
        reader.start(handle, **at[0]),
        reader.start(handle, **at[0]),
        reader.start(handle, PEEK_CURRENT, **at[1]),
        reader.start(handle, PEEK_CURRENT, **at[2]),
        reader.start(handle, **at[3]),
    ]


@pytest.mark.spec("DM-3.1.7.1.2-01", "DM-3.1.7.1.2-02", "DM-3.1.7.3.1-05", "DM-3.1.7.1.10-07")
def test_the_end_of_a_cursor_ends_each_wait_at_it_and_no_other() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle = await reader.open()
        cursors = [await new_cursor(reader, handle) for _ in range(4)]
        other = await reader.open()
        # Numbers are those of a handle: another one's cursor of the same number is another.
        foreign = [await new_cursor(reader, other) for _ in range(4)]
        assert foreign[0] == cursors[0]
        line = [
            await waiting(world, count, start)
            for count, start in enumerate(five(reader, handle, cursors), start=1)
        ]
        more = {"cursor": foreign[0], "timeout_ms": INFINITE}
        line.append(await waiting(world, len(line) + 1, reader.start(other, **more)))
        for cursor in (cursors[0], cursors[1]):
            assert await close_cursor(reader, handle, cursor) == 0
        ended = (2, 3, 4)
        for place in ended:
            found = await asyncio.wait_for(line[place], LONG_MS / 1000)
            assert (found.status, found.sections) == (CANCELLED, None)
        assert waits(world)._count == len(line) - len(ended)
        left = [one for place, one in enumerate(line) if place not in ended]
        assert not any(one.done() for one in left)
        for cursor in (cursors[0], cursors[1]):
            assert await close_cursor(reader, handle, cursor) == NT_INVALID_HANDLE
            for action in (PEEK_CURRENT, PEEK_NEXT, RECEIVE):
                gone = await reader.start(handle, action, cursor=cursor)
                assert (gone.status, gone.sections) == (NT_INVALID_HANDLE, None)
        await client.send(ORDERS, b"one", b"two", b"three", b"four")
        # A receive without a cursor, one at a cursor, and one of the other handle.
        taken = [body(await one) for one in (left[0], left[3], left[4])]
        assert taken == [b"one", b"two", b"three"]
        assert [body(await one) for one in (left[1], left[2])] == [b"one"] * 2
        assert body(await reader.start(handle)) == b"four", "those that ended took nothing"
        await until(lambda: waits(world)._count == 0)

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.6-03", "DM-3.1.7.1.6-04", "DM-3.1.7.3.1-05")
def test_the_end_of_a_handle_ends_each_of_its_waits_and_no_other() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader = await world.reader()
        handle, other = await reader.open(), await reader.open()
        cursors = [await new_cursor(reader, handle) for _ in range(4)]
        theirs = await new_cursor(reader, other)
        line = [
            await waiting(world, count, start)
            for count, start in enumerate(five(reader, handle, cursors), start=1)
        ]
        more = {"cursor": theirs, "timeout_ms": INFINITE}
        kept = [
            await waiting(world, len(line) + 1, reader.start(other, **more)),
            await waiting(
                world, len(line) + 2, reader.start(other, PEEK_CURRENT, timeout_ms=INFINITE)
            ),
        ]
        assert await reader.close(handle) == 0
        for one in line:
            found = await asyncio.wait_for(one, LONG_MS / 1000)
            assert (found.status, found.sections) == (CANCELLED, None)
        assert waits(world)._count == len(kept)
        assert not any(one.done() for one in kept)
        await client.send(ORDERS, b"one", b"two")
        assert [body(await one) for one in kept] == [b"one"] * 2
        assert body(await reader.start(other)) == b"two", "those that ended took nothing"
        await until(lambda: waits(world)._count == 0)

    in_world(scenario)


@pytest.mark.spec("DM-3.1.2.3-02", "DM-3.1.6.3-01", "DM-3.1.7.3.4-01", "DM-3.1.7.3.1-02")
def test_a_wait_has_its_time_and_one_without_end_has_none() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client)
        reader, other = await world.reader(), await world.reader()
        handle, theirs = await reader.open(), await other.open()
        cursor = await new_cursor(other, theirs)
        clock = asyncio.get_running_loop().time
        endless: list[dict[str, Any]] = [
            {"action": PEEK_CURRENT},
            {"action": PEEK_CURRENT, "cursor": await new_cursor(reader, handle)},
            {},
            {"cursor": await new_cursor(reader, handle)},
        ]
        forever = [
            await waiting(world, count, reader.start(handle, timeout_ms=INFINITE, **how))
            for count, how in enumerate(endless, start=1)
        ]
        took: dict[int, list[float]] = {}
        for how in ({}, {"cursor": cursor}):
            for action in (RECEIVE, PEEK_CURRENT):
                for timeout_ms in (0, SHORT_MS, 10 * SHORT_MS):
                    begun = clock()
                    late = await other.start(theirs, action, timeout_ms=timeout_ms, **how)
                    assert (late.status, late.sections) == (TIMEOUT, None)
                    took.setdefault(timeout_ms, []).append((clock() - begun) * 1000)
        for timeout_ms, lasted in took.items():
            # Not before its time; not much later either, though a busy node may be, now and then.
            # The loop counts in milliseconds.
            assert timeout_ms - 1 <= min(lasted) <= sorted(lasted)[1] < timeout_ms + 8 * SHORT_MS
        assert waits(world)._count == len(endless)
        assert not any(one.done() for one in forever)
        await client.send(ORDERS, b"one", b"two")
        assert [body(await one) for one in forever] == [b"one", b"one", b"one", b"two"]

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.14-01", "DM-3.1.7.1.15-01", "DM-3.1.7.3.1-01", "DM-3.1.7.1.6-02")
def test_nothing_is_read_in_a_queue_that_is_gone() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one")
        reader = await world.reader()
        handle = await reader.open()
        cursor, unread = await new_cursor(reader, handle), await new_cursor(reader, handle)
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=cursor)) == b"one"
        await client.queues.DeleteQueue(
            control_pb2.DeleteQueueRequest(queue=control_pb2.QueueName(name=ORDERS))
        )
        for timeout_ms in (0, INFINITE):
            for action, at in (
                (PEEK_CURRENT, 0),
                (PEEK_CURRENT, unread),
                (PEEK_CURRENT, cursor),
                (PEEK_NEXT, cursor),
                (RECEIVE, 0),
                (RECEIVE, unread),
                (RECEIVE, cursor),
            ):
                start = reader.start(handle, action, cursor=at, timeout_ms=timeout_ms)
                found = await asyncio.wait_for(start, LONG_MS / 1000)
                seen = (hex(found.status), found.sections)
                assert seen == (hex(NOT_AVAILABLE), None), (hex(action), at, timeout_ms)
        assert await reader.close(handle) == 0

    in_world(scenario)


@pytest.mark.spec("DM-3.1.7.1.13-01")
def test_no_lookup_that_only_looks_is_of_a_transaction() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"one", b"two", b"three")
        reader = await world.reader()
        handle = await reader.open()
        first = (await reader.start(handle, 0x4000_0011)).sequence | 4 << 56
        for action in (0x4000_0010, 0x4000_0011, 0x4000_0012):
            given = reader.start_values(handle, action, lookup=first)
            refused = await reader.call(13, with_transaction(given))
            assert (refused.status, refused.sections) == (TRANSACTION_USAGE, None)
        assert await reader.receive(handle) == b"one"

    in_world(scenario)


def with_transaction(given: mqrr.StartIn) -> mqrr.StartIn:
    """The same with a transaction."""
    return msgspec.structs.replace(given, transaction=bytes(range(1, 17)))
