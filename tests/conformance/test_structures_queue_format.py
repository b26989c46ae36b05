"""QUEUE_FORMAT with its types, suffixes and arms (MS-MQMQ 2.2.6, 2.2.7, 2.2.9, 2.2.11)."""

from typing import Any

import msgspec
import pytest

from qm.names import (
    ConnectorName,
    DirectName,
    DirectSystemName,
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    PublicName,
    SystemQueue,
    parse_format_name,
)
from qm.rpc.ndr.streams import BadStub
from qm.rpc.ndr.types import Arm, Parameters
from qm.rpc.queue_formats import (
    QUEUE_FORMAT,
    ListId,
    MulticastAddress,
    NotAName,
    PrivateId,
    WireFormat,
    format_of,
    name_of,
)
from qm.wire.enums import QueueFormatFlags, QueueFormatType, QueueSuffixType
from qm.wire.errors import ProtocolError, ValueOutOfRange
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

Q, S = QueueFormatType, QueueSuffixType
GUID = bytes(range(0xA0, 0xB0))
TEXT = "A3A2A1A0-A5A4-A7A6-A8A9-AAABACADAEAF"


def stored_text(text: str) -> bytes:
    """A counted string of the storage form (qm.wire.rpc.counted)."""
    return (len(text) + 1).to_bytes(4, "little") + (text + "\0").encode("utf-16-le")


DIRECT = stored_text("OS:host\\q")
SYSTEM = stored_text("OS:host\\SYSTEM$")
SUBQUEUE = stored_text("OS:host\\q;sub")
ARM = {
    Q.UNKNOWN: b"",
    Q.PUBLIC: GUID,
    Q.PRIVATE: GUID + b"\x0f\0\0\0",
    Q.DIRECT: DIRECT,
    Q.MACHINE: GUID,
    Q.CONNECTOR: GUID,
    Q.DL: GUID + stored_text("corp.example"),
    Q.MULTICAST: b"\xea\x01\x02\x03\x41\x1f\0\0",
    Q.SUBQUEUE: SUBQUEUE,
}


def parse(raw: bytes) -> QueueFormat:
    value, after = parse_queue_format(b"\xee" + raw + b"\xee", 1, 1 + len(raw))
    assert after == 1 + len(raw)
    return value


def faulty_field(raw: bytes) -> str | None:
    """The field that a structure is refused for; None when it is read."""
    try:
        parse(raw)
    except ProtocolError as error:
        return error.field
    return None


class Held(msgspec.Struct):
    format: WireFormat


PARAMETER = Parameters(Held, {"format": QUEUE_FORMAT})
VALUE: dict[QueueFormatType, Any] = {
    Q.UNKNOWN: None,
    Q.PUBLIC: GUID,
    Q.PRIVATE: PrivateId(GUID, 0xF),
    Q.DIRECT: "OS:host\\q",
    Q.MACHINE: GUID,
    Q.CONNECTOR: GUID,
    Q.DL: ListId(GUID, "corp.example"),
    Q.MULTICAST: MulticastAddress(0x0302_01EA, 8001),
    Q.SUBQUEUE: "OS:host\\q;sub",
}
"""Arms as calls carry them."""
IN_CALL = {
    **ARM,
    Q.DIRECT: b"",
    Q.SUBQUEUE: b"",
    Q.DL: GUID,
}
"""What the bytes of an arm begin with in a call; texts stand behind all that points to them."""


def is_carried(text: str, head: bytes) -> None:
    """Check that a call's parameter for this name begins as the storage form does."""
    name = parse_format_name(text)
    assert not isinstance(name, MultipleElementName)
    stub = PARAMETER.marshal(Held(format_of(name)))
    assert stub[:4] == head[:4]
    assert stub[4] == head[0], "the type once more"
    found, end = PARAMETER.unmarshal(stub[:2] + b"\xff\xff" + stub[4:])
    assert (name_of(found.format), end) == (name, len(stub))
    assert is_refused_as_parameter(stub[:1] + bytes([stub[1] ^ 0x40]) + stub[2:])
    for number in (0, 9, 0xFF):
        assert is_refused_as_parameter(bytes([number]) + stub[1:4] + bytes([number]) + stub[5:])


