"""MessagePropertiesHeader [MS-MQMQ 2.2.19.3], without the algorithms of qm/security."""

from __future__ import annotations

from contextlib import nullcontext
from struct import pack

import msgspec
import pytest

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.message_properties import (
    MessagePropertiesHeader,
    parse_message_properties_header,
    write_message_properties_header,
)
from qm.wire.headers.user_header import UserHeader
from qm.wire.message_class import AcknowledgeFlags
from qm.wire.packets.packet import write_packet
from qm.wire.packets.soundness import PacketJudge
from qm.wire.packets.user_message import UserMessage
from tests.unit.wire import raw

LABEL = "order\u20ac".encode("utf-16-le") + b"\0\0"


def properties_of(**fields: object) -> MessagePropertiesHeader:
    """What the codec reads from a packet whose properties have these bytes, and some of all."""
    some = {"label": LABEL, "extension": b"ext", "body": b"body!", "flags": 5}
    encoded = raw.properties(**some | fields)  # type: ignore[arg-type]
    value = raw.read_message(raw.message(raw.user(), encoded)).properties
    assert raw.read_message(write_packet(message(value))).properties == value
    return value


def refused(*trailer: bytes, **fields: object) -> ProtocolError:
    encoded = raw.properties(**fields)  # type: ignore[arg-type]
    return raw.refused(raw.message(raw.user(), encoded, *trailer))


def message(properties: MessagePropertiesHeader) -> UserMessage:
    return UserMessage(UserHeader(raw.SOURCE, None), properties)


SOME = MessagePropertiesHeader(
    b"body!",
    "order\u20ac",
    flags=5,
    extension_data=b"ext",
    hash_algorithm=0x8004,
    encryption_algorithm=0x6801,
)


@pytest.mark.spec("MQ-2.2.19.3-01", "MQ-2.2.19.3-27")
def test_the_fixed_part_has_56_bytes_then_label_extension_and_body() -> None:
    encoded = (
        bytes([0x0A, 7])
        + pack("<H", 0x8007)
        + bytes(range(20))
        + pack("<IIII", 0x0102_0304, 0x0506_0708, 5, 6)
        + pack("<IIII", 0x1112_1314, 0x2122_2324, 0x3132_3334, 3)
        + LABEL
        + b"ext"
        + b"body!"
        + b"\0\0"
    )
    assert len(encoded) == 56 + 14 + 3 + 5 + 2
    header = MessagePropertiesHeader(
        message_body=b"body!",
        label="order\u20ac",
        message_class=0x8007,
        flags=0x0A,
        correlation_id=bytes(range(20)),
        body_type=0x0102_0304,
        application_tag=0x0506_0708,
        allocation_surplus_bytes=1,
        privacy_level=0x1112_1314,
        hash_algorithm=0x2122_2324,
        encryption_algorithm=0x3132_3334,
        extension_data=b"ext",
    )
    assert parse_message_properties_header(encoded, 0, 80) == (header, 80)
    assert write_message_properties_header(header) == encoded
    assert raw.read_message(raw.message(raw.user(), encoded)).properties == header
    for length in range(80):
        with pytest.raises(ProtocolError) as raised:
            parse_message_properties_header(encoded, 0, length)
        assert raised.value.section == "MS-MQMQ 2.2.19.3"
        assert raised.value.field.startswith("MessagePropertiesHeader")


@pytest.mark.spec("MQ-2.2.19.3-02", "MQ-2.2.19.3-07", "MQ-2.2.19.3-08")
def test_flags_have_four_bits_and_the_others_are_ignored() -> None:
    for flags in range(256):
        value = properties_of(flags=flags, allocation=9, privacy=flags)
        assert value == msgspec.structs.replace(
            SOME, flags=flags & 0x0F, allocation_surplus_bytes=4, privacy_level=flags
        )
        assert raw.written(message(value))["MessagePropertiesHeader"]["Flags"] == flags & 0x0F
    for bit, name in enumerate(("PA", "PR", "NA", "NR")):
        fields = raw.written(message(MessagePropertiesHeader(flags=1 << bit)))
        properties = fields["MessagePropertiesHeader"]
        assert properties["Flags"] == 1 << bit
        assert properties[f"Flags.{name}"] == 1
        assert AcknowledgeFlags[name] == 1 << bit
    for flags in (-1, 16, 0xF0):
        with pytest.raises(ValueOutOfRange) as raised:
            write_packet(message(MessagePropertiesHeader(flags=flags)))
        assert raised.value.field == "MessagePropertiesHeader.Flags"


