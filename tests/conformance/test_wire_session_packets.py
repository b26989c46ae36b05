"""Internal packets, acknowledgments and pings [MS-MQQB 2.2, 3.1.5.1.1]; SessionHeader."""

from __future__ import annotations

from struct import pack

import msgspec
import pytest

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.session_header import SessionHeader, parse_session_header, write_session_header
from qm.wire.packets.ack import (
    ORDER_QUEUE,
    FinalAck,
    OrderAck,
    order_queue_at,
    parse_final_ack,
    parse_order_ack,
)
from qm.wire.packets.framer import frame_packet
from qm.wire.packets.internal import (
    ConnectionParameters,
    EstablishConnection,
    SessionAck,
    parse_connection_parameters,
    parse_establish_connection,
    parse_session_ack,
)
from qm.wire.packets.packet import PacketKind, packet_kind, write_packet
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName, PrivateQueueFormatNameId, QueueHost
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, GUID_B, MP

PARAMETERS = pack("<IIHH", 500, 20_000, 0, 64)
SESSION = pack("<HHIHHHH", 1, 2, 3, 4, 5, 6, 7)
SESSION_HEADER = SessionHeader(1, 2, 3, 4, 5, 6, 7)
ESTABLISH = GUID_A + GUID_B + pack("<IHH", 0x0102_0304, 0x0010, 0) + b"\x5a" * 512


def internal(
    packet_type: int,
    header: bytes,
    *,
    flags: int = 0x0B,
    size: int | None = None,
    internal_flags: int = 0,
    reserved: int = 0,
) -> bytes:
    size = 20 + len(header) if size is None else size
    start = raw.base(size, flags) + pack("<HH", reserved, packet_type | internal_flags)
    return start + header


def parameters(header: bytes = PARAMETERS) -> bytes:
    return internal(3, header)


def session_ack(header: bytes = SESSION, *, size: int = 36) -> bytes:
    return internal(1, header, flags=0x1B, size=size)


@pytest.mark.spec("MQ-2.2.20.4-01", "MQ-2.2.20.4-13", "QB-2.2.6-02")
def test_session_header_layout() -> None:
    assert parse_session_header(SESSION, 0, 16) == (SESSION_HEADER, 16)
    assert write_session_header(SESSION_HEADER) == SESSION
    full = SessionHeader(0xFFFF, 0xFFFE, 0xFFFF_FFFD, 0xFFFC, 0xFFFB, 0xFFFA, 0xFFF9)
    encoded = pack("<HHIHHHH", 0xFFFF, 0xFFFE, 0xFFFF_FFFD, 0xFFFC, 0xFFFB, 0xFFFA, 0xFFF9)
    assert parse_session_header(encoded, 0, 16) == (full, 16)
    assert write_session_header(full) == encoded
    for content, header in ((SESSION, SESSION_HEADER), (encoded, full)):
        assert raw.read_message(raw.message(session=content)).session == header
        assert raw.read(session_ack(content)) == SessionAck(header)
    for length in range(16):
        with pytest.raises(ProtocolError) as raised:
            parse_session_header(SESSION, 0, length)
        assert raised.value.section == "MS-MQMQ 2.2.20.4"
    for reserved in (0, 1, 0xFFFF):
        value = parse_session_header(SESSION[:14] + pack("<H", reserved), 0, 16)[0]
        assert value == msgspec.structs.replace(SESSION_HEADER, reserved=reserved)
    assert write_session_header(SessionHeader())[14:] == b"\0\0"
    for field in ("ack_sequence_number", "recoverable_msg_ack_flags", "reserved"):
        with pytest.raises(ValueOutOfRange):
            write_session_header(msgspec.structs.replace(SESSION_HEADER, **{field: 1 << 32}))


