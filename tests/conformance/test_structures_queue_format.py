"""QUEUE_FORMAT with its types, suffixes and arms (MS-MQMQ 2.2.6 to 2.2.11) in calls."""

from struct import pack, unpack_from
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
    SingleFormatName,
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

Q = QueueFormatType
S = QueueSuffixType
GUID = bytes(range(0xA0, 0xB0))
TEXT = "A3A2A1A0-A5A4-A7A6-A8A9-AAABACADAEAF"
QUEUE, SUBQUEUE, SYSTEM = "OS:host\\q", "OS:host\\q;sub", "OS:host\\SYSTEM$"


class Held(msgspec.Struct):
    format: WireFormat


PARAMETER = Parameters(Held, {"format": QUEUE_FORMAT})


def text(value: str) -> bytes:
    """What a pointer to a string points to: its size twice, with an offset, and its characters."""
    return pack("<III", len(value) + 1, 0, len(value) + 1) + (value + "\0").encode("utf-16-le")


ARM: dict[QueueFormatType, tuple[bytes, str | None]] = {
    Q.UNKNOWN: (b"", None),
    Q.PUBLIC: (GUID, None),
    Q.PRIVATE: (GUID + b"\x0f\0\0\x80", None),
    Q.DIRECT: (b"", QUEUE),
    Q.MACHINE: (GUID, None),
    Q.CONNECTOR: (GUID, None),
    Q.DL: (GUID, "corp.example"),
    Q.MULTICAST: (b"\xea\x01\x02\x03\x41\x1f\0\0", None),
    Q.SUBQUEUE: (b"", SUBQUEUE),
}
"""Of each type: its members, and the text that its pointer names."""
VALUE: dict[QueueFormatType, Any] = {
    Q.UNKNOWN: None,
    Q.PUBLIC: GUID,
    Q.PRIVATE: PrivateId(GUID, 0x8000_000F),
    Q.DIRECT: QUEUE,
    Q.MACHINE: GUID,
    Q.CONNECTOR: GUID,
    Q.DL: ListId(GUID, "corp.example"),
    Q.MULTICAST: MulticastAddress(0x0302_01EA, 8001),
    Q.SUBQUEUE: SUBQUEUE,
}
"""The same as values."""


def stub_of(kind: int, octet: int, members: bytes, pointed_to: str | None = None) -> bytes:
    """A parameter: m_qft, m_SuffixAndFlags, m_reserved, m_qft again, the arm, and its text."""
    raw = bytes((kind, octet, 0, 0, kind, 0, 0, 0)) + members
    return raw if pointed_to is None else raw + pack("<I", 1) + text(pointed_to)


def of_type(kind: QueueFormatType, octet: int, pointed_to: str | None = None) -> bytes:
    members, its_text = ARM[kind]
    return stub_of(kind, octet, members, pointed_to if pointed_to is not None else its_text)


def read(stub: bytes) -> SingleFormatName:
    found, end = PARAMETER.unmarshal(stub)
    assert end == len(stub)
    return name_of(found.format)


def is_refused(stub: bytes) -> bool:
    """Whether no name is read from a parameter."""
    try:
        name_of(PARAMETER.unmarshal(stub)[0].format)
    except (BadStub, NotAName):
        return True
    return False


def single(name: str) -> SingleFormatName:
    found = parse_format_name(name)
    assert not isinstance(found, MultipleElementName)
    return found


def is_alike(stub: bytes, other: bytes) -> bool:
    """Whether two parameters are the same but for what their pointer is called."""
    at = {Q.DIRECT: 8, Q.SUBQUEUE: 8, Q.DL: 24}.get(QueueFormatType(stub[0]))
    if at is not None and bytes(4) not in (stub[at : at + 4], other[at : at + 4]):
        stub, other = (raw[:at] + raw[at + 4 :] for raw in (stub, other))
    return stub == other


def check(name: SingleFormatName, stub: bytes) -> None:
    """Check that a name is written as these bytes, and read from them and from nothing less."""
    assert is_alike(PARAMETER.marshal(Held(format_of(name))), stub)
    assert read(stub) == name
    for size in range(len(stub)):
        assert is_refused(stub[:size])
    # m_reserved and the union's padding are not looked at.
    assert read(stub[:2] + b"\xff\xff" + stub[4:5] + b"\xff\xff\xff" + stub[8:]) == name
    # The type is one of nine, and stands there twice.
    for number in (9, 0xFF, stub[0] ^ 1):
        assert is_refused(stub[:4] + bytes([number]) + stub[5:])
        assert is_refused(bytes([number]) + stub[1:])
    for number in (0, 9, 0xFF):
        assert is_refused(bytes([number]) + stub[1:4] + bytes([number]) + stub[5:])


