"""UserHeader [MS-MQMQ 2.2.19.2]."""

from __future__ import annotations

from struct import pack

import msgspec
import pytest

from qm.client.names import format_name_of_wire
from qm.model.state.addressing import format_name_of
from qm.names.guid import guid_text
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader, parse_user_header, write_user_header
from qm.wire.packets.packet import write_packet
from qm.wire.packets.patch import (
    attach_session_header,
    patch_message_id,
    patch_sent_time,
    patch_sequence,
)
from qm.wire.packets.peek import peek_head
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
    QueueHost,
    QueueName,
    SameAsAdminQueue,
)
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, GUID_B, MP

SECTION = "MS-MQMQ 2.2.19.2"
# Hop count, delivery mode and journaling in two ways that share no bit.
MIXED = (0b10101 | 1 << 5 | 1 << 8, 0b01010 | 1 << 9)
SH = 1 << 19
"""The next bit above RQ."""
ID_9 = pack("<I", 9)
PRIVATE_9 = PrivateQueueFormatNameId(QueueHost.DESTINATION, 9)
DIRECT = DirectQueueFormatName("OS:h\\q")
PROPERTIES = MessagePropertiesHeader(b"body")
# By the field of a message: the bit of Flags that announces a header, and the shortest one.
HEADERS = {
    "security": (1 << 19, pack("<HHHHII", 1, 4, 0, 0, 0, 0) + b"sid!"),
    "transaction": (1 << 20, pack("<IIIII", 0, 7, 1, 5, 4)),
    "multi_queue_format": (
        1 << 23,
        pack("<IHHI", 32, 0x64, 0, 1)
        + pack("<HH", 1, 0)
        + GUID_A
        + pack("<IHHIIHHI", 12, 0xC8, 0, 0, 12, 0x12C, 0, 0)
        + pack("<HHI", 0x15E, 0, 0),
    ),
    "soap": (1 << 28, pack("<HHIHHI", 0x320, 0, 0, 0x384, 0, 0)),
}


def message(header: UserHeader) -> UserMessage:
    return UserMessage(header, PROPERTIES)


def header_of(flags: int, names: bytes = b"") -> UserHeader:
    """The UserHeader that the codec finds in a packet with these flags and names."""
    return raw.read_message(raw.message(raw.user(flags, names), raw.properties())).user_header


def refused_flags(flags: int, names: bytes = bytes(64)) -> ProtocolError:
    return raw.refused(raw.message(raw.user(flags, names), raw.properties()))


@pytest.mark.spec("MQ-2.2.19.2-01", "MQ-2.2.19.2-05", "MQ-2.2.19.2-09", "MQ-2.2.18.1.5-01")
def test_the_fixed_part_has_48_bytes_and_the_names_follow_in_order() -> None:
    flags = 0x0010_0000 | MP | 0x0040_0000  # TH MP CQ
    flags |= 29 | 1 << 5 | 1 << 8 | 1 << 9 | 3 << 10 | 6 << 13 | 5 << 16
    names = ID_9 + GUID_A + pack("<I", 8) + GUID_B + bytes(range(16))
    encoded = raw.SOURCE + raw.TARGET + pack("<IIII", 0x0102_0304, 5, 6, flags) + names
    header = UserHeader(
        source_queue_manager=raw.SOURCE,
        destination_queue=PRIVATE_9,
        queue_manager_address=raw.TARGET,
        time_to_be_received=0x0102_0304,
        sent_time=5,
        message_id=6,
        admin_queue=PrivateQueueFormatName(GUID_A, 8),
        response_queue=PublicQueueFormatName(GUID_B),
        connector_type=bytes(range(16)),
        hop_count=29,
        is_recoverable=True,
        has_negative_journaling=True,
        has_positive_journaling=True,
    )
    assert parse_user_header(encoded, 0, len(encoded)) == (header, len(encoded))
    assert write_user_header(header, 0x0010_0000) == encoded
    whole = raw.message(encoded, HEADERS["transaction"][1], raw.properties(), flags=0)
    assert raw.read_message(whole).user_header == header
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError) as raised:
            parse_user_header(encoded, 0, length)
        assert raised.value.field.startswith("UserHeader")
    bits = {
        "hop_count": (0x1F, 0x1F),
        "is_recoverable": (0x20, True),
        "has_negative_journaling": (0x100, True),
        "has_positive_journaling": (0x200, True),
    }
    plain = header_of(MP)
    for field, (bit, value) in bits.items():
        changed = msgspec.structs.replace(plain, **{field: value})
        assert header_of(MP | bit) == changed
        assert write_user_header(changed)[44:48] == pack("<I", MP | bit)
    for name, (bit, content) in HEADERS.items():
        # The header that a bit announces is there, and no other.
        before = content if name in ("transaction", "security") else b""
        behind = b"" if before else content
        user = raw.user(MP | 0x20 | bit, b"", address=bytes(16))
        encoded = raw.message(user, before, raw.properties(), behind, flags=0)
        found = raw.read_message(encoded)
        assert [one for one in HEADERS if getattr(found, one) is not None] == [name]
        assert write_packet(found) == encoded
    for bit in (7, 24, 25, 26, 27, 29, 30, 31):
        assert header_of(MP | 1 << bit) == plain
    for time_to_be_received in (0, 0xFFFF_FFFF):
        timed = msgspec.structs.replace(plain, time_to_be_received=time_to_be_received)
        assert write_user_header(timed)[32:36] == pack("<I", time_to_be_received)
    assert plain.time_to_be_received == 0xFFFF_FFFF


