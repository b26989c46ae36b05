"""Sessions that ended while the client lived: their leases, or an operator, ended them."""

from __future__ import annotations

import asyncio

import pytest

from qm.client.client import Client
from qm.client.errors import MqError
from qm.client.message import Message
from qm.pb import control_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario

LEASE_S = 3.0


async def end(operator: Client, session: str) -> None:
    """Have the cluster end a session."""
    await operator.wire.call(
        lambda stubs: stubs.clients.CloseClient, control_pb2.CloseClientRequest(client_id=session)
    )


@scenario()
async def test_a_transaction_takes_another_session_if_its_own_has_ended(made: Clients) -> None:
    async with made.client("me") as client, made.client() as operator:
        running = client.transaction()
        await running.send(TRANSACTIONAL, Message(body=b"lost"))
        session = (await running.session()).client_id
        await end(operator, session)
        with pytest.raises(MqError) as ended:
            await running.commit()
        assert ended.value.code == ErrorCode.MQ_ERROR_STALE_HANDLE
        for body in (b"1", b"2"):
            async with client.transaction() as transaction:
                await transaction.send(TRANSACTIONAL, Message(body=body))
                used = (await transaction.session()).client_id
        assert used != session
        # One that ends while nobody uses it.
        await end(operator, used)
        async with client.transaction() as transaction:
            await transaction.send(TRANSACTIONAL, Message(body=b"3"))
        queue = await client.open_queue(TRANSACTIONAL)
        assert [one.body async for one in queue.browse()] == [b"1", b"2", b"3"]


@scenario()
async def test_a_session_that_ended_in_a_transaction_is_lent_no_more(made: Clients) -> None:
    client = Client(made.endpoints, tls=made.tls, client_id="me", lease_s=LEASE_S)
    async with client, made.client() as operator:
        running = client.transaction()
        await running.send(TRANSACTIONAL, Message())
        await end(operator, (await running.session()).client_id)
        await asyncio.sleep(LEASE_S)  # its end is noticed meanwhile
        with pytest.raises(MqError):
            await running.commit()
        for _ in range(2):
            async with client.transaction() as transaction:
                await transaction.send(TRANSACTIONAL, Message())


@scenario()
async def test_a_queue_that_is_opened_again_outlives_the_one_that_ended(made: Clients) -> None:
    """As Visual Basic's `Set queue = info.Open(...)` does it: open first, then let the old go."""
    client = Client(made.endpoints, tls=made.tls, client_id="me", lease_s=LEASE_S)
    async with client, made.client() as operator:
        ended = await client.open_queue(PLAIN)
        await end(operator, ended.session.client_id)
        await asyncio.sleep(LEASE_S)  # its end is noticed meanwhile
        with pytest.raises(MqError):
            await ended.receive(0)
        again = await client.open_queue(PLAIN)
        await client.close_queue(ended)
        await asyncio.sleep(2 * LEASE_S)
        await client.send(PLAIN, Message(body=b"1"))
        found = await again.receive(5)
        assert found is not None
        assert found.body == b"1"
