"""The example packets of [MS-MQQB] 4.1 and all other vectors, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qm.wire.errors import ProtocolError
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.framer import Framer
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.ping import parse_ping, write_ping
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.wire import raw
from tests.unit.wire.streams import check_io, read_stream

FOLDER = Path(__file__).resolve().parents[1] / "data" / "vectors"
VECTORS: dict[str, dict[str, Any]] = {
    file.stem.removeprefix("mqqb_"): json.loads(file.read_text(encoding="utf-8"))
    for file in sorted(FOLDER.glob("mqqb_*.json"))
}
SESSION_VECTORS = [name for name, vector in VECTORS.items() if vector["transport"] == "tcp/1801"]
PING_VECTORS = [name for name, vector in VECTORS.items() if vector["transport"] == "udp/3527"]
TRUNCATED = "frame7_user_message_as_printed_truncated"
SOURCE = bytes.fromhex("d1587355509195954997b6e611ea26c6")
SERVER = bytes.fromhex("0789cd434c39118f44459078909ea0fc")


def vector_bytes(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


def packet_of(name: str) -> Packet:
    encoded = vector_bytes(name)
    packet, after = parse_packet(encoded, 0, len(encoded))
    assert after == len(encoded)
    return packet


def test_there_are_vectors_of_every_kind() -> None:
    assert len(SESSION_VECTORS) == 18
    assert len(PING_VECTORS) == 3
    assert {vector["provenance"] for vector in VECTORS.values()} == {
        "hexdump",
        "reconstructed",
        "made",
    }


@pytest.mark.parametrize("name", [name for name in SESSION_VECTORS if name != TRUNCATED])
def test_every_packet_vector_is_read_and_written_back(name: str) -> None:
    check_io(packet_of(name), vector_bytes(name))


@pytest.mark.parametrize("name", PING_VECTORS)
def test_every_ping_vector_is_read_and_written_back(name: str) -> None:
    encoded = vector_bytes(name)
    ping, after = parse_ping(encoded, 0, len(encoded))
    fields = VECTORS[name]["fields"]
    assert after == 24
    assert ping.cookie == fields["Cookie"]
    assert ping.qm_guid.hex() == fields["QMGuid_bytes"]
    assert (ping.is_client_class, ping.is_refused) == (
        bool(fields["Flags.RC"]),
        bool(fields["Flags.RF"]),
    )
    assert write_ping(ping) == encoded


def test_the_whole_example_is_one_stream() -> None:
    names = [name for name in SESSION_VECTORS if name != TRUNCATED]
    stream = b"".join(vector_bytes(name) for name in names)
    packets, _, framer = read_stream([stream])
    assert packets == [vector_bytes(name) for name in names]
    assert (framer.buffered_bytes, framer.error) == (0, None)


@pytest.mark.spec("QB-4.1.3-01")
def test_frame_3() -> None:
    encoded = vector_bytes("frame3_establish_connection_request")
    assert (len(encoded), encoded[2:4], encoded[56:58]) == (572, b"\x0b\0", b"\x10\x03")
    request = EstablishConnection(
        SOURCE,
        SERVER,
        501_140_046,
        is_ping_skipped=True,
        is_server_class=True,
        base_reserved=0xC0,
    )
    assert packet_of("frame3_establish_connection_request") == request
    assert write_packet(request) == encoded
    for bit, field in ((1, "is_ping_skipped"), (2, "is_server_class")):
        cleared = encoded[:57] + bytes([encoded[57] & ~bit]) + encoded[58:]
        assert raw.read(cleared) == msgspec.structs.replace(request, **{field: False})


@pytest.mark.spec("QB-4.1.5-01")
def test_frame_5() -> None:
    encoded = vector_bytes("frame5_connection_parameters_request")
    request = ConnectionParameters(1496, 120_000, 64, base_reserved=0xC0)
    assert packet_of("frame5_connection_parameters_request") == request
    assert write_packet(request) == encoded
    answer = packet_of("frame6_connection_parameters_response_reconstructed")
    assert answer == ConnectionParameters(1496, 120_000, 32, base_reserved=0xC0)


@pytest.mark.spec("QB-4.1.7-01")
def test_frame_7() -> None:
    printed = vector_bytes(TRUNCATED)
    assert len(printed) == 1650
    with pytest.raises(ProtocolError) as raised:
        parse_packet(printed, 0, len(printed))
    assert raised.value.field == "BaseHeader.PacketSize"
    assert raised.value.reason == "needs 2224 bytes, 1650 are left"
    framer = Framer()
    assert framer.feed(printed) == []
    assert framer.buffered_bytes == 1650
    message = UserMessage(
        UserHeader(
            SOURCE, DirectQueueFormatName("OS:a04bm02\\q"), sent_time=0x4411_05E6, message_id=0x8EE
        ),
        MessagePropertiesHeader(
            b"a\0" * 1000,
            "mqsender label",
            body_type=8,
            hash_algorithm=0x8004,
            encryption_algorithm=0x6801,
        ),
        security=SecurityHeader(
            1,
            security_id=bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"),
        ),
        time_to_reach_queue=345_600,
    )
    assert packet_of("frame7_user_message_reconstructed_fields") == message
    encoded = write_packet(message)
    assert encoded == vector_bytes("frame7_user_message_reconstructed_fields")
    assert len(encoded) == 2224
    # User @16, Security @92, MessageProperties @136, body @222, two bytes of padding.
    assert encoded[16:32] == SOURCE
    assert encoded[92:108] == bytes.fromhex("01001c00000000000000000000000000")
    assert encoded[137] == 15
    assert encoded[222:] == b"a\0" * 1000 + b"\0\0"
    # The dump itself: SentTime shows the signature, and acknowledgments are wanted without a queue.
    dumped = packet_of("frame7_user_message_reconstructed_tail")
    assert isinstance(dumped, UserMessage)
    assert dumped.user_header.sent_time == 0x524F_494C
    assert dumped.properties.flags == 0x0F
    assert dumped.user_header.admin_queue is None


@pytest.mark.spec("QB-4.1.8-01")
def test_frame_8() -> None:
    encoded = vector_bytes("frame8_session_ack")
    assert (len(encoded), encoded[2:4], encoded[8]) == (36, b"\x1b\0", 36)
    ack = SessionAck(SessionHeader(ack_sequence_number=1, window_size=64), base_reserved=0xCD)
    assert packet_of("frame8_session_ack") == ack
    assert write_packet(ack) == encoded