@pytest.mark.spec("MQ-2.2.19.2-02")
def test_no_patch_touches_the_original_sender() -> None:
    transaction = pack("<IIIII", 0, 1, 1, 2, 1)
    for mixed in MIXED:
        flags = MP | raw.DQ_PRIVATE | 1 << 5 | 1 << 20 | mixed
        packet = bytearray(raw.message(raw.user(flags), transaction, raw.properties(), flags=0))
        before = raw.read_message(bytes(packet))
        patch_message_id(packet, 0, 0xFFFF_FFFF)
        patch_sent_time(packet, 0, 0xFFFF_FFFE)
        patch_sequence(packet, 0, TxSequenceId(time_stamp=9, ordinal=8), 7, 6)
        attach_session_header(packet, SessionHeader(9))
        assert packet[16:32] == raw.SOURCE
        assert peek_head(packet, 0)[5] == raw.SOURCE
        after = raw.read_message(bytes(packet))
        assert after.user_header == msgspec.structs.replace(
            before.user_header, message_id=0xFFFF_FFFF, sent_time=0xFFFF_FFFE
        )
        assert after.transaction == TransactionHeader(TxSequenceId(time_stamp=9, ordinal=8), 7, 6)
        assert after.session == SessionHeader(9)
    for field in ("source_queue_manager", "queue_manager_address"):
        short = msgspec.structs.replace(before.user_header, **{field: raw.SOURCE[:15]})
        with pytest.raises(ValueOutOfRange) as raised:
            write_packet(message(short))
        name = "".join(part.capitalize() for part in field.split("_"))
        assert raised.value.field == f"UserHeader.{name}"


@pytest.mark.spec("MQ-2.2.19.2-10", "MQ-2.2.19.2-11")
def test_hop_count_and_delivery_mode_have_ranges() -> None:
    for hops in range(32):
        header = header_of(MP | hops)
        assert header.hop_count == hops
        value = message(header)
        assert raw.written(value)["UserHeader"]["Flags.RC"] == hops
    for hops in (-1, 32):
        with pytest.raises(ValueOutOfRange):
            write_packet(message(UserHeader(raw.SOURCE, None, hop_count=hops)))
    assert not header_of(MP).is_recoverable
    assert header_of(MP | 1 << 5).is_recoverable
    for is_recoverable in (False, True):
        value = message(UserHeader(raw.SOURCE, None, is_recoverable=is_recoverable))
        assert raw.written(value)["UserHeader"]["Flags.DM"] == int(is_recoverable)
    for mode in (2, 3):
        error = refused_flags(MP | mode << 5, b"")
        assert (error.field, error.offset) == ("UserHeader.Flags.DM", 16 + 44)


