"""Any bytes end in a value, in "need more", or in one ProtocolError that says where and why."""

from __future__ import annotations

import re
from struct import pack_into

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from qm.wire.errors import ProtocolError
from qm.wire.packet import Packet, packet_kind, parse_packet, write_packet
from qm.wire.ping import parse_ping
from tests.unit.wire import strategies
from tests.unit.wire.streams import error_text, read_stream

SECTION = re.compile(r"^MS-(MQMQ|MQQB|DTYP) \d+(\.\d+)+$")
FIELD = re.compile(r"^[A-Z]\w+(\.[A-Z]\w*)*$")


def check_any_bytes(raw: bytes) -> Packet | None:
    """The invariant. Returns the packet, if the bytes are one."""
    try:
        packet, after = parse_packet(raw, 0, len(raw))
    except ProtocolError as error:
        assert 0 <= error.offset <= len(raw)
        assert SECTION.match(error.section)
        assert FIELD.match(error.field)
        assert error.reason
        assert str(error.offset) in str(error)
        assert error.field in str(error)
        assert error.section in str(error)
        return None
    assert 20 <= after <= len(raw)
    again = write_packet(packet)
    assert parse_packet(again, 0, len(again)) == (packet, len(again))
    return packet


@settings(max_examples=200)
@given(raw=st.binary(max_size=300))
def test_noise_has_no_reading_or_one(raw: bytes) -> None:
    check_any_bytes(raw)
    check_any_bytes(b"\x10\0\0\0LIOR" + raw)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A packet with a few bytes changed, extreme numbers put in, and perhaps cut."""
    raw = bytearray(write_packet(draw(strategies.packets)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw) - 1))
        raw[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | strategies.u8)
    if draw(st.booleans()):
        at = draw(st.integers(0, (len(raw) - 4) // 4)) * 4
        number = st.sampled_from([0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFC, 0x40_0000])
        pack_into("<I", raw, at, draw(number))
    length = draw(st.integers(0, len(raw))) if draw(st.booleans()) else len(raw)
    return bytes(raw[:length])


@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
@given(raw=_damaged())
def test_a_damaged_packet_has_no_reading_or_one(raw: bytes) -> None:
    check_any_bytes(raw)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(packet=strategies.packets, data=st.data())
def test_a_cut_packet_has_no_reading(packet: Packet, data: st.DataObject) -> None:
    raw = write_packet(packet)
    length = data.draw(st.integers(0, len(raw) - 1))
    assert check_any_bytes(raw[:length]) is None
    assert read_stream([raw[:length]])[0] == []


@settings(max_examples=100)
@given(raw=st.binary(max_size=40))
@example(raw=b"\0\0HU" + bytes(20))
def test_a_datagram_is_a_ping_or_an_error(raw: bytes) -> None:
    try:
        _, after = parse_ping(raw, 0, len(raw))
    except ProtocolError as error:
        assert len(raw) < 24 or raw[2:4] != b"HU"
        assert error.section == "MS-MQQB 2.2.7"
    else:
        assert after == 24


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(raw=_damaged(), start=st.integers(1, 50))
def test_offsets_count_from_the_packet(raw: bytes, start: int) -> None:
    """The same error, wherever in a buffer the packet stands; and the kind never needs more."""
    found = []
    for buffer, offset in ((raw, 0), (b"\xaa" * start + raw, start)):
        for read in (parse_packet, packet_kind):
            try:
                read(buffer, offset, len(buffer))
            except ProtocolError as error:
                found.append(error_text(error))
            else:
                found.append(None)
    assert found[:2] == found[2:]
