"""Data types and queue names of packets [MS-MQMQ 2.2.18]."""

from __future__ import annotations

from struct import pack

import pytest

from qm.names.guid import guid_from_text, guid_text
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import (
    DistributionQueueFormatName,
    FormatNameElement,
    MultiQueueFormatHeader,
    parse_multi_queue_format_header,
    write_multi_queue_format_header,
)
from qm.wire.headers.transaction_header import (
    TransactionHeader,
    parse_transaction_header,
    write_transaction_header,
)
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.ack import ORDER_QUEUE, OrderAck
from qm.wire.packets.packet import parse_packet, write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import (
    MessageIdentifier,
    TxSequenceId,
    parse_message_identifier,
    write_message_identifier,
)
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    parse_queue_name,
    write_queue_name,
)
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, GUID_B

EMPTY_ADMIN = pack("<IHHI", 12, 0xC8, 0, 0)
EMPTY_RESPONSE = pack("<IHHI", 12, 0x12C, 0, 0)
SIGNATURE = pack("<HHI", 0x15E, 0, 5) + b"sign!" + bytes(3)
REST = EMPTY_ADMIN + EMPTY_RESPONSE + SIGNATURE


def destination_list(count: int, names: bytes) -> bytes:
    """A MultiQueueFormatHeader whose first list has these bytes and whose others are empty."""
    padding = bytes(-len(names) % 4)
    return pack("<IHHI", 12 + len(names), 0x64, 0, count) + names + padding + REST


def read_list(header: bytes) -> tuple[object, ...]:
    value, after = parse_multi_queue_format_header(header, 0, len(header))
    assert after == len(header)
    assert (value.administration, value.response, value.signature) == ((), (), b"sign!")
    packet = raw.message(raw.user(raw.MP | 1 << 23, b""), raw.properties(), header)
    assert raw.read_message(packet).multi_queue_format == value
    return value.destination


@pytest.mark.spec("MQ-2.2.18-01", "QB-2.2-01")
def test_integers_are_little_endian() -> None:
    message = UserMessage(
        UserHeader(
            raw.SOURCE,
            PrivateQueueFormatNameId(QueueHost.DESTINATION, 0x0102_0304),
            raw.TARGET,
            time_to_be_received=0x1112_1314,
            sent_time=0x2122_2324,
            message_id=0x3132_3334,
        ),
        MessagePropertiesHeader(message_class=0x4142),
        time_to_reach_queue=0x5152_5354,
    )
    assert raw.written(message)["BaseHeader"]["PacketSize"] == 124
    encoded = write_packet(message)
    assert raw.read_message(encoded) == message
    assert encoded[4:8] == b"LIOR"
    assert encoded[8:12] == bytes([124, 0, 0, 0])
    assert encoded[12:16] == bytes([0x54, 0x53, 0x52, 0x51])
    assert encoded[48:52] == bytes([0x14, 0x13, 0x12, 0x11])
    assert encoded[52:56] == bytes([0x24, 0x23, 0x22, 0x21])
    assert encoded[56:60] == bytes([0x34, 0x33, 0x32, 0x31])
    assert encoded[64:68] == bytes([4, 3, 2, 1])
    assert encoded[70:72] == bytes([0x42, 0x41])


@pytest.mark.spec("MQ-2.2.18.1.1-01", "QB-2.2-02")
def test_a_guid_is_three_little_endian_numbers_and_eight_bytes() -> None:
    wire = pack("<IHH", 0x0123_4567, 0x89AB, 0xCDEF) + bytes(range(8))
    text = "01234567-89AB-CDEF-0001-020304050607"
    assert guid_text(wire) == text
    assert guid_from_text(text) == guid_from_text(text.lower()) == wire
    message = raw.read_message(raw.message(raw.user(source=wire), raw.properties()))
    assert message.user_header.source_queue_manager == wire
    assert write_packet(message)[16:32] == wire
    # The same 16 bytes reversed, as MS-MQQB section 4 prints them, are another GUID.
    assert guid_text(wire[::-1]) != text
    for broken in (
        "{01234567-89AB-CDEF-0001-020304050607}",
        "0123456789ABCDEF0001020304050607",
        "01234567-89AB-CDEF-0001-02030405060G",
        "0123456-789AB-CDEF-0001-020304050607",
        "~1234567-89AB-CDEF-0001-020304050607",
        "",
    ):
        assert guid_from_text(broken) is None
    for length in (0, 15, 17):
        with pytest.raises(ValueError):
            guid_text(bytes(length))


