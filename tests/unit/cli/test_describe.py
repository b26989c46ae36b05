"""Descriptions: the notes about what is legal but odd, and descriptions of broken packets."""

from __future__ import annotations

from struct import pack_into

import msgspec
import pytest

from qm.cli.packets.spec_session import FRAMES
from qm.wire import (
    ORDER_QUEUE,
    ConnectionParameters,
    DebugHeader,
    DirectQueueFormatName,
    EstablishConnection,
    MessagePropertiesHeader,
    PrivateQueueFormatNameId,
    QueueHost,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
    write_packet,
)
from qm.wire.packets.describe import UNKNOWN_KIND, Description, Node, describe_packet, describe_ping

HOST = bytes(range(16))
HEADER = UserHeader(HOST, DirectQueueFormatName("OS:host\\q"))
PLAIN = UserMessage(HEADER, MessagePropertiesHeader(b"body"))


def message(**changes: object) -> UserMessage:
    """A plain message with other fields in whichever of its headers has them."""
    header, properties, rest = {}, {}, {}
    for name, value in changes.items():
        if hasattr(HEADER, name):
            header[name] = value
        elif hasattr(PLAIN.properties, name):
            properties[name] = value
        else:
            rest[name] = value
    return msgspec.structs.replace(
        PLAIN,
        user_header=msgspec.structs.replace(HEADER, **header),
        properties=msgspec.structs.replace(PLAIN.properties, **properties),
        **rest,
    )


def patched(raw: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(raw)
    pack_into(layout, changed, at, value)
    return bytes(changed)


def find(description: Description, path: str) -> Node:
    nodes = description.nodes
    for name in path.split("."):
        node = next(node for node in nodes if node.name == name)
        nodes = node.children
    return node


def test_a_plain_message_has_no_notes() -> None:
    description = describe_packet(write_packet(PLAIN))
    assert (description.kind, description.notes, description.error) == ("UserMessage", (), None)


@pytest.mark.parametrize(
    ("raw", "note"),
    [
        (write_packet(message(flags=5)), "no AdminQueue: none is sent (MQ-A6)"),
        (
            write_packet(message(admin_queue=DirectQueueFormatName("OS:a\\b"))),
            "no acknowledgment is asked for (MQ-A6)",
        ),
        (write_packet(message(hop_count=30)), "30 hops, at most 29"),
        (write_packet(message(queue_manager_address=HOST)), "set beside a direct destination"),
        (
            write_packet(
                message(destination_queue=PrivateQueueFormatNameId(QueueHost.DESTINATION, 1))
            ),
            "zero beside a destination that needs it",
        ),
        (write_packet(message(body_type=8)), "BodyType 8 is in no table"),
        (write_packet(message(allocation_surplus_bytes=4)), "larger than MessageSize (MQ-A11)"),
        (write_packet(message(message_class=0x0200)), "MessageClass is neither"),
        (write_packet(message(session=SessionHeader())), "follows the PacketSize bytes (QB-A17)"),
        (patched(write_packet(PLAIN), 2, "<H", 0x8003), "BaseHeader.Flags: reserved bits 0x8000"),
        (patched(write_packet(PLAIN), 60, "<I", 0x02201C00), "AH is set, which no sender does"),
        (patched(write_packet(PLAIN), 60, "<I", 0x01201C00), "reserved bits 0x01000000"),
        (
            patched(write_packet(ConnectionParameters(500, 20_000)), 28, "<H", 7),
            "ConnectionParametersHeader.Reserved: reserved, but 0x0007 set",
        ),
        (write_packet(SessionAck(SessionHeader())), "counts the SessionHeader (QB-A17)"),
        (
            patched(write_packet(SessionAck(SessionHeader())), 8, "<I", 20),
            "leaves out the SessionHeader (QB-A17)",
        ),
        (
            patched(write_packet(ConnectionParameters(500, 20_000)), 12, "<I", 60),
            "TimeToReachQueue is finite",
        ),
        (
            write_packet(EstablishConnection(HOST, padding=bytes(512))),
            "Padding is not 0x5A throughout",
        ),
        (write_packet(PLAIN) + b"more", "4 bytes follow the packet"),
    ],
    ids=range(18),
)
def test_what_is_odd_is_noted(raw: bytes, note: str) -> None:
    description = describe_packet(raw)
    assert description.error is None
    (found,) = description.notes
    assert note in found


def test_the_priority_of_a_transactional_message_is_noted() -> None:
    transaction = TransactionHeader(TxSequenceId(time_stamp=1, ordinal=1), 1, 0)
    raw = write_packet(message(is_recoverable=True, transaction=transaction, priority=0))
    assert describe_packet(raw).notes == ()
    (note,) = describe_packet(patched(raw, 2, "<H", 5)).notes
    assert "MQ-A27" in note


def test_fields_say_what_they_mean() -> None:
    raw = write_packet(
        message(
            destination_queue=ORDER_QUEUE,
            queue_manager_address=HOST,
            time_to_be_received=90_000,
            sent_time=1_141_966_310,
            message_class=0x8002,
            debug=DebugHeader(HOST),
        )
    )
    description = describe_packet(raw)
    texts = {
        "BaseHeader.TimeToReachQueue": "infinite",
        "UserHeader.TimeToBeReceived": "1.04 days",
        "UserHeader.SentTime": "2006-03-10 04:51:50 UTC",
        "UserHeader.DestinationQueue": "private queue 00000004 of the destination host",
        "UserHeader.SourceQueueManager": "03020100-0504-0706-0809-0A0B0C0D0E0F",
        "MessagePropertiesHeader.MessageClass": "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT",
        "MessagePropertiesHeader.HashAlgorithm": "SHA512",
        "DebugHeader.Flags.QT": "public queue",
    }
    assert {path: find(description, path).text for path in texts} == texts
    assert find(description, "UserHeader").section == "MS-MQMQ 2.2.19.2"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01\0\0\0A\0\0\0", "A (type 1)"),
        (b"\x01\0\0\0A\0", "the last WCHAR is not NUL"),
    ],
)
def test_a_provider_is_named_or_what_is_wrong_with_it(data: bytes, text: str) -> None:
    security = SecurityHeader(sender_id_type=1, security_id=b"sid", provider_info=data)
    description = describe_packet(write_packet(message(security=security)))
    assert text in find(description, "SecurityHeader.ProviderInfo").text


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 40, 64, 70, 92, 100, 136, 140, 222, 2223])
def test_a_cut_packet_is_described_up_to_the_cut(length: int) -> None:
    whole = describe_packet(FRAMES[6].packet)
    cut = describe_packet(FRAMES[6].packet[:length])
    assert cut.error is not None
    assert cut.kind == (UNKNOWN_KIND if length < 16 else "UserMessage")
    fields = [(c.name, c.value) for node in cut.nodes for c in node.children]
    complete = [
        (c.name, c.value)
        for node in whole.nodes
        for c in node.children
        if c.offset + c.size <= length
    ]
    # A broken header keeps its fixed part only.
    assert fields == complete[: len(fields)]
    assert len(fields) >= min(len(complete), 6)


def test_pings_are_described_or_refused() -> None:
    ping = FRAMES[0].packet
    assert describe_ping(ping).error is None
    assert describe_ping(ping + b"x").notes[-1] == "1 bytes follow the ping"
    short = describe_ping(ping[:10])
    assert short.error is not None
    assert [child.name for child in short.nodes[0].children] == ["Flags", "Signature", "Cookie"]