@pytest.mark.spec("MQ-2.2.20.4-07")
def test_acknowledged_numbers_are_base_and_bit() -> None:
    header = SessionHeader(recoverable_msg_ack_seq_number=4, recoverable_msg_ack_flags=0b1011)
    assert header.acknowledged_recoverable_numbers() == (4, 5, 7)
    last = SessionHeader(recoverable_msg_ack_seq_number=10, recoverable_msg_ack_flags=1 << 31)
    assert last.acknowledged_recoverable_numbers() == (41,)
    everything = SessionHeader(
        recoverable_msg_ack_seq_number=1, recoverable_msg_ack_flags=0xFFFF_FFFF
    )
    assert everything.acknowledged_recoverable_numbers() == tuple(range(1, 33))
    assert SessionHeader().acknowledged_recoverable_numbers() == ()
    # MQ-A16: numbers wrap.
    wrapping = SessionHeader(recoverable_msg_ack_seq_number=0xFFFF, recoverable_msg_ack_flags=0b11)
    assert wrapping.acknowledged_recoverable_numbers() == (0xFFFF, 0)


@pytest.mark.spec("MQ-2.2.20.4-11")
def test_the_window_is_64_unless_said_and_never_0() -> None:
    assert SessionHeader().window_size == 64
    assert write_session_header(SessionHeader())[12:14] == b"\x40\0"
    for window_size in (1, 64, 0xFFFF):
        header = SessionHeader(window_size=window_size)
        assert parse_session_header(write_session_header(header), 0, 16) == (header, 16)
    error = raw.refused(session_ack(SESSION[:12] + b"\0\0\0\0"))
    assert (error.field, error.offset) == ("SessionHeader.WindowSize", 20 + 12)
    for window_size in (-1, 0, 0x1_0000):
        with pytest.raises(ValueOutOfRange):
            write_session_header(SessionHeader(window_size=window_size))


@pytest.mark.spec("QB-2.2.1-01", "QB-2.2.1-02", "QB-2.2.1-07", "QB-3.1.5.1.1-01")
def test_internal_packets_are_told_apart_by_their_type() -> None:
    packets = {
        1: (session_ack(), PacketKind.SESSION_ACK, SessionAck(SESSION_HEADER)),
        2: (internal(2, ESTABLISH), PacketKind.ESTABLISH_CONNECTION, None),
        3: (parameters(), PacketKind.CONNECTION_PARAMETERS, ConnectionParameters(500, 20_000)),
    }
    for packet_type, (encoded, kind, value) in packets.items():
        assert packet_kind(encoded, 0, len(encoded)) is kind
        packet = raw.read(encoded)
        assert value is None or packet == value
        assert write_packet(packet)[16:20] == pack("<HH", 0, packet_type)
        # Reserved and the bits 5-15 are ignored.
        for at, bits in ((16, 0xFF), (17, 0xFF), (18, 0xE0), (19, 0xFF)):
            marked = bytearray(encoded)
            marked[at] |= bits
            assert raw.read(bytes(marked)) == packet
        for length in range(16, 20):
            cut = encoded[:length]
            assert raw.refused(cut).section.startswith("MS-MQQB 2.2")
    for packet_type in (0, *range(4, 16)):
        error = raw.refused(internal(packet_type, PARAMETERS))
        assert (error.field, error.offset) == ("InternalHeader.Flags.PT", 18)
        with pytest.raises(ProtocolError):
            packet_kind(internal(packet_type, PARAMETERS), 0, 32)
    # IN is necessary for all, SH for SessionAck and for no other.
    for encoded, _, _ in packets.values():
        without = bytearray(encoded)
        without[2] &= ~0x08
        assert packet_kind(without, 0, len(without)) is PacketKind.MESSAGE
        raw.refused(bytes(without))
        flipped = bytearray(encoded) + bytes(16)
        flipped[2] ^= 0x10
        assert raw.refused(bytes(flipped)).field == "BaseHeader.Flags.SH"
    refused = raw.refused(internal(1, SESSION, flags=0x1B, internal_flags=0x10))
    assert refused.field == "InternalHeader.Flags.CS"


def test_each_internal_parser_refuses_the_other_types() -> None:
    encoded = {1: session_ack(), 2: internal(2, ESTABLISH), 3: parameters()}
    parsers = {
        1: parse_session_ack,
        2: parse_establish_connection,
        3: parse_connection_parameters,
    }
    for mine, parse in parsers.items():
        for other, packet in encoded.items():
            if other == mine:
                assert parse(packet, 0, len(packet))[1] == len(packet)
                continue
            with pytest.raises(ProtocolError) as raised:
                parse(packet, 0, len(packet))
            assert raised.value.field == "InternalHeader.Flags.PT"
        with pytest.raises(ProtocolError) as raised:
            parse(raw.message(), 0, len(raw.message()))
        assert raised.value.field == "BaseHeader.Flags.IN"