@pytest.mark.spec("MQ-2.2.18.1.2-01", "MQ-2.2.18.1.2-02")
def test_sequence_ids_compare_by_time_stamp_first() -> None:
    sequence = TxSequenceId(time_stamp=2, ordinal=0xFFFF_FFFE)
    header = TransactionHeader(sequence, 7, 6)
    encoded = pack("<IIIII", 0, 0xFFFF_FFFE, 2, 7, 6)
    assert parse_transaction_header(encoded, 0, 20) == (header, 20)
    assert write_transaction_header(header) == encoded
    ack = OrderAck(GUID_A, GUID_B, ORDER_QUEUE, 1, 2, sequence, 7, 6)
    written = write_packet(ack)
    assert encoded[4:] in written
    assert parse_packet(written, 0, len(written)) == (ack, len(written))
    assert pack("<Q", sequence.to_int()) == encoded[4:12]
    assert sequence.to_int() == 2 << 32 | 0xFFFF_FFFE
    assert TxSequenceId.from_int(sequence.to_int()) == sequence
    odd = TxSequenceId(time_stamp=3, ordinal=0x8000_0001)
    assert TxSequenceId.from_int(3 << 32 | 0x8000_0001) == odd
    later = TxSequenceId(time_stamp=3, ordinal=0)
    latest = TxSequenceId(time_stamp=0x8000_0000, ordinal=0)
    assert sequence < later < latest
    assert sequence.to_int() < later.to_int() < latest.to_int()
    assert sequence > TxSequenceId(time_stamp=2, ordinal=0x7FFF_FFFF)


@pytest.mark.spec("MQ-2.2.18.1.3-01")
def test_a_message_identifier_is_a_guid_and_a_number() -> None:
    encoded = GUID_A + pack("<I", 0xFEDC_BA98)
    identifier = MessageIdentifier(GUID_A, 0xFEDC_BA98)
    assert parse_message_identifier(encoded, 0, 20) == (identifier, 20)
    assert write_message_identifier(identifier) == encoded
    with pytest.raises(ProtocolError):
        parse_message_identifier(encoded, 0, 19)


@pytest.mark.spec("MQ-2.2.18.1.4-01", "MQ-2.2.18.1.4-02", "MQ-2.2.18.1.4-03", "MQ-2.2.18.1.7.2-01")
def test_format_name_elements_of_each_type() -> None:
    elements: dict[bytes, FormatNameElement] = {
        pack("<H", 1) + b"\0\0" + GUID_A: PublicQueueFormatName(GUID_A),
        pack("<H", 2) + b"\0\0" + GUID_B + pack("<I", 5): PrivateQueueFormatName(GUID_B, 5),
        pack("<H", 3) + "OS:h\\q".encode("utf-16-le") + b"\0\0": DirectQueueFormatName("OS:h\\q"),
        pack("<H", 6) + b"\0\0" + GUID_B: DistributionQueueFormatName(GUID_B),
    }
    for encoded, element in elements.items():
        header = destination_list(1, encoded)
        assert read_list(header) == (element,)
        written = write_multi_queue_format_header(
            MultiQueueFormatHeader((element,), signature=b"sign!")
        )
        assert written[12 : 12 + len(encoded)] == encoded
        for length in range(len(encoded)):
            with pytest.raises(ProtocolError) as raised:
                read_list(destination_list(1, encoded[:length]))
            assert raised.value.field.startswith(("MQFFormatNameElement", "MQFAddressHeader"))
    impossible: list[tuple[FormatNameElement, str]] = [
        (PublicQueueFormatName(GUID_A[1:]), "PublicQueueFormatName"),
        (PrivateQueueFormatName(GUID_B[1:], 5), "PrivateQueueFormatName"),
        (PrivateQueueFormatName(GUID_B, 1 << 32), "PrivateQueueFormatName"),
        (DirectQueueFormatName("a\0b"), "MQFDirectQueueFormatName"),
        (DistributionQueueFormatName(GUID_B[1:]), "MQFDistributionQueueFormatName"),
    ]
    for element, field in impossible:
        with pytest.raises(ValueOutOfRange) as misfit:
            write_multi_queue_format_header(MultiQueueFormatHeader((element,)))
        assert misfit.value.field == field
    for unknown in (0, 4, 5, 7, 0x0100, 0xFFFF):
        with pytest.raises(ProtocolError) as raised:
            read_list(destination_list(1, pack("<H", unknown) + bytes(26)))
        assert raised.value.field == "MQFFormatNameElement.FormatType"
        assert raised.value.offset == 12


