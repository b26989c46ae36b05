"""What the data plane and its clients make of messages and reads [MS-MQDMPR 3.1.1.12, 3.1.7.1]."""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import Any

import pytest

from qm.client.message import Message
from qm.client.mqac import MSMQMessage
from qm.pb import data_pb2
from qm.wire.packets.user_message import parse_user_message
from tests.cluster.harness import run
from tests.conformance.mqac_world import SEND, WAIT_S, made, opened, serving
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import world as api_world
from tests.unit.client.world import PLAIN, Clients, scenario
from tests.unit.model.world import PEER, packet

FOREVER_MS = 0xFFFF_FFFF


@pytest.mark.spec("DM-3.1.7.1.10-03", "DM-3.1.7.1.11-01")
@pytest.mark.parametrize("is_two_phase", [False, True])
def test_a_read_that_names_no_timeout_waits(is_two_phase: bool) -> None:
    @scenario()
    async def test(made: Clients) -> None:
        async with made.client() as client:
            queue = await client.open_queue(PLAIN)
            read = queue.receive_two_phase if is_two_phase else queue.receive
            waiting = asyncio.ensure_future(read())
            await made.until_read_waits()
            await client.send(PLAIN, Message(body=b"awaited"))
            message = await waiting
            assert message is not None
            assert message.body == b"awaited"

    test()


@pytest.mark.spec("DM-3.1.7.1.10-03", "DM-3.1.7.1.11-01")
def test_the_infinite_timeout_outlasts_others() -> None:
    async def main() -> None:
        async with api_world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            reads = [
                asyncio.ensure_future(
                    client.receive(queue, timeout_ms=FOREVER_MS, is_two_phase=is_two_phase)
                )
                for is_two_phase in (False, True)
            ]
            timed = await client.receive(queue, timeout_ms=1_500)
            assert timed.status == 0xC00E001B
            assert not any(read.done() for read in reads)
            await client.send(ORDERS, b"one", b"two")
            for read in reads:
                reply = await read
                assert (reply.status, len(reply.messages.properties)) == (0, 1)

    run(main())


@pytest.mark.spec("DM-3.1.7.1.10-03")
def test_a_receive_of_the_objects_that_names_no_timeout_waits() -> None:
    with serving() as service:
        info = made(service)
        queue = opened(info)
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(queue.Receive()), daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        message = MSMQMessage(service)
        message.Body = "late"
        message.Send(opened(info, SEND))
        waiting.join(WAIT_S)
        assert [one.Body for one in found] == ["late"]


@pytest.mark.spec("DM-3.1.1.12-25")
@pytest.mark.parametrize("is_packet", [False, True])
def test_the_source_of_what_an_application_sends_is_this_queue_manager(is_packet: bool) -> None:
    async def main() -> None:
        async with api_world() as made, made.client(await made.leader()) as client:
            await create(client)
            own = (await client.open_session()).queue_manager
            if is_packet:
                given = data_pb2.OutgoingMessage(
                    targets=[ORDERS], packet=packet(5, source_queue_manager=PEER)
                )
                request = data_pb2.SendRequest(request=client.next(), messages=[given])
                assert (await client.data.Send(request)).results[0].status == 0
            else:
                await client.send(ORDERS, b"x")
            reply = await client.receive(await client.open(ORDERS))
            (found,) = reply.messages.properties
            assert found.source_machine == own
            raw = reply.messages.packets
            message, _ = parse_user_message(raw, 0, len(raw))
            assert message.user_header.source_queue_manager == own

    run(main())


@pytest.mark.spec("QB-1.3.3-01", "DM-3.1.4.3-03")
@pytest.mark.parametrize("is_two_phase", [False, True])
def test_what_a_transaction_sends_is_recoverable_and_its_ends_are_marked(
    is_two_phase: bool,
) -> None:
    async def main() -> None:
        async with api_world() as made, made.client(await made.leader()) as client:
            await create(client, transactional=True)
            transaction = secrets.token_bytes(16)
            begin = data_pb2.BeginTransactionRequest(
                request=client.next(), transaction=transaction, is_two_phase=is_two_phase
            )
            await client.data.BeginTransaction(begin)
            express = {"delivery": data_pb2.EXPRESS}
            await client.send(ORDERS, b"1", b"2", b"3", transaction=transaction, **express)

            async def end(call: Any) -> None:
                request = data_pb2.EndTransactionRequest(
                    request=client.next(), transaction=transaction
                )
                await call(request)

            if is_two_phase:
                await end(client.data.PrepareTransaction)
            await end(client.data.CommitTransaction)
            reply = await client.receive(await client.open(ORDERS), 3)
            found = reply.messages.properties
            assert [one.body for one in found] == [b"1", b"2", b"3"]
            assert [one.delivery for one in found] == [data_pb2.RECOVERABLE] * 3
            assert [one.is_first_in_transaction for one in found] == [True, False, False]
            assert [one.is_last_in_transaction for one in found] == [False, False, True]

    run(main())
