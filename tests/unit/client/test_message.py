from __future__ import annotations

import pytest

from qm.client.message import VT_BSTR, Message, ReceivedMessage, messages_of
from qm.client.names import format_name
from qm.names.errors import QueueNameError
from qm.pb import data_pb2
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    QueueHost,
    SameAsAdminQueue,
)

SOURCE, ADDRESS = bytes(range(16)), bytes(range(16, 32))
SOURCE_TEXT = "03020100-0504-0706-0809-0A0B0C0D0E0F"


def packet(body: bytes = b"body", body_type: int = 0x2011, **header: object) -> bytes:
    return write_packet(
        UserMessage(
            UserHeader(
                SOURCE,
                DirectQueueFormatName("OS:host\\private$\\q"),
                message_id=7,
                sent_time=1_000,
                **header,  # type: ignore[arg-type]
            ),
            MessagePropertiesHeader(body, "label", body_type=body_type, application_tag=9),
            priority=5,
        )
    )


def received(raw: bytes) -> ReceivedMessage:
    return ReceivedMessage(raw, 3, 44, 5, 2_000, 0, 1)


def test_a_received_message_says_what_its_packet_says() -> None:
    message = received(packet(is_recoverable=True))
    assert (message.body, message.label, message.priority) == (b"body", "label", 5)
    assert (message.application_tag, message.sent_time_s, message.arrived_time_s) == (9, 1000, 2000)
    assert message.message_id == SOURCE + b"\x07\0\0\0"
    assert message.is_recoverable
    assert not message.is_transactional
    assert message.destination_queue == "DIRECT=OS:host\\PRIVATE$\\q"
    assert message.response_queue == ""


@pytest.mark.spec("MQ-2.2.19.2-20")
def test_names_of_other_hosts_are_told_by_their_guid() -> None:
    queue = PrivateQueueFormatNameId(QueueHost.SOURCE, 0x1F)
    message = received(packet(admin_queue=queue, response_queue=SameAsAdminQueue()))
    assert message.administration_queue.upper() == f"PRIVATE={SOURCE_TEXT}\\0000001F"
    assert message.response_queue == message.administration_queue


def test_text_is_read_by_its_type_and_bytes_are_no_text() -> None:
    assert received(packet("Grüße".encode("utf-16-le"), VT_BSTR)).text == "Grüße"
    with pytest.raises(ValueError, match="0x2011"):
        _ = received(packet()).text


def test_a_message_of_text_is_what_com_applications_read() -> None:
    properties = Message.of_text("Grüße", label="l", priority=6).properties()
    assert properties.body == "Grüße".encode("utf-16-le")
    assert (properties.body_type, properties.label, properties.priority) == (VT_BSTR, "l", 6)


def test_what_is_left_out_is_the_queue_managers_choice() -> None:
    properties = Message().properties()
    assert not properties.HasField("priority")
    assert not properties.HasField("time_to_reach_queue_s")
    assert properties.delivery == data_pb2.RECOVERABLE


def test_columns_become_messages() -> None:
    one, two = packet(b"one"), packet(b"two")
    batch = data_pb2.MessageBatch(
        packets=one + two,
        offsets=[0, len(one), len(one) + len(two)],
        numbers=[8, 9],
        lookup_identifiers=[1, 2],
        queue_ids=[5, 5],
        arrived_times_s=[10, 11],
        message_classes=[0, 0xC001],
        flags=[1, 1],
    )
    messages = messages_of(batch)
    assert [(m.number, m.lookup_identifier, m.body) for m in messages] == [
        (8, 1, b"one"),
        (9, 2, b"two"),
    ]
    assert [m.is_normal for m in messages] == [True, False]
    assert messages_of(data_pb2.MessageBatch()) == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("host\\private$\\q", "DIRECT=OS:host\\PRIVATE$\\q"),
        ("host\\q", "DIRECT=OS:host\\q"),
        ("DIRECT=TCP:10.0.0.1\\private$\\q", "DIRECT=TCP:10.0.0.1\\PRIVATE$\\q"),
        (f"PUBLIC={SOURCE_TEXT}", f"PUBLIC={SOURCE_TEXT}"),
    ],
)
def test_queues_are_named_either_way(name: str, wanted: str) -> None:
    assert format_name(name) == wanted


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(QueueNameError):
        format_name("nothing")