@pytest.mark.spec(
    "MQ-2.2.18.1.4-04", "MQ-2.2.18.1.4.1-01", "MQ-2.2.18.1.4.2-01", "MQ-2.2.18.1.7.1-01"
)
def test_bodies_of_elements_are_aligned_and_padding_is_ignored() -> None:
    """Direct names start on 2 bytes and end with their NUL; GUIDs start on 4."""
    for text, padding in (("ab", b"\xdd\xdd"), ("abc", b"")):
        names = pack("<H", 3) + text.encode("utf-16-le") + b"\0\0"
        names += pack("<H", 6) + padding + GUID_A
        names += pack("<H", 1) + b"\xcc\xcc" + GUID_B
        value = (
            DirectQueueFormatName(text),
            DistributionQueueFormatName(GUID_A),
            PublicQueueFormatName(GUID_B),
        )
        assert read_list(destination_list(3, names)) == value
        written = write_multi_queue_format_header(MultiQueueFormatHeader(value, signature=b"sign!"))
        assert read_list(written) == value
        assert written[12 : 12 + len(names)] == names.replace(b"\xdd", b"\0").replace(
            b"\xcc", b"\0"
        )
    # No length says where a direct name ends: only its NUL does, and it is searched on WCHARs.
    odd = pack("<H", 3) + b"\x41\x00\x00\x42" + b"\0\0"
    assert read_list(destination_list(1, odd)) == (DirectQueueFormatName("A\u4200"),)
    with pytest.raises(ProtocolError) as raised:
        read_list(destination_list(1, pack("<H", 3) + b"\x41\x00\x00\x42"))
    assert raised.value.reason == "no NUL before the list ends"


TYPES: list[tuple[int, bytes, QueueName]] = [
    (2, pack("<I", 0x0102_0304), PrivateQueueFormatNameId(QueueHost.SOURCE, 0x0102_0304)),
    (3, pack("<I", 0xFFFF_FFFF), PrivateQueueFormatNameId(QueueHost.DESTINATION, 0xFFFF_FFFF)),
    (4, pack("<I", 0), PrivateQueueFormatNameId(QueueHost.ADMIN, 0)),
    (5, GUID_A, PublicQueueFormatName(GUID_A)),
    (6, GUID_B + pack("<I", 0x0506_0708), PrivateQueueFormatName(GUID_B, 0x0506_0708)),
    (7, raw.direct("OS:a04bm02\\q"), DirectQueueFormatName("OS:a04bm02\\q")),
]


@pytest.mark.spec("MQ-2.2.18.1.5-01", "MQ-2.2.18.1.5.1-01")
@pytest.mark.parametrize(("queue_type", "encoded", "name"), TYPES)
def test_the_queue_type_chooses_the_layout(
    queue_type: int, encoded: bytes, name: QueueName
) -> None:
    field = "UserHeader.ResponseQueue"
    buffer = b"\xff" * 4 + encoded + b"\xff" * 4
    for end in (len(buffer), 4 + len(encoded)):
        assert parse_queue_name(buffer, 4, end, queue_type, field) == (name, 4 + len(encoded))
    assert write_queue_name(name, field) == (queue_type, encoded)
    header = raw.user(raw.MP | queue_type << 16, encoded)
    message = raw.read_message(raw.message(header, raw.properties()))
    assert message.user_header.response_queue == name
    # Each of the three has the layout of its own flags, whatever the others say.
    nothing = (0, b"", None)
    for dq, destination, to in (nothing, *(one for one in TYPES if one[0] in (3, 5, 7))):
        for aq, administration, admin in (nothing, *(one for one in TYPES if one[0] != 4)):
            flags = raw.MP | dq << 10 | aq << 13 | queue_type << 16
            header = raw.user(flags, destination + administration + encoded)
            found = raw.read_message(raw.message(header, raw.properties())).user_header
            names = (found.destination_queue, found.admin_queue, found.response_queue)
            assert names == (to, admin, name)
    for illegal in (1 << 10, 2 << 10, 1 << 13, 4 << 13):
        flags = raw.MP | illegal | queue_type << 16
        refused = raw.refused(raw.message(raw.user(flags, encoded * 2), raw.properties()))
        assert refused.field == f"UserHeader.Flags.{'DQ' if illegal < 1 << 13 else 'AQ'}"
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError) as raised:
            parse_queue_name(encoded, 0, length, queue_type, field)
        assert raised.value.field.startswith(field)


