"""Captures (pcap, pcapng) to MSMQ bytes: TCP 1801 reassembled per direction, UDP 3527 pings.

Supported: Ethernet with up to two VLAN tags, Linux cooked (v1, v2), loopback and raw IP; IPv4 and
IPv6. Segments may be out of order, repeated or overlapping; where bytes were sent twice with
different content, the copy that starts lower wins and the stream has a note. Bytes missing from a
capture are reported as a gap. Not supported, but counted: IP fragments, and in a pcapng file with
several interfaces all link types but the first one's.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import dpkt

TCP_PORT: Final = 1801
PING_PORT: Final = 3527

_SEQUENCE_RANGE: Final = 1 << 32
# A keep-alive repeats one byte of any content: no note for that.
_CONFLICT_MIN_BYTES: Final = 2

_LINK_LAYERS: Final = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    dpkt.pcap.DLT_NULL: dpkt.loopback.Loopback,
    dpkt.pcap.DLT_LOOP: dpkt.loopback.Loopback,
}
# Raw IP has one number in the file format and, depending on the platform, others in old files.
_RAW_IP: Final = frozenset({12, 14, dpkt.pcap.DLT_RAW, dpkt.pcap.DLT_IPV4, dpkt.pcap.DLT_IPV6})


class CaptureError(Exception):
    """The file is not a readable capture; the text says why."""


@dataclass(frozen=True)
class Chunk:
    """Bytes of a stream without a gap; `offset` counts from the stream's first byte."""

    offset: int
    data: bytes
    ends: tuple[int, ...]
    """Stream offset after each segment's part, ascending."""
    times: tuple[float | None, ...]
    """When each of these segments was captured, Unix seconds; None outside captures."""

    def seen_at(self, end: int) -> float | None:
        """When the byte before stream offset `end` was captured, Unix seconds."""
        return self.times[bisect_left(self.ends, end)]


