"""What the largest hostile packets can make the codec hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack

import pytest

from qm.wire.errors import ProtocolError
from qm.wire.packets.framer import Framer
from qm.wire.packets.packet import parse_packet
from tests.unit.wire import raw

LIMIT_BYTES = 0x40_0000
MQ, HH = 1 << 23, 1 << 28
REST = pack("<IHHI", 12, 0xC8, 0, 0) + pack("<IHHI", 12, 0x12C, 0, 0) + pack("<HHI", 0x15E, 0, 0)
LIST_BYTES = LIMIT_BYTES - 16 - 48 - 56 - 12 - len(REST)


def listed(names: bytes, count: int) -> bytes:
    names = (names + b"\x01\0" * LIST_BYTES)[:LIST_BYTES]
    header = pack("<IHHI", 12 + LIST_BYTES, 0x64, 0, count)
    return raw.message(raw.user(raw.MP | MQ, b""), raw.properties(), header, names, REST)


def bodied() -> bytes:
    return raw.message(raw.user(), raw.properties(body=bytes(LIMIT_BYTES - 124)))


def enveloped(unit: bytes, size: int = LIMIT_BYTES) -> bytes:
    text = unit * ((size - 16 - 48 - 56 - 16 - 4) // len(unit))
    soap = pack("<HHI", 0x320, 0, len(text) // 2 + 1) + text + b"\0\0"
    soap += pack("<HHI", 0x384, 0, 0)
    soap += bytes(-len(soap) % 4)
    return raw.message(raw.user(raw.MP | HH, b""), raw.properties(), soap)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "the largest body": bodied,
    "a count of elements beyond all limits": lambda: listed(b"", 0xFFFF_FFFF),
    "as many elements as fit": lambda: listed(b"\x03\0\0\0" * (LIST_BYTES // 4), LIST_BYTES // 4),
    "one name without end": lambda: listed(b"\x03\0", 1),
    "NULs that lie across two characters": lambda: listed(
        b"\x03\0" + b"\x01\0\0\x01" * LIST_BYTES, 1
    ),
    "the longest text": lambda: enveloped(b"\x01\x02"),
    "the longest text of surrogate pairs": lambda: enveloped("\U0001f600".encode("utf-16-le")),
    "a long text of broken pairs": lambda: enveloped(b"\x00\xd8", LIMIT_BYTES // 32),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_packet_makes_the_codec_hold_much_more_than_itself(name: str) -> None:
    packet = HOSTILE[name]()
    assert len(packet) <= LIMIT_BYTES
    tracemalloc.start()
    try:
        for buffer in (packet, memoryview(packet)):
            try:
                parse_packet(buffer, 0, len(packet))
            except ProtocolError:
                continue
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A text is widened while it is decoded; all else is one copy.
    assert peak_bytes < 4 * len(packet)


def test_an_announced_size_costs_nothing_before_its_bytes_are_there() -> None:
    start = raw.base(LIMIT_BYTES) + bytes(100)
    tracemalloc.start()
    try:
        framers = [Framer() for _ in range(100)]
        for framer in framers:
            assert framer.feed(start) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 * 1024
