"""Fields that belong to applications: the queue manager hands them on and reads none of them."""

import secrets
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from qm.node.config.schema import MSMQ_PORT
from qm.pb import data_pb2
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message, write_user_message
from tests.cluster.harness import free_network, run, until
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import Client, world
from tests.unit.edge.outgoing.world import Peer
from tests.unit.model.world import packet

GUIDS = (bytes(range(16)), b"\xff" * 16, b"\0" * 15 + b"\1")
CORRELATIONS = (bytes(range(20)), b"\xff" * 20, b"\0" * 16 + b"\1\2\3\4")


def with_peer(scenario: Callable[[Client, Peer], Awaitable[None]]) -> None:
    """Run a cluster with a queue for orders, beside another queue manager."""

    async def main() -> None:
        async with (
            Peer(f"{free_network()}.11", MSMQ_PORT) as peer,
            world() as made,
            made.client(await made.leader()) as client,
        ):
            await create(client)
            await scenario(client, peer)

    run(main())


def read(raw: bytes) -> UserMessage:
    return parse_user_message(raw, 0, len(raw))[0]


async def arrival(peer: Peer, count: int) -> bytes:
    """Wait until the other queue manager has got so many packets; return the last."""
    await until(lambda: len(peer.raw) == count)
    return peer.raw[-1]


@pytest.mark.spec("MQ-2.2.19.2-31", "MQ-2.2.19.3-12")
def test_a_connector_type_and_a_correlation_arrive_as_they_were_sent() -> None:
    async def scenario(client: Client, peer: Peer) -> None:
        queue = await client.open(ORDERS)
        for count, given in enumerate(zip(GUIDS, CORRELATIONS, strict=True), 1):
            connector_type, correlation = given
            for name in (ORDERS, peer.address):
                (sent,) = await client.send(
                    name, b"x", connector_type=connector_type, correlation_id=correlation
                )
                assert sent.status == 0
            peeked = (await client.peek(queue)).messages.properties[0]
            taken = (await client.receive(queue)).messages
            for found in (peeked, taken.properties[0]):
                assert (found.connector_type, found.correlation_id) == given
            for raw in (taken.packets, await arrival(peer, count)):
                message = read(raw)
                kept = message.user_header.connector_type, message.properties.correlation_id
                assert kept == given

    with_peer(scenario)


@pytest.mark.spec("MQ-2.2.20.5-04")
def test_a_connector_s_queue_manager_arrives_as_it_was_sent() -> None:
    async def scenario(client: Client, peer: Peer) -> None:
        plain = read(packet(0, sequence=(1, 1, 0)))
        assert plain.transaction is not None
        for count, guid in enumerate((None, *GUIDS), 1):
            header: TransactionHeader = replace(plain.transaction, connector_qm_guid=guid)
            raw = write_user_message(replace(plain, transaction=header))
            transaction = secrets.token_bytes(16)
            await client.data.BeginTransaction(
                data_pb2.BeginTransactionRequest(request=client.next(), transaction=transaction)
            )
            message = data_pb2.OutgoingMessage(targets=[peer.address], packet=raw)
            await client.data.Send(
                data_pb2.SendRequest(
                    request=client.next(), messages=[message], transaction=transaction
                )
            )
            await client.data.CommitTransaction(
                data_pb2.EndTransactionRequest(request=client.next(), transaction=transaction)
            )
            arrived = read(await arrival(peer, count))
            assert arrived.transaction is not None
            assert arrived.transaction.connector_qm_guid == guid
            assert arrived.transaction.is_last, "the flags beside its own are the queue manager's"
            assert arrived.properties == plain.properties

    with_peer(scenario)