@pytest.mark.spec("MQ-2.2.19.3-09", "MQ-2.2.19.3-10")
def test_a_label_is_counted_in_wchars_with_its_nul() -> None:
    unlabeled = properties_of(label=b"")
    assert unlabeled == msgspec.structs.replace(SOME, label=None)
    assert raw.written(message(unlabeled))["MessagePropertiesHeader"]["LabelLength"] == 0
    for text in ("", "a", "order\u20ac", "x" * 249, "\U0001f600" * 124):
        label = text.encode("utf-16-le") + b"\0\0"
        value = properties_of(label=label, body=b"behind")
        assert (value.label, value.message_body) == (text, b"behind")
        encoded = write_message_properties_header(value)
        assert encoded[1] == len(label) // 2
        assert encoded[56 : 56 + len(label)] == label
    for text in ("x" * 250, "\U0001f600" * 125, "a\0b"):
        with pytest.raises(ValueOutOfRange) as raised:
            write_packet(message(MessagePropertiesHeader(label=text)))
        assert raised.value.field == "MessagePropertiesHeader.Label"
    too_long = refused(label=bytes(2), label_length=251, body=bytes(600))
    assert too_long.field == "MessagePropertiesHeader.LabelLength"
    for label in (b"a\0", b"a\0b\0", b"\0\0\0\0", b"a\0\0\0\0\0"):
        assert refused(label=label).field == "MessagePropertiesHeader.Label"
    # The last unit is NUL as a whole, not by halves.
    for label in (b"a\0\0\x01", b"a\0\x01\0"):
        assert refused(label=label).offset == 16 + 52 + 56 + 2
    assert refused(label_length=4).section == "MS-MQMQ 2.2.19.3"
    # What arrives is judged by the same rule without being read whole.
    judge = PacketJudge()
    for chars, is_sound in ((1, True), (249, True), (250, False)):
        label = ("x" * chars).encode("utf-16-le") + b"\0\0"
        arrived = raw.message(raw.user(), raw.properties(label=label))
        with nullcontext() if is_sound else pytest.raises(ProtocolError):
            judge.judge(arrived, 0, len(arrived))


def test_every_class_of_a_peer_is_read() -> None:
    defined = [0, 1, 2, 0xFF, 0x4000, *range(0x8000, 0x8008), 0x8009, 0x800A, 0x800B]
    defined += [0xC000, 0xC001, 0xC002, 0xC004]
    for message_class in (*defined, 0x0100, 0x01FF, 0x2000, 0xE1FF):
        value = message(MessagePropertiesHeader(message_class=message_class))
        assert write_packet(value)[66:68] == pack("<H", message_class)
    for message_class in (0x0200, 0x0400, 0x0800, 0x1000, 0x1E00, 0xFFFF):
        value = message(MessagePropertiesHeader(message_class=message_class))
        # MQ-A39: it is carried as it came.
        assert raw.read_message(write_packet(value)) == value


@pytest.mark.spec("MQ-2.2.19.3-12", "MQ-2.2.19.3-14", "MQ-2.2.19.3-15")
def test_what_belongs_to_the_application_is_kept_as_it_is() -> None:
    for correlation_id in (bytes(20), b"\xff" * 20, bytes(range(20))):
        value = properties_of(correlation_id=correlation_id)
        assert value.correlation_id == correlation_id
        assert write_message_properties_header(value)[4:24] == correlation_id
    for length in (0, 19, 21):
        with pytest.raises(ValueOutOfRange):
            write_message_properties_header(MessagePropertiesHeader(correlation_id=bytes(length)))
    # MQ-A10: VT_EMPTY, VT_BSTR as in frame 7, a vector of bytes, and what nobody defined.
    for number in (0, 8, 0x1011, 0xFFFF_FFFF):
        value = properties_of(body_type=number, tag=number ^ 0xFF)
        assert (value.body_type, value.application_tag) == (number, number ^ 0xFF)
        encoded = write_message_properties_header(value)
        assert encoded[24:32] == pack("<II", number, number ^ 0xFF)