def is_refused_as_parameter(stub: bytes) -> bool:
    """Whether no name is read from a call's parameter."""
    try:
        name_of(PARAMETER.unmarshal(stub)[0].format)
    except (BadStub, NotAName):
        return True
    return False


def accepted_as_parameter(suffix_and_flags: int, **other: str) -> set[int]:
    """The types of which a call's parameter with this m_SuffixAndFlags is a name."""
    found = set()
    for kind, value in (VALUE | {Q[name]: text for name, text in other.items()}).items():
        stub = PARAMETER.marshal(Held(WireFormat(kind, suffix_and_flags, 0, Arm(kind, value))))
        if not is_refused_as_parameter(stub):
            found.add(int(kind))
    return found


def accepted(suffix_and_flags: int, arm: dict[QueueFormatType, bytes] | None = None) -> set[int]:
    """The types that are read with this m_SuffixAndFlags."""
    found = set()
    for kind, body in {**ARM, **(arm or {})}.items():
        field = faulty_field(bytes((kind, suffix_and_flags, 0, 0)) + body)
        assert field in (None, "QUEUE_FORMAT.m_SuffixAndFlags")
        if field is None:
            found.add(kind.value)
    return found


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """Every kind of name as a structure, and back: the rows share these tables."""
    for text, raw in {
        f"PUBLIC={TEXT}": b"\x01\x00\0\0" + GUID,
        f"PUBLIC={TEXT};JOURNAL": b"\x01\x81\0\0" + GUID,
        f"PRIVATE={TEXT}\\0000000F": b"\x02\x00\0\0" + ARM[Q.PRIVATE],
        f"PRIVATE={TEXT}\\0000000F;JOURNAL": b"\x02\x81\0\0" + ARM[Q.PRIVATE],
        "DIRECT=OS:host\\q": b"\x03\x00\0\0" + DIRECT,
        "DIRECT=OS:host\\q;JOURNAL": b"\x03\x81\0\0" + DIRECT,
        "DIRECT=OS:host\\SYSTEM$;DEADLETTER": b"\x03\x82\0\0" + SYSTEM,
        f"MACHINE={TEXT};DEADXACT": b"\x04\x83\0\0" + GUID,
        f"CONNECTOR={TEXT}": b"\x05\x00\0\0" + GUID,
        f"CONNECTOR={TEXT};XACTONLY": b"\x05\x04\0\0" + GUID,
        f"DL={TEXT}": b"\x06\x00\0\0" + GUID + stored_text(""),
        "MULTICAST=234.1.2.3:8001": b"\x07\x00\0\0" + ARM[Q.MULTICAST],
        "DIRECT=OS:host\\q;sub": b"\x08\x05\0\0" + SUBQUEUE,
    }.items():
        name = parse_format_name(text)
        assert not isinstance(name, MultipleElementName)
        assert write_queue_format(queue_format_of_name(name)) == raw
        assert name_of_queue_format(parse(raw)) == name
        is_carried(text, raw)
    assert DlId(GUID) == DlId(GUID, "")
    assert QueueFormat(Q.UNKNOWN) == QueueFormat(Q.UNKNOWN, S.NONE, None)
    with pytest.raises(ValueOutOfRange, match="QUEUE_FORMAT"):
        write_queue_format(QueueFormat(Q.MACHINE, S.NONE, GUID))
    # A subqueue's type says enough; the type of a queue does not.
    assert faulty_field(b"\x08\0\0\0" + SUBQUEUE) is None
    assert faulty_field(b"\x03\0\0\0" + SUBQUEUE) == "QUEUE_FORMAT"
    for text in ("O\u017f:host\\q", "OS:host\\" + "q" * 125):
        assert faulty_field(b"\x03\0\0\0" + stored_text(text)) == "QUEUE_FORMAT"
    for text in ("OS:" + "h" * 510, "d" * 256):
        assert faulty_field(b"\x03\0\0\0" + stored_text(text)) == (
            "QUEUE_FORMAT.m_pDirectID" if len(text) > 512 else "QUEUE_FORMAT"
        )


