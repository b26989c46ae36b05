"""Parameters of remote read, and packets in sections, by the vectors' bytes."""

from struct import pack
from typing import Any

import pytest

from qm.names.format_name import format_name_text, parse_format_name
from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.queue_formats import NotAName, format_of, text_of
from qm.rpc.remote_read.interface import REMOTE_READ, Section, StartOut
from qm.rpc.remote_read.sections import Trailing, body_place, reader_packet, sections_of
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.user_message import UserMessage
from qm.wire.structures.queue_name import DirectQueueFormatName, PublicQueueFormatName
from tests.unit.rpc.vectors import vector

STUBS = [
    ("cancelreceive_request", 8, True),
    ("closequeue_response", 3, False),
    ("endreceive_request_ack", 9, True),
    ("enlist_request", 12, True),
    ("getserverport_response", 0, False),
    ("movemessage_request", 10, True),
    ("openqueue_request_direct", 2, True),
    ("openqueue_request_journal", 2, True),
    ("openqueue_request_private", 2, True),
    ("openqueue_request_subqueue", 2, True),
    ("openqueue_response", 2, False),
    ("openqueueformove_response", 11, False),
    ("startreceive_request_first_infinite", 7, True),
    ("startreceive_request_lookup", 7, True),
    ("startreceive_response_full", 7, False),
    ("startreceive_response_timeout", 7, False),
    ("startreceive_response_two_sections", 7, False),
    ("starttransactionalreceive_request", 13, True),
]


@pytest.mark.spec("RR-2.2.6-01", "RR-2.2.7-01", "RR-2.2.8-01", "RP-RPCE-2.2.4.6-01", "RR-1.9-01")
@pytest.mark.parametrize(("name", "opnum", "is_request"), STUBS)
def test_the_stubs_of_the_guide_are_read_and_written(
    name: str, opnum: int, is_request: bool
) -> None:
    operation = REMOTE_READ.operations[opnum]
    parameters = operation.takes if is_request else operation.gives
    raw = vector(f"mqrr_{name}")
    values, end = parameters.unmarshal(raw)
    assert end == len(raw)
    assert parameters.marshal(values) == raw


@pytest.mark.spec("RR-3.1.4-01", "RR-3.1.4-02", "RR-3.1.4.9-01", "RR-3.1.4.12-01", "RR-3.1.4.2-05")
def test_stubs_that_contradict_themselves_are_refused() -> None:
    end = vector("mqrr_endreceive_request_ack")
    enlist = vector("mqrr_enlist_request")
    opened = vector("mqrr_openqueue_request_direct")
    for opnum, raw in (
        (9, end[:20] + b"\3" + end[21:]),
        (9, end[:20] + b"\0" + end[21:]),
        (9, end[:22] + b"\1" + end[23:]),
        (12, enlist[:16] + b"\1\0\2\0" + enlist[20:]),
        (12, enlist[:16] + b"\7\0\0\0" + enlist[20:]),
        (2, opened[:4] + b"\1" + opened[5:]),
        *((2, opened[:cut]) for cut in range(len(opened))),
    ):
        with pytest.raises(BadStub):
            REMOTE_READ.operations[opnum].takes.unmarshal(raw)
    assert 1 not in REMOTE_READ.operations
    assert max(REMOTE_READ.operations) == 15
    assert REMOTE_READ.level is AuthLevel.PRIVACY


@pytest.mark.spec("RR-2.2.3-01", "RR-2.2.3-06", "RR-2.2.3-07", "RR-2.2.3-08")
def test_queue_formats_are_format_names() -> None:
    guid = "11223344-5566-7788-99AA-BBCCDDEEFF00"
    for text in (
        r"DIRECT=OS:host\private$\q",
        r"DIRECT=TCP:10.0.0.1\q;journal",
        r"DIRECT=OS:host\private$\q;sub",
        f"PUBLIC={guid}",
        f"PRIVATE={guid}\\0000000a",
        f"PRIVATE={guid}\\0000000a;JOURNAL",
        f"MACHINE={guid};DEADXACT",
    ):
        name: Any = parse_format_name(text)
        assert text_of(format_of(name)) == format_name_text(name)
    plain: Any = parse_format_name(f"PUBLIC={guid}")
    for suffix in (0x01, 0x80, 0x84, 0x0F):
        wire = format_of(plain)
        wire.suffix_and_flags = suffix
        with pytest.raises(NotAName):
            text_of(wire)


def stored(
    body: bytes = b"hello world", *, extension: bytes = b"", surplus_bytes: int = 0, **changes: Any
) -> bytes:
    values: dict[str, Any] = {"time_to_reach_queue": 0xFFFF_FFFF}
    header = UserHeader(
        bytes(range(16)),
        DirectQueueFormatName(r"OS:quorate\private$\orders"),
        sent_time=1_704_067_400,
    )
    properties = MessagePropertiesHeader(
        body, "greeting", extension_data=extension, allocation_surplus_bytes=surplus_bytes
    )
    return write_packet(UserMessage(header, properties, **(values | changes)))