def accepted(octet: int, direct: str = QUEUE) -> set[int]:
    """The types of which a parameter with this m_SuffixAndFlags is a name."""
    texts = {Q.DIRECT: direct}
    return {int(kind) for kind in Q if not is_refused(of_type(kind, octet, texts.get(kind)))}


NAMES = {
    f"PUBLIC={TEXT}": of_type(Q.PUBLIC, 0x00),
    f"PUBLIC={TEXT};JOURNAL": of_type(Q.PUBLIC, 0x81),
    f"PRIVATE={TEXT}\\8000000F": of_type(Q.PRIVATE, 0x00),
    f"PRIVATE={TEXT}\\8000000F;JOURNAL": of_type(Q.PRIVATE, 0x81),
    "DIRECT=OS:host\\q": of_type(Q.DIRECT, 0x00),
    "DIRECT=OS:host\\q;JOURNAL": of_type(Q.DIRECT, 0x81),
    "DIRECT=OS:host\\SYSTEM$;JOURNAL": of_type(Q.DIRECT, 0x81, SYSTEM),
    "DIRECT=OS:host\\SYSTEM$;DEADLETTER": of_type(Q.DIRECT, 0x82, SYSTEM),
    "DIRECT=OS:host\\SYSTEM$;DEADXACT": of_type(Q.DIRECT, 0x83, SYSTEM),
    f"MACHINE={TEXT};JOURNAL": of_type(Q.MACHINE, 0x81),
    f"MACHINE={TEXT};DEADLETTER": of_type(Q.MACHINE, 0x82),
    f"MACHINE={TEXT};DEADXACT": of_type(Q.MACHINE, 0x83),
    f"CONNECTOR={TEXT}": of_type(Q.CONNECTOR, 0x00),
    f"CONNECTOR={TEXT};XACTONLY": of_type(Q.CONNECTOR, 0x04),
    f"DL={TEXT}": stub_of(Q.DL, 0x00, GUID + bytes(4)),
    f"DL={TEXT}@corp.example": of_type(Q.DL, 0x00),
    "MULTICAST=234.1.2.3:8001": of_type(Q.MULTICAST, 0x00),
    "DIRECT=OS:host\\q;sub": of_type(Q.SUBQUEUE, 0x05),
}


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """Every kind of name as a structure, and back: the rows share these tables."""
    for name, stub in NAMES.items():
        check(single(name), stub)
    # A subqueue's type says enough; the type of a queue does not.
    assert read(of_type(Q.SUBQUEUE, 0x00)) == single("DIRECT=OS:host\\q;sub")
    assert is_refused(of_type(Q.DIRECT, 0x00, SUBQUEUE))
    # A text that is no direct name, or too long for one.
    for wrong in ("O\u017f:host\\q", "OS:host\\" + "q" * 125, "OS:" + "h" * 510, "d" * 256):
        assert is_refused(of_type(Q.DIRECT, 0x00, wrong))


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
        stub = of_type(kind, {Q.MACHINE: 0x81, Q.SUBQUEUE: 0x05}.get(kind, 0))
        if kind is not Q.UNKNOWN:
            assert PARAMETER.marshal(Held(format_of(read(stub))))[0] == kind
        # The type says which arm follows, and the union repeats it.
        for other in Q:
            if other is not kind:
                assert is_refused(stub[:4] + bytes([other]) + stub[5:])
                assert is_refused(bytes([other]) + stub[1:])
    for number in range(9, 0x100):
        assert is_refused(stub_of(number, 0, GUID))
    # An unknown queue is read as one, and is no name.
    assert PARAMETER.unmarshal(of_type(Q.UNKNOWN, 0))[0].format.identifier == Arm(0, None)
    assert is_refused(of_type(Q.UNKNOWN, 0))


