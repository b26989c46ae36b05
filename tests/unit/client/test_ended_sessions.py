"""Sessions that end while their program goes on: by a lease, by an operator, or half opened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from qm.client.client import Client
from qm.client.errors import MqError
from qm.client.message import Message
from qm.model.clients.opens import OPEN_RECORD, OPEN_RECORD_KEY
from qm.model.state.tables import Table
from qm.model.values.limits import APPLY_VERSION
from qm.pb import control_pb2, data_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario, until

DEAD_LETTERS = "DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER"
TRIES = 12
LEASE_S = 3.0
NOTICED_S = 0.5 * LEASE_S
"""The client renews more often than that."""


@contextlib.asynccontextmanager
async def worker(made: Clients) -> AsyncIterator[Client]:
    """A client that renews often, of a cluster that fences."""
    leader = await made.harness.leader()

    def version() -> int:
        return leader.cluster.view.counters().apply_version

    await until(lambda: version() == APPLY_VERSION, version)
    async with Client(made.endpoints, tls=made.tls, client_id="worker", lease_s=LEASE_S) as client:
        yield client


async def end(client: Client, name: str) -> None:
    """End a session as its lease or an operator would."""
    request = data_pb2.CloseSessionRequest(client_id=name)
    await client.wire.call(lambda stubs: stubs.data.CloseSession, request)


@scenario()
async def test_a_transaction_whose_session_ended_spoils_none_after_it(made: Clients) -> None:
    async with worker(made) as client:
        lost = client.transaction()
        await lost.send(TRANSACTIONAL, Message(body=b"lost"))
        await end(client, "worker/t1")
        await asyncio.sleep(NOTICED_S)
        with pytest.raises(MqError) as error:
            await lost.commit()
        assert error.value.code == ErrorCode.MQ_ERROR_STALE_HANDLE
        for number in range(3):
            async with client.transaction() as transaction:
                await transaction.send(TRANSACTIONAL, Message(body=b"%d" % number))
        queue = await client.open_queue(TRANSACTIONAL)
        assert [each.body async for each in queue.browse()] == [b"0", b"1", b"2"]


async def end_by(operator: Client, name: str) -> None:
    """Have an operator end another client's session."""
    request = control_pb2.CloseClientRequest(client_id=name)
    await operator.wire.call(lambda stubs: stubs.clients.CloseClient, request)


@scenario()
async def test_what_an_operator_ends_is_lent_no_more_though_nobody_noticed(made: Clients) -> None:
    async with made.client("me") as client, made.client() as operator:
        running = client.transaction()
        await running.send(TRANSACTIONAL, Message(body=b"lost"))
        session = (await running.session()).client_id
        await end_by(operator, session)
        with pytest.raises(MqError) as ended:
            await running.commit()
        assert ended.value.code == ErrorCode.MQ_ERROR_STALE_HANDLE
        for body in (b"1", b"2"):
            async with client.transaction() as transaction:
                await transaction.send(TRANSACTIONAL, Message(body=body))
                used = (await transaction.session()).client_id
        assert used != session
        # One that ends while nobody uses it.
        await end_by(operator, used)
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"3"))
        queue = await client.open_queue(TRANSACTIONAL)
        assert [one.body async for one in queue.browse()] == [b"1", b"2", b"3"]


@scenario()
async def test_a_transaction_begins_though_the_idle_sessions_have_ended(made: Clients) -> None:
    async with worker(made) as client:
        both = [client.transaction(), client.transaction()]
        for transaction in both:
            await transaction.send(TRANSACTIONAL, Message(body=b"before"))
        for number, transaction in enumerate(both, 1):
            await transaction.commit()
            await end(client, f"worker/t{number}")
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"after"))
        queue = await client.open_queue(TRANSACTIONAL)
        assert len([each async for each in queue.browse()]) == 3


@scenario()
async def test_a_queue_is_opened_alone_after_a_try_that_was_given_up(made: Clients) -> None:
    state = (await made.harness.leader()).cluster.state
    low, high = (OPEN_RECORD_KEY.pack(OPEN_RECORD, handle) for handle in (0, (1 << 64) - 1))
    async with worker(made) as client:
        for _ in range(4):
            opening = asyncio.ensure_future(client.open_queue(PLAIN, exclusive=True))
            while not list(state.scan(Table.OPEN, low, high, 1)) and not opening.done():
                await asyncio.sleep(0)
            opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await client.close_queue(await opening)
            queue = await client.open_queue(PLAIN, exclusive=True)
            await client.close_queue(queue)


@scenario()
async def test_closing_a_queue_whose_session_ended_leaves_the_one_opened_since(
    made: Clients,
) -> None:
    async with worker(made) as client:
        old = await client.open_queue(PLAIN)
        await end(client, old.session.client_id)
        with pytest.raises(MqError):
            await old.receive(0)
        await asyncio.sleep(NOTICED_S)
        new = await client.open_queue(PLAIN)
        await client.close_queue(old)
        await asyncio.sleep(2 * LEASE_S)
        await client.send(PLAIN, Message(body=b"there"))
        received = await new.receive(5)
        assert received is not None
        assert received.body == b"there"


@scenario()
async def test_what_a_client_received_is_done_when_it_is_closed(made: Clients) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *[Message(body=b"%d" % number) for number in range(3)])
        queue = await client.open_queue(PLAIN)
        received = await queue.receive(5)
        assert received is not None
    async with made.client() as client:
        dead = await client.open_queue(DEAD_LETTERS)
        assert await dead.peek() is None
    with contextlib.suppress(ZeroDivisionError):
        async with made.client() as client:
            assert await (await client.open_queue(PLAIN)).receive(5) is not None
            raise ZeroDivisionError
    async with made.client() as client:
        found = await (await client.open_queue(DEAD_LETTERS)).peek()
        assert found is not None
        assert found.body == b"1", "nobody had done anything with it yet"


@scenario()
async def test_what_a_program_may_not_have_seen_is_kept_when_its_sessions_are_ended(
    made: Clients,
) -> None:
    async with made.client() as client:
        await client.send(PLAIN, *[Message(body=b"%d" % number) for number in range(3)])
        queue = await client.open_queue(PLAIN)
        for _ in range(2):
            assert await queue.receive(5) is not None
        await client.end()
    async with made.client() as client:
        dead = [each.body async for each in (await client.open_queue(DEAD_LETTERS)).browse()]
        assert dead == [b"1"], "the second receive confirmed the first one's message"
        assert [each.body async for each in (await client.open_queue(PLAIN)).browse()] == [b"2"]
