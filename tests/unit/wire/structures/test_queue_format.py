import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.names import (
    DirectAddress,
    DirectName,
    DirectProtocol,
    FormatNameError,
    PublicName,
    SingleFormatName,
    parse_format_name,
)
from qm.wire.enums import QueueFormatType, QueueSuffixType
from qm.wire.errors import ValueOutOfRange
from qm.wire.rpc.address import MulticastId
from qm.wire.rpc.queue_format import (
    DlId,
    QueueFormat,
    name_of_queue_format,
    parse_queue_format,
    queue_format_of_name,
    write_queue_format,
)
from qm.wire.structures.identifiers import ObjectId
from tests.unit.names.strategies import single_names
from tests.unit.wire.structures.codec_check import check_codec, check_refused, value_or_error

GUID = bytes(range(16))
Q = QueueFormatType
S = QueueSuffixType


def stored_text(text: str) -> bytes:
    return (len(text) + 1).to_bytes(4, "little") + (text + "\0").encode("utf-16-le")


@given(single_names)
def test_every_format_name_has_a_structure_that_reads_back(name: SingleFormatName) -> None:
    queue_format = queue_format_of_name(name)
    assert name_of_queue_format(queue_format) == name
    raw = write_queue_format(queue_format)
    assert parse_queue_format(raw, 0, len(raw)) == (queue_format, len(raw))


@given(st.binary(max_size=80))
def test_any_bytes_end_in_a_structure_or_the_protocol_error(raw: bytes) -> None:
    for head in (b"", b"\x03\x00\x00\x00", b"\x03\x81\x00\x00", b"\x06\x00\x00\x00"):
        queue_format = value_or_error(parse_queue_format, head + raw)
        if isinstance(queue_format, QueueFormat):
            again = write_queue_format(queue_format)
            assert parse_queue_format(again, 0, len(again))[0] == queue_format


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("PUBLIC={G}", b"\x01\x00\0\0" + GUID),
        ("PUBLIC={G};JOURNAL", b"\x01\x81\0\0" + GUID),
        ("PRIVATE={G}\\F", b"\x02\x00\0\0" + GUID + b"\x0f\0\0\0"),
        ("PRIVATE={G}\\F;JOURNAL", b"\x02\x81\0\0" + GUID + b"\x0f\0\0\0"),
        ("DIRECT=OS:a\\q", b"\x03\x00\0\0" + stored_text("OS:a\\q")),
        ("DIRECT=OS:a\\q;JOURNAL", b"\x03\x81\0\0" + stored_text("OS:a\\q")),
        ("DIRECT=OS:a\\SYSTEM$;JOURNAL", b"\x03\x81\0\0" + stored_text("OS:a\\SYSTEM$")),
        ("DIRECT=OS:a\\SYSTEM$;DEADLETTER", b"\x03\x82\0\0" + stored_text("OS:a\\SYSTEM$")),
        ("DIRECT=OS:a\\SYSTEM$;DEADXACT", b"\x03\x83\0\0" + stored_text("OS:a\\SYSTEM$")),
        ("MACHINE={G};JOURNAL", b"\x04\x81\0\0" + GUID),
        ("MACHINE={G};DEADLETTER", b"\x04\x82\0\0" + GUID),
        ("MACHINE={G};DEADXACT", b"\x04\x83\0\0" + GUID),
        ("CONNECTOR={G}", b"\x05\x00\0\0" + GUID),
        ("CONNECTOR={G};XACTONLY", b"\x05\x04\0\0" + GUID),
        ("DL={G}", b"\x06\x00\0\0" + GUID + stored_text("")),
        ("DL={G}@corp.example", b"\x06\x00\0\0" + GUID + stored_text("corp.example")),
        ("MULTICAST=234.1.1.1:8001", b"\x07\x00\0\0\xea\x01\x01\x01\x41\x1f\0\0"),
        ("DIRECT=OS:a\\q;sub", b"\x08\x05\0\0" + stored_text("OS:a\\q;sub")),
    ],
)
def test_text_and_structure(text: str, raw: bytes) -> None:
    name = parse_format_name(text.replace("{G}", "03020100-0504-0706-0809-0A0B0C0D0E0F"))
    assert name_of_queue_format(parse_queue_format(raw, 0, len(raw))[0]) == name
    queue_format = value_or_error(parse_queue_format, raw)
    assert isinstance(queue_format, QueueFormat)
    check_codec(parse_queue_format, write_queue_format, queue_format, raw)


def test_unknown_is_empty_and_names_no_queue() -> None:
    empty = QueueFormat(Q.UNKNOWN)
    check_codec(parse_queue_format, write_queue_format, empty, bytes(4))
    assert name_of_queue_format(empty) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x03\x81\0\0" + stored_text("OS:a\\q;JOURNAL"), "DIRECT=OS:a\\q;JOURNAL"),
        (b"\x03\x81\0\0" + stored_text("OS:a\\q;journal"), "DIRECT=OS:a\\q;JOURNAL"),
        (b"\x03\x83\0\0" + stored_text("OS:a\\SYSTEM$;DEADXACT"), "DIRECT=OS:a\\SYSTEM$;DEADXACT"),
        (b"\x03\x00\0\0" + stored_text("DIRECT=OS:a\\q"), "DIRECT=OS:a\\q"),
        (b"\x05\x84\0\0" + GUID, "CONNECTOR=03020100-0504-0706-0809-0A0B0C0D0E0F;XACTONLY"),
        (b"\x08\x00\0\0" + stored_text("OS:a\\q;sub"), "DIRECT=OS:a\\q;sub"),
        (b"\x03\x00\xff\xff" + stored_text("OS:a\\q"), "DIRECT=OS:a\\q"),
    ],
)
def test_other_spellings_are_read_too(raw: bytes, text: str) -> None:
    queue_format = value_or_error(parse_queue_format, raw)
    assert isinstance(queue_format, QueueFormat)
    assert name_of_queue_format(queue_format) == parse_format_name(text)
    again = write_queue_format(queue_format)
    assert parse_queue_format(again, 0, len(again))[0] == queue_format


