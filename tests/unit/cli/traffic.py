"""Captures made for the tests: MSMQ bytes in TCP segments and UDP datagrams, framed with dpkt."""

from __future__ import annotations

import io
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

import dpkt

from qm.cli.packets.spec_session import FRAMES

CLIENT, SERVER = "192.0.2.1", "192.0.2.2"
CLIENT_PORT, TCP_PORT, PING_PORT = 49152, 1801, 3527
START_S = 1_700_000_000

Frame = tuple[float, bytes]


def ip_packet(source: str, destination: str, payload: dpkt.Packet) -> dpkt.Packet:
    """An IPv4 or IPv6 packet around a TCP segment or a UDP datagram."""
    src, dst = (ipaddress.ip_address(address) for address in (source, destination))
    protocol = dpkt.ip.IP_PROTO_TCP if isinstance(payload, dpkt.tcp.TCP) else dpkt.ip.IP_PROTO_UDP
    if src.version == 4:
        return dpkt.ip.IP(src=src.packed, dst=dst.packed, p=protocol, data=payload, ttl=64)
    size = len(bytes(payload))
    return dpkt.ip6.IP6(src=src.packed, dst=dst.packed, nxt=protocol, plen=size, data=payload)


def ethernet(packet: dpkt.Packet) -> bytes:
    is_ipv4 = isinstance(packet, dpkt.ip.IP)
    kind = dpkt.ethernet.ETH_TYPE_IP if is_ipv4 else dpkt.ethernet.ETH_TYPE_IP6
    return bytes(dpkt.ethernet.Ethernet(src=b"\2" * 6, dst=b"\4" * 6, type=kind, data=packet))


def vlan(packet: dpkt.Packet) -> bytes:
    plain = ethernet(packet)
    return plain[:12] + b"\x81\x00\x00\x07" + plain[12:]


def linux_cooked(packet: dpkt.Packet) -> bytes:
    return b"\0\0\0\1\0\6\2\2\2\2\2\2\0\0\x08\0" + bytes(packet)


def linux_cooked_v2(packet: dpkt.Packet) -> bytes:
    return b"\x08\0\0\0\0\0\0\1\0\1\0\6\2\2\2\2\2\2\0\0" + bytes(packet)


@dataclass
class Talk:
    """One direction of a connection; each call gives the next IP packet."""

    source: str = CLIENT
    destination: str = SERVER
    source_port: int = CLIENT_PORT
    destination_port: int = TCP_PORT
    sequence: int = 1000
    sent: bytearray = field(default_factory=bytearray)

    def segment(self, offset: int, data: bytes, flags: int = dpkt.tcp.TH_ACK) -> dpkt.Packet:
        """A segment whose data starts at a stream offset."""
        number = (self.sequence + 1 + offset) % 2**32
        return self._packet(number, data, flags)

    def syn(self) -> dpkt.Packet:
        return self._packet(self.sequence, b"", dpkt.tcp.TH_SYN)

    def _packet(self, number: int, data: bytes, flags: int) -> dpkt.Packet:
        tcp = dpkt.tcp.TCP(
            sport=self.source_port, dport=self.destination_port, seq=number, flags=flags, data=data
        )
        return ip_packet(self.source, self.destination, tcp)


def ping(data: bytes, source: str = CLIENT, destination: str = SERVER) -> dpkt.Packet:
    udp = dpkt.udp.UDP(sport=4057, dport=PING_PORT, data=data)
    udp.ulen = len(bytes(udp))
    return ip_packet(source, destination, udp)


def timed(frames: Iterable[bytes], step_s: float = 0.001) -> list[Frame]:
    return [(START_S + number * step_s, frame) for number, frame in enumerate(frames)]


def pcap(frames: Iterable[Frame], link_type: int = dpkt.pcap.DLT_EN10MB) -> bytes:
    file = io.BytesIO()
    writer = dpkt.pcap.Writer(file, linktype=link_type)
    for time, frame in frames:
        writer.writepkt(frame, time)
    return file.getvalue()


def pcapng(frames: Iterable[Frame]) -> bytes:
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for time, frame in frames:
        writer.writepkt(frame, time)
    return file.getvalue()


def session_capture() -> bytes:
    """The session of the specification's example as a capture: tests/data/captures/session.pcap.

    Segments of the message come out of order, one of them twice.
    """
    request, response, ask, answer, propose, agree, message, thanks = (f.packet for f in FRAMES)
    here, there = Talk(), Talk(SERVER, CLIENT, TCP_PORT, CLIENT_PORT, sequence=9000)
    handshake = len(ask) + len(propose)
    parts = [message[:700], message[700:1400], message[1400:]]
    packets = [
        ping(request),
        ping(response, SERVER, CLIENT),
        here.syn(),
        there.syn(),
        here.segment(0, ask),
        there.segment(0, answer),
        here.segment(len(ask), propose),
        there.segment(len(answer), agree),
        here.segment(handshake, parts[0]),
        here.segment(handshake + 1400, parts[2]),
        here.segment(handshake + 700, parts[1]),
        here.segment(handshake + 700, parts[1]),
        there.segment(len(answer) + len(agree), thanks),
    ]
    return pcap(timed(ethernet(packet) for packet in packets))