@pytest.mark.spec("QB-2.2.2-01", "QB-2.2.2.1-01")
def test_connection_parameters_layout() -> None:
    header = pack("<IIHH", 0x0001_0203, 0x0001_0405, 0, 0x0607)
    encoded = parameters(header)
    assert len(encoded) == 32
    value = ConnectionParameters(0x0001_0203, 0x0001_0405, 0x0607)
    assert raw.read(encoded) == value
    assert write_packet(value) == encoded
    assert raw.read(parameters(header[:8] + b"\xff\xff" + header[10:])) == value
    refusal = msgspec.structs.replace(value, is_refused=True)
    assert raw.read(internal(3, header, internal_flags=0x10)) == refusal
    assert write_packet(refusal) == internal(3, header, internal_flags=0x10)
    for window_size in (0, 0xFFFF):
        changed = msgspec.structs.replace(value, window_size=window_size)
        assert raw.read(write_packet(changed)) == changed
    assert ConnectionParameters(500, 20_000).window_size == 64
    for size in (20, 31, 33, 36, 572):
        wrong = internal(3, header + bytes(600), size=size)
        error = raw.refused(wrong)
        assert (error.field, error.offset) == ("BaseHeader.PacketSize", 8)
    for length in range(20, 32):
        assert raw.refused(encoded[:length]).field == "BaseHeader.PacketSize"


@pytest.mark.spec("QB-2.2.2.1-02")
def test_timeouts_outside_their_ranges_are_refused_or_clamped() -> None:
    for recoverable, ack, clamped, field in (
        (500, 20_000, None, None),
        (120_000, 120_000, None, None),
        (499, 20_000, (500, 20_000), "RecoverableAckTimeout"),
        (120_001, 20_000, (120_000, 20_000), "RecoverableAckTimeout"),
        (500, 19_999, (500, 20_000), "AckTimeout"),
        (500, 120_001, (500, 120_000), "AckTimeout"),
        (0, 0xFFFF_FFFF, (500, 120_000), "RecoverableAckTimeout"),
    ):
        encoded = parameters(pack("<IIHH", recoverable, ack, 0, 64))
        value = ConnectionParameters(recoverable, ack, 64)
        if clamped is None:
            assert raw.read(encoded) == value
            assert write_packet(value) == encoded
            continue
        error = raw.refused(encoded)
        assert error.field == f"ConnectionParametersHeader.{field}"
        assert error.offset == (20 if field == "RecoverableAckTimeout" else 24)
        with pytest.raises(ValueOutOfRange) as raised:
            write_packet(value)
        assert raised.value.field == error.field
        moved, _ = parse_connection_parameters(encoded, 0, 32, is_clamping=True)
        assert moved == ConnectionParameters(*clamped, 64)


@pytest.mark.spec("QB-2.2.3-01", "QB-2.2.3.1-01", "QB-2.2.3.1-05", "QB-2.2.3.1-09")
def test_establish_connection_layout() -> None:
    plain = EstablishConnection(GUID_A, GUID_B, 0x0102_0304)
    encoded = internal(2, ESTABLISH)
    assert len(encoded) == 572
    assert raw.read(encoded) == plain
    assert write_packet(plain) == encoded
    for bit, field in (
        (8, "is_ping_skipped"),
        (9, "is_server_class"),
        (10, "has_quality_of_service"),
    ):
        header = ESTABLISH[:36] + pack("<H", 0x10 | 1 << bit) + ESTABLISH[38:]
        changed = msgspec.structs.replace(plain, **{field: True})
        assert raw.read(internal(2, header)) == changed
        assert write_packet(changed) == internal(2, header)
    for bit in range(11, 16):
        header = ESTABLISH[:36] + pack("<HH", 0x10 | 1 << bit, 0xFFFF) + ESTABLISH[40:]
        assert raw.read(internal(2, header)) == plain
    for low in (0x00, 0x11, 0x30, 0xFF):
        header = ESTABLISH[:36] + bytes([low]) + ESTABLISH[37:]
        error = raw.refused(internal(2, header))
        assert error.field == "EstablishConnectionHeader.OperatingSystem.RE"
        assert error.offset == 56
    refusal = msgspec.structs.replace(plain, is_refused=True)
    assert raw.read(internal(2, ESTABLISH, internal_flags=0x10)) == refusal
    assert write_packet(refusal) == internal(2, ESTABLISH, internal_flags=0x10)
    for size in (20, 571, 573):
        with pytest.raises(ProtocolError) as raised:
            parse_establish_connection(internal(2, ESTABLISH + bytes(4), size=size), 0, 576)
        assert raised.value.field == "BaseHeader.PacketSize"
    assert raw.refused(encoded[:571]).field == "BaseHeader.PacketSize"
    assert frame_packet(encoded, 0, 571) is None


