"""Captures: streams put back in order, gaps reported, link layers, damage."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from pathlib import Path

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qm.cli.packets.capture import Capture, CaptureError, Stream, read_capture
from qm.cli.packets.spec_session import FRAMES
from tests.unit.cli import traffic
from tests.unit.cli.traffic import Talk

CAPTURES = Path(__file__).resolve().parents[2] / "data" / "captures"
DATA = bytes(random.Random(1).randbytes(5000))


def read(capture: bytes) -> Capture:
    return read_capture(io.BytesIO(capture))


def read_one(packets: list[dpkt.Packet]) -> Stream:
    (stream,) = read(traffic.pcap(traffic.timed(map(traffic.ethernet, packets)))).streams
    return stream


def only_chunk(stream: Stream) -> bytes:
    (chunk,) = stream.chunks
    assert chunk.offset == 0
    return chunk.data


def test_a_stream_in_order() -> None:
    talk = Talk()
    packets = [talk.syn(), talk.segment(0, DATA[:1000]), talk.segment(1000, DATA[1000:])]
    stream = read_one(packets)
    assert only_chunk(stream) == DATA
    assert stream.name == "TCP 192.0.2.1:49152 -> 192.0.2.2:1801"
    assert stream.notes == ()
    (chunk,) = stream.chunks
    assert chunk.seen_at(1000) == pytest.approx(traffic.START_S + 0.001)
    assert chunk.seen_at(1001) == pytest.approx(traffic.START_S + 0.002)


@given(data=st.data())
def test_any_cut_order_and_repetition_gives_the_same_stream(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(DATA) - 1), max_size=12)))
    start = data.draw(st.sampled_from([0, 1000, 2**32 - 1, 2**32 - 2000]))
    talk = Talk(sequence=start)
    pieces = list(zip([0, *cuts], [*cuts, len(DATA)], strict=True))
    more = data.draw(st.lists(st.tuples(st.integers(0, 4999), st.integers(1, 300)), max_size=4))
    pieces += [(at, min(at + size, len(DATA))) for at, size in more]
    packets = [talk.segment(a, DATA[a:b]) for a, b in data.draw(st.permutations(pieces))]
    stream = read_one([talk.syn(), *packets])
    assert only_chunk(stream) == DATA
    assert bool(more) == any("more than once" in note for note in stream.notes)


def test_without_its_start_a_stream_begins_with_what_was_seen() -> None:
    talk = Talk()
    stream = read_one([talk.segment(3000, DATA[3000:]), talk.segment(1000, DATA[1000:3000])])
    assert only_chunk(stream) == DATA[1000:]


def test_gaps_are_told() -> None:
    talk = Talk()
    packets = [talk.syn(), talk.segment(100, DATA[100:200]), talk.segment(300, DATA[300:400])]
    stream = read_one(packets)
    assert [(chunk.offset, chunk.data) for chunk in stream.chunks] == [
        (100, DATA[100:200]),
        (300, DATA[300:400]),
    ]
    assert stream.notes == ("200 bytes are missing from the capture",)


def test_other_bytes_in_the_same_place_are_told() -> None:
    talk = Talk()
    packets = [talk.syn(), talk.segment(0, b"first copy"), talk.segment(6, b"fake and more")]
    stream = read_one(packets)
    assert only_chunk(stream) == b"first copy" + b" and more"
    assert "1 segments repeat bytes with different content" in stream.notes


def test_a_keep_alive_is_no_conflict() -> None:
    talk = Talk()
    packets = [talk.syn(), talk.segment(-1, b"?"), talk.segment(0, DATA), talk.segment(4999, b"?")]
    stream = read_one(packets)
    assert only_chunk(stream) == DATA
    assert not any("different content" in note for note in stream.notes)


def test_a_second_connection_between_the_same_ends_is_another_stream() -> None:
    first, second = Talk(sequence=1), Talk(sequence=50_000)
    packets = [first.syn(), first.segment(0, b"one"), second.syn(), second.segment(0, b"two")]
    capture = read(traffic.pcap(traffic.timed(map(traffic.ethernet, packets))))
    assert [only_chunk(stream) for stream in capture.streams] == [b"one", b"two"]


def test_a_repeated_syn_is_the_same_stream() -> None:
    talk = Talk()
    packets = [talk.syn(), talk.syn(), talk.segment(0, b"one"), talk.syn(), talk.segment(3, b"two")]
    assert only_chunk(read_one(packets)) == b"onetwo"


def test_directions_are_apart_and_other_ports_are_left_out() -> None:
    here, there = Talk(), Talk("192.0.2.2", "192.0.2.1", 1801, 49152)
    other = Talk(destination_port=443)
    packets = [here.segment(0, b"ask"), there.segment(0, b"answer"), other.segment(0, b"web")]
    capture = read(traffic.pcap(traffic.timed(map(traffic.ethernet, packets))))
    assert [only_chunk(stream) for stream in capture.streams] == [b"ask", b"answer"]


@pytest.mark.parametrize(
    ("link_type", "framed"),
    [
        (dpkt.pcap.DLT_EN10MB, traffic.ethernet),
        (dpkt.pcap.DLT_EN10MB, traffic.vlan),
        (dpkt.pcap.DLT_LINUX_SLL, traffic.linux_cooked),
        (dpkt.pcap.DLT_LINUX_SLL2, traffic.linux_cooked_v2),
        (dpkt.pcap.DLT_RAW, bytes),
        (dpkt.pcap.DLT_IPV4, bytes),
        (dpkt.pcap.DLT_NULL, lambda packet: b"\2\0\0\0" + bytes(packet)),
    ],
)
def test_link_layers(link_type: int, framed: Callable[[dpkt.Packet], bytes]) -> None:
    packets = [traffic.ping(FRAMES[0].packet), Talk().segment(0, b"data")]
    capture = read(traffic.pcap(traffic.timed(map(framed, packets)), link_type))
    assert [datagram.data for datagram in capture.datagrams] == [FRAMES[0].packet]
    assert [only_chunk(stream) for stream in capture.streams] == [b"data"]


@pytest.mark.parametrize("write", [traffic.pcap, traffic.pcapng])
def test_file_formats_and_ipv6(write: Callable[[list[traffic.Frame]], bytes]) -> None:
    talk = Talk("2001:db8::1", "2001:db8::2")
    packets = [traffic.ping(FRAMES[0].packet, "2001:db8::1", "2001:db8::2"), talk.segment(0, b"x")]
    capture = read(write(traffic.timed(map(traffic.ethernet, packets))))
    assert capture.datagrams[0].name == "UDP [2001:db8::1]:4057 -> [2001:db8::2]:3527"
    assert capture.streams[0].name == "TCP [2001:db8::1]:49152 -> [2001:db8::2]:1801"
    assert capture.datagrams[0].time == pytest.approx(traffic.START_S)


def test_fragments_and_damaged_frames_are_counted() -> None:
    fragment = Talk().segment(0, b"part")
    fragment.mf = 1
    frames = [traffic.ethernet(fragment), b"\x01\x02", traffic.ethernet(Talk().segment(0, b"x"))]
    capture = read(traffic.pcap(traffic.timed(frames)))
    assert capture.notes == ("1 IP fragments were left out", "1 damaged frames were left out")
    assert len(capture.streams) == 1


def test_a_capture_cut_in_a_frame_keeps_what_is_before() -> None:
    frames = traffic.timed([traffic.ethernet(Talk().segment(0, b"x")) for _ in range(2)])
    whole = traffic.pcap(frames)
    capture = read(whole[: len(whole) - len(frames[1][1]) - 8])
    assert len(capture.streams) == 1
    assert "ends in the middle of a frame" in capture.notes[0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no capture", "not a readable"),
        (b"\xd4\xc3\xb2\xa1", "not a readable"),
        (traffic.pcap([], link_type=147), "link type 147"),
    ],
)
def test_what_is_no_capture_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CaptureError, match=said):
        read(data)


@given(data=st.data())
def test_no_damage_to_a_capture_raises_anything_else(data: st.DataObject) -> None:
    raw = bytearray(traffic.session_capture())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CaptureError):
        read(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_the_committed_capture_is_the_one_made_here() -> None:
    assert (CAPTURES / "session.pcap").read_bytes() == traffic.session_capture()