DIRECT_BYTES = raw.direct("OS:h\\q")
DESTINATIONS: dict[int, tuple[bytes, QueueName | None]] = {
    0: (b"", None),
    3: (ID_9, PRIVATE_9),
    5: (GUID_A, PublicQueueFormatName(GUID_A)),
    7: (DIRECT_BYTES, DIRECT),
}
ADMIN_QUEUES = DESTINATIONS | {
    2: (ID_9, PrivateQueueFormatNameId(QueueHost.SOURCE, 9)),
    6: (GUID_A + ID_9, PrivateQueueFormatName(GUID_A, 9)),
}
RESPONSE_QUEUES = ADMIN_QUEUES | {
    1: (b"", SameAsAdminQueue()),
    4: (ID_9, PrivateQueueFormatNameId(QueueHost.ADMIN, 9)),
}


@pytest.mark.spec("MQ-2.2.19.2-17", "MQ-2.2.19.2-18")
@pytest.mark.parametrize("dq", range(8))
def test_destination_queue_by_type(dq: int) -> None:
    if dq not in DESTINATIONS:
        error = refused_flags(MP | dq << 10)
        assert (error.field, error.offset, error.section) == ("UserHeader.Flags.DQ", 60, SECTION)
        return
    encoded, name = DESTINATIONS[dq]
    header = header_of(MP | dq << 10, encoded)
    assert header == UserHeader(
        raw.SOURCE, name, raw.TARGET, sent_time=0x6592_0080, message_id=0x4D2
    )
    written = write_user_header(header)
    assert (written[44:48], written[48:]) == (pack("<I", MP | dq << 10), encoded)


def test_a_destination_cannot_be_what_dq_cannot_say() -> None:
    for _, name in (ADMIN_QUEUES[2], ADMIN_QUEUES[6], RESPONSE_QUEUES[1], RESPONSE_QUEUES[4]):
        with pytest.raises(ValueOutOfRange) as raised:
            write_user_header(UserHeader(raw.SOURCE, name))
        assert raised.value.field == "UserHeader.DestinationQueue"


@pytest.mark.spec("MQ-2.2.19.2-19", "MQ-2.2.19.2-20", "MQ-2.2.19.2-21")
@pytest.mark.parametrize("aq", range(8))
def test_admin_queue_by_type(aq: int) -> None:
    flags = MP | raw.DQ_PRIVATE | aq << 13
    if aq not in ADMIN_QUEUES:
        error = refused_flags(flags)
        assert (error.field, error.offset, error.section) == ("UserHeader.Flags.AQ", 60, SECTION)
        return
    encoded, name = ADMIN_QUEUES[aq]
    header = header_of(flags, ID_9 + encoded)
    assert header.admin_queue == name
    assert header.destination_queue == PRIVATE_9
    written = write_user_header(header)
    assert (written[44:48], written[48:]) == (pack("<I", flags), ID_9 + encoded)
    if encoded:
        error = raw.refused(raw.message(raw.user(flags, ID_9), b""))
        assert error.field.startswith("UserHeader.AdminQueue")
    for _, impossible in (RESPONSE_QUEUES[1], RESPONSE_QUEUES[4]):
        with pytest.raises(ValueOutOfRange) as raised:
            write_user_header(UserHeader(raw.SOURCE, None, admin_queue=impossible))
        assert raised.value.field == "UserHeader.AdminQueue"
    short = PublicQueueFormatName(GUID_A[1:])
    with pytest.raises(ValueOutOfRange) as raised:
        write_user_header(UserHeader(raw.SOURCE, None, admin_queue=short))
    assert raised.value.field == "UserHeader.AdminQueue"


def test_an_admin_queue_and_the_wish_for_acknowledgments_are_read_apart() -> None:
    # MQ-A6: a peer's message is read either way.
    for flags in range(16):
        for admin_queue in (None, DIRECT):
            value = UserMessage(
                UserHeader(raw.SOURCE, None, admin_queue=admin_queue),
                MessagePropertiesHeader(flags=flags),
            )
            assert raw.read_message(write_packet(value)) == value