@pytest.mark.spec("QB-2.2.3.1-10")
def test_padding_is_0x5a_by_default_and_never_validated() -> None:
    answer = write_packet(EstablishConnection(GUID_A, GUID_B))
    assert answer[60:] == b"\x5a" * 512
    for padding in (bytes(512), bytes(range(256)) * 2):
        request = raw.read(internal(2, ESTABLISH[:40] + padding))
        assert isinstance(request, EstablishConnection)
        assert request.padding == padding
        assert write_packet(request)[60:] == padding
    for length in (0, 511, 513):
        with pytest.raises(ValueOutOfRange):
            write_packet(EstablishConnection(GUID_A, padding=bytes(length)))
    for guids in ((GUID_A[:15], GUID_B), (GUID_A, GUID_B + b"x")):
        with pytest.raises(ValueOutOfRange):
            write_packet(EstablishConnection(*guids))


@pytest.mark.spec("QB-2.2.6-01")
def test_a_session_ack_counts_its_session_header() -> None:
    value = SessionAck(SESSION_HEADER)
    assert raw.read(session_ack()) == value
    assert write_packet(value) == session_ack()
    assert frame_packet(session_ack(), 0, 36) == 36
    # QB-A17: the size that the words of MS-MQMQ give is read too, and takes as many bytes.
    assert raw.read(session_ack(size=20)) == value
    assert frame_packet(session_ack(size=20), 0, 36) == 36
    assert frame_packet(session_ack(size=20), 0, 35) is None
    for size in (21, 32, 35, 37, 52, 572):
        wrong = session_ack(SESSION + bytes(600), size=size)
        assert raw.refused(wrong).field == "BaseHeader.PacketSize"
    for length in range(20, 36):
        for size in (20, 36):
            assert raw.refused(session_ack(size=size)[:length]).field == "BaseHeader.PacketSize"


SEQUENCE = TxSequenceId(time_stamp=0x6592_0080, ordinal=7)
LABEL = "QM Ordering Ack".encode("utf-16-le") + b"\0\0"
NUMBERS = pack("<IIII", 7, 0x6592_0080, 5, 4)
ORDER_BODY = NUMBERS + bytes(20)
FINAL_BODY = NUMBERS + GUID_B + pack("<I", 0x1234)
ID_4 = pack("<I", 4)


def ack_packet(
    message_class: int,
    body: bytes,
    *,
    user_flags: int = MP | raw.DQ_PRIVATE,
    names: bytes = ID_4,
    label: bytes = LABEL,
    base_flags: int = 0,
    address: bytes = raw.TARGET,
) -> bytes:
    return raw.message(
        raw.user(user_flags, names, sent_time=1000, message_id=41, address=address),
        raw.properties(label=label, body=body, message_class=message_class),
        flags=base_flags,
    )


ORDER_ACK = OrderAck(raw.SOURCE, raw.TARGET, ORDER_QUEUE, 1000, 41, SEQUENCE, 5, 4)
FINAL_ACK = FinalAck(
    raw.SOURCE, raw.TARGET, ORDER_QUEUE, 1000, 41, SEQUENCE, 5, 4, 0x4000, GUID_B, 0x1234
)


