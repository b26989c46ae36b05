"""Packets that callers bring whole: values in them that no sender may set."""

from __future__ import annotations

from typing import Any

import pytest
from grpc import StatusCode
from msgspec.structs import replace

from qm.pb import data_pb2
from qm.wire.packets.user_message import parse_user_message, write_user_message
from tests.cluster.harness import run
from tests.unit.api.test_data import ORDERS, brought, create
from tests.unit.api.world import Client, refused, world

INVALID = StatusCode.INVALID_ARGUMENT
CONNECTOR = b"c" * 16
DEFINED = (0x0001, 0x0002, 0x00FF, 0x4000, *range(0x8000, 0x8008), *range(0x8009, 0x800C),
           0xC000, 0xC001, 0xC002, 0xC004)  # fmt: skip
CUSTOM = (0x0100, 0x01FF, 0x2000, 0xE1FF)
UNDEFINED = (0x0200, 0x0400, 0x0800, 0x1000, 0x1E00, 0xFFFF)
CIPHERS = (0x6602, 0x6801, 0x660E, 0x660F, 0x6610)


def made(connector_type: bytes | None = None, **properties: Any) -> bytes:
    """Return a packet with these values in its headers."""
    message = brought()
    header = replace(message.user_header, connector_type=connector_type)
    values = replace(message.properties, **properties)
    return write_user_message(replace(message, user_header=header, properties=values))


async def send(client: Client, packet: bytes) -> None:
    message = data_pb2.OutgoingMessage(targets=[ORDERS], packet=packet)
    request = data_pb2.SendRequest(request=client.next(), messages=[message])
    (sent,) = (await client.data.Send(request)).results
    assert sent.status == 0


async def found(client: Client, queue: data_pb2.OpenQueueReply) -> Any:
    raw = (await client.receive(queue)).messages.packets
    return parse_user_message(raw, 0, len(raw))[0].properties


@pytest.mark.spec("MQ-2.2.19.3-11", "MQ-2.2.18.1.6-09", "MQ-2.2.18.1.6-04")
def test_a_packet_has_a_class_that_its_sender_may_choose() -> None:
    """As with attributes: else any client could acknowledge in the queue manager's name."""

    async def scenario() -> None:
        async with world() as cluster, cluster.client(await cluster.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            await send(client, made())
            assert (await found(client, queue)).message_class == 0
            for number in (*DEFINED, *CUSTOM):
                await send(client, made(CONNECTOR, message_class=number))
                assert (await found(client, queue)).message_class == number
                for connector in (None, bytes(16)):
                    with refused(INVALID, field="messages[0].packet"):
                        await send(client, made(connector, message_class=number))
            for number in UNDEFINED:
                for connector in (None, CONNECTOR):
                    with refused(INVALID, field="messages[0].packet"):
                        await send(client, made(connector, message_class=number))
            assert not (await client.receive(queue)).messages.packets, "nothing is left behind"

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.3-22", "MQ-2.2.19.3-18")
def test_a_packet_names_a_cipher_and_a_level_that_there_are() -> None:
    async def scenario() -> None:
        async with world() as cluster, cluster.client(await cluster.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            for number in CIPHERS:
                await send(client, made(encryption_algorithm=number))
                assert (await found(client, queue)).encryption_algorithm == number
            for number in (0, 1, 0x6601, 0x6603, 0x6611, 0x16602, 0xFFFF_FFFF):
                with refused(INVALID, field="messages[0].packet"):
                    await send(client, made(encryption_algorithm=number))
            for level in (2, 4, 6, 0x0100_0000):
                with refused(INVALID, field="messages[0].packet"):
                    await send(client, made(privacy_level=level))
            assert not (await client.receive(queue)).messages.packets, "nothing is left behind"

    run(scenario())
