"""The optional headers of a UserMessage [MS-MQMQ 2.2.20.1-3 and 2.2.20.5-8]."""

from __future__ import annotations

from struct import pack

import msgspec
import pytest

from qm.wire.errors import ProtocolError, ValueOutOfRange
from qm.wire.headers.debug_header import DebugHeader, parse_debug_header, write_debug_header
from qm.wire.headers.multi_queue_format import (
    DistributionQueueFormatName,
    MultiQueueFormatHeader,
    parse_multi_queue_format_header,
    write_multi_queue_format_header,
)
from qm.wire.headers.security_header import (
    ProviderInfo,
    SecurityHeader,
    parse_provider_info,
    parse_security_header,
    write_provider_info,
    write_security_header,
)
from qm.wire.headers.soap_header import SoapHeader, parse_soap_header, write_soap_header
from qm.wire.headers.transaction_header import (
    TransactionHeader,
    parse_transaction_header,
    write_transaction_header,
)
from qm.wire.limits import MQF_ELEMENTS_MAX
from qm.wire.packets.packet import write_packet
from qm.wire.packets.patch import patch_transaction
from qm.wire.packets.peek import peek_head, peek_transaction, properties_offset
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import (
    DirectQueueFormatName,
    PrivateQueueFormatName,
    PublicQueueFormatName,
)
from tests.unit.wire import raw
from tests.unit.wire.raw import GUID_A, GUID_B, MP

TH, SH, MQ, HH = 1 << 20, 1 << 19, 1 << 23, 1 << 28
SEQUENCE = TxSequenceId(time_stamp=0x6592_0080, ordinal=7)
TRANSACTION = TransactionHeader(SEQUENCE, 5, 4)


def transaction_bytes(flags: int, number: int = 5, previous: int = 4, more: bytes = b"") -> bytes:
    return pack("<IIIII", flags, 7, 0x6592_0080, number, previous) + more


def read_transaction(encoded: bytes) -> TransactionHeader:
    """What the codec reads from a whole transactional packet."""
    header = raw.user(MP | TH | 1 << 5, b"")
    whole = raw.message(header, encoded, raw.properties(), flags=0)
    found = raw.read_message(whole).transaction
    assert found is not None
    # Seen without being read whole: the numbers, and where the header ends.
    head = peek_head(whole, 0)
    assert peek_transaction(whole, 0, head) == (
        found.tx_sequence_id.to_int(),
        found.tx_sequence_number,
        found.previous_tx_sequence_number,
    )
    assert whole[properties_offset(whole, 0, head) :] == raw.properties()
    return found


def refused_transaction(encoded: bytes) -> ProtocolError:
    header = raw.user(MP | TH | 1 << 5, b"")
    return raw.refused(raw.message(header, encoded, raw.properties(), flags=0))


@pytest.mark.spec("MQ-2.2.20.5-06", "MQ-2.2.20.5-07")
def test_where_the_ends_of_a_transaction_are_marked() -> None:
    header = raw.user(MP | TH | 1 << 5, b"")
    packet = bytearray(raw.message(header, transaction_bytes(0), raw.properties(), flags=0))
    for bits in (0x4, 0x8, 0xC, 0x0):
        ends = {"is_first": bool(bits & 0x4), "is_last": bool(bits & 0x8)}
        found = read_transaction(transaction_bytes(bits))
        assert {"is_first": found.is_first, "is_last": found.is_last} == ends
        assert write_transaction_header(found) == transaction_bytes(bits)
        patch_transaction(packet, 0, transaction_id=0, **ends)
        assert packet == raw.message(header, transaction_bytes(bits), raw.properties(), flags=0)


