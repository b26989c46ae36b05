"""The UserMessage packet as a whole [MS-MQMQ 2.2.20]."""

from __future__ import annotations

from struct import pack

import msgspec
import pytest

from qm.wire.errors import ProtocolError
from qm.wire.headers.debug_header import DebugHeader
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.multi_queue_format import MultiQueueFormatHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.session_header import SessionHeader
from qm.wire.headers.soap_header import SoapHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.framer import Framer
from qm.wire.packets.packet import write_packet
from qm.wire.packets.peek import (
    peek_head,
    properties_offset,
    security_header_offset,
    transaction_header_offset,
)
from qm.wire.packets.soundness import PacketJudge
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import PublicQueueFormatName
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, MP

FULL = UserMessage(
    UserHeader(raw.SOURCE, None, is_recoverable=True),
    MessagePropertiesHeader(b"body", "label", hash_algorithm=0x8004, encryption_algorithm=0x6801),
    TransactionHeader(TxSequenceId(time_stamp=1, ordinal=2), 3, 2),
    SecurityHeader(1, security_id=b"sid!"),
    DebugHeader(GUID_A),
    SoapHeader("env", "bod"),
    MultiQueueFormatHeader((PublicQueueFormatName(GUID_A),)),
    SessionHeader(9),
    priority=0,
    time_to_reach_queue=60,
)
PARTS = (
    raw.user(MP | 1 << 5 | 1 << 19 | 1 << 20 | 1 << 23 | 1 << 28, b"", address=bytes(16)),
    pack("<IIIII", 0, 2, 1, 3, 2),
    pack("<HHHHII", 1, 4, 0, 0, 0, 0) + b"sid!",
    raw.properties(label="label".encode("utf-16-le") + b"\0\0", body=b"body"),
    pack("<HH", 1, 0) + GUID_A,
    pack("<HHI", 0x320, 0, 4) + "env\0".encode("utf-16-le"),
    pack("<HHI", 0x384, 0, 4) + "bod\0".encode("utf-16-le"),
    pack("<IHHI", 32, 0x64, 0, 1) + pack("<HH", 1, 0) + GUID_A,
    pack("<IHHI", 12, 0xC8, 0, 0) + pack("<IHHI", 12, 0x12C, 0, 0),
    pack("<HHI", 0x15E, 0, 0),
)
SESSION = pack("<HHIHHHH", 9, 0, 0, 0, 0, 64, 0)


@pytest.mark.spec("MQ-2.2.20-02", "MQ-2.2.20-04", "MQ-2.2.18-01")
def test_headers_stand_in_document_order() -> None:
    header = msgspec.structs.replace(FULL.user_header, sent_time=0x6592_0080, message_id=0x4D2)
    message = msgspec.structs.replace(FULL, user_header=header)
    encoded = raw.message(*PARTS, flags=0x20, session=SESSION, time_to_reach_queue=60)
    assert write_packet(message) == encoded
    assert raw.read_message(encoded) == message
    fields = raw.written(message)
    assert list(fields) == [
        "BaseHeader",
        "UserHeader",
        "TransactionHeader",
        "SecurityHeader",
        "MessagePropertiesHeader",
        "DebugHeader",
        "SoapHeader",
        "MultiQueueFormatHeader",
        "SessionHeader",
    ]
    assert fields["BaseHeader"]["Flags"] == 0x30
    # Any header may be missing, and then its flag is clear.
    optional = {
        "transaction": ("UserHeader", "Flags.TH"),
        "security": ("UserHeader", "Flags.SH"),
        "debug": ("BaseHeader", "Flags.DH"),
        "soap": ("UserHeader", "Flags.HH"),
        "multi_queue_format": ("UserHeader", "Flags.MQ"),
        "session": ("BaseHeader", "Flags.SH"),
    }
    for missing in optional:
        without = msgspec.structs.replace(message, **{missing: None})
        assert raw.read_message(write_packet(without)) == without
        fields = raw.written(without)
        for field, (where, flag) in optional.items():
            assert fields[where][flag] == int(field != missing)


