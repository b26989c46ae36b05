"""Calls that were interrupted, and what the client does after them: nothing is lost, nothing stays
half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from typing_extensions import override

from qm.client.calls import Calls
from qm.client.client import Client
from qm.client.errors import MqError, Unavailable
from qm.client.message import Message
from qm.client.queue import Queue
from qm.client.transaction import Outcome
from qm.model.values.limits import UNCONFIRMED_RESULTS_PER_CLIENT_MAX
from qm.pb import control_pb2, data_pb2
from tests.unit.client.world import (
    PLAIN,
    TRANSACTIONAL,
    Clients,
    abandon,
    clients,
    run,
    scenario,
    until,
)

DEAD_LETTERS = "DIRECT=OS:QUORATE\\SYSTEM$;DEADLETTER"
ALL = [b"1", b"2", b"3"]
AT_ONCE = 512


class LossyCalls(Calls):
    """Loses the answer of one call, or lets calls reach no node."""

    loses: type | None = None
    is_refused_then = False
    """Whether the next node refuses the call, whose answer is lost, instead of being none."""
    unreached: type | None = None

    @override
    async def call(self, method: Callable[..., Any], request: Any, **options: Any) -> Any:
        if self.unreached is not None and isinstance(request, self.unreached):
            raise Unavailable("no node is reached")
        if self.loses is None or not isinstance(request, self.loses):
            return await super().call(method, request, **options)
        self.loses = None
        if self.is_refused_then:
            return await super().call(carried_out_then_refused(method), request, **options)
        await super().call(method, request, **options)
        raise Unavailable("the answer is lost")


def carried_out_then_refused(method: Callable[..., Any]) -> Callable[..., Any]:
    codes = iter((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED))

    def attempt_at(stubs: Any) -> Callable[..., Any]:
        async def attempt(request: Any, **options: Any) -> Any:
            code = next(codes)
            if code is grpc.StatusCode.UNAVAILABLE:
                await method(stubs)(request, **options)
            raise aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), "Socket closed", "")

        return attempt

    return attempt_at


async def begun(made: Clients, queue: str, **options: Any) -> tuple[Client, LossyCalls]:
    wire = LossyCalls(made.endpoints, made.tls)
    client = Client(made.endpoints, client_id="me", wire=wire, **options)
    await client.open()
    messages = [Message(body=body) for body in ALL]
    if queue == TRANSACTIONAL:
        async with client.transaction() as transaction:
            await transaction.send(queue, *messages)
    else:
        await client.send(queue, *messages)
    return client, wire


async def left(client: Client, queue: str) -> list[bytes]:
    return [one.body async for one in (await client.open_queue(queue)).browse()]


async def one_by_one(queue: Queue) -> list[bytes]:
    found = []
    while (message := await queue.receive(0)) is not None:
        found.append(message.body)
    return found


@pytest.mark.parametrize("is_refused_then", [False, True])
def test_what_an_interrupted_read_took_is_received_one_by_one(is_refused_then: bool) -> None:
    async def main() -> None:
        async with clients() as made:
            client, wire = await begun(made, PLAIN)
            queue = await client.open_queue(PLAIN)
            wire.loses, wire.is_refused_then = data_pb2.ReceiveRequest, is_refused_then
            with pytest.raises(Unavailable):
                await queue.receive_many(3, 0)
            assert await one_by_one(queue) == ALL
            await client.send(PLAIN, Message(body=b"4"))
            assert [each.body for each in await queue.receive_many(2, 0)] == [b"4"]
            assert queue.session.numbers.open_count == 2, "the last read alone"
            await client.close()

    run(main())


@scenario()
async def test_what_was_in_flight_when_a_stream_was_left_is_received_one_by_one(
    made: Clients,
) -> None:
    client, _ = await begun(made, PLAIN)
    queue = await client.open_queue(PLAIN)
    async with queue.stream() as stream:
        first = (await anext(stream)).body
    assert [first, *await one_by_one(queue)] == ALL
    await client.close()


@scenario()
async def test_what_an_earlier_process_received_together_is_received_one_by_one(
    made: Clients,
) -> None:
    client, _ = await begun(made, PLAIN)
    assert len(await (await client.open_queue(PLAIN)).receive_many(3, 0)) == 3
    await abandon(client)
    async with made.client("me") as again:
        assert await one_by_one(await again.open_queue(PLAIN)) == ALL


@scenario()
async def test_what_was_not_asked_for_before_the_end_is_no_loss(made: Clients) -> None:
    client, wire = await begun(made, PLAIN)
    queue = await client.open_queue(PLAIN)
    wire.loses = data_pb2.ReceiveRequest
    with pytest.raises(Unavailable):
        await queue.receive_many(3, 0)
    message = await queue.receive(0)
    assert message is not None
    assert message.body == b"1"
    await client.close()
    async with made.client() as operator:
        assert await left(operator, DEAD_LETTERS) == [b"2", b"3"]


@pytest.mark.parametrize("is_refused_then", [False, True])
def test_a_transaction_returns_all_that_an_interrupted_read_took(is_refused_then: bool) -> None:
    async def main() -> None:
        async with clients() as made:
            client, wire = await begun(made, TRANSACTIONAL)
            transaction = client.transaction()
            wire.loses, wire.is_refused_then = data_pb2.ReceiveRequest, is_refused_then
            with pytest.raises(Unavailable):
                await transaction.receive_many(TRANSACTIONAL, 3, 0)
            found = []
            while (message := await transaction.receive(TRANSACTIONAL, 0)) is not None:
                found.append(message.body)
            assert found == ALL
            await transaction.commit()
            assert await left(client, TRANSACTIONAL) == []
            await client.close()

    run(main())


@scenario()
async def test_what_one_node_did_and_another_refused_has_no_known_outcome(made: Clients) -> None:
    """Or an application that tries again sends, or handles, everything twice."""
    client, wire = await begun(made, TRANSACTIONAL)
    wire.is_refused_then = True
    wire.loses = data_pb2.SendRequest
    with pytest.raises(Unavailable, match="may have carried it out"):
        await client.send(PLAIN, Message(body=b"4"))
    assert await left(client, PLAIN) == [b"4"]
    transaction = client.transaction()
    assert len(await transaction.receive_many(TRANSACTIONAL, 3, 0)) == 3
    wire.loses = data_pb2.EndTransactionRequest
    with pytest.raises(Unavailable):
        await transaction.commit()
    assert str(transaction.outcome) == str(Outcome.UNKNOWN)
    await transaction.commit()
    assert str(transaction.outcome) == str(Outcome.COMMITTED)
    assert await left(client, TRANSACTIONAL) == []
    await client.close()


@scenario()
async def test_a_transaction_does_not_remove_what_was_not_asked_for(made: Clients) -> None:
    client, wire = await begun(made, TRANSACTIONAL)
    transaction = client.transaction()
    wire.loses = data_pb2.ReceiveRequest
    with pytest.raises(Unavailable):
        await transaction.receive_many(TRANSACTIONAL, 3, 0)
    assert await transaction.receive(TRANSACTIONAL, 0) is not None
    with pytest.raises(MqError):
        await transaction.commit()
    assert transaction.outcome is Outcome.ABORTED
    assert await left(client, TRANSACTIONAL) == ALL
    await client.close()


@scenario()
async def test_asking_again_commits_no_transaction_that_was_to_be_aborted(made: Clients) -> None:
    client, wire = await begun(made, TRANSACTIONAL)
    transaction = client.transaction()
    wire.loses = data_pb2.ReceiveRequest
    with pytest.raises(Unavailable):
        await transaction.receive(TRANSACTIONAL, 0)
    wire.unreached = data_pb2.EndTransactionRequest
    with pytest.raises(Unavailable):
        await transaction.commit()
    wire.unreached = None
    with pytest.raises(MqError):
        await transaction.commit()
    assert await left(client, TRANSACTIONAL) == ALL
    await client.close()


@scenario()
async def test_a_commit_succeeds_while_queues_are_closed(made: Clients) -> None:
    client, _ = await begun(made, TRANSACTIONAL)
    queue, other = await client.open_queue(TRANSACTIONAL), await client.open_queue(PLAIN)
    transaction = client.transaction()
    assert await transaction.receive(queue, 0) is not None
    await client.close_queue(queue)
    committing = asyncio.ensure_future(transaction.commit())
    while transaction.outcome is None:
        await asyncio.sleep(0)
    assert not committing.done(), "it closes the queue for others"
    await client.close_queue(other)
    await committing
    async with made.client() as alone:
        await alone.open_queue(TRANSACTIONAL, exclusive=True)
    await client.close()


@scenario()
async def test_a_queue_that_was_being_opened_for_a_transaction_is_not_left_open(
    made: Clients,
) -> None:
    client, wire = await begun(made, TRANSACTIONAL)
    transaction = client.transaction()
    wire.loses = data_pb2.OpenQueueRequest
    with pytest.raises(Unavailable):
        await transaction.receive(TRANSACTIONAL, 0)
    await transaction.abort()
    async with made.client() as alone:
        await alone.close_queue(await alone.open_queue(TRANSACTIONAL, exclusive=True))
    async with client.transaction() as after:
        assert await after.receive(TRANSACTIONAL, 0) is not None
        session = await after.session()
    assert session.numbers.open_count == 0, "nothing keeps results from being confirmed"
    await client.close()


@scenario()
async def test_a_queue_is_closed_though_it_is_gone_or_a_session_has_ended(made: Clients) -> None:
    client, _ = await begun(made, TRANSACTIONAL)
    queue, plain = await client.open_queue(TRANSACTIONAL), await client.open_queue(PLAIN)
    async with client.transaction() as transaction:
        assert await transaction.receive(queue, 0) is not None
        name = (await transaction.session()).client_id
    async with made.client() as operator:
        delete = control_pb2.DeleteQueueRequest()
        delete.queue.queue_id = queue.queue_id
        await operator.wire.call(lambda stubs: stubs.queues.DeleteQueue, delete)
        await client.close_queue(queue)
        await client.send(PLAIN, Message(body=b"4"))
        async with client.transaction() as transaction:
            await transaction.session()
        end = control_pb2.CloseClientRequest(client_id=name)
        await operator.wire.call(lambda stubs: stubs.clients.CloseClient, end)
        assert await plain.receive(0) is not None
        await client.close_queue(plain)
        assert await left(operator, DEAD_LETTERS) == [], "what was received is confirmed"
    await client.close()


def test_sends_that_were_interrupted_are_completed_and_stop_no_later_ones(tmp_path: Path) -> None:
    async def main() -> None:
        async with clients() as made:
            client, wire = await begun(made, PLAIN, memory=tmp_path / "memory", lease_s=3.0)
            wire.loses = data_pb2.SendRequest
            with pytest.raises(Unavailable):
                await client.send(PLAIN, Message(body=b"4", label="done"))
            wire.unreached = data_pb2.SendRequest
            with pytest.raises(Unavailable):
                await client.send(PLAIN, Message(body=b"5", label="not done"))
            wire.unreached = None
            await until(lambda: len(client.recovered) == 2)
            assert [(one.labels, one.error) for one in client.recovered] == [
                (("done",), None),
                (("not done",), None),
            ]
            assert await left(client, PLAIN) == [*ALL, b"4", b"5"]
            assert client.main.numbers.open_count == 0
            transaction = client.transaction()
            wire.loses = data_pb2.SendRequest
            with pytest.raises(Unavailable):
                await transaction.send(TRANSACTIONAL, Message())
            session = await transaction.session()
            await transaction.abort()
            assert session.numbers.open_count == 0
            for _ in range(UNCONFIRMED_RESULTS_PER_CLIENT_MAX // AT_ONCE + 1):
                await client.send(PLAIN, *[Message()] * AT_ONCE)
            await client.close()
        assert (tmp_path / "memory").exists()

    run(main())