@pytest.mark.spec("MQ-2.2.20.5-01", "MQ-2.2.20.5-03", "MQ-2.2.20.5-04", "MQ-2.2.20.5-05")
def test_transaction_header_layout_and_flags() -> None:
    plain = transaction_bytes(0)
    assert parse_transaction_header(plain, 0, 20) == (TRANSACTION, 20)
    assert write_transaction_header(TRANSACTION) == plain
    flags: list[tuple[int, str, object]] = [
        (0x2, "is_final_ack_wanted", True),
        (0x4, "is_first", True),
        (0x8, "is_last", True),
        (0x12345 << 4, "transaction_id", 0x12345),
        (0xFFFFF << 4, "transaction_id", 0xFFFFF),
    ]
    for bits, field, value in flags:
        changed = msgspec.structs.replace(TRANSACTION, **{field: value})
        assert read_transaction(transaction_bytes(bits)) == changed
        assert write_transaction_header(changed) == transaction_bytes(bits)
    # X1 to X8 are above the ID, and no part of it.
    for bit in range(24, 32):
        assert read_transaction(transaction_bytes(0xFFFFF << 4 | 1 << bit)) == changed
    # The same bits where a packet is changed in its place.
    header = raw.user(MP | TH | 1 << 5, b"")
    packet = bytearray(raw.message(header, transaction_bytes(0x2), raw.properties(), flags=0))
    for is_first, is_last in ((True, False), (False, True)):
        patch_transaction(packet, 0, transaction_id=0x54321, is_first=is_first, is_last=is_last)
        bits = 0x2 | is_first << 2 | is_last << 3 | 0x54321 << 4
        assert packet == raw.message(header, transaction_bytes(bits), raw.properties(), flags=0)
    # CG, and any GUID.
    for guid in (GUID_A, bytes(16), b"\xff" * 16):
        connected = msgspec.structs.replace(TRANSACTION, connector_qm_guid=guid)
        assert read_transaction(transaction_bytes(1, more=guid)) == connected
        assert write_transaction_header(connected) == transaction_bytes(1, more=guid)
    # A judge by shape does not take the GUID for the header that follows it.
    misleading = raw.properties(body=bytes(8), allocation=0, correlation_id=pack("<12xII", 24, 24))
    encoded = transaction_bytes(1, more=bytes(16))
    assert raw.refused(raw.message(header, encoded, misleading, flags=0)).field == (
        "MessagePropertiesHeader.AllocationBodySize"
    )
    encoded = transaction_bytes(1, more=GUID_A)
    for length in range(36):
        with pytest.raises(ProtocolError) as raised:
            parse_transaction_header(encoded, 0, length)
        assert raised.value.section == "MS-MQMQ 2.2.20.5"
    for transaction_id in (-1, 0x10_0000):
        with pytest.raises(ValueOutOfRange) as misfit:
            write_transaction_header(
                msgspec.structs.replace(TRANSACTION, transaction_id=transaction_id)
            )
        assert misfit.value.field == "TransactionHeader.Flags.ID"
    with pytest.raises(ValueOutOfRange):
        write_transaction_header(msgspec.structs.replace(TRANSACTION, connector_qm_guid=b"x"))


@pytest.mark.spec("MQ-2.2.20.5-09", "MQ-2.2.20.5-10", "MQ-2.2.20.5-11")
def test_transaction_flags_24_to_31_are_clear_when_written_and_never_an_error() -> None:
    for bit in range(24, 32):
        assert read_transaction(transaction_bytes(1 << bit)) == TRANSACTION
    # MQ-A7: every bit of the table is legal in every combination, so no value is an error.
    everything = read_transaction(transaction_bytes(0xFFFF_FFFF, more=GUID_A))
    assert everything == TransactionHeader(SEQUENCE, 5, 4, 0xFFFFF, True, True, True, GUID_A)
    assert write_transaction_header(everything) == transaction_bytes(0x00FF_FFFF, more=GUID_A)


@pytest.mark.spec("MQ-2.2.20.5-12", "MQ-2.2.20.5-13")
def test_sequence_numbers_start_at_1_and_have_room_for_a_successor() -> None:
    for number, previous in ((1, 0), (0xFFFF_FFFF, 0xFFFF_FFFE), (2, 1)):
        header = TransactionHeader(SEQUENCE, number, previous)
        encoded = transaction_bytes(0, number, previous)
        assert read_transaction(encoded) == header
        assert write_transaction_header(header) == encoded
    error = refused_transaction(transaction_bytes(0, 0, 0))
    assert (error.field, error.offset) == ("TransactionHeader.TxSequenceNumber", 64 + 12)
    error = refused_transaction(transaction_bytes(0, 1, 0xFFFF_FFFF))
    assert (error.field, error.offset) == ("TransactionHeader.PreviousTxSequenceNumber", 64 + 16)
    for number, previous in ((0, 0), (1, 0xFFFF_FFFF), (1, -1), (0x1_0000_0000, 1)):
        with pytest.raises(ValueOutOfRange):
            write_transaction_header(TransactionHeader(SEQUENCE, number, previous))