@pytest.mark.spec("MQ-2.2.19.2-23", "MQ-2.2.19.2-24", "MQ-2.2.19.2-25")
@pytest.mark.parametrize("rq", range(8))
def test_response_queue_by_type(rq: int) -> None:
    flags = MP | raw.DQ_PRIVATE | 7 << 13 | rq << 16
    encoded, name = RESPONSE_QUEUES[rq]
    assert bool(encoded) == (rq >= 2)
    names = ID_9 + DIRECT_BYTES + encoded
    if encoded:
        error = raw.refused(raw.message(raw.user(flags, names[: -len(encoded)])))
        assert error.field.startswith("UserHeader.ResponseQueue")
        with pytest.raises(ValueOutOfRange) as raised:
            write_user_header(
                UserHeader(raw.SOURCE, None, response_queue=DirectQueueFormatName("\0"))
            )
        assert raised.value.field == "UserHeader.ResponseQueue"
    header = header_of(flags, names)
    assert (header.destination_queue, header.admin_queue) == (PRIVATE_9, DIRECT)
    assert header.response_queue == name
    # Of three bits, whatever those beside them say.
    user = raw.user(flags | SH, names)
    assert parse_user_header(user, 0, len(user))[0] == header
    written = write_user_header(header)
    assert (written[44:48], written[48:]) == (pack("<I", flags), names)


@pytest.mark.spec("MQ-2.2.19.2-26")
def test_rq_4_means_the_host_of_the_administration_queue() -> None:
    for admin_type, name, host in (
        (2, ID_9, raw.SOURCE),
        (3, ID_9, raw.TARGET),
        (6, GUID_A + ID_9, GUID_A),
    ):
        header = header_of(MP | admin_type << 13 | 4 << 16, name + pack("<I", 5))
        assert header.response_queue == PrivateQueueFormatNameId(QueueHost.ADMIN, 5)
        # To the queue manager, and to an application that reads the packet.
        for read in (format_name_of, format_name_of_wire):
            assert read(header.admin_queue, header) == f"PRIVATE={guid_text(host)}\\00000009"
            assert read(header.response_queue, header) == f"PRIVATE={guid_text(host)}\\00000005"


TRANSACTION = TransactionHeader(TxSequenceId(time_stamp=1, ordinal=2), 3, 2)
OPTIONAL = {
    "security": ("SH", 19, SecurityHeader(1, security_id=b"sid."), "SecurityHeader"),
    "soap": ("HH", 28, SoapHeader("a", "b"), "SoapHeader"),
    "multi_queue_format": ("MQ", 23, MultiQueueFormatHeader(), "MultiQueueFormatHeader"),
    "transaction": ("TH", 20, TRANSACTION, "TransactionHeader"),
}


def check_presence(field: str) -> None:
    """The flag is set exactly when the header is there, in both directions."""
    flag, bit, value, name = OPTIONAL[field]
    header = UserHeader(raw.SOURCE, None, is_recoverable=True)
    plain = UserMessage(header, PROPERTIES, priority=0)
    packet = msgspec.structs.replace(plain, **{field: value})
    fields = raw.written(packet)
    assert (fields["UserHeader"][f"Flags.{flag}"], name in fields) == (1, True)
    assert fields["UserHeader"]["Flags"] == 0x0020_0020 | 1 << bit
    encoded = write_packet(packet)
    assert raw.read_message(encoded) == packet
    fields = raw.written(plain)
    assert (fields["UserHeader"][f"Flags.{flag}"], name in fields) == (0, False)
    # Announced and absent, present and not announced.
    absent = bytearray(write_packet(plain))
    present = bytearray(encoded)
    for changed in (absent, present):
        changed[60:64] = pack("<I", int.from_bytes(changed[60:64], "little") ^ 1 << bit)
        raw.refused(bytes(changed))


@pytest.mark.spec("MQ-2.2.19.2-27")
def test_sh_announces_the_security_header() -> None:
    check_presence("security")