@pytest.mark.spec("MQ-2.2.6-01", "MQ-2.2.7-02")
def test_m_qft_is_one_of_nine_types() -> None:
    assert {member.name: member.value for member in QueueFormatType} == {
        "UNKNOWN": 0,
        "PUBLIC": 1,
        "PRIVATE": 2,
        "DIRECT": 3,
        "MACHINE": 4,
        "CONNECTOR": 5,
        "DL": 6,
        "MULTICAST": 7,
        "SUBQUEUE": 8,
    }
    for kind in Q:
        suffix = {Q.MACHINE: 0x81, Q.SUBQUEUE: 0x05}.get(kind, 0)
        value = parse(bytes((kind, suffix, 0, 0)) + ARM[kind])
        assert value.format_type is kind
        assert write_queue_format(value)[0] == kind
    for number in range(9, 0x100):
        assert faulty_field(bytes((number, 0, 0, 0)) + GUID) == "QUEUE_FORMAT.m_qft"
    # In a call the union repeats it, and has to.
    stub = PARAMETER.marshal(Held(WireFormat(Q.PUBLIC, 0, 0, Arm(Q.PUBLIC, GUID))))
    assert not is_refused_as_parameter(stub)
    assert is_refused_as_parameter(stub[:4] + bytes([Q.CONNECTOR]) + stub[5:])
    assert is_refused_as_parameter(bytes([Q.CONNECTOR]) + stub[1:])


@pytest.mark.spec("MQ-2.2.7-01", "MQ-2.2.7-12")
def test_the_head_and_the_arms() -> None:
    identifiers = {
        Q.UNKNOWN: None,
        Q.PUBLIC: GUID,
        Q.PRIVATE: ObjectId(GUID, 0xF),
        Q.DIRECT: "OS:host\\q",
        Q.MACHINE: GUID,
        Q.CONNECTOR: GUID,
        Q.DL: DlId(GUID, "corp.example"),
        Q.MULTICAST: MulticastId(b"\xea\x01\x02\x03", 8001),
        Q.SUBQUEUE: "OS:host\\q;sub",
    }
    suffixes = {Q.MACHINE: S.DEADLETTER, Q.SUBQUEUE: S.SUBQUEUE}
    octets = {Q.MACHINE: 0x82, Q.SUBQUEUE: 0x05}
    for kind, identifier in identifiers.items():
        value = QueueFormat(kind, suffixes.get(kind, S.NONE), identifier)
        raw = bytes((kind, octets.get(kind, 0), 0, 0)) + ARM[kind]
        assert write_queue_format(value) == raw
        assert parse(raw) == value
        for size in range(len(raw)):
            assert faulty_field(raw[:size]) is not None
        # A call has the arm behind the repeated type, a text by a pointer.
        stub = PARAMETER.marshal(Held(WireFormat(kind, raw[1], 0, Arm(kind, VALUE[kind]))))
        assert stub[:8] == raw[:4] + bytes((kind, 0, 0, 0)) or kind is Q.UNKNOWN
        assert stub[5:].lstrip(b"\0").startswith(IN_CALL[kind])
        found, _ = PARAMETER.unmarshal(stub)
        assert found.format.identifier.value == VALUE[kind]
        if kind is not Q.UNKNOWN:
            assert name_of(found.format) == name_of_queue_format(value)
            assert format_of(name_of(found.format)) == found.format


@pytest.mark.spec("MQ-2.2.7-03")
def test_the_suffix_is_the_low_half_and_the_flags_are_the_high_half() -> None:
    assert {member.name: member.value for member in QueueFormatFlags} == {
        "NOT_SYSTEM": 0x00,
        "SYSTEM": 0x80,
    }
    for octet, kind, body, suffix in (
        (0x00, Q.DIRECT, DIRECT, S.NONE),
        (0x81, Q.DIRECT, DIRECT, S.JOURNAL),
        (0x82, Q.DIRECT, SYSTEM, S.DEADLETTER),
        (0x83, Q.DIRECT, SYSTEM, S.DEADXACT),
        (0x04, Q.CONNECTOR, GUID, S.XACTONLY),
        (0x05, Q.SUBQUEUE, SUBQUEUE, S.SUBQUEUE),
    ):
        raw = bytes((kind, octet, 0, 0)) + body
        assert parse(raw).suffix is suffix
        assert write_queue_format(parse(raw)) == raw
        for flags in (0x10, 0x20, 0x40, 0x90, 0xF0):
            wrong = bytes((kind, octet & 0x0F | flags, 0, 0)) + body
            assert faulty_field(wrong) == "QUEUE_FORMAT.m_SuffixAndFlags"