def security_bytes(flags: int, *items: bytes) -> bytes:
    """The header for five items, each padded to 4 with something."""
    fixed = pack("<HHHHII", flags, *(len(item) for item in items))
    return fixed + b"".join(item + b"\xee\xef\xed"[: -len(item) % 4] for item in items)


def read_security(encoded: bytes) -> SecurityHeader:
    behind = raw.properties(body=b"body", privacy=5)
    packet = raw.read_message(raw.message(raw.user(MP | SH, b""), encoded, behind))
    assert packet.security is not None
    return packet.security


@pytest.mark.spec(
    "MQ-2.2.20.6-01", "MQ-2.2.20.6-11", "MQ-2.2.20.6-14", "MQ-2.2.20.6-17", "MQ-2.2.20.6-18"
)
def test_security_header_layout() -> None:
    items = (b"sid-1", b"key", b"signature", b"certificate", b"provider")
    encoded = security_bytes(0x00E1, *items)
    assert encoded[:16] == pack("<HHHHII", 0xE1, 5, 3, 9, 11, 8)
    header = SecurityHeader(1, True, True, *items)
    assert parse_security_header(encoded, 0, len(encoded)) == (header, len(encoded))
    assert read_security(encoded) == header
    written = write_security_header(header)
    assert len(written) == len(encoded)
    assert written == encoded.translate(bytes.maketrans(b"\xee\xef\xed", b"\0\0\0"))
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError) as raised:
            parse_security_header(encoded, 0, length)
        assert raised.value.section == "MS-MQMQ 2.2.20.6"
    # Each item alone: no other has bytes, and sizes alone say what is there.
    for position in range(5):
        alone = [b"", b"", b"", b"", b""]
        alone[position] = b"item!"
        value = SecurityHeader(1 if position == 0 else 0, False, False, *alone)
        assert read_security(security_bytes(value.sender_id_type, *alone)) == value
        assert parse_security_header(write_security_header(value), 0, 24) == (value, 24)


@pytest.mark.spec(
    "MQ-2.2.20.6-02", "MQ-2.2.20.6-04", "MQ-2.2.20.6-05", "MQ-2.2.20.6-08", "MQ-2.2.20.6-10"
)
def test_security_flags() -> None:
    sid = b"sid-"

    def read_flags(flags: int) -> SecurityHeader:
        return read_security(security_bytes(flags, sid, b"", b"", b"", b""))

    plain = SecurityHeader(1, security_id=sid)
    assert read_flags(0x0001) == plain
    assert read_flags(0x0002) == msgspec.structs.replace(plain, sender_id_type=2)
    assert read_flags(0x0021) == msgspec.structs.replace(plain, is_body_encrypted=True)
    assert read_flags(0x0041) == msgspec.structs.replace(plain, is_default_provider=True)
    # AU, AI (MQ-A8), AS and bits 12-15 are ignored.
    for bit in (4, 7, 8, 9, 10, 11, 12, 13, 14, 15):
        assert read_flags(0x0001 | 1 << bit) == plain
    for flags, value in (
        (0x01, plain),
        (0x02, msgspec.structs.replace(plain, sender_id_type=2)),
        (0x21, msgspec.structs.replace(plain, is_body_encrypted=True)),
        (0x41, msgspec.structs.replace(plain, is_default_provider=True)),
        (0x81, msgspec.structs.replace(plain, encryption_key=b"k")),
        (0x81, msgspec.structs.replace(plain, signature=b"s")),
        (0x81, msgspec.structs.replace(plain, sender_cert=b"c")),
        (0x01, msgspec.structs.replace(plain, provider_info=b"p")),
    ):
        assert write_security_header(value)[:2] == pack("<H", flags)


