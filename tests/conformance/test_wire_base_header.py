"""BaseHeader [MS-MQMQ 2.2.19.1] and what it says about whole packets."""

from __future__ import annotations

import msgspec
import pytest

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.base_header import BaseHeader, parse_base_header, write_base_header
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck, OrderAck
from qm.wire.packets.framer import Framer, frame_packet
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet, write_packet
from qm.wire.packets.peek import effective_priority, peek_head
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from tests.unit.wire import raw

PLAIN = UserMessage(UserHeader(raw.SOURCE, None), MessagePropertiesHeader(b"body"))
ORDER_ACK = OrderAck(
    raw.SOURCE, raw.TARGET, ORDER_QUEUE, 1, 2, TxSequenceId(time_stamp=3, ordinal=4), 5, 4
)
FINAL_ACK = FinalAck(
    raw.SOURCE,
    raw.TARGET,
    ORDER_QUEUE,
    1,
    2,
    TxSequenceId(time_stamp=3, ordinal=4),
    5,
    4,
    0x4000,
    raw.TARGET,
    6,
)
INTERNAL: list[Packet] = [
    EstablishConnection(raw.SOURCE),
    ConnectionParameters(500, 20_000),
    SessionAck(SessionHeader()),
]


@pytest.mark.spec("MQ-2.2.19.1-01", "MQ-2.2.19.1-05", "MQ-2.2.19.1-17", "QB-2.1.1-01")
def test_every_packet_starts_with_16_bytes_of_base_header() -> None:
    bytes_16 = bytes.fromhex("10 ab 3501 4c494f52 56341200 ddccbb0a")
    header = BaseHeader(
        packet_size=0x0012_3456,
        time_to_reach_queue=0x0ABB_CCDD,
        priority=5,
        has_session_header=True,
        has_debug_header=True,
        is_traced=True,
        reserved=0xAB,
    )
    assert parse_base_header(bytes_16, 0, 16) == (header, 16)
    assert write_base_header(header) == bytes_16
    for length in range(16):
        with pytest.raises(ProtocolError) as raised:
            parse_base_header(bytes_16, 0, length)
        assert (raised.value.offset, raised.value.section) == (0, "MS-MQMQ 2.2.19.1")
    for time_to_reach_queue in (0, 0xFFFF_FFFE, 0xFFFF_FFFF):
        message = msgspec.structs.replace(PLAIN, time_to_reach_queue=time_to_reach_queue)
        assert raw.written(message)["BaseHeader"]["TimeToReachQueue"] == time_to_reach_queue
    assert peek_head(write_packet(PLAIN), 0).time_to_reach_queue == 0xFFFF_FFFF
    dated = raw.message(raw.user(sent_time=1000), raw.properties(), time_to_reach_queue=0xFFFF_FFFE)
    head = peek_head(dated, 0)
    assert (head.sent_time, head.time_to_reach_queue) == (1000, 0xFFFF_FFFE)
    # Each flag by itself, in whole packets.
    debug = bytes.fromhex("01000000") + raw.GUID_A
    for flags in (*range(8), 0x10, 0x20, 0x120, 0x137):
        encoded = raw.message(
            raw.user(),
            raw.properties(),
            debug if flags & 0x20 else b"",
            flags=flags & ~0x10,
            session=bytes(12) + b"\x40\0\0\0" if flags & 0x10 else b"",
        )
        found = raw.read_message(encoded)
        assert (found.priority, found.is_traced) == (flags & 7, bool(flags & 0x100))
        assert (found.session is not None) == bool(flags & 0x10)
        assert (found.debug is not None) == bool(flags & 0x20)
        assert write_packet(found) == encoded
    assert [raw.written(packet)["BaseHeader"]["Flags"] for packet in INTERNAL] == [11, 11, 27]
    packets = [*INTERNAL, PLAIN, ORDER_ACK, FINAL_ACK]
    for packet in packets:
        encoded = write_packet(packet)
        assert parse_base_header(encoded, 0, 16)[0].packet_size == len(encoded)
        assert raw.read(encoded) == packet
    # There are three kinds of internal packets.
    parameters = raw.base(36, 0x0B) + CONNECTION_PARAMETERS
    for kind in (0, *range(4, 16)):
        error = raw.refused(parameters[:18] + bytes([kind]) + parameters[19:])
        assert (error.offset, error.field) == (18, "InternalHeader.Flags.PT")


