"""Reads of a transaction whose answers were lost: what they took is seen, or stays in its queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from qm.client.calls import Calls
from qm.client.client import Client
from qm.client.errors import MqError, Unavailable
from qm.client.message import Message
from qm.client.transaction import Outcome
from qm.pb import data_pb2
from qm.wire.codes import ErrorCode
from tests.unit.client.world import PLAIN, TRANSACTIONAL, Clients, scenario


class LossyCalls(Calls):
    """Loses an answer, as a node that is cut off at that moment."""

    is_losing = False

    @override
    async def call(self, method: Callable[..., Any], request: Any, **options: Any) -> Any:
        answer = await super().call(method, request, **options)
        if self.is_losing and isinstance(request, data_pb2.ReceiveRequest):
            self.is_losing = False
            raise Unavailable("the answer is lost")
        return answer


async def begun(made: Clients) -> tuple[Client, LossyCalls]:
    wire = LossyCalls(made.endpoints, made.tls)
    client = Client(made.endpoints, client_id="me", wire=wire)
    await client.open()
    async with client.transaction() as transaction:
        for body in (b"1", b"2"):
            await transaction.send(TRANSACTIONAL, Message(body=body))
    return client, wire


@scenario()
async def test_a_message_that_nobody_has_seen_is_not_removed(made: Clients) -> None:
    client, wire = await begun(made)
    queue = await client.open_queue(TRANSACTIONAL)
    transaction = client.transaction()
    wire.is_losing = True
    with pytest.raises(Unavailable):
        await transaction.receive(queue, 0)
    with pytest.raises(MqError) as aborted:
        await transaction.commit()
    assert aborted.value.code == ErrorCode.MQ_ERROR_OPERATION_CANCELLED
    assert transaction.outcome is Outcome.ABORTED
    assert [one.body async for one in queue.browse()] == [b"1", b"2"]
    async with client.transaction() as again:
        assert (await again.receive(queue, 0)).body == b"1"  # type: ignore[union-attr]
    assert [one.body async for one in queue.browse()] == [b"2"]
    await client.close()


@scenario()
async def test_what_an_interrupted_read_took_is_read_first(made: Clients) -> None:
    client, wire = await begun(made)
    transaction = client.transaction()
    wire.is_losing = True
    with pytest.raises(Unavailable):
        await transaction.receive(TRANSACTIONAL, 0)
    for body in (b"1", b"2"):
        found = await transaction.receive(TRANSACTIONAL, 0)
        assert found is not None
        assert found.body == body
    await transaction.commit()
    queue = await client.open_queue(TRANSACTIONAL)
    assert [one.body async for one in queue.browse()] == []
    await client.close()


@scenario()
async def test_an_interrupted_read_that_took_nothing_stops_no_commit(made: Clients) -> None:
    client, wire = await begun(made)
    transaction = client.transaction()
    await transaction.receive_many(TRANSACTIONAL, 2, 0)
    wire.is_losing = True
    with pytest.raises(Unavailable):
        await transaction.receive(TRANSACTIONAL, 0)
    await transaction.commit()
    queue = await client.open_queue(TRANSACTIONAL)
    assert [one.body async for one in queue.browse()] == []
    await client.send(PLAIN, Message())
    session = client.main
    assert session.numbers.open_count == 0
    await client.close()
