"""Any bytes end in a value, in "need more", or in one ProtocolError that says where and why."""

from __future__ import annotations

import subprocess
import sys
from struct import pack_into

from hypothesis import example, given, settings
from hypothesis import strategies as st

from qm.wire.errors import ProtocolError
from qm.wire.packets.packet import Packet, packet_kind, parse_packet, write_packet
from tests.fuzz.corpus import seeds
from tests.fuzz.invariants import check_packet, check_ping, check_stream
from tests.fuzz.wire import check_input
from tests.unit.wire import strategies
from tests.unit.wire.streams import error_text, read_stream


@settings(max_examples=200)
@given(raw=st.binary(max_size=300))
def test_noise_has_no_reading_or_one(raw: bytes) -> None:
    check_packet(raw)
    check_packet(b"\x10\0\0\0LIOR" + raw)


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


@settings(max_examples=250)
@given(raw=_damaged())
def test_a_damaged_packet_has_no_reading_or_one(raw: bytes) -> None:
    check_packet(raw)


@settings(max_examples=150)
@given(packet=strategies.packets, data=st.data())
def test_a_cut_packet_has_no_reading(packet: Packet, data: st.DataObject) -> None:
    raw = write_packet(packet)
    length = data.draw(st.integers(0, len(raw) - 1))
    assert check_packet(raw[:length]) is None
    assert read_stream([raw[:length]])[0] == []


@settings(max_examples=100)
@given(raw=st.binary(max_size=40))
@example(raw=b"\0\0HU" + bytes(20))
def test_a_datagram_is_a_ping_or_an_error(raw: bytes) -> None:
    is_ping = len(raw) >= 24 and raw[2:4] == b"HU"
    assert (check_ping(raw) is not None) == is_ping


@settings(max_examples=150)
@given(raw=_damaged(), start=st.integers(1, 50))
def test_offsets_count_from_the_packet(raw: bytes, start: int) -> None:
    """The same error, wherever in a buffer the packet is; and the kind never needs more."""
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


def test_every_seed_of_the_fuzzer_holds_and_is_what_it_is_named() -> None:
    kinds = {name: (check_packet(raw), check_ping(raw)) for name, raw in seeds()}
    assert len(kinds) == 22
    for name, raw in seeds():
        check_input(raw)
        for length in range(0, min(len(raw), 240), 7):
            check_input(raw[:length])
        packet, ping = kinds[name]
        assert (ping is not None) == ("_ping_" in name)
        assert (packet is not None) == ("_ping_" not in name and "truncated" not in name)
        if packet is not None:
            assert check_stream(raw * 2, [1, 2, 3]) == [raw, raw]


def test_without_atheris_the_fuzzer_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['atheris'] = None; from tests.fuzz.wire import main; "
    code += "sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "make fuzz" in done.stderr