@pytest.mark.spec("MQ-2.2.19.1-02", "MQ-2.2.19.1-04", "QB-3.1.5.1.2-01")
def test_version_and_signature_are_fixed() -> None:
    assert write_packet(PLAIN)[:1] == b"\x10"
    assert write_packet(PLAIN)[4:8] == b"\x4c\x49\x4f\x52"
    good = raw.message()
    for version in (0, 0x0F, 0x11, 0xFF):
        error = raw.refused(bytes([version]) + good[1:])
        assert (error.offset, error.field) == (0, "BaseHeader.VersionNumber")
    for at in range(4, 8):
        broken = bytearray(good)
        broken[at] ^= 0x20
        error = raw.refused(bytes(broken))
        assert (error.offset, error.field) == (4, "BaseHeader.Signature")
        with pytest.raises(ProtocolError):
            frame_packet(broken, 0, len(broken))
        framer = Framer()
        framer.feed(bytes(broken))
        assert framer.error is not None
        assert framer.error.field == "BaseHeader.Signature"
    with pytest.raises(ProtocolError) as raised:
        frame_packet(b"\x11" + good[1:], 0, len(good))
    assert raised.value.field == "BaseHeader.VersionNumber"
    assert raw.refused(good[:4] + good[7:3:-1] + good[8:]).field == "BaseHeader.Signature"


@pytest.mark.spec("MQ-2.2.19.1-03", "MQ-2.2.19.1-13", "MQ-2.2.19.1-14")
def test_reserved_bits_are_clear_when_written_and_ignored_when_read() -> None:
    plain = raw.read_message(raw.message())
    for reserved in (0, 1, 0xC0, 0xFF):
        kept = raw.read_message(raw.message(reserved=reserved))
        assert kept == msgspec.structs.replace(plain, base_reserved=reserved)
        assert write_packet(kept)[1] == reserved
    for bit in (6, 7, 9, 10, 11, 12, 13, 14, 15):
        assert raw.read_message(raw.message(flags=3 | 1 << bit)) == plain
        assert raw.read(raw.base(32, 0x0B | 1 << bit) + CONNECTION_PARAMETERS) == raw.read(
            raw.base(32, 0x0B) + CONNECTION_PARAMETERS
        )
        for ack in (ORDER_ACK, FINAL_ACK):
            marked = bytearray(write_packet(ack))
            marked[2:4] = (1 << bit).to_bytes(2, "little")
            assert raw.read(bytes(marked)) == ack
    for packet in (*INTERNAL, plain, ORDER_ACK, FINAL_ACK):
        assert not raw.written(packet)["BaseHeader"]["Flags"] & 0xFEC0


CONNECTION_PARAMETERS = bytes.fromhex("00000300d8050000c0d4010000004000")


@pytest.mark.spec("MQ-2.2.19.1-06", "MQ-2.2.19.1-07")
def test_priority_is_0_to_7_and_0_in_transactions() -> None:
    assert PLAIN.priority == 3
    for priority in range(8):
        message = msgspec.structs.replace(PLAIN, priority=priority)
        encoded = write_packet(message)
        assert encoded[2] == priority
        assert raw.read_message(encoded) == message
        assert effective_priority(peek_head(encoded, 0)) == priority
    for priority in (-1, 8):
        with pytest.raises(ValueOutOfRange):
            write_packet(msgspec.structs.replace(PLAIN, priority=priority))
    transactional = UserMessage(
        UserHeader(raw.SOURCE, None, is_recoverable=True),
        MessagePropertiesHeader(),
        TransactionHeader(TxSequenceId(time_stamp=1, ordinal=1), 1, 0),
        priority=0,
    )
    encoded = write_packet(transactional)
    assert encoded[2] == 0
    with pytest.raises(ValueOutOfRange):
        write_packet(msgspec.structs.replace(transactional, priority=3))
    # MQ-A27: what the sender says is ignored.
    claims_7 = encoded[:2] + b"\x07" + encoded[3:]
    assert raw.read_message(claims_7) == transactional
    assert effective_priority(peek_head(claims_7, 0)) == 0