@pytest.mark.spec("MQ-2.2.7-01", "MQ-2.2.7-12", "MQ-2.2.8-01", "MQ-2.2.10-01")
def test_the_head_and_the_arms() -> None:
    suffixes = {Q.MACHINE: 0x82, Q.SUBQUEUE: 0x05}
    for kind in Q:
        raw = of_type(kind, suffixes.get(kind, 0))
        value = WireFormat(kind, suffixes.get(kind, 0), 0, Arm(kind, VALUE[kind]))
        stub = PARAMETER.marshal(Held(value))
        assert is_alike(stub, raw if kind is not Q.UNKNOWN else raw[:5])
        found, end = PARAMETER.unmarshal(stub)
        assert (found.format, end) == (value, len(stub))
        for size in range(len(stub)):
            with pytest.raises(BadStub):
                PARAMETER.unmarshal(stub[:size])
    # From a caller that sends the highest byte first.
    private = bytes((2, 0, 0, 0, 2, 0, 0, 0)) + bytes.fromhex(TEXT.replace("-", ""))
    found, _ = PARAMETER.unmarshal(private + b"\x80\0\0\x0f", ">")
    assert found.format.identifier.value == VALUE[Q.PRIVATE]


@pytest.mark.spec("MQ-2.2.7-03")
def test_the_suffix_is_the_low_half_and_the_flags_are_the_high_half() -> None:
    assert {member.name: member.value for member in QueueFormatFlags} == {
        "NOT_SYSTEM": 0x00,
        "SYSTEM": 0x80,
    }
    for octet, kind, direct, suffix in (
        (0x00, Q.DIRECT, None, S.NONE),
        (0x81, Q.DIRECT, None, S.JOURNAL),
        (0x82, Q.DIRECT, SYSTEM, S.DEADLETTER),
        (0x83, Q.DIRECT, SYSTEM, S.DEADXACT),
        (0x04, Q.CONNECTOR, None, S.XACTONLY),
        (0x05, Q.SUBQUEUE, None, S.SUBQUEUE),
    ):
        assert octet & 0x0F == suffix
        stub = of_type(kind, octet, direct)
        assert is_alike(PARAMETER.marshal(Held(format_of(read(stub)))), stub)
        for flags in (0x10, 0x20, 0x40, 0x90, 0xF0):
            assert is_refused(of_type(kind, octet & 0x0F | flags, direct))


@pytest.mark.spec("MQ-2.2.7-04", "MQ-2.2.7-05", "MQ-2.2.7-06", "MQ-2.2.7-07")
def test_the_types_that_each_suffix_allows() -> None:
    # A call has to name a queue: 0 does not. The type of a subqueue says enough.
    assert accepted(0x00) == {1, 2, 3, 5, 6, 7, 8}
    for flags in range(0x10, 0x100, 0x10):
        assert accepted(flags) == set()
    # Narrower than the section, as the guide's profile is: 8 has no journal.
    assert accepted(0x81) == accepted(0x81, SYSTEM) == {1, 2, 3, 4}
    assert accepted(0x01) == accepted(0x01, SYSTEM) == set()
    for octet in (0x82, 0x83):
        assert accepted(octet, SYSTEM) == {3, 4}
        assert accepted(octet) == {4}
        assert accepted(octet & 0x0F, SYSTEM) == set()


@pytest.mark.spec("MQ-2.2.7-08", "MQ-2.2.7-09")
def test_the_suffixes_of_one_type() -> None:
    # The section does not say which flags go with it.
    assert accepted(0x04) == accepted(0x84) == {5}
    assert read(of_type(Q.CONNECTOR, 0x84)) == ConnectorName(GUID, transactional=True)
    assert PARAMETER.marshal(Held(format_of(ConnectorName(GUID, transactional=True))))[1] == 0x04
    assert accepted(0x05) == {8}
    assert accepted(0x85) == set()
    for suffix in range(6, 0x10):
        assert accepted(suffix) == accepted(suffix | 0x80) == set()


@pytest.mark.spec("MQ-2.2.7-10", "MQ-2.2.7-11")
def test_m_reserved_is_sent_zero_and_ignored() -> None:
    for name, stub in NAMES.items():
        assert PARAMETER.marshal(Held(format_of(single(name))))[2:4] == bytes(2)
        for reserved in (b"\xff\xff", b"\x01\x00", b"\x00\x80"):
            assert read(stub[:2] + reserved + stub[4:]) == single(name)