@pytest.mark.spec("QB-2.2.4-01", "QB-2.2.4-02", "QB-2.2.4-03", "QB-2.2.4-05")
def test_order_ack_packet() -> None:
    encoded = write_packet(ORDER_ACK)
    assert encoded == ack_packet(0x00FF, ORDER_BODY)
    assert len(encoded) == 192
    fields = raw.written(ORDER_ACK)
    assert fields["BaseHeader"]["Flags"] == 0
    assert fields["UserHeader"]["Flags"] == 0x0020_0C00
    assert fields["UserHeader"]["DestinationQueue"] == {"PrivateQueueIdentifier": 4}
    properties = fields["MessagePropertiesHeader"]
    assert (properties["Label"], properties["LabelLength"]) == ("QM Ordering Ack", 16)
    assert (properties["MessageSize"], properties["Flags"]) == (36, 0)
    assert (properties["MessageClass"], properties["BodyType"]) == (0xFF, 0)
    assert raw.read(encoded) == ORDER_ACK
    direct = msgspec.structs.replace(ORDER_ACK, destination_queue=order_queue_at("10.0.0.1"))
    assert raw.written(direct)["UserHeader"]["Flags"] == 0x0020_1C00
    # QB-A23: sent express, read either way.
    recoverable = msgspec.structs.replace(ORDER_ACK, is_recoverable=True)
    received = ack_packet(0x00FF, ORDER_BODY, user_flags=MP | raw.DQ_PRIVATE | 1 << 5)
    assert raw.read(received) == recoverable
    other_queue = msgspec.structs.replace(
        ORDER_ACK, destination_queue=PrivateQueueFormatNameId(QueueHost.DESTINATION, 5)
    )
    with pytest.raises(ValueOutOfRange) as raised:
        write_packet(other_queue)
    assert raised.value.field == "UserHeader.DestinationQueue"


@pytest.mark.spec("QB-2.2.4-04", "QB-2.2.5-02")
@pytest.mark.parametrize("address", ["192.0.2.20", "2001:db8::5"])
def test_acknowledgments_to_an_address(address: str) -> None:
    name = f"TCP:{address}\\PRIVATE$\\order_queue$"
    assert order_queue_at(address) == DirectQueueFormatName(name)
    for template, message_class, body in (
        (ORDER_ACK, 0xFF, ORDER_BODY),
        (FINAL_ACK, 0x4000, FINAL_BODY),
    ):
        value = msgspec.structs.replace(
            template, queue_manager_address=bytes(16), destination_queue=order_queue_at(address)
        )
        delivery = 0x20 if isinstance(value, FinalAck) else 0
        encoded = ack_packet(
            message_class,
            body,
            user_flags=0x0020_1C00 | delivery,
            names=raw.direct(name),
            address=bytes(16),
        )
        assert write_packet(value) == encoded
        assert raw.read(encoded) == value
    spx = "SPX:00000012.00A0234F7500\\private$\\ORDER_QUEUE$"
    received = ack_packet(0xFF, ORDER_BODY, user_flags=0x0020_1C00, names=raw.direct(spx))
    packet = raw.read(received)
    assert isinstance(packet, OrderAck)
    assert packet.destination_queue == DirectQueueFormatName(spx)


@pytest.mark.spec("QB-2.2.4.1-01", "QB-2.2.4.1-03", "QB-2.2.4.1-02")
def test_order_ack_body() -> None:
    body = write_packet(ORDER_ACK)[156:]
    assert body == ORDER_BODY
    value = OrderAck(
        raw.SOURCE,
        raw.TARGET,
        ORDER_QUEUE,
        1000,
        41,
        TxSequenceId(time_stamp=0x0506_0708, ordinal=0x0102_0304),
        0xFFFF_FFFF,
        0xFFFF_FFFE,
    )
    numbers = pack("<IIII", 0x0102_0304, 0x0506_0708, 0xFFFF_FFFF, 0xFFFF_FFFE)
    assert write_packet(value)[156:] == numbers + bytes(20)
    # Windows leaves garbage in the last 20 bytes.
    assert raw.read(ack_packet(0xFF, numbers + b"\xee" * 20)) == value
    refused = raw.refused(ack_packet(0xFF, pack("<IIII", 7, 1, 0, 0) + bytes(20)))
    assert (refused.field, refused.offset) == ("MessageBody.TxSequenceNumber", 156 + 8)
    refused = raw.refused(ack_packet(0xFF, pack("<IIII", 7, 1, 1, 0xFFFF_FFFF) + bytes(20)))
    assert (refused.field, refused.offset) == ("MessageBody.TxPreviousSequenceNumber", 156 + 12)
    for number, previous in ((0, 0), (1, 0xFFFF_FFFF), (1 << 32, 0), (1, -1)):
        with pytest.raises(ValueOutOfRange):
            write_packet(
                msgspec.structs.replace(
                    ORDER_ACK, tx_sequence_number=number, tx_previous_sequence_number=previous
                )
            )