@pytest.mark.spec("MQ-2.2.19.1-08", "MQ-2.2.19.1-09", "MQ-2.2.19.1-19", "QB-3.1.5.1.1-04")
def test_internal_packets_have_in_and_no_time_limit() -> None:
    for number, packet in enumerate(INTERNAL):
        changed = msgspec.structs.replace(packet, priority=5 - number, base_reserved=0xA0 + number)
        assert raw.read(write_packet(changed)) == changed
        header = raw.written(packet)["BaseHeader"]
        assert (header["Flags.IN"], header["TimeToReachQueue"]) == (1, 0xFFFF_FFFF)
    for packet in (ORDER_ACK, FINAL_ACK):
        header = raw.written(packet)["BaseHeader"]
        assert (header["Flags.IN"], header["TimeToReachQueue"]) == (0, 0xFFFF_FFFF)
    for ack, message_class in ((ORDER_ACK, 0x00FF), (FINAL_ACK, 0x4000)):
        properties = raw.written(ack)["MessagePropertiesHeader"]
        assert properties["MessageClass"] == message_class
    assert raw.written(PLAIN)["BaseHeader"]["Flags.IN"] == 0
    # With IN the same bytes are no message, without it no internal packet.
    assert raw.refused(raw.message(flags=0x0B)).section == "MS-MQQB 2.2.3"
    without = raw.base(32, 0x03) + CONNECTION_PARAMETERS
    assert raw.refused(without).section == "MS-MQMQ 2.2.19.2"


@pytest.mark.spec("MQ-2.2.19.1-10", "MQ-2.2.19.1-15", "MQ-2.2.20.4-02")
def test_the_session_header_lies_behind_a_message_and_is_not_counted() -> None:
    session = SessionHeader(1, 2, 3, 4, 5, 6, 7)
    message = msgspec.structs.replace(PLAIN, session=session)
    for size in range(9):
        # Header by header up to a multiple of four, and counted so.
        padded = msgspec.structs.replace(PLAIN, properties=MessagePropertiesHeader(bytes(size)))
        told = [
            raw.written(one)["BaseHeader"]["PacketSize"]
            for one in (padded, msgspec.structs.replace(padded, session=session))
        ]
        assert told == [len(write_packet(padded))] * 2
        assert told[0] == len(write_packet(PLAIN)) + (size + 3) // 4 * 4 - len(b"body")
    encoded = write_packet(message)
    fields = raw.written(message)
    assert fields["BaseHeader"]["Flags.SH"] == 1
    assert fields["BaseHeader"]["PacketSize"] == len(encoded) - 16 == len(write_packet(PLAIN))
    assert fields["SessionHeader"]["AckSequenceNumber"] == 1
    assert raw.read_message(encoded) == message
    for whole in (encoded, write_packet(PLAIN), write_packet(SessionAck(session))):
        assert frame_packet(whole + bytes(16), 0, len(whole) + 16) == len(whole)
    # Optional in a message, mandatory in a SessionAck.
    assert raw.written(PLAIN)["BaseHeader"]["Flags.SH"] == 0
    assert raw.written(SessionAck(session))["BaseHeader"]["Flags.SH"] == 1
    ack = bytearray(write_packet(SessionAck(session)))
    ack[2] &= ~0x10
    assert raw.refused(bytes(ack)).field == "BaseHeader.Flags.SH"
    # Set without the 16 bytes.
    for length in range(len(encoded) - 16, len(encoded)):
        assert raw.refused(encoded[:length]).field == "BaseHeader.PacketSize"
    # Padding counts, from the first byte of the packet.
    for size in range(9):
        body = msgspec.structs.replace(PLAIN, properties=MessagePropertiesHeader(bytes(size)))
        assert raw.written(body)["BaseHeader"]["PacketSize"] == 16 + 48 + 56 + (size + 3) // 4 * 4