@pytest.mark.spec("MQ-2.2.20.6-03", "MQ-2.2.20.6-09", "MQ-2.2.20.6-12", "MQ-2.2.20.6-13")
def test_security_headers_that_contradict_themselves_are_refused() -> None:
    items = (b"", b"", b"s", b"", b"")
    for flags, broken, field in (
        (0x3, security_bytes(3, *items), "SecurityHeader.Flags.ST"),
        (0xF, security_bytes(15, *items), "SecurityHeader.Flags.ST"),
        (0x0, security_bytes(0, b"sid", *items[1:]), "SecurityHeader.SenderIdSize"),
        (0x0, security_bytes(0, *[b""] * 5), "SecurityHeader.SenderIdSize"),
        (0x1, security_bytes(1, *[b""] * 5), "SecurityHeader.SenderIdSize"),
        (0x2, security_bytes(2, *[b""] * 5), "SecurityHeader.SenderIdSize"),
        (0x0, pack("<HHHHII", 0, 0, 0, 0, 0x1_0000, 0), "SecurityHeader.SenderCertSize"),
    ):
        error = raw.refused(raw.message(raw.user(MP | SH, b""), broken, raw.properties()))
        assert (error.field, broken[0] & 0xF) == (field, flags)
    # Of the two sizes of 32 bits only that of the certificate has a limit of its own.
    info = bytes(0x1_0000)
    everything = SecurityHeader(2, True, True, bytes(16), b"k", b"s", bytes(0xFFFF), info)
    written = write_security_header(everything)
    assert written[1] >> 4 == 0, "bits 12 to 15"
    assert parse_security_header(written, 0, len(written)) == (everything, len(written))
    with pytest.raises(ProtocolError) as raised:
        parse_security_header(written, 0, len(written) - 1)
    assert raised.value.field == "SecurityHeader.ProviderInfo"
    assert write_security_header(SecurityHeader(0, signature=b"s"))[2:4] == b"\0\0"
    for value in (
        SecurityHeader(),
        SecurityHeader(3, signature=b"s"),
        SecurityHeader(0, security_id=b"s"),
        SecurityHeader(sender_cert=bytes(0x1_0000)),
        SecurityHeader(1, security_id=bytes(0x1_0000)),
    ):
        with pytest.raises(ValueOutOfRange):
            write_security_header(value)


def test_provider_info_is_a_type_and_a_name_to_the_items_end() -> None:
    encoded = pack("<I", 24) + "Provider".encode("utf-16-le") + b"\0\0"
    info = ProviderInfo(24, "Provider")
    assert parse_provider_info(encoded, 0, len(encoded)) == (info, len(encoded))
    assert write_provider_info(info) == encoded
    for length in (0, 3, 4, 5, len(encoded) - 2, len(encoded) - 1):
        with pytest.raises(ProtocolError):
            parse_provider_info(encoded, 0, length)