@pytest.mark.spec("MQ-2.2.19.3-16", "MQ-2.2.19.3-26")
def test_body_and_extension_have_the_sizes_that_the_header_says() -> None:
    for extension in (b"", b"e", b"ext"):
        for body in (b"", b"b", b"body", bytes(100)):
            value = properties_of(label=LABEL, extension=extension, body=body)
            assert (value.extension_data, value.message_body) == (extension, body)
            encoded = write_message_properties_header(value)
            assert encoded[32:36] == pack("<I", len(body))
            assert encoded[52:56] == pack("<I", len(extension))
            assert encoded[70 : 70 + len(extension) + len(body)] == extension + body
    for size in (9, 0x100, 0x7FFF_FFFF, 0xFFFF_FFFF):
        assert refused(body=b"body", extension_size=size).field in (
            "MessagePropertiesHeader.ExtensionSize",
            "MessagePropertiesHeader.MessageSize",
        )
    for size in (9, 0x100, 0x40_0000):
        assert refused(body=b"body", message_size=size).field == (
            "MessagePropertiesHeader.MessageSize"
        )
    # Sizes that only wrap-around arithmetic would accept.
    wrapping = refused(body=b"body", message_size=8, extension_size=0xFFFF_FFFC)
    assert wrapping.field == "MessagePropertiesHeader.ExtensionSize"
    # Sizes that leave bytes over.
    assert refused(body=bytes(8), message_size=4).field == "BaseHeader.PacketSize"


@pytest.mark.spec("MQ-2.2.19.3-17")
def test_the_allocation_is_the_bodys_size_or_more() -> None:
    assert raw.written(message(MessagePropertiesHeader(b"body")))["MessagePropertiesHeader"][
        "AllocationBodySize"
    ] == len(b"body")
    # MQ-A11: the body's room is MessageSize...
    bare = {"label": b"", "extension": b"", "flags": 0}
    value = properties_of(body=b"body", allocation=20, **bare)
    assert (value.message_body, value.allocation_surplus_bytes) == (b"body", 16)
    assert write_message_properties_header(value)[36:40] == pack("<I", 20)
    # ...and AllocationBodySize only if that alone makes the headers end where the packet ends.
    roomy = raw.properties(body=b"body" + bytes(16), message_size=4, allocation=20)
    packet = raw.read_message(raw.message(raw.user(), roomy))
    assert packet.properties == value
    assert raw.read_message(write_packet(packet)) == packet
    behind = raw.message(raw.user(), roomy, bytes(4), flags=0x23)
    assert raw.read_message(behind).debug is not None
    assert refused(body=b"body" + bytes(16), message_size=4, allocation=12).field == (
        "BaseHeader.PacketSize"
    )
    # MQ-A40: the bound is the largest PacketSize, not that of the packet, which is smaller here.
    widest = raw.message(raw.user(), raw.properties(body=b"body", allocation=0x40_0000))
    assert len(widest) < 0x1000
    accepted = raw.read_message(widest)
    assert accepted.properties.allocation_surplus_bytes == 0x40_0000 - 4
    assert write_packet(accepted) == widest
    for allocation in (3, 0x40_0001, 0xFFFF_FFFF):
        error = refused(body=b"body", allocation=allocation)
        assert error.field == "MessagePropertiesHeader.AllocationBodySize"
        assert error.offset == 16 + 52 + 36
    for surplus in (-1, 0x40_0000):
        with pytest.raises(ValueOutOfRange):
            write_packet(
                message(MessagePropertiesHeader(b"body", allocation_surplus_bytes=surplus))
            )


@pytest.mark.spec("MQ-2.2.19.3-28")
@pytest.mark.parametrize("size", range(8))
def test_the_header_is_padded_to_4_bytes_with_anything(size: int) -> None:
    body = b"12345678"[:size]
    for text in ("odd", "x" * 249):
        label = text.encode("utf-16-le") + b"\0\0"
        encoded = raw.properties(label=label, body=body, pad=b"\xee\xef\xed", flags=5)
        used = 56 + len(label) + size
        padding = -used % 4
        assert len(encoded) == used + padding
        value = raw.read_message(raw.message(raw.user(), encoded)).properties
        assert value == msgspec.structs.replace(
            SOME, message_body=body, label=text, extension_data=b""
        )
        assert write_message_properties_header(value) == encoded[:used] + bytes(padding)
        debug = raw.read_message(raw.message(raw.user(), encoded, bytes(4), flags=0x23)).debug
        assert debug is not None
        if padding:
            unpadded = raw.message(raw.user(), encoded[:-padding])
            assert raw.refused(unpadded).field == "MessagePropertiesHeader.MessageSize"
