"""What a message has that its application does not give [MS-MQDMPR 3.1.1.12].

Asked of the data plane: what was sent with nothing but its destination is read again.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from qm.client.message import Message
from qm.client.signing import AuthenticationLevel, new_signer, version_of
from qm.names.guid import guid_text
from qm.pb import data_pb2
from qm.security.signature_input import SignatureVersion
from qm.wire.enums import EncryptionAlgorithm
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
)
from tests.cluster.harness import run
from tests.unit.api.test_data import ORDERS, create
from tests.unit.api.world import refused, world

NAMES = ("DIRECT=OS:far\\a", "DIRECT=OS:far\\b")


@pytest.fixture(scope="module")
def bare() -> tuple[data_pb2.Properties, UserMessage]:
    """What a reader is told of a message of which nothing was said, and its packet."""
    found: list[tuple[data_pb2.Properties, bytes]] = []

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            message = data_pb2.OutgoingMessage(targets=[ORDERS], properties=data_pb2.Properties())
            request = data_pb2.SendRequest(request=client.next(), messages=[message])
            await client.data.Send(request)
            reply = (await client.receive(await client.open(ORDERS))).messages
            found.append((reply.properties[0], bytes(reply.packets)))

    run(scenario())
    ((properties, raw),) = found
    return properties, parse_user_message(raw, 0, len(raw))[0]


Bare = tuple[data_pb2.Properties, UserMessage]


def told(properties: data_pb2.Properties, expected: dict[str, Any]) -> None:
    assert {name: getattr(properties, name) for name in expected} == expected


@pytest.mark.spec(
    "DM-3.1.1.12-06", "DM-3.1.1.12-14", "DM-3.1.1.12-15", "DM-3.1.1.12-18", "DM-3.1.1.12-22"
)
def test_what_an_application_says_of_a_message(bare: Bare) -> None:
    properties, packet = bare
    names = ("response_queue", "response_queues", "administration_queue", "administration_queues")
    assert not any(getattr(properties, name) for name in names)
    assert packet.multi_queue_format is None
    assert (packet.user_header.admin_queue, packet.user_header.response_queue) == (None, None)
    nothing = {"body": b"", "extension": b"", "label": "", "application_tag": 0, "body_type": 0}
    told(properties, nothing | {"message_class": 0, "priority": 3, "trace": False})
    assert properties.tracing_queue == b"", "GUID_NULL"
    assert packet.priority == 3
    assert (packet.is_traced, packet.debug) == (False, None)


@pytest.mark.spec(
    "DM-3.1.1.12-23", "DM-3.1.1.12-34", "DM-3.1.1.12-35", "DM-3.1.1.12-36", "DM-3.1.1.12-37"
)
def test_times_correlation_and_algorithms(bare: Bare) -> None:
    properties, packet = bare
    told(properties, {"time_to_reach_queue_s": 0x54600, "time_to_be_received_s": 0xFFFF_FFFF})
    assert packet.properties.correlation_id == bytes(20)
    assert properties.correlation_id == b""
    assert properties.hash_algorithm == 0x800E, "SHA-512: DM-A36"
    assert packet.properties.hash_algorithm == 0x800E
    assert MessagePropertiesHeader(b"").hash_algorithm == 0x800E, "of what nobody signs, too"
    assert properties.encryption_algorithm == EncryptionAlgorithm.RC4


@pytest.mark.spec(
    "DM-3.1.1.12-16", "DM-3.1.1.12-17", "DM-3.1.1.12-26", "DM-3.1.1.12-13", "DM-3.1.1.12-43"
)
def test_nothing_is_asked_for(bare: Bare) -> None:
    properties, packet = bare
    told(properties, {"journal": False, "dead_letter": False, "acknowledgements": 0})
    assert properties.delivery == data_pb2.EXPRESS
    assert properties.connector_type == b"", "GUID_NULL"
    assert packet.properties.flags == 0


@pytest.mark.spec(
    "DM-3.1.1.12-06", "DM-3.1.1.12-14", "DM-3.1.1.12-23", "DM-3.1.1.12-26", "DM-3.1.1.12-43"
)
def test_nor_does_the_client_ask_for_anything_by_itself() -> None:
    given = Message().properties()
    told(given, {"message_class": 0, "trace": False, "tracing_queue": b"", "correlation_id": b""})
    told(given, {"acknowledgements": 0, "administration_queue": "", "connector_type": b""})
    times = ("time_to_reach_queue_s", "time_to_be_received_s")
    assert not any(given.HasField(name) for name in times)  # type: ignore[arg-type]


@pytest.mark.spec("DM-3.1.1.12-34", "DM-3.1.1.12-35")
def test_times_that_are_given_are_kept() -> None:
    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            queue = await client.open(ORDERS)
            for reach, life in ((7, 600), (0, 601), (0xFFFF_FFFF, 602), (1, 0xFFFF_FFFF)):
                times = {"time_to_reach_queue_s": reach, "time_to_be_received_s": life}
                await client.send(
                    ORDERS, b"", time_to_reach_queue_s=reach, time_to_be_received_s=life
                )
                batch = (await client.receive(queue)).messages
                told(batch.properties[0], times)
                raw = bytes(batch.packets)
                packet = parse_user_message(raw, 0, len(raw))[0]
                assert packet.time_to_reach_queue == reach
                assert packet.user_header.time_to_be_received == life

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-10", "DM-3.1.1.12-11", "DM-3.1.1.12-39", "DM-3.1.1.12-40")
def test_nothing_is_protected_and_nobody_is_named(bare: Bare) -> None:
    properties, packet = bare
    told(properties, {"privacy_level": 0, "authentication_level": 0, "sender_certificate": b""})
    assert packet.user_header.admin_queue is None
    assert packet.user_header.response_queue is None
    assert packet.security is None


@pytest.mark.spec(
    "DM-3.1.1.12-22", "DM-3.1.1.12-23", "DM-3.1.1.12-24", "DM-3.1.1.12-06", "DM-3.1.1.12-43"
)
def test_what_is_said_arrives_as_it_was_said() -> None:
    given: dict[str, Any] = {
        "body_type": 0x2011,
        "label": "ä" * 249,
        "extension": bytes(range(256)),
        "application_tag": 0xFFFF_FFFF,
        "correlation_id": bytes(range(20)),
        "message_class": 0x2145,
        "connector_type": b"K" * 16,
    }

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)
            await client.send(ORDERS, b"\0body\xff", **given)
            (found,) = (await client.receive(await client.open(ORDERS))).messages.properties
            told(found, given | {"body": b"\0body\xff"})
            with refused(grpc.StatusCode.INVALID_ARGUMENT, field="messages[0].properties.label"):
                await client.send(ORDERS, b"", label="x" * 250)

    run(scenario())


@pytest.mark.spec("DM-3.1.1.12-21")
def test_each_list_of_names_asks_for_the_signature_of_several_destinations() -> None:
    certificate = new_signer("alice", 1024, 1).certificate
    sig20, sig30 = AuthenticationLevel.SIG20, AuthenticationLevel.SIG30

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:

            async def version(level: int, **lists: Any) -> SignatureVersion:
                properties = data_pb2.Properties(
                    authentication_level=level, sender_certificate=certificate, **lists
                )
                message = data_pb2.OutgoingMessage(targets=[ORDERS], properties=properties)
                composed = await client.data.Compose(data_pb2.ComposeRequest(messages=[message]))
                (raw,) = composed.packets
                return version_of(parse_user_message(raw, 0, len(raw))[0], level)

            for lists in ("destinations", "administration_queues", "response_queues"):
                assert await version(sig30, **{lists: NAMES}) is SignatureVersion.MSMQ_3
            assert await version(sig30) is SignatureVersion.MSMQ_2
            assert await version(sig20, response_queues=NAMES) is SignatureVersion.MSMQ_2

    run(scenario())


@pytest.mark.spec("MQ-2.2.19.2-20")
def test_the_kind_of_an_administration_queue_follows_from_its_name() -> None:
    elsewhere = bytes(range(16))
    certificate = new_signer("alice", 1024, 1).certificate

    async def scenario() -> None:
        async with world() as made, made.client(await made.leader()) as client:
            await create(client)

            async def header(name: str) -> UserHeader:
                properties = data_pb2.Properties(
                    administration_queue=name,
                    acknowledgements=1,
                    authentication_level=AuthenticationLevel.SIG20,
                    sender_certificate=certificate,
                )
                message = data_pb2.OutgoingMessage(targets=[ORDERS], properties=properties)
                composed = await client.data.Compose(data_pb2.ComposeRequest(messages=[message]))
                (raw,) = composed.packets
                return parse_user_message(raw, 0, len(raw))[0].user_header

            own = (await header("DIRECT=OS:far\\a")).source_queue_manager
            expected: dict[str, QueueName] = {
                f"PRIVATE={guid_text(own)}\\0000000F": PrivateQueueFormatNameId(
                    QueueHost.SOURCE, 15
                ),
                f"PRIVATE={guid_text(elsewhere)}\\0000000F": PrivateQueueFormatName(elsewhere, 15),
                f"PUBLIC={guid_text(elsewhere)}": PublicQueueFormatName(elsewhere),
                "DIRECT=OS:far\\a": DirectQueueFormatName("OS:far\\a"),
            }
            assert {name: (await header(name)).admin_queue for name in expected} == expected

    run(scenario())
