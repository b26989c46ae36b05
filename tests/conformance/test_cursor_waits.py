"""Where a cursor stands when its wait is over, as readers see it over gRPC and RPC.

[MS-MQDMPR] 3.2.7.5 Message Available and 3.2.7.6 Wait Time Expired; test_model_cursors has them
event by event.
"""

from __future__ import annotations

import asyncio

import pytest

from qm.rpc.remote_read import interface as mqrr
from qm.wire.codes import ErrorCode
from tests.cluster.harness import until
from tests.conformance.test_api_reads import LONG_MS, NEXT, SHORT_MS, Reader, reading
from tests.unit.api.world import Client, bodies
from tests.unit.rpc.reading import (
    NACK,
    ORDERS,
    PEEK_CURRENT,
    PEEK_NEXT,
    RECEIVE,
    RpcWorld,
    body,
    with_orders,
)
from tests.unit.rpc.test_remote_read import in_world, waits

TIMEOUT = 0xC00E001B


@pytest.mark.spec("DM-3.2.7.6-01", "DM-3.2.7.6-02", "DM-3.2.1.2-02")
def test_a_wait_in_vain_leaves_a_receive_at_the_end_and_a_peek_where_it_was() -> None:
    async def scenario(reader: Reader) -> None:
        await reader.send(b"first", b"second", b"third")
        lent = [await reader.lent() for _ in range(3)]
        takes, looks = await reader.cursor(), await reader.cursor()
        for read in (
            reader.receive(cursor=takes, timeout_ms=SHORT_MS),
            reader.peek(cursor=looks, timeout_ms=SHORT_MS),
        ):
            assert (await read).status == TIMEOUT
        for key in lent[:2]:
            await reader.give_back(key)
        nothing = await reader.receive(cursor=takes, timeout_ms=0)
        assert nothing.status == ErrorCode.MQ_ERROR_MESSAGE_NOT_FOUND, "it is behind what was there"
        assert bodies(await reader.peek(cursor=looks)) == [b"first"]
        assert bodies(await reader.peek(cursor=looks, action=NEXT)) == [b"second"]
        # Also when it stands at a message, and waits for the next one.
        late = await reader.peek(cursor=looks, action=NEXT, timeout_ms=SHORT_MS)
        assert late.status == TIMEOUT
        assert bodies(await reader.peek(cursor=looks)) == [b"second"]
        await reader.send(b"later")
        assert bodies(await reader.peek(cursor=looks, action=NEXT)) == [b"later"]
        assert bodies(await reader.receive(cursor=takes)) == [b"later"], "it hides no arrival"

    reading(scenario)


@pytest.mark.spec("DM-3.2.7.5-01")
def test_a_peek_that_waited_stands_at_its_message_and_a_receive_behind_it() -> None:
    async def scenario(reader: Reader) -> None:
        takes, looks = await reader.cursor(), await reader.cursor()
        looking = await reader.waits(reader.peek(cursor=looks, timeout_ms=LONG_MS), 1)
        await reader.send(b"one")
        assert bodies(await looking) == [b"one"]
        assert bodies(await reader.receive()) == [b"one"]
        taking = await reader.waits(reader.receive(cursor=takes, timeout_ms=LONG_MS), 1)
        await reader.send(b"two", b"three")
        assert bodies(await taking) == [b"two"]
        assert (await reader.peek(cursor=looks)).status == (
            ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        ), "its message is gone, and it still stands there"
        assert bodies(await reader.peek(cursor=takes)) == [b"three"]
        assert bodies(await reader.peek(cursor=looks, action=NEXT)) == [b"three"]

    reading(scenario)


@pytest.mark.spec("DM-3.2.7.5-01", "DM-3.2.7.6-01", "DM-3.2.7.6-02", "DM-3.2.1.2-02")
def test_so_it_is_for_remote_readers() -> None:
    async def scenario(world: RpcWorld, client: Client) -> None:
        await with_orders(client, b"first", b"second", b"third")
        reader, other = await world.reader(), await world.reader()
        handle, place = await reader.open(), await other.open()
        takes, looks = [(await reader.call(4, mqrr.Handle(handle))).cursor for _ in range(2)]
        for number in (1, 2, 3):
            assert (await other.start(place, request=number)).status == 0
        for action, cursor in ((RECEIVE, takes), (PEEK_CURRENT, looks)):
            late = await reader.start(handle, action, cursor=cursor, timeout_ms=SHORT_MS)
            assert late.status == TIMEOUT
        for number in (1, 2):
            assert await other.end(place, NACK, request=number) == 0
        assert (await reader.start(handle, cursor=takes)).status == TIMEOUT
        for action, text in ((PEEK_CURRENT, b"first"), (PEEK_NEXT, b"second")):
            assert body(await reader.start(handle, action, cursor=looks)) == text
        late = await reader.start(handle, PEEK_NEXT, cursor=looks, timeout_ms=SHORT_MS)
        assert late.status == TIMEOUT
        assert body(await reader.start(handle, PEEK_CURRENT, cursor=looks)) == b"second"
        # What comes while they wait: the peek stands at it, the receive behind it.
        looking = asyncio.ensure_future(
            reader.start(handle, PEEK_NEXT, cursor=looks, timeout_ms=LONG_MS)
        )
        await until(lambda: waits(world)._count == 1)
        await client.send(ORDERS, b"one")
        assert body(await looking) == b"one"
        assert await reader.receive(handle, cursor=takes) == b"one"
        gone = await reader.start(handle, PEEK_CURRENT, cursor=looks)
        assert gone.status == ErrorCode.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
        taking = asyncio.ensure_future(reader.receive(handle, cursor=takes, timeout_ms=LONG_MS))
        await until(lambda: waits(world)._count == 1)
        await client.send(ORDERS, b"two", b"three")
        assert await taking == b"two"
        for action, cursor in ((PEEK_CURRENT, takes), (PEEK_NEXT, looks)):
            assert body(await reader.start(handle, action, cursor=cursor)) == b"three"

    in_world(scenario)
