"""Packets built by hand, field by field from the documents' tables, without the codec."""

from __future__ import annotations

import contextlib
from struct import error, pack, unpack_from

import pytest

from qm.session.framing import may_be_acknowledgement, message_run
from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.base_header import packet_span
from qm.wire.headers.user_header import FLAG_HH, FLAG_MP, FLAG_MQ, FLAG_SH, FLAG_TH
from qm.wire.packets.describe import describe_packet
from qm.wire.packets.packet import Packet, parse_packet, write_packet
from qm.wire.packets.patch import (
    attach_session_header,
    detach_session_header,
    patch_message_id,
    patch_sent_time,
)
from qm.wire.packets.peek import (
    body_span,
    effective_priority,
    has_security,
    is_traced,
    is_transactional,
    peek_destination,
    peek_head,
    peek_privacy_level,
    peek_signature_version,
    peek_source,
    peek_transaction,
    properties_offset,
    user_header_end,
)
from qm.wire.packets.soundness import PacketJudge
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatNameId,
    PublicQueueFormatName,
)
from tests.decoder.decode import BadBytesError, Fields, decode
from tests.decoder.descriptions import check_description
from tests.decoder.spoken import flat, spoken

SOURCE = bytes(range(0x10, 0x20))
TARGET = bytes(range(0x30, 0x40))
GUID_A = bytes(range(0xA0, 0xB0))
GUID_B = bytes(range(0xB0, 0xC0))
MP = 0x0020_0000
DQ_PRIVATE = 3 << 10
DQ_DIRECT = 7 << 10
PRIVATE_9 = pack("<I", 9)


def base(
    size: int,
    flags: int = 3,
    *,
    version: int = 0x10,
    reserved: int = 0,
    signature: bytes = b"LIOR",
    time_to_reach_queue: int = 0xFFFF_FFFF,
) -> bytes:
    head = pack("<BBH4sI", version, reserved, flags, signature, size)
    return head + pack("<I", time_to_reach_queue)


def user(
    flags: int = MP | DQ_PRIVATE,
    names: bytes = PRIVATE_9,
    *,
    source: bytes = SOURCE,
    address: bytes = TARGET,
    time_to_be_received: int = 0xFFFF_FFFF,
    sent_time: int = 0x6592_0080,
    message_id: int = 0x0000_04D2,
) -> bytes:
    numbers = pack("<IIII", time_to_be_received, sent_time, message_id, flags)
    return source + address + numbers + names


def direct(text: str, pad: bytes = b"\0\0") -> bytes:
    """DirectQueueFormatName: Count, WCHARs, NUL, padding to 4."""
    wide = text.encode("utf-16-le") + b"\0\0"
    counted = pack("<H", len(wide)) + wide
    return counted + pad[: -len(counted) % 4]


def properties(
    label: bytes = b"",
    extension: bytes = b"",
    body: bytes = b"",
    *,
    flags: int = 0,
    label_length: int | None = None,
    message_class: int = 0,
    correlation_id: bytes = bytes(20),
    body_type: int = 0,
    tag: int = 0,
    message_size: int | None = None,
    allocation: int | None = None,
    privacy: int = 0,
    hash_algorithm: int = 0x8004,
    cipher: int = 0x6801,
    extension_size: int | None = None,
    pad: bytes = b"\0\0\0",
) -> bytes:
    size = len(body) if message_size is None else message_size
    fixed = pack(
        "<BBH20sIIIIIIII",
        flags,
        len(label) // 2 if label_length is None else label_length,
        message_class,
        correlation_id,
        body_type,
        tag,
        size,
        size if allocation is None else allocation,
        privacy,
        hash_algorithm,
        cipher,
        len(extension) if extension_size is None else extension_size,
    )
    header = fixed + label + extension + body
    return header + pad[: -len(header) % 4]


def message(
    *headers: bytes,
    flags: int = 3,
    session: bytes = b"",
    reserved: int = 0,
    time_to_reach_queue: int = 0xFFFF_FFFF,
) -> bytes:
    """A user packet of these headers, or of the plainest ones; Flags.SH follows from `session`."""
    body = b"".join(headers) if headers else user() + properties()
    flags |= 0x10 if session else 0
    start = base(16 + len(body), flags, reserved=reserved, time_to_reach_queue=time_to_reach_queue)
    return start + body + session


def agree(encoded: bytes, packet: Packet) -> Fields:
    """Hold a value against what the independent decoder finds in the same bytes."""
    try:
        fields = decode(encoded)
    except BadBytesError as error:
        pytest.fail(f"the other decoder refuses the bytes of {packet}: {error}")
    found, said = flat(fields), spoken(packet)
    if isinstance(packet, UserMessage) and packet.transaction is not None:
        # MQ-A27: what a sender says about the priority of a transactional message is ignored.
        found["BaseHeader.Flags.PR"] = 0
    assert {name: found.get(name) for name in said} == said
    check_description(encoded, describe_packet(encoded))
    assert packet_span(encoded, 0, len(encoded)) == len(encoded)
    if isinstance(packet, UserMessage):
        look(encoded, packet, fields)
    return fields