@pytest.mark.spec("MQ-2.2.20-02")
def test_headers_are_found_in_that_order_without_reading_the_packet() -> None:
    rest = {"debug": None, "soap": None, "multi_queue_format": None, "session": None}
    for left_out in ((), ("transaction",), ("security",), ("transaction", "security")):
        for start in (0, 3):
            message = msgspec.structs.replace(FULL, **dict.fromkeys(left_out))
            encoded = bytes(start) + write_packet(message)
            head, at = peek_head(encoded, start), start + 16 + 48
            if message.transaction is not None:
                assert transaction_header_offset(encoded, start, head) == at
                at += len(PARTS[1])
            if message.security is not None:
                assert security_header_offset(encoded, start, head) == at
                at += len(PARTS[2])
            assert properties_offset(encoded, start, head) == at
        # A judge that knows the shape does not read it again.
        message = msgspec.structs.replace(FULL, **rest, **dict.fromkeys(left_out))
        encoded, judge = write_packet(message), PacketJudge()
        assert judge.judge(encoded, 0, len(encoded)) == message
        assert judge.judge(encoded, 0, len(encoded)) is None
    _, transaction, security, properties = PARTS[:4]
    judge, flags = PacketJudge(), MP | 1 << 5 | 1 << 19 | 1 << 20
    user = raw.user(flags, b"", address=bytes(16))
    right = raw.message(user, transaction, security, properties, flags=0)
    for _ in range(2):
        judge.judge(right, 0, len(right))
    for wrong in ((security, transaction, properties), (transaction, properties, security)):
        encoded = raw.message(user, *wrong, flags=0)
        with pytest.raises(ProtocolError):
            judge.judge(encoded, 0, len(encoded))


@pytest.mark.spec("MQ-2.2.20-03")
def test_three_headers_are_in_every_message() -> None:
    smallest = UserMessage(UserHeader(raw.SOURCE, None), MessagePropertiesHeader())
    encoded = write_packet(smallest)
    assert len(encoded) == 16 + 48 + 56
    assert list(raw.written(smallest)) == ["BaseHeader", "UserHeader", "MessagePropertiesHeader"]
    for length in range(120):
        raw.refused(encoded[:length])
    user, properties = raw.user(MP, b""), raw.properties()
    assert raw.refused(raw.message(user)).field == "MessagePropertiesHeader"
    unannounced = raw.message(raw.user(0, b""), properties)
    assert raw.refused(unannounced).field == "UserHeader.Flags.MP"
    assert raw.refused(raw.base(16 + 44) + user[:44]).field == "UserHeader"
    assert raw.refused(raw.message(user, properties[:52])).field == "MessagePropertiesHeader"
    # Bytes behind the last header belong to none.
    behind = raw.refused(raw.message(user, properties, bytes(4)))
    assert (behind.field, behind.offset) == ("BaseHeader.PacketSize", 120)
    internal = raw.base(120, 0x0B) + user + properties
    with pytest.raises(type(behind)) as raised:
        parse_user_message(internal, 0, len(internal))
    assert raised.value.field == "BaseHeader.Flags.IN"


@pytest.mark.spec("MQ-2.2.20-01")
def test_a_packet_is_a_whole_message() -> None:
    """There is no fragment: a packet of any legal size is one message, a part of it is none."""
    for size in (0, 1, 1000, 65_536, 1_000_000):
        message = UserMessage(UserHeader(raw.SOURCE, None), MessagePropertiesHeader(b"\x5a" * size))
        encoded = write_packet(message)
        framer = Framer()
        (frames,) = framer.feed(encoded * 2)
        assert frames.offsets == [0, len(encoded), 2 * len(encoded)]
        for start in frames.offsets[:-1]:
            again, after = parse_user_message(frames.buffer, start, len(frames.buffer))
            assert (again, after) == (message, start + len(encoded))
        half = bytearray(encoded[: len(encoded) // 2 & ~3])
        half[8:12] = pack("<I", len(half))
        raw.refused(bytes(half))