@pytest.mark.spec("MQ-2.2.7-04", "MQ-2.2.7-05", "MQ-2.2.7-06", "MQ-2.2.7-07")
def test_the_types_that_each_suffix_allows() -> None:
    assert accepted(0x00) == {0, 1, 2, 3, 5, 6, 7, 8}
    # A call has to name a queue; the type of a subqueue has its own suffix there.
    assert accepted_as_parameter(0x00) == {1, 2, 3, 5, 6, 7, 8}
    assert accepted_as_parameter(0x81) == {1, 2, 3, 4}
    assert accepted_as_parameter(0x80) == accepted_as_parameter(0x01) == set()
    for suffix in (0x82, 0x83):
        assert accepted_as_parameter(suffix, DIRECT="OS:host\\SYSTEM$") == {3, 4}
        assert accepted_as_parameter(suffix & 0x0F, DIRECT="OS:host\\SYSTEM$") == set()
    assert accepted(0x80) == set()
    # Narrower than the section, as the guide's profile is: 0 and 8 have no journal.
    assert accepted(0x81) == {1, 2, 3, 4}
    assert accepted(0x01) == set()
    for suffix in (0x82, 0x83):
        assert accepted(suffix, {Q.DIRECT: SYSTEM}) == {3, 4}
        assert accepted(suffix & 0x0F, {Q.DIRECT: SYSTEM}) == set()


@pytest.mark.spec("MQ-2.2.7-08", "MQ-2.2.7-09")
def test_the_suffixes_of_one_type() -> None:
    assert accepted_as_parameter(0x04) == {5}
    assert accepted_as_parameter(0x05) == {8}
    assert accepted_as_parameter(0x85) == set()
    for suffix in range(6, 0x10):
        assert accepted_as_parameter(suffix) == accepted_as_parameter(suffix | 0x80) == set()
    assert accepted(0x04) == {5}
    assert accepted(0x84) == {5}
    assert accepted(0x05) == {8}
    assert accepted(0x85) == set()
    for suffix in range(6, 0x10):
        assert accepted(suffix) == accepted(suffix | 0x80) == set()
    assert write_queue_format(QueueFormat(Q.CONNECTOR, S.XACTONLY, GUID))[1] == 0x04


@pytest.mark.spec("MQ-2.2.7-10", "MQ-2.2.7-11")
def test_m_reserved_is_sent_zero_and_ignored() -> None:
    value = QueueFormat(Q.PUBLIC, S.NONE, GUID)
    assert write_queue_format(value) == b"\x01\x00\x00\x00" + GUID
    assert parse(b"\x01\x00\xff\xff" + GUID) == value


@pytest.mark.spec("MQ-2.2.7-13")
def test_the_direct_string_has_no_prefix() -> None:
    name = parse_format_name("DIRECT=OS:host\\q")
    assert isinstance(name, DirectName)
    assert queue_format_of_name(name) == QueueFormat(Q.DIRECT, S.NONE, "OS:host\\q")
    assert name_of_queue_format(parse(b"\x03\0\0\0" + DIRECT)) == name
    with_prefix = parse(b"\x03\0\0\0" + stored_text("DIRECT=OS:host\\q"))
    assert name_of_queue_format(with_prefix) == name
    for text in ("", "q", "PUBLIC=" + TEXT, "UDP:host\\q"):
        assert faulty_field(b"\x03\0\0\0" + stored_text(text)) == "QUEUE_FORMAT"