@pytest.mark.spec("MQ-2.2.7-13")
def test_the_direct_string_has_no_prefix() -> None:
    name = single("DIRECT=OS:host\\q")
    assert isinstance(name, DirectName)
    assert format_of(name) == WireFormat(Q.DIRECT, 0, 0, Arm(Q.DIRECT, "OS:host\\q"))
    assert read(of_type(Q.DIRECT, 0)) == name
    assert read(of_type(Q.DIRECT, 0, "DIRECT=OS:host\\q")) == name
    for wrong in ("", "q", "PUBLIC=" + TEXT, "UDP:host\\q"):
        assert is_refused(of_type(Q.DIRECT, 0, wrong))
    # A suffix that the text has already agrees with the structure's.
    journal = single("DIRECT=OS:host\\q;JOURNAL")
    assert format_of(journal).identifier.value == "OS:host\\q"
    for spelled in ("OS:host\\q;JOURNAL", "OS:host\\q;journal"):
        assert read(of_type(Q.DIRECT, 0x81, spelled)) == journal
        assert is_refused(of_type(Q.DIRECT, 0x00, spelled))
    assert read(of_type(Q.DIRECT, 0x83, SYSTEM + ";DEADXACT")) == single(
        f"DIRECT={SYSTEM};DEADXACT"
    )
    for octet, wrong in ((0x82, QUEUE), (0x82, SYSTEM + ";JOURNAL"), (0x81, SUBQUEUE)):
        assert is_refused(of_type(Q.DIRECT, octet, wrong))
    # Without a text there is no name.
    assert is_refused(stub_of(Q.DIRECT, 0, bytes(4)))


@pytest.mark.spec("MQ-2.2.7-14")
def test_the_subqueue_string_holds_a_subqueue() -> None:
    name = single("DIRECT=OS:host\\PRIVATE$\\q;sub")
    assert isinstance(name, DirectName)
    arm = Arm(Q.SUBQUEUE, "OS:host\\PRIVATE$\\q;sub")
    assert format_of(name) == WireFormat(Q.SUBQUEUE, 0x05, 0, arm)
    assert read(PARAMETER.marshal(Held(format_of(name)))) == name
    for wrong in ("OS:host\\q", "OS:host\\q;", "OS:host\\q;JOURNAL", f"OS:host\\q;{'s' * 33}"):
        for octet in (0x05, 0x00):
            assert is_refused(of_type(Q.SUBQUEUE, octet, wrong))
    assert is_refused(stub_of(Q.SUBQUEUE, 0x05, bytes(4)))


@pytest.mark.spec("MQ-2.2.9-01", "MQ-2.2.9-02")
def test_a_distribution_list_is_a_guid_and_a_terminated_domain() -> None:
    for domain in ("corp.example", "d" * 255):
        stub = of_type(Q.DL, 0, domain)
        assert stub[8:24] == GUID
        assert (unpack_from("<I", stub, 24) != (0,), stub[28:]) == (True, text(domain))
        check(DistributionListName(GUID, domain), stub)
    check(DistributionListName(GUID, ""), stub_of(Q.DL, 0, GUID + bytes(4)))
    assert read(of_type(Q.DL, 0, "")) == DistributionListName(GUID, "")
    for wrong in ("d" * 256, "a,b", "a b"):
        assert is_refused(of_type(Q.DL, 0, wrong))
    unterminated = pack("<IIII", 1, 2, 0, 2) + "ab".encode("utf-16-le")
    assert is_refused(stub_of(Q.DL, 0, GUID + unterminated))


@pytest.mark.spec("MQ-2.2.10-01")
def test_a_multicast_address_is_one_of_a_group_and_a_port() -> None:
    for address, octets in (("224.0.0.1", "e0000001"), ("239.255.255.254", "effffffe")):
        for port in (0, 80, 0xFFFF):
            members = bytes.fromhex(octets) + pack("<I", port)
            check(MulticastName(address, port), stub_of(Q.MULTICAST, 0, members))
    for octets, port in (("0a000005", 80), ("f0000001", 80), ("ea010101", 0x1_0000)):
        assert is_refused(stub_of(Q.MULTICAST, 0, bytes.fromhex(octets) + pack("<I", port)))


@pytest.mark.parametrize(
    ("octet", "kind", "name"),
    [
        (0x00, Q.PUBLIC, PublicName(GUID)),
        (0x81, Q.PUBLIC, PublicName(GUID, journal=True)),
        (0x81, Q.PRIVATE, PrivateName(GUID, 0x8000_000F, journal=True)),
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
    stub = of_type(kind, octet)
    assert read(stub) == name
    assert is_alike(PARAMETER.marshal(Held(format_of(read(stub)))), stub)


@pytest.mark.parametrize("which", list(SystemQueue))
@pytest.mark.spec("MQ-2.2.11-02")
def test_a_computers_queue_by_address(which: SystemQueue) -> None:
    name = single(f"DIRECT=OS:host\\SYSTEM$;{which.value}")
    assert isinstance(name, DirectSystemName)
    octet = {"JOURNAL": 0x81, "DEADLETTER": 0x82, "DEADXACT": 0x83}[which.value]
    check(name, of_type(Q.DIRECT, octet, SYSTEM))