@pytest.mark.spec("RR-2.2.5-01", "RR-2.2.5.1-02", "RR-2.2.5.1-04", "RR-2.2.5.2-01", "RR-2.2.5.2-03")
def test_a_packet_has_the_headers_of_the_vector_behind_it() -> None:
    values, _ = REMOTE_READ.operations[7].gives.unmarshal(vector("mqrr_startreceive_response_full"))
    assert isinstance(values, StartOut)
    assert values.sections is not None
    wanted = values.sections[0].data
    assert wanted is not None
    # Undo what a reader's packet adds, then add it again.
    plain = bytearray(wanted[:-188])
    plain[8:12] = len(plain).to_bytes(4, "little")
    plain[32:48] = bytes(16)
    relative = int.from_bytes(plain[12:16], "little") - int.from_bytes(plain[52:56], "little")
    plain[12:16] = relative.to_bytes(4, "little")
    assert reader_packet(bytes(plain), address="192.0.2.77", trailing=Trailing()) == wanted
    bare = reader_packet(bytes(plain), address="192.0.2.77", trailing=None)
    assert len(bare) == len(wanted) - 188
    # With the name of a dead-letter queue, which stands between the others.
    for path in (r"QUORATE\private$\dead", r"QUORATE\private$\deadly"):
        told = Trailing(dead_letter_queue=path)
        text = path.encode("utf-16-le") + bytes(2)
        text += bytes(-len(text) % 4)
        size = 148 + 4 + len(text) + 28
        head = pack("<IIB3x", 12, size, 0x13)
        dead_letter = pack("<I", 4 + len(text)) + text
        found = reader_packet(bytes(plain), address="192.0.2.77", trailing=told)
        behind = head + wanted[-176:-28] + dead_letter + wanted[-28:]
        assert found[len(plain) :] == behind
        assert found[8:12] == pack("<I", len(found))


@pytest.mark.spec(
    "RR-2.2.5.1-01", "RR-2.2.5.1-03", "RR-2.2.5.1-04", "RR-2.2.5.1-06", "RR-2.2.5.5-02"
)
def test_times_and_addresses_are_the_readers() -> None:
    sent = 1_704_067_400
    for relative, absolute in (
        (60, 1_704_067_460),
        (0xFFFF_FFFD - sent, 0xFFFF_FFFD),
        (0xFFFF_FFFE - sent, 0xFFFF_FFFE),
        (0xFFFF_FFFF - sent, 0xFFFF_FFFE),  # not what stands for infinity
        (0x1_0000_0000 - sent, 0xFFFF_FFFE),
        (0xFFFF_0000, 0xFFFF_FFFE),
        (0xFFFF_FFFE, 0xFFFF_FFFE),
    ):
        packet = reader_packet(
            stored(time_to_reach_queue=relative), address="", trailing=Trailing()
        )
        assert packet[12:16] == absolute.to_bytes(4, "little")
    six = reader_packet(stored(), address="2001:db8::7", trailing=Trailing())
    assert six[32:48] == pack("<HHI", 16, 6, 0) + bytes.fromhex("20010db800000000")
    zoned = reader_packet(stored(), address="fe80::1:0:0:7%3", trailing=None)
    assert zoned[32:48] == pack("<HHI", 16, 6, 3) + bytes.fromhex("fe80000000000000")
    assert six[-16:] == bytes.fromhex("20010db8000000000000000000000007")
    unknown = reader_packet(stored(), address="", trailing=Trailing())
    assert unknown[-28:] == b"\x1c" + bytes(27)
    assert unknown[32:48] == pack("<HHI", 4, 1, 0) + bytes(8)
    host, name = bytes(range(16, 32)), PublicQueueFormatName(bytes(range(16)))
    header = UserHeader(bytes(16), name, queue_manager_address=host)
    public = write_packet(UserMessage(header, MessagePropertiesHeader(b"")))
    assert reader_packet(public, address="10.0.0.1", trailing=Trailing())[32:48] == host


@pytest.mark.spec("RR-3.1.4.7-37", "RR-3.1.4.7-38", "RR-2.2.6-02", "RR-2.2.6-03", "RR-2.2.6-04")
def test_sections_leave_out_only_body_bytes() -> None:
    packet = reader_packet(stored(), address="", trailing=Trailing())
    start, size = body_place(packet)
    assert packet[start : start + size] == b"hello world"
    for body_max in range(11):
        first, second = sections_of(packet, body_max)
        assert first.data is not None
        assert second.data is not None
        assert first.data + second.data == packet[: start + body_max] + packet[start + size :]
        assert first.size_alloc - first.size == size - body_max
        assert second.size_alloc == second.size
    assert sections_of(packet, 11) == [Section(0, len(packet), len(packet), packet)]
    # An extension stands before the body, and is none of it, nor is what else was allocated.
    longer = reader_packet(
        stored(extension=b"more", surplus_bytes=5), address="", trailing=Trailing()
    )
    start, size = body_place(longer)
    assert longer[start : start + size] == b"hello world"
    first, second = sections_of(longer, 2)
    assert (first.data, first.size_alloc - first.size) == (longer[: start + 2], size - 2)
    assert second.data == longer[start + size :]
    for trailing in (Trailing(), None):
        empty = reader_packet(stored(b""), address="", trailing=trailing)
        for body_max in (0, 1, 0xFFFF_FFFF):
            assert sections_of(empty, body_max) == [Section(0, len(empty), len(empty), empty)]
    # Without the headers, padding alone is behind the body, which begins two behind a multiple.
    for text, padding in ((b"a", 1), (b"ab", 0), (b"abc", 3), (b"abcd", 2)):
        bare = reader_packet(stored(text), address="", trailing=None)
        start, size = body_place(bare)
        assert len(bare) == start + size + padding
        first, *more = sections_of(bare, 0)
        assert (first.kind, first.data) == (1, bare[:start])
        assert more == [Section(2, padding, padding, bytes(padding))] * bool(padding)