@pytest.mark.spec("MQ-2.2.7-14")
def test_the_subqueue_string_holds_a_subqueue() -> None:
    name = parse_format_name("DIRECT=OS:host\\PRIVATE$\\q;sub")
    assert isinstance(name, DirectName)
    value = queue_format_of_name(name)
    assert value == QueueFormat(Q.SUBQUEUE, S.SUBQUEUE, "OS:host\\PRIVATE$\\q;sub")
    assert name_of_queue_format(parse(write_queue_format(value))) == name
    for text in ("OS:host\\q", "OS:host\\q;", "OS:host\\q;JOURNAL", f"OS:host\\q;{'s' * 33}"):
        for suffix in (b"\x05", b"\x00"):
            assert faulty_field(b"\x08" + suffix + b"\0\0" + stored_text(text)) == "QUEUE_FORMAT"


@pytest.mark.spec("MQ-2.2.9-01", "MQ-2.2.9-02")
def test_a_distribution_list_is_a_guid_and_a_terminated_domain() -> None:
    for domain in ("", "corp.example", "d" * 255):
        raw = b"\x06\0\0\0" + GUID + stored_text(domain)
        assert parse(raw) == QueueFormat(Q.DL, S.NONE, DlId(GUID, domain))
        assert write_queue_format(parse(raw)) == raw
        assert name_of_queue_format(parse(raw)) == DistributionListName(GUID, domain)
    unterminated = b"\x02\0\0\0" + "ab".encode("utf-16-le")
    assert faulty_field(b"\x06\0\0\0" + GUID + unterminated) == "DL_ID.m_pwzDomain"
    assert faulty_field(b"\x06\0\0\0" + GUID + bytes(4)) == "DL_ID.m_pwzDomain"
    assert faulty_field(b"\x06\0\0\0" + GUID[:15]) == "DL_ID.m_DlGuid"


@pytest.mark.parametrize(
    ("octet", "kind", "name"),
    [
        (0x00, Q.PUBLIC, PublicName(GUID)),
        (0x81, Q.PUBLIC, PublicName(GUID, journal=True)),
        (0x81, Q.PRIVATE, PrivateName(GUID, 0xF, journal=True)),
        (0x81, Q.DIRECT, parse_format_name("DIRECT=OS:host\\q;JOURNAL")),
        (0x81, Q.MACHINE, MachineName(GUID, SystemQueue.JOURNAL)),
        (0x82, Q.MACHINE, MachineName(GUID, SystemQueue.DEADLETTER)),
        (0x83, Q.MACHINE, MachineName(GUID, SystemQueue.DEADXACT)),
        (0x04, Q.CONNECTOR, ConnectorName(GUID, transactional=True)),
        (0x00, Q.CONNECTOR, ConnectorName(GUID)),
        (0x00, Q.MULTICAST, MulticastName("234.1.2.3", 8001)),
        (0x05, Q.SUBQUEUE, parse_format_name("DIRECT=OS:host\\q;sub")),
    ],
)
@pytest.mark.spec("MQ-2.2.11-01", "MQ-2.2.11-02")
def test_what_each_suffix_means(octet: int, kind: QueueFormatType, name: FormatName) -> None:
    assert [member.value for member in S] == [0, 1, 2, 3, 4, 5]
    names = ["NONE", "JOURNAL", "DEADLETTER", "DEADXACT", "XACTONLY", "SUBQUEUE"]
    assert [member.name for member in S] == names
    raw = bytes((kind, octet, 0, 0)) + ARM[kind]
    value = parse(raw)
    assert value.suffix == octet & 0x0F
    assert name_of_queue_format(value) == name
    assert write_queue_format(value) == raw


@pytest.mark.parametrize("which", list(SystemQueue))
@pytest.mark.spec("MQ-2.2.11-02")
def test_a_computers_queue_by_address(which: SystemQueue) -> None:
    name = parse_format_name(f"DIRECT=OS:host\\SYSTEM$;{which.value}")
    assert isinstance(name, DirectSystemName)
    octet = {"JOURNAL": 0x81, "DEADLETTER": 0x82, "DEADXACT": 0x83}[which.value]
    raw = bytes((Q.DIRECT, octet, 0, 0)) + SYSTEM
    assert write_queue_format(queue_format_of_name(name)) == raw
    assert name_of_queue_format(parse(raw)) == name