@pytest.mark.spec("QB-2.2.5-02", "QB-2.2.5-03", "QB-2.2.5.1-01")
def test_final_ack_packet_and_body() -> None:
    encoded = write_packet(FINAL_ACK)
    assert encoded == ack_packet(0x4000, FINAL_BODY, user_flags=0x0020_0C20)
    assert raw.read(encoded) == FINAL_ACK
    fields = raw.written(FINAL_ACK)
    assert fields["BaseHeader"]["Flags"] == 0
    assert fields["UserHeader"]["Flags"] == 0x0020_0C20
    properties = fields["MessagePropertiesHeader"]
    assert (properties["Label"], properties["MessageSize"]) == ("QM Ordering Ack", 36)
    assert (properties["Flags"], properties["BodyType"]) == (0, 0)
    assert encoded[156:] == FINAL_BODY
    distinct = msgspec.structs.replace(
        FINAL_ACK,
        tx_sequence_id=TxSequenceId(time_stamp=0x0506_0708, ordinal=0x0102_0304),
        tx_sequence_number=0x1112_1314,
        tx_previous_sequence_number=0x2122_2324,
        acknowledged_source=GUID_A,
        acknowledged_message_id=0x3132_3334,
    )
    body = pack("<IIII", 0x0102_0304, 0x0506_0708, 0x1112_1314, 0x2122_2324) + GUID_A
    assert write_packet(distinct)[156:] == body + pack("<I", 0x3132_3334)
    assert raw.read(write_packet(distinct)) == distinct
    for size in (0, 35, 37, 40):
        refused = raw.refused(ack_packet(0x4000, bytes(size)))
        assert (refused.field, refused.offset) == (
            "MessagePropertiesHeader.MessageSize",
            68 + 32,
        )
    for message_class in (0xFF, 0x3FFF, -1, 0x1_0000):
        with pytest.raises(ValueOutOfRange):
            write_packet(msgspec.structs.replace(FINAL_ACK, message_class=message_class))