@dataclass(frozen=True)
class Stream:
    """One direction of one TCP connection."""

    name: str
    chunks: tuple[Chunk, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Datagram:
    """The payload of one UDP datagram."""

    name: str
    data: bytes
    time: float


@dataclass(frozen=True)
class Capture:
    """All MSMQ bytes of a capture."""

    streams: tuple[Stream, ...]
    datagrams: tuple[Datagram, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Segment:
    start: int
    data: bytes
    time: float


@dataclass
class _Direction:
    """The segments of one direction of one connection, in the order of the capture."""

    name: str
    has_start: bool
    first_sequence: int
    last_sequence: int
    last_start: int = 0
    segments: list[_Segment] = field(default_factory=list)

    def add(self, sequence: int, data: bytes, time: float) -> None:
        # Sequence numbers wrap: only the distance from the previous segment is meaningful.
        step = (sequence - self.last_sequence) % _SEQUENCE_RANGE
        if step >= _SEQUENCE_RANGE // 2:
            step -= _SEQUENCE_RANGE
        self.last_sequence = sequence
        self.last_start += step
        if data:
            self.segments.append(_Segment(self.last_start, data, time))


class _Reader:
    """Sorts the frames of a capture into directions and datagrams."""

    def __init__(self) -> None:
        self.current: dict[tuple[str, str], _Direction] = {}
        self.directions: list[_Direction] = []
        self.datagrams: list[Datagram] = []
        self.fragments = 0
        self.not_understood = 0

    def frame(self, link_type: int, time: float, frame: bytes) -> None:
        ip = self._ip(link_type, frame)
        if ip is None:
            return
        if _is_fragment(ip):
            self.fragments += 1
        elif isinstance(ip.data, dpkt.tcp.TCP):
            self._tcp(ip, ip.data, time)
        elif isinstance(ip.data, dpkt.udp.UDP):
            self._udp(ip, ip.data, time)

    def _ip(self, link_type: int, frame: bytes) -> dpkt.ip.IP | dpkt.ip6.IP6 | None:
        try:
            if link_type in _RAW_IP:
                is_ipv4 = frame[0] >> 4 == 4
                packet = dpkt.ip.IP(frame) if is_ipv4 else dpkt.ip6.IP6(frame)
            else:
                packet = _LINK_LAYERS[link_type](frame).data
        except Exception:  # on damaged frames dpkt's parsers raise errors of any type
            self.not_understood += 1
            return None
        return packet if isinstance(packet, (dpkt.ip.IP, dpkt.ip6.IP6)) else None

    def _udp(self, ip: dpkt.ip.IP | dpkt.ip6.IP6, udp: dpkt.udp.UDP, time: float) -> None:
        if PING_PORT in (udp.sport, udp.dport):
            name = f"UDP {_endpoint(ip.src, udp.sport)} -> {_endpoint(ip.dst, udp.dport)}"
            self.datagrams.append(Datagram(name, bytes(udp.data), time))

    def _tcp(self, ip: dpkt.ip.IP | dpkt.ip6.IP6, tcp: dpkt.tcp.TCP, time: float) -> None:
        if TCP_PORT not in (tcp.sport, tcp.dport):
            return
        key = (_endpoint(ip.src, tcp.sport), _endpoint(ip.dst, tcp.dport))
        direction = self.current.get(key)
        is_syn = bool(tcp.flags & dpkt.tcp.TH_SYN)
        # SYN counts as one; the data of a segment with SYN starts after it.
        sequence = (tcp.seq + is_syn) % _SEQUENCE_RANGE
        is_new = is_syn and direction is not None and direction.first_sequence != sequence
        if direction is None or is_new:
            direction = _Direction("TCP {} -> {}".format(*key), is_syn, sequence, sequence)
            self.current[key] = direction
            self.directions.append(direction)
        direction.add(sequence, bytes(tcp.data), time)


def read_capture(file: BinaryIO) -> Capture:
    """Read a pcap or pcapng file; `CaptureError` when it is neither or has an unknown link type."""
    reader = _Reader()
    notes: list[str] = []
    try:
        frames = dpkt.pcap.UniversalReader(file)
        link_type = frames.datalink()
    except Exception as error:  # as above: a damaged file header
        raise CaptureError(f"not a readable pcap or pcapng file: {error}") from error
    if link_type not in _LINK_LAYERS and link_type not in _RAW_IP:
        raise CaptureError(
            f"link type {link_type} is not supported: capture on Ethernet, 'any' or raw IP"
        )
    iterator = iter(frames)
    while True:
        try:
            time, frame = next(iterator)
        except StopIteration:
            break
        except Exception as error:  # as above: the rest of the file is unreadable
            notes.append(f"the capture ends in the middle of a frame ({error})")
            break
        reader.frame(link_type, float(time), frame)
    if reader.fragments:
        notes.append(f"{reader.fragments} IP fragments were left out")
    if reader.not_understood:
        notes.append(f"{reader.not_understood} damaged frames were left out")
    streams = tuple(_assemble(direction) for direction in reader.directions if direction.segments)
    return Capture(streams, tuple(reader.datagrams), tuple(notes))


class _Joiner:
    """Joins the segments of one direction, added in the order of their starts."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.lost_bytes = 0
        self.repeated_bytes = 0
        self.conflicting_segments = 0
        self._open_at(0)

    def _open_at(self, begin: int) -> None:
        self._begin = begin
        self._data = bytearray()
        self._ends: list[int] = []
        self._times: list[float | None] = []

    def add(self, start: int, data: bytes, time: float) -> None:
        end = self._begin + len(self._data)
        if start > end:
            self.lost_bytes += start - end
            self.close()
            self._open_at(start)
            end = start
        known = data[: end - start]
        if known:
            self.repeated_bytes += len(known)
            self._compare(start, known)
        if len(data) > len(known):
            self._data += data[len(known) :]
            self._ends.append(start + len(data))
            self._times.append(time)

    def _compare(self, start: int, known: bytes) -> None:
        at = start - self._begin
        before = self._data[max(at, 0) : max(at + len(known), 0)]
        if len(known) >= _CONFLICT_MIN_BYTES and before != known[len(known) - len(before) :]:
            self.conflicting_segments += 1

    def close(self) -> None:
        if self._data:
            times = tuple(self._times)
            self.chunks.append(Chunk(self._begin, bytes(self._data), tuple(self._ends), times))


def _assemble(direction: _Direction) -> Stream:
    """Reassemble the segments of one direction."""
    segments = sorted(direction.segments, key=lambda segment: segment.start)
    # If its SYN was not captured, a stream starts with the first captured segment.
    origin = 0 if direction.has_start else segments[0].start
    joiner = _Joiner()
    for segment in segments:
        joiner.add(segment.start - origin, segment.data, segment.time)
    joiner.close()
    notes = []
    if joiner.lost_bytes:
        notes.append(f"{joiner.lost_bytes} bytes are missing from the capture")
    if joiner.repeated_bytes:
        notes.append(f"{joiner.repeated_bytes} bytes were sent more than once")
    if joiner.conflicting_segments:
        notes.append(f"{joiner.conflicting_segments} segments repeat bytes with different content")
    return Stream(direction.name, tuple(joiner.chunks), tuple(notes))


def _is_fragment(ip: dpkt.ip.IP | dpkt.ip6.IP6) -> bool:
    if isinstance(ip, dpkt.ip.IP):
        return bool(ip.mf or ip.offset)
    return any(
        isinstance(header, dpkt.ip6.IP6FragmentHeader) and (header.m_flag or header.frag_off)
        for header in ip.all_extension_headers
    )


def _endpoint(address: bytes, port: int) -> str:
    text = str(ipaddress.ip_address(address))
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