@pytest.mark.spec("MQ-2.2.19.2-28", "MQ-2.2.20.5-02")
def test_th_announces_the_transaction_header_of_a_recoverable_message() -> None:
    check_presence("transaction")
    express = UserMessage(UserHeader(raw.SOURCE, None), PROPERTIES, TRANSACTION, priority=0)
    with pytest.raises(ValueOutOfRange) as raised:
        write_packet(express)
    assert raised.value.field == "UserHeader.Flags.TH"
    transaction = pack("<IIIII", 0, 2, 1, 3, 2)
    header = raw.user(MP | 1 << 20, b"")
    error = raw.refused(raw.message(header, transaction, raw.properties(), flags=0))
    assert error.field == "UserHeader.Flags.TH"
    for mode, is_read in ((0, True), (1, True)):
        plain = raw.read_message(raw.message(raw.user(MP | mode << 5, b""), raw.properties()))
        assert (plain.transaction is None) == is_read


@pytest.mark.spec("MQ-2.2.19.2-29")
def test_mp_is_always_set() -> None:
    assert raw.written(message(UserHeader(raw.SOURCE, None)))["UserHeader"]["Flags"] == MP
    assert write_user_header(UserHeader(raw.SOURCE, None))[44:48] == b"\0\0\x20\0"
    error = refused_flags(0, b"")
    assert (error.field, error.offset) == ("UserHeader.Flags.MP", 60)
    assert refused_flags(raw.DQ_PRIVATE, ID_9).field == "UserHeader.Flags.MP"


@pytest.mark.spec("MQ-2.2.19.2-30", "MQ-2.2.19.2-31")
def test_cq_announces_a_connector_type_that_nobody_interprets() -> None:
    for connector in (GUID_A, bytes(16), b"\xff" * 16):
        header = header_of(MP | 1 << 22 | raw.DQ_PRIVATE, ID_9 + connector)
        assert header.connector_type == connector
        written = write_user_header(header)
        assert written[44:48] == pack("<I", MP | 1 << 22 | raw.DQ_PRIVATE)
        assert written[52:] == connector
    assert header_of(MP | raw.DQ_PRIVATE, ID_9).connector_type is None
    fields = raw.written(message(UserHeader(raw.SOURCE, None)))["UserHeader"]
    assert (fields["Flags.CQ"], "ConnectorType" in fields) == (0, False)
    cut = raw.refused(raw.message(raw.user(MP | 1 << 22, b""), bytes(12), bytes(44)))
    assert cut.section == "MS-MQMQ 2.2.19.3"
    with pytest.raises(ProtocolError) as raised:
        parse_user_header(raw.user(MP | 1 << 22, bytes(12)), 0, 60)
    assert raised.value.field == "UserHeader.ConnectorType"
    with pytest.raises(ValueOutOfRange):
        write_user_header(UserHeader(raw.SOURCE, None, connector_type=bytes(15)))


@pytest.mark.spec("MQ-2.2.19.2-32")
def test_mq_announces_the_multi_queue_format_header() -> None:
    check_presence("multi_queue_format")


@pytest.mark.spec("MQ-2.2.19.2-33")
def test_hh_announces_the_soap_header() -> None:
    check_presence("soap")


@pytest.mark.spec("MQ-2.2.19.2-34", "MQ-2.2.19.2-35", "MQ-2.2.19.2-36")
@pytest.mark.parametrize("bit", [7, 24, 25, 26, 27, 29, 30, 31])
def test_reserved_bits_and_ah_are_never_written_and_ignored_when_read(bit: int) -> None:
    for mixed in MIXED:
        properties = raw.properties(body=b"body", allocation=6, label=b"l\0\0\0", flags=5)
        plain = raw.read_message(raw.message(raw.user(MP | mixed, b""), properties))
        header = raw.user(MP | mixed | 1 << bit, b"")
        marked = raw.read_message(raw.message(header, properties))
        assert marked == plain
        assert (marked.priority, marked.properties.message_body) == (3, b"body")
        written = raw.written(marked)
        assert written["UserHeader"]["Flags"] == MP | mixed
        assert (written["BaseHeader"]["Flags"], written["BaseHeader"]["PacketSize"]) == (3, 128)
    everything = message(
        UserHeader(
            b"\xff" * 16,
            DIRECT,
            b"\xff" * 16,
            0xFFFF_FFFF,
            0xFFFF_FFFF,
            0xFFFF_FFFF,
            DIRECT,
            DIRECT,
            b"\xff" * 16,
            31,
            True,
            True,
            True,
        )
    )
    assert not raw.written(everything)["UserHeader"]["Flags"] & 0xEF00_0080
