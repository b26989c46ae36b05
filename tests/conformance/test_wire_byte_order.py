"""All integers of packets have their lowest byte first [MS-MQQB 2.2, MS-MQMQ 2.2.18].

Each number below has bytes that differ, so that another order would be another number.
"""

from __future__ import annotations

import pytest

from qm.wire.enums import ProviderType
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.ack import ORDER_QUEUE, FinalAck
from qm.wire.packets.internal import ConnectionParameters, EstablishConnection, SessionAck
from qm.wire.packets.packet import Packet, write_packet
from qm.wire.packets.ping import Ping, parse_ping, write_ping
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.public_key import (
    MqdsPublicKey,
    PublicKeyBlob,
    parse_mqds_public_keys,
    write_mqds_public_keys,
)
from qm.wire.structures.queue_name import DirectQueueFormatName, PrivateQueueFormatName
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, GUID_B

SEQUENCE = TxSequenceId(time_stamp=0x0807_0605, ordinal=0x0403_0201)
SESSION = SessionHeader(0x0201, 0x0403, 0x0807_0605, 0x0A09, 0x0C0B, 0x0E0D, 0x100F)
HEADER = UserHeader(GUID_A, None, is_recoverable=True)
TRANSACTION = TransactionHeader(SEQUENCE, 0x0C0B_0A09, 0x100F_0E0D, 0x12345)
EMPTY = MessagePropertiesHeader(b"")
PROPERTIES = MessagePropertiesHeader(
    bytes(0x0201),
    message_class=0x4142,
    body_type=0x0403_0201,
    application_tag=0x0807_0605,
    privacy_level=0x0C0B_0A09,
    hash_algorithm=0x100F_0E0D,
    encryption_algorithm=0x1413_1211,
    extension_data=bytes(0x0102),
)


def bare(properties: MessagePropertiesHeader = EMPTY, **more: object) -> bytes:
    """Return a packet without a destination: its optional headers begin after 64 bytes."""
    message = UserMessage(HEADER, properties, priority=0, **more)  # type: ignore[arg-type]
    return checked(message)


def checked(packet: Packet) -> bytes:
    """Return a packet that is read as what it was written from."""
    encoded = write_packet(packet)
    assert raw.read(encoded) == packet
    return encoded


@pytest.mark.spec("QB-2.2-01")
def test_of_the_headers_of_messages() -> None:
    written = bare(transaction=TRANSACTION)
    assert written[64:84].hex(" ", 4) == "50341200 01020304 05060708 090a0b0c 0d0e0f10"
    sizes = [bytes(size) for size in (0x0102, 0x0103, 0x0104, 0x0105, 0x0106)]
    written = bare(security=SecurityHeader(1, False, False, *sizes))
    assert written[64:80].hex(" ", 4) == "81000201 03010401 05010000 06010000"
    written = bare(PROPERTIES)
    assert written[64:68] + written[88:120] == bytes.fromhex(
        "0000 4241 01020304 05060708 01020000 01020000 090a0b0c 0d0e0f10 11121314 02010000"
    )
    assert int.from_bytes(written[8:12], "little") == len(written)
    written = bare(soap=SoapHeader("h" * 0x0101, "b" * 0x0203))
    assert written[120:128] == bytes.fromhex("2003 0000 02010000")
    assert written[644:652] == bytes.fromhex("8403 0000 04020000")
    names = (PrivateQueueFormatName(GUID_B, 0x0403_0201),) * 0x0102
    lists = MultiQueueFormatHeader(names, (), (), bytes(0x0201))
    written = bare(multi_queue_format=lists)
    assert written[120:136] == bytes.fromhex("3c180000 6400 0000 02010000 0200 0000")
    assert written[152:156] == bytes.fromhex("01020304")
    behind = 120 + 0x183C
    assert written[behind : behind + 32] == bytes.fromhex(
        "0c000000 c800 0000 00000000 0c000000 2c01 0000 00000000 5e01 0000 01020000"
    )
    name = DirectQueueFormatName("x" * 0x0101)
    written = checked(UserMessage(UserHeader(GUID_A, name), MessagePropertiesHeader(b"")))
    assert written[64:68] == bytes.fromhex("0402 7800")


@pytest.mark.spec("QB-2.2-01")
def test_of_packets_that_sessions_are_made_of() -> None:
    session = "01020304 05060708 090a0b0c 0d0e0f10"
    assert checked(SessionAck(SESSION))[16:] == bytes.fromhex(f"0000 0100 {session}")
    assert bare(session=SESSION)[-16:] == bytes.fromhex(session)
    written = checked(ConnectionParameters(0x0001_0203, 0x0001_0405, 0x0607))
    assert written[16:] == bytes.fromhex("0000 0300 03020100 05040100 0000 0706")
    asked = EstablishConnection(GUID_A, GUID_B, 0x0403_0201, is_ping_skipped=True)
    written = checked(asked)
    assert written[8:12] == bytes.fromhex("3c020000")
    assert written[16:20] + written[52:60] == bytes.fromhex("0000 0200 01020304 1001 0000")
    final = FinalAck(
        *(GUID_A, GUID_B, ORDER_QUEUE, 0x0403_0201, 0x0807_0605, SEQUENCE, 0x0C0B_0A09),
        *(0x100F_0E0D, 0xC002, GUID_B, 0x1413_1211),
    )
    written = checked(final)
    assert written[52:60] == bytes.fromhex("01020304 05060708")
    body = bytes.fromhex("01020304 05060708 090a0b0c 0d0e0f10") + GUID_B
    assert body + bytes.fromhex("11121314") in written
    assert bytes.fromhex("02c0") in written
    ping = Ping(0x0403_0201, GUID_A, is_client_class=True, unused_flags=0x0201)
    assert write_ping(ping) == bytes.fromhex("0508 4855 01020304") + GUID_A
    assert parse_ping(write_ping(ping), 0, 24) == (ping, 24)


@pytest.mark.spec("QB-2.2-01")
def test_of_published_keys() -> None:
    blob = PublicKeyBlob(0x0108, 0x0403_0201, bytes(32) + b"\x80")
    keys = (MqdsPublicKey(ProviderType.RSA_FULL, "n" * 0x81, blob),)
    encoded = write_mqds_public_keys(keys)
    assert encoded[:20] == bytes.fromhex("4d010000 01000000 35000000 04010000 01000000")
    at = 20 + 0x0104
    assert encoded[at : at + 20] == bytes.fromhex("06020000 00a40000 52534131 08010000 01020304")
    assert parse_mqds_public_keys(encoded, 0, len(encoded)) == (keys, len(encoded))