@pytest.mark.spec("MQ-2.2.18.1.7.2-01")
@pytest.mark.parametrize("text", ["OS:h\\q", "OS:hh\\q"])
def test_a_private_queue_elsewhere_starts_on_a_boundary_of_the_user_header(text: str) -> None:
    header = UserHeader(
        raw.SOURCE,
        DirectQueueFormatName(text),
        admin_queue=PrivateQueueFormatName(GUID_A, 0x0102_0304),
        response_queue=PrivateQueueFormatName(GUID_B, 5),
    )
    names = raw.direct(text) + GUID_A + pack("<I", 0x0102_0304) + GUID_B + pack("<I", 5)
    flags = raw.MP | raw.DQ_DIRECT | 6 << 13 | 6 << 16
    written = write_packet(UserMessage(header, MessagePropertiesHeader()))
    assert written[60 : 64 + len(names)] == pack("<I", flags) + names
    found = raw.read_message(raw.message(raw.user(flags, names), raw.properties())).user_header
    assert (found.admin_queue, found.response_queue) == (header.admin_queue, header.response_queue)


@pytest.mark.spec("MQ-2.2.18.1.5.2-01")
def test_a_direct_name_is_counted_in_bytes_with_its_nul() -> None:
    text = "OS:host\\q\u20ac"
    encoded = write_packet(
        UserMessage(UserHeader(raw.SOURCE, DirectQueueFormatName(text)), MessagePropertiesHeader())
    )
    wide = text.encode("utf-16-le") + b"\0\0"
    assert encoded[64:66] == pack("<H", len(wide))
    assert encoded[66 : 66 + len(wide)] == wide

    def refuse(count: int, wide: bytes) -> ProtocolError:
        name = pack("<H", count) + wide
        name += bytes(-len(name) % 4)
        return raw.refused(raw.message(raw.user(raw.MP | raw.DQ_DIRECT, name), raw.properties()))

    a, nul = b"a\0", b"\0\0"
    for count, wide in (
        (0, b""),
        (1, b"a"),
        (3, a + b"\0"),
        (2, a),
        (4, a + a),
        (6, a + nul + nul),
        (4, b"\0\0" + nul),
    ):
        error = refuse(count, wide)
        assert error.section == "MS-MQMQ 2.2.18.1.5.2"
        assert error.field.startswith("UserHeader.DestinationQueue")
    assert refuse(0xFFFE, a + nul).field == "UserHeader.DestinationQueue.Count"
    longest = DirectQueueFormatName("x" * 0x7FFE)
    message = UserMessage(UserHeader(raw.SOURCE, longest), MessagePropertiesHeader())
    assert write_packet(message)[64:66] == b"\xfe\xff"
    assert raw.read_message(write_packet(message)) == message
    for text in ("x" * 0x7FFF, "a\0b"):
        with pytest.raises(ValueOutOfRange):
            write_packet(
                UserMessage(
                    UserHeader(raw.SOURCE, DirectQueueFormatName(text)), MessagePropertiesHeader()
                )
            )


@pytest.mark.spec("MQ-2.2.18.1.5.2-02")
@pytest.mark.parametrize("length", range(6))
def test_a_direct_name_is_padded_to_4_bytes_of_its_header(length: int) -> None:
    text = "abcdef"[:length]
    names = raw.direct(text, b"\xee\xef") + raw.direct("x" * length, b"\xed\xec") + GUID_A
    flags = raw.MP | raw.DQ_DIRECT | 7 << 13 | 1 << 22
    packet = raw.message(raw.user(flags, names), raw.properties(body=b"body"))
    message = raw.read_message(packet)
    header = message.user_header
    assert raw.written(message)["UserHeader"]["DestinationQueue"]["DirectFormatName"] == text
    assert parse_queue_name(raw.direct(text), 0, len(raw.direct(text)), 7, "Name") == (
        DirectQueueFormatName(text),
        4 + length * 2 + length * 2 % 4,
    )
    assert header.destination_queue == DirectQueueFormatName(text)
    assert header.admin_queue == DirectQueueFormatName("x" * length)
    assert header.connector_type == GUID_A
    assert message.properties.message_body == b"body"
    zeroed = raw.direct(text) + raw.direct("x" * length) + GUID_A
    assert write_packet(message)[64 : 64 + len(zeroed)] == zeroed