def look(encoded: bytes, packet: UserMessage, fields: Fields) -> None:
    """Hold what the hot path reads and writes in place against what stands in the bytes."""
    base, user = fields["BaseHeader"], fields["UserHeader"]
    head = peek_head(encoded, 0)
    assert head[:11] == (
        base["VersionNumber"],
        base["Flags"],
        base["Signature"],
        base["PacketSize"],
        base["TimeToReachQueue"],
        bytes.fromhex(user["SourceQueueManager"]),
        bytes.fromhex(user["QueueManagerAddress"]),
        user["TimeToBeReceived"],
        user["SentTime"],
        user["MessageID"],
        user["Flags"],
    )
    assert peek_source(encoded, 0) == head.source_queue_manager
    assert peek_destination(encoded, 0, head) == destination_key(packet)
    assert effective_priority(head) == (0 if user["Flags.TH"] else base["Flags.PR"])
    assert is_traced(head) == base["Flags.TR"]
    assert (is_transactional(head), has_security(head)) == (user["Flags.TH"], user["Flags.SH"])
    if "TransactionHeader" in fields:
        found = fields["TransactionHeader"]
        sequence = found["TxSequenceID"]
        assert peek_transaction(encoded, 0, head) == (
            sequence["TimeStamp"] << 32 | sequence["Ordinal"],
            found["TxSequenceNumber"],
            found["PreviousTxSequenceNumber"],
        )
    signed = fields.get("SecurityHeader", {"Flags.AS": 0})
    assert peek_signature_version(encoded) == signed["Flags.AS"]
    properties = fields["MessagePropertiesHeader"]
    assert peek_privacy_level(encoded, 0, head) == properties["PrivacyLevel"]
    start, end = body_span(encoded, properties_offset(encoded, 0, head))
    assert encoded[start:end].hex() == properties.get("MessageBody", "")
    patched = bytearray(encoded)
    patch_message_id(patched, 0, 0xA1A2_A3A4)
    patch_sent_time(patched, 0, 0xB1B2_B3B4)
    new = {"MessageID": 0xA1A2_A3A4, "SentTime": 0xB1B2_B3B4}
    assert decode(bytes(patched)) == fields | {"UserHeader": user | new}
    if packet.session is not None:
        detach_session_header(patched)
        assert "SessionHeader" not in decode(bytes(patched))
        attach_session_header(patched, packet.session)
        assert decode(bytes(patched))["SessionHeader"] == fields["SessionHeader"]


def destination_key(packet: UserMessage) -> bytes:
    """The key of a message's destination: the type of its name, and the name as in the packet."""
    header = packet.user_header
    match header.destination_queue:
        case PrivateQueueFormatNameId(private_queue_identifier=number):
            return b"\x03" + header.queue_manager_address + number.to_bytes(4, "little")
        case PublicQueueFormatName(public_queue_identifier=guid):
            return b"\x05" + guid
        case DirectQueueFormatName(direct_format_name=text):
            return b"\x07" + text.encode("utf-16-le", "surrogatepass")
    return b"\x00"


def read(raw: bytes) -> Packet:
    """Return the packet that bytes are; both decoders must read it, and read the same."""
    try:
        packet, after = parse_packet(raw, 0, len(raw))
    except ProtocolError as error:
        pytest.fail(f"refused: {error}")
    assert after == len(raw)
    agree(raw, packet)
    offsets, kinds = [0], bytearray()
    stop = message_run(raw, 0, len(raw), offsets, kinds)
    if isinstance(packet, UserMessage) and packet.session is None:
        assert stop or may_be_acknowledgement(raw, 0)
        assert experienced(raw).judge(raw, 0, len(raw)) in (None, packet)
    else:
        assert not stop, "it is no ordinary message"
    return packet


def experienced(raw: bytes) -> PacketJudge:
    """A judge that has seen a sound message with this UserHeader, so that it judges by shape."""
    judge = PacketJudge()
    try:
        (flags,) = unpack_from("<I", raw, 16 + 44)
        headers = [raw[16 : user_header_end(raw, 0, flags)]]
    except (ProtocolError, error):
        return judge
    optional = (
        (FLAG_TH, pack("<IIIII", 0, 7, 1, 5, 4)),
        (FLAG_SH, pack("<HHHHII", 1, 4, 0, 0, 0, 0) + b"sid!"),
        (FLAG_MP, properties()),
        (FLAG_HH, pack("<HHIHHI", 0x320, 0, 0, 0x384, 0, 0)),
        (
            FLAG_MQ,
            b"".join(pack("<IHHI", 12, each, 0, 0) for each in (0x64, 0xC8, 0x12C))
            + pack("<HHI", 0x15E, 0, 0),
        ),
    )
    headers += [header for flag, header in optional if flags & flag or flag == FLAG_MP]
    known = message(*headers, flags=raw[2] & 7)
    with contextlib.suppress(ProtocolError):
        judge.judge(known, 0, len(known))
    return judge


def read_message(raw: bytes) -> UserMessage:
    packet = read(raw)
    assert isinstance(packet, UserMessage)
    return packet


def refused(raw: bytes) -> ProtocolError:
    """Return the error with which a packet is refused."""
    with pytest.raises(ProtocolError) as raised:
        parse_packet(raw, 0, len(raw))
    # What sessions take in runs, and judge by its shape, is no other.
    offsets, kinds = [0], bytearray()
    if message_run(raw, 0, len(raw), offsets, kinds):
        assert offsets == [0, len(raw)]
        with pytest.raises(ProtocolError):
            experienced(raw).judge(raw, 0, len(raw))
    return raised.value


def written(packet: Packet) -> Fields:
    """Return what the independent decoder finds in a packet that the codec wrote."""
    try:
        encoded = write_packet(packet)
    except ValueOutOfRange as error:
        pytest.fail(f"not written: {error}")
    return agree(encoded, packet)