@pytest.mark.spec("MQ-2.2.19.1-11", "MQ-2.2.19.1-12")
def test_dh_announces_the_debug_header_and_tr_needs_it() -> None:
    traced = msgspec.structs.replace(PLAIN, debug=DebugHeader(raw.GUID_A), is_traced=True)
    fields = raw.written(traced)
    assert (fields["BaseHeader"]["Flags.DH"], fields["BaseHeader"]["Flags.TR"]) == (1, 1)
    assert fields["DebugHeader"]["QueueIdentifier"] == raw.GUID_A.hex()
    assert raw.read_message(write_packet(traced)) == traced
    untraced = msgspec.structs.replace(traced, is_traced=False)
    assert raw.written(untraced)["BaseHeader"]["Flags.TR"] == 0
    assert raw.read_message(write_packet(untraced)) == untraced
    assert raw.written(PLAIN)["BaseHeader"]["Flags.DH"] == 0
    with pytest.raises(ValueOutOfRange):
        write_packet(msgspec.structs.replace(PLAIN, is_traced=True))
    # Announced and absent, present and not announced, traced without it.
    assert raw.refused(raw.message(flags=0x23)).section == "MS-MQMQ 2.2.20.8"
    debug = bytes(4)
    assert raw.read_message(raw.message(raw.user(), raw.properties(), debug, flags=0x23)).debug
    unannounced = raw.refused(raw.message(raw.user(), raw.properties(), debug))
    assert unannounced.field == "BaseHeader.PacketSize"
    assert raw.refused(raw.message(flags=0x103)).field == "BaseHeader.Flags.TR"
    for flags in (0x2B, 0x12B):
        error = raw.refused(raw.base(32, flags) + CONNECTION_PARAMETERS)
        assert error.field == "BaseHeader.Flags.DH"
    with pytest.raises(ValueOutOfRange):
        write_base_header(BaseHeader(32, is_internal=True, has_debug_header=True))


@pytest.mark.spec("MQ-2.2.19.1-16", "QB-1.6-01")
def test_a_packet_has_4_mib_at_most() -> None:
    overhead = 16 + 48 + 56
    largest = msgspec.structs.replace(
        PLAIN, properties=MessagePropertiesHeader(bytes(0x40_0000 - overhead))
    )
    encoded = write_packet(largest)
    assert len(encoded) == 0x40_0000
    assert raw.read_message(encoded) == largest
    too_large = MessagePropertiesHeader(bytes(0x40_0000 - overhead + 1))
    with pytest.raises(ValueOutOfRange) as raised:
        write_packet(msgspec.structs.replace(PLAIN, properties=too_large))
    assert raised.value.field == "BaseHeader.PacketSize"
    oversized = raw.base(0x40_0001) + encoded[16:] + bytes(4)
    assert raw.refused(oversized).field == "BaseHeader.PacketSize"
    assert raw.refused(oversized).offset == 8
    with pytest.raises(ProtocolError):
        frame_packet(oversized, 0, 16)
    assert frame_packet(encoded, 0, 16) is None
    for packet in (*INTERNAL, PLAIN, ORDER_ACK):
        whole = write_packet(packet)
        assert frame_packet(whole + bytes(20), 0, len(whole) + 20) == len(whole)
    # An announcement that lies below what any packet needs.
    assert raw.refused(raw.base(19) + bytes(4)).field == "BaseHeader.PacketSize"
    with pytest.raises(ValueOutOfRange):
        write_base_header(BaseHeader(19))
    with pytest.raises(ValueOutOfRange):
        write_base_header(BaseHeader(0x40_0001))