RAW_BODIES = {
    Q.UNKNOWN: b"",
    Q.PRIVATE: GUID + bytes(4),
    Q.DIRECT: stored_text("OS:a\\q"),
    Q.DL: GUID + stored_text("d"),
    Q.MULTICAST: b"\xea\x01\x01\x01\x50\0\0\0",
    Q.SUBQUEUE: stored_text("OS:a\\q;s"),
}
SYSTEM_TEXT = stored_text("OS:a\\SYSTEM$")
LEGAL = (
    {(kind, 0x00) for kind in Q if kind is not Q.MACHINE}
    | {(kind, 0x81) for kind in (Q.PUBLIC, Q.PRIVATE, Q.DIRECT, Q.MACHINE)}
    | {(kind, suffix) for kind in (Q.DIRECT, Q.MACHINE) for suffix in (0x82, 0x83)}
    | {(Q.CONNECTOR, 0x04), (Q.CONNECTOR, 0x84), (Q.SUBQUEUE, 0x05)}
)


@pytest.mark.parametrize("kind", list(Q))
def test_suffix_flags_and_type_must_agree(kind: QueueFormatType) -> None:
    for suffix_and_flags in range(0x100):
        body = RAW_BODIES.get(kind, GUID)
        if kind is Q.DIRECT and suffix_and_flags in (0x82, 0x83):
            body = SYSTEM_TEXT
        raw = bytes((kind, suffix_and_flags, 0, 0)) + body
        if (kind, suffix_and_flags) in LEGAL:
            assert isinstance(value_or_error(parse_queue_format, raw), QueueFormat)
        else:
            assert check_refused(parse_queue_format, raw).field == "QUEUE_FORMAT.m_SuffixAndFlags"


@pytest.mark.parametrize("number", [9, 10, 0x7F, 0xFF])
def test_an_unknown_type_number_is_refused(number: int) -> None:
    assert check_refused(parse_queue_format, bytes((number, 0, 0, 0)) + GUID).section.endswith(
        "2.2.6"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"\x03\x00\0\0" + stored_text("q"),
        b"\x03\x00\0\0" + stored_text("OS:a\\q;JOURNAL"),
        b"\x03\x00\0\0" + stored_text("OS:a\\q;sub"),
        b"\x03\x82\0\0" + stored_text("OS:a\\q"),
        b"\x03\x81\0\0" + stored_text("OS:a\\q;sub"),
        b"\x03\x00\0\0" + stored_text("OS:a\\q" + "q" * 600),
        b"\x03\x00\0\0" + b"\0\0\0\0",
        b"\x03\x00\0\0" + b"\xff\xff\xff\xff" + bytes(8),
        b"\x08\x05\0\0" + stored_text("OS:a\\q"),
        b"\x08\x00\0\0" + stored_text("OS:a\\q"),
        b"\x08\x05\0\0" + stored_text("OS:a\\q;JOURNAL"),
        b"\x06\x00\0\0" + GUID + stored_text("a,b"),
        b"\x06\x00\0\0" + GUID + stored_text("d" * 256),
        b"\x07\x00\0\0" + b"\x0a\0\0\x05\x50\0\0\0",
        b"\x07\x00\0\0" + b"\xea\x01\x01\x01\0\0\1\0",
    ],
)
def test_an_identifier_that_is_no_format_name_is_refused(raw: bytes) -> None:
    check_refused(parse_queue_format, raw)


@pytest.mark.parametrize(
    "queue_format",
    [
        QueueFormat(Q.PUBLIC, S.DEADLETTER, GUID),
        QueueFormat(Q.MACHINE, S.NONE, GUID),
        QueueFormat(Q.UNKNOWN, S.NONE, GUID),
        QueueFormat(Q.PUBLIC, S.NONE, "OS:a\\q"),
        QueueFormat(Q.PUBLIC, S.NONE, GUID[:15]),
        QueueFormat(Q.PRIVATE, S.NONE, ObjectId(GUID, -1)),
        QueueFormat(Q.DIRECT, S.NONE, "q"),
        QueueFormat(Q.SUBQUEUE, S.SUBQUEUE, "OS:a\\q"),
        QueueFormat(Q.DL, S.NONE, DlId(GUID, "a b")),
        QueueFormat(Q.MULTICAST, S.NONE, MulticastId(b"\x0a\0\0\x05", 80)),
        QueueFormat(Q.MULTICAST, S.NONE, MulticastId(b"\xea\x01\x01\x01", 65536)),
    ],
)
def test_a_value_without_an_encoding_is_refused(queue_format: QueueFormat) -> None:
    with pytest.raises(ValueOutOfRange):
        write_queue_format(queue_format)
    with pytest.raises(FormatNameError):
        name_of_queue_format(queue_format)


def test_a_name_without_a_text_has_no_structure() -> None:
    with pytest.raises(FormatNameError):
        queue_format_of_name(PublicName(b"short"))
    with pytest.raises(FormatNameError):
        queue_format_of_name(DirectName(DirectAddress(DirectProtocol.TCP, "host"), "q"))