@pytest.mark.spec("QB-3.1.5.1.1-02", "QB-3.1.5.1.1-03", "QB-3.1.5.1.1-04", "QB-2.2.5-05")
def test_acknowledgments_are_told_from_messages() -> None:
    assert isinstance(raw.read(ack_packet(0xFF, ORDER_BODY)), OrderAck)
    refused = (0x8009, 0x8000, 0x8004, 0x8007, 0x800B, 0x8006, 0x8003, 0xC000, 0xC001, 0xC002)
    for message_class in (*refused, 0x8005, 0x8002, 0xC004, 0x4000, 0xFFFF):
        packet = raw.read(ack_packet(message_class, FINAL_BODY))
        assert isinstance(packet, FinalAck)
        assert packet.message_class == message_class
    for name in ("TCP:1.2.3.4\\private$\\order_queue$", "tcp:10.0.0.9\\PRIVATE$\\ORDER_QUEUE$"):
        for kind, body in ((0xFF, ORDER_BODY), (0x4000, FINAL_BODY)):
            direct = raw.direct(name)
            packet = raw.read(ack_packet(kind, body, user_flags=MP | raw.DQ_DIRECT, names=direct))
            assert isinstance(packet, OrderAck if kind == 0xFF else FinalAck)
    # Reserved BaseHeader bits are no flags, and a hop on the way changes the hop count.
    marked = ack_packet(0xFF, ORDER_BODY, base_flags=0x0040, user_flags=MP | raw.DQ_PRIVATE | 2)
    packet = raw.read(marked)
    assert isinstance(packet, OrderAck)
    assert packet.hop_count == 2
    # QB-A39: whatever lacks one of the conditions is a message, whatever its class.
    for other in (
        ack_packet(0xFF, ORDER_BODY, base_flags=1),
        ack_packet(0xFF, ORDER_BODY + b"x"),
        ack_packet(0xFF, ORDER_BODY, names=pack("<I", 5)),
        ack_packet(0xFF, ORDER_BODY, label=LABEL[2:]),
        ack_packet(0xFF, ORDER_BODY, label=b""),
        ack_packet(0x0000, ORDER_BODY),
        ack_packet(0x0002, FINAL_BODY),
        ack_packet(0x00FE, FINAL_BODY),
        ack_packet(0x3FFF, FINAL_BODY),
        ack_packet(0x4000, FINAL_BODY, base_flags=3),
        ack_packet(0x4000, FINAL_BODY, label=LABEL[:-4] + b"K\0\0\0"),
        ack_packet(0x4000, FINAL_BODY, user_flags=MP, names=b""),
        ack_packet(
            0x4000, FINAL_BODY, user_flags=0x0020_1C00, names=raw.direct("TCP:1.2.3.4\\PRIVATE$\\q")
        ),
        *(
            raw.message(
                raw.user(MP | raw.DQ_PRIVATE, ID_4),
                raw.properties(label=LABEL, body=body, message_class=kind),
                *headers,
                flags=flags,
                session=session,
            )
            for kind, body in ((0xFF, ORDER_BODY), (0x4000, FINAL_BODY))
            for flags, headers, session in (
                (0x20, [bytes(4)], b""),
                (0, [], pack("<HHIHHHH", 0, 0, 0, 1, 1, 64, 0)),
            )
        ),
        raw.message(raw.user(), raw.properties(message_class=0x8004)),
        raw.message(raw.user(), raw.properties(message_class=1)),
    ):
        assert isinstance(raw.read(other), UserMessage)
        for parse in (parse_order_ack, parse_final_ack):
            with pytest.raises(ProtocolError):
                parse(other, 0, len(other))
    order, final = ack_packet(0xFF, ORDER_BODY), ack_packet(0x4000, FINAL_BODY)
    assert parse_order_ack(order, 0, 192) == (ORDER_ACK, 192)
    assert parse_final_ack(final, 0, 192)[1] == 192
    for parse, encoded in ((parse_order_ack, final), (parse_final_ack, order)):
        with pytest.raises(ProtocolError):
            parse(encoded, 0, 192)


@pytest.mark.spec("QB-2.2.7-01")
def test_ping_layout() -> None:
    encoded = pack("<HHI", 0, 0x5548, 0x0102_0304) + GUID_A
    assert encoded[2:4] == b"\x48\x55"
    ping = Ping(0x0102_0304, GUID_A)
    assert parse_ping(encoded, 0, 24) == (ping, 24)
    assert write_ping(ping) == encoded
    for flags, field, value in (
        (0x0001, "is_client_class", True),
        (0x0002, "is_refused", True),
        (0x0004, "unused_flags", 1),
        (0xFFFC, "unused_flags", 0x3FFF),
    ):
        changed = msgspec.structs.replace(ping, **{field: value})
        assert parse_ping(pack("<H", flags) + encoded[2:], 0, 24) == (changed, 24)
        assert write_ping(changed) == pack("<H", flags) + encoded[2:]
    for length in range(24):
        with pytest.raises(ProtocolError) as raised:
            parse_ping(encoded, 0, length)
        assert raised.value.section == "MS-MQQB 2.2.7"
    with pytest.raises(ProtocolError) as raised:
        parse_ping(encoded[:2] + b"UH" + encoded[4:], 0, 24)
    assert (raised.value.field, raised.value.offset) == ("Ping.Signature", 2)
    for unused_flags in (-1, 0x4000):
        with pytest.raises(ValueOutOfRange):
            write_ping(Ping(1, GUID_A, unused_flags=unused_flags))