def soap_bytes(header: bytes, body: bytes, *, pad: bytes = b"", ids: tuple[int, int]) -> bytes:
    first = pack("<HHI", ids[0], 0xFFFF, len(header) // 2) + header + pad
    encoded = first + pack("<HHI", ids[1], 0xEEEE, len(body) // 2) + body
    return encoded + b"\xee\xee"[: -len(encoded) % 4]


IDS = (0x0320, 0x0384)


def wide(text: str) -> bytes:
    return text.encode("utf-16-le") + b"\0\0"


def read_soap(encoded: bytes) -> SoapHeader:
    packet = raw.read_message(raw.message(raw.user(MP | HH, b""), raw.properties(), encoded))
    assert packet.soap is not None
    return packet.soap


@pytest.mark.spec("MQ-2.2.20.7-01", "MQ-2.2.20.7-02", "MQ-2.2.20.7-03")
def test_soap_header_layout() -> None:
    for header, body in (("env", "bod"), ("enve", "body"), ("env", "body"), ("", "")):
        encoded = soap_bytes(wide(header), wide(body), ids=IDS)
        value = SoapHeader(header, body)
        assert read_soap(encoded) == value
        written = write_soap_header(value)
        # Reserved fields are zero when written and ignored when read.
        assert written == encoded.replace(b"\xff\xff", b"\0\0").replace(b"\xee\xee", b"\0\0")
        for length in range(len(encoded)):
            with pytest.raises(ProtocolError) as raised:
                parse_soap_header(encoded, 0, length)
            assert raised.value.section == "MS-MQMQ 2.2.20.7"
    # MQ-A13: an odd header may be padded before the body section.
    odd = soap_bytes(wide("enve"), wide("body"), pad=b"\xdd\xdd", ids=IDS)
    assert read_soap(odd) == SoapHeader("enve", "body")
    for ids, name in (((0x0321, 0x0384), "Header"), ((0x0320, 0x0320), "Body")):
        encoded = soap_bytes(wide("env"), wide("bod"), ids=ids)
        error = raw.refused(raw.message(raw.user(MP | HH, b""), raw.properties(), encoded))
        assert error.field == f"SoapHeader.{name}SectionID"


@pytest.mark.spec("MQ-2.2.20.7-04", "MQ-2.2.20.7-05")
def test_soap_texts_are_counted_in_wchars_with_their_nul() -> None:
    for header, body in ((None, None), (None, "b"), ("h", None), ("h\u20ac", "b" * 500)):
        encoded = soap_bytes(
            b"" if header is None else wide(header), b"" if body is None else wide(body), ids=IDS
        )
        assert read_soap(encoded) == SoapHeader(header, body)
        written = write_soap_header(SoapHeader(header, body))
        assert written[4:8] == pack("<I", 0 if header is None else len(header) + 1)
        assert read_soap(written) == SoapHeader(header, body)
    good = soap_bytes(wide("head"), wide("body"), ids=IDS)
    for length in (6, 100, 0x7FFF_FFFF, 0x8000_0005, 0xFFFF_FFFF):
        broken = good[:4] + pack("<I", length) + good[8:]
        error = raw.refused(raw.message(raw.user(MP | HH, b""), raw.properties(), broken))
        assert error.field.startswith("SoapHeader.")
    huge = raw.refused(
        raw.message(
            raw.user(MP | HH, b""), raw.properties(), good[:4] + pack("<I", 1 << 31) + good[8:]
        )
    )
    assert huge.field == "SoapHeader.HeaderDataLength"
    for header_bytes in (b"a\0", b"a\0b\0", b"\0\0a\0\0\0"):
        broken = soap_bytes(header_bytes, wide("b"), ids=IDS)
        error = raw.refused(raw.message(raw.user(MP | HH, b""), raw.properties(), broken))
        assert error.field == "SoapHeader.Header"
    for broken_text in (SoapHeader("a\0b"), SoapHeader(None, "\0")):
        with pytest.raises(ValueOutOfRange):
            write_soap_header(broken_text)


@pytest.mark.spec("MQ-2.2.20.8-01", "MQ-2.2.20.8-02", "MQ-2.2.20.8-03")
def test_debug_header_names_a_public_queue_or_none() -> None:
    for header, encoded in (
        (DebugHeader(), bytes(4)),
        (DebugHeader(GUID_A), bytes([1, 0, 0, 0]) + GUID_A),
    ):
        assert parse_debug_header(encoded, 0, len(encoded)) == (header, len(encoded))
        assert write_debug_header(header) == encoded
        for length in range(len(encoded)):
            with pytest.raises(ProtocolError) as raised:
                parse_debug_header(encoded, 0, length)
            assert raised.value.section == "MS-MQMQ 2.2.20.8"
    # MQ-A12: nobody knows how long the others are.
    for queue_type in (2, 3):
        broken = bytes([queue_type, 0, 0, 0]) + GUID_A
        error = raw.refused(raw.message(raw.user(), raw.properties(), broken, flags=0x23))
        assert error.field == "DebugHeader.Flags.QT"
    with pytest.raises(ValueOutOfRange):
        write_debug_header(DebugHeader(bytes(4)))


@pytest.mark.spec("MQ-2.2.20.8-04", "MQ-2.2.20.8-05")
def test_unused_debug_flags_are_clear_when_written_and_ignored_when_read() -> None:
    for bit in range(2, 16):
        encoded = pack("<HH", 1 | 1 << bit, 0xFFFF) + GUID_A
        packet = raw.read_message(raw.message(raw.user(), raw.properties(), encoded, flags=0x23))
        assert packet.debug == DebugHeader(GUID_A)
        fields = raw.written(packet)["DebugHeader"]
        assert (fields["Flags"], fields["Reserved"]) == (1, 0)
    none = raw.message(raw.user(), raw.properties(), b"\xfc\xff\xff\xff", flags=0x23)
    assert raw.read_message(none).debug == DebugHeader()


def address_bytes(
    header_id: int, names: bytes, count: int, *, size: int | None = None, reserved: int = 0
) -> bytes:
    size = 12 + len(names) if size is None else size
    encoded = pack("<IHHI", size, header_id, reserved, count) + names
    return encoded + b"\xee\xee\xee"[: -len(encoded) % 4]


def signature_bytes(signature: bytes, *, signature_id: int = 0x15E, reserved: int = 0) -> bytes:
    encoded = pack("<HHI", signature_id, reserved, len(signature)) + signature
    return encoded + b"\xee\xee\xee"[: -len(encoded) % 4]


PUBLIC = pack("<HH", 1, 0) + GUID_A
PRIVATE = pack("<HH", 2, 0) + GUID_B + pack("<I", 5)
DIRECT = pack("<H", 3) + wide("OS:h\\q")
LIST = pack("<HH", 6, 0) + GUID_B


def read_lists(*parts: bytes) -> MultiQueueFormatHeader:
    packet = raw.message(raw.user(MP | MQ, b""), raw.properties(), b"".join(parts))
    lists = raw.read_message(packet).multi_queue_format
    assert lists is not None
    return lists


def refused_lists(*parts: bytes) -> ProtocolError:
    packet = raw.message(raw.user(MP | MQ, b""), raw.properties(), b"".join(parts))
    return raw.refused(packet)


EMPTY = [address_bytes(header_id, b"", 0) for header_id in (0x64, 0xC8, 0x12C)]
UNSIGNED = signature_bytes(b"")


@pytest.mark.spec("MQ-2.2.20.1-01", "MQ-2.2.20.1-03", "MQ-2.2.20.2-06")
def test_three_lists_and_a_signature_each_ending_on_a_boundary() -> None:
    uneven = pack("<H", 3) + wide("OS:hh\\q")
    parts = [
        address_bytes(0x64, PUBLIC + uneven, 2),
        address_bytes(0xC8, uneven, 1),
        address_bytes(0x12C, PRIVATE + LIST + uneven, 3),
        signature_bytes(b"signed"),
    ]
    direct = DirectQueueFormatName("OS:hh\\q")
    value = MultiQueueFormatHeader(
        (PublicQueueFormatName(GUID_A), direct),
        (direct,),
        (PrivateQueueFormatName(GUID_B, 5), DistributionQueueFormatName(GUID_B), direct),
        b"signed",
    )
    assert all(part.endswith(b"\xee\xee") for part in parts)
    assert read_lists(*parts) == value
    written = write_multi_queue_format_header(value)
    assert read_lists(written) == value
    assert len(written) == sum(len(part) for part in parts)
    assert b"\xee" not in written
    encoded = b"".join(parts)
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError) as raised:
            parse_multi_queue_format_header(encoded, 0, length)
        assert raised.value.section.startswith("MS-MQMQ 2.2.")
    # All four parts, always, and in this order.
    assert refused_lists(*EMPTY).field == "MQFSignatureHeader"
    assert refused_lists(EMPTY[1], EMPTY[0], EMPTY[2], UNSIGNED).field == (
        "MQFAddressHeader.HeaderID"
    )


@pytest.mark.spec("MQ-2.2.20.2-01", "MQ-2.2.20.2-03", "MQ-2.2.20.2-04")
def test_address_header_layout() -> None:
    plain = read_lists(*EMPTY, UNSIGNED)
    assert plain == MultiQueueFormatHeader()
    written = write_multi_queue_format_header(
        MultiQueueFormatHeader((PublicQueueFormatName(GUID_A),))
    )
    assert written[:32] == pack("<IHHI", 32, 0x64, 0, 1) + PUBLIC
    assert written[32:44] == pack("<IHHI", 12, 0xC8, 0, 0)
    assert written[44:56] == pack("<IHHI", 12, 0x12C, 0, 0)
    for position, header_id in enumerate((0x64, 0xC8, 0x12C)):
        for other in (0, 0x64, 0xC8, 0x12C, 0x15E, 0xFFFF):
            parts = [*EMPTY, UNSIGNED]
            parts[position] = address_bytes(other, b"", 0, reserved=0xFFFF)
            if other == header_id:
                assert read_lists(*parts) == plain
                continue
            error = refused_lists(*parts)
            assert error.field == "MQFAddressHeader.HeaderID"
            assert error.offset == 64 + 56 + 12 * position + 4


@pytest.mark.spec("MQ-2.2.20.2-02", "MQ-2.2.20.2-05")
def test_header_size_and_element_count_agree_with_the_list() -> None:
    one = (PublicQueueFormatName(GUID_A),)
    assert read_lists(address_bytes(0x64, PUBLIC, 1), *EMPTY[1:], UNSIGNED).destination == one
    # MQ-A14: the padding of a list may be counted or not.
    for size in (12 + len(DIRECT), 12 + (len(DIRECT) + 3) // 4 * 4):
        padded = address_bytes(0x64, DIRECT, 1, size=size)
        value = read_lists(padded, *EMPTY[1:], UNSIGNED)
        assert value.destination == (DirectQueueFormatName("OS:h\\q"),)
        assert write_multi_queue_format_header(value)[:4] == pack("<I", 28)
    for size in (0, 11, 0x1000, 0x7FFF_FFFF, 0xFFFF_FFFF):
        error = refused_lists(address_bytes(0x64, PUBLIC, 1, size=size), *EMPTY[1:], UNSIGNED)
        assert (error.field, error.offset) == ("MQFAddressHeader.HeaderSize", 120)
    for count in (0, 2, 5, 0x1000, 0xFFFF_FFFF):
        error = refused_lists(address_bytes(0x64, PUBLIC, count), *EMPTY[1:], UNSIGNED)
        assert error.section in ("MS-MQMQ 2.2.20.2", "MS-MQMQ 2.2.18.1.4")
    too_many = refused_lists(address_bytes(0x64, PUBLIC, 6), *EMPTY[1:], UNSIGNED)
    assert (too_many.field, too_many.offset) == ("MQFAddressHeader.ElementCount", 128)
    smallest = DirectQueueFormatName("")
    most = MultiQueueFormatHeader((smallest,) * 4096)
    encoded = write_multi_queue_format_header(most)
    assert (MQF_ELEMENTS_MAX, encoded[8:12]) == (4096, pack("<I", 4096))
    assert read_lists(encoded) == most
    with pytest.raises(ValueOutOfRange) as raised:
        write_multi_queue_format_header(MultiQueueFormatHeader((smallest,) * 4097))
    assert raised.value.field == "MQFAddressHeader.ElementCount"
    more = address_bytes(0x64, (pack("<H", 3) + b"\0\0") * 4097, 4097)
    assert refused_lists(more, *EMPTY[1:], UNSIGNED).field == "MQFAddressHeader.ElementCount"


@pytest.mark.spec("MQ-2.2.20.3-01", "MQ-2.2.20.3-02", "MQ-2.2.20.3-03", "MQ-2.2.20.3-04")
def test_signature_header_layout() -> None:
    for signature in (b"", b"s", b"sign", bytes(range(128))):
        part = signature_bytes(signature, reserved=0xFFFF)
        value = read_lists(*EMPTY, part)
        assert value == MultiQueueFormatHeader(signature=signature)
        written = write_multi_queue_format_header(value)[36:]
        assert written[:8] == pack("<HHI", 0x15E, 0, len(signature))
        assert written[8:] == signature + bytes(-len(signature) % 4)
    for signature_id in (0, 0x64, 0x12C, 0x15F):
        error = refused_lists(*EMPTY, signature_bytes(b"", signature_id=signature_id))
        assert (error.field, error.offset) == ("MQFSignatureHeader.ID", 120 + 36)
    for size in (5, 9, 0x7FFF_FFFF, 0xFFFF_FFFF):
        broken = pack("<HHI", 0x15E, 0, size) + b"sign"
        error = refused_lists(*EMPTY, broken)
        assert (error.field, error.offset) == ("MQFSignatureHeader.Size", 120 + 36 + 4)
    short = refused_lists(*EMPTY, pack("<HHI", 0x15E, 0, 3) + b"sign", bytes(4))
    assert short.field == "BaseHeader.PacketSize"


def test_soap_and_lists_are_read_in_either_order() -> None:
    """MQ-A37: written in document order; the other order is read too."""
    soap = soap_bytes(wide("h"), wide("b"), ids=IDS)
    lists = b"".join([address_bytes(0x64, PUBLIC, 1), *EMPTY[1:], UNSIGNED])
    header = raw.user(MP | MQ | HH, b"")
    in_order = raw.read_message(raw.message(header, raw.properties(), soap, lists))
    assert raw.read_message(raw.message(header, raw.properties(), lists, soap)) == in_order
    assert write_packet(in_order)[120:124] == b"\x20\x03\0\0"
    error = raw.refused(raw.message(header, raw.properties(), soap, soap))
    assert error.field == "MQFAddressHeader.HeaderID"
