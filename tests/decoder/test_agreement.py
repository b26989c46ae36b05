"""The codec and its descriptions against the second decoder: on vectors, generated and damaged
packets.
"""

from __future__ import annotations

import re

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from qm.wire import (
    FinalAck,
    OrderAck,
    Packet,
    Ping,
    ProtocolError,
    SoapHeader,
    UserMessage,
    parse_packet,
    parse_ping,
    parse_user_message,
    write_packet,
    write_ping,
)
from qm.wire.headers.multi_queue_format import write_multi_queue_format_header
from qm.wire.headers.soap_header import write_soap_header
from qm.wire.packets.describe import describe_packet, describe_ping
from tests.decoder.decode import BadBytesError, decode
from tests.decoder.descriptions import check_description
from tests.decoder.spoken import flat, spoken
from tests.decoder.test_vectors import COMPLETE, PACKETS, VECTORS
from tests.unit.wire import strategies

TIME_TO_REACH = "BaseHeader.TimeToReachQueue"

# What a value leaves unsaid: it is reserved, follows from the rest, or only announces a header.
UNSAID = re.compile(
    r"""(
      .*\.(Reserved1?|Flags|OperatingSystem|OperatingSystem\.RE|Count|LabelLength|Signature\.(ID|Size)
      |HeaderSize|HeaderID|ElementCount|HeaderSectionID|BodySectionID|HeaderDataLength
      |BodyDataLength|FormatType)
    | BaseHeader\.(VersionNumber|Signature|PacketSize|Flags\.(IN|SH|DH))
    | UserHeader\.Flags\.(DQ|AQ|SH|TH|MP|CQ|MQ|HH|AH)
    | TransactionHeader\.Flags\.CG
    | SecurityHeader\.(Flags\.(AU|AI|AS)|\w+Size)
    | MessagePropertiesHeader\.(MessageSize|ExtensionSize)
    | InternalHeader\.Flags\.PT
    | DebugHeader\.Flags\.QT
    | Ping\.Signature
    )""",
    re.VERBOSE,
)


def check_agreement(raw: bytes, packet: Packet | Ping) -> None:
    decoded = flat(decode(raw))
    said = spoken(packet)
    if "TransactionHeader.TxSequenceNumber" in decoded:
        # Whatever a sender says about a transactional message's priority, the codec reads 0.
        decoded["BaseHeader.Flags.PR"] = 0
    assert {name: decoded.get(name) for name in said} == said
    if not isinstance(packet, (OrderAck, FinalAck)):
        unsaid = {name for name in decoded if name not in said and not UNSAID.fullmatch(name)}
        # Only a message has to reach a queue in time.
        is_timed = isinstance(packet, (UserMessage, Ping))
        assert unsaid == (set() if is_timed else {TIME_TO_REACH})
    check_description(raw, describe_ping(raw) if isinstance(packet, Ping) else describe_packet(raw))


def read_vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


def test_both_read_the_same_in_every_vector() -> None:
    for name in COMPLETE:
        raw = read_vector(name)
        if VECTORS[name]["transport"] == "udp/3527":
            packet: Packet | Ping = parse_ping(raw, 0, len(raw))[0]
        else:
            packet, after = parse_packet(raw, 0, len(raw))
            assert after == len(raw)
        check_agreement(raw, packet)


def test_both_refuse_the_truncated_vector() -> None:
    (name,) = set(PACKETS) - set(COMPLETE)
    assert not accepts_codec(read_vector(name))
    assert not accepts_decoder(read_vector(name))


@settings(max_examples=300)
@given(packet=strategies.packets)
def test_both_read_the_same_in_generated_packets(packet: Packet) -> None:
    raw = write_packet(packet)
    check_agreement(raw, parse_packet(raw, 0, len(raw))[0])


@given(ping=strategies.pings)
def test_both_read_the_same_in_generated_pings(ping: Ping) -> None:
    check_agreement(write_ping(ping), ping)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A packet with some bytes changed, or cut, or longer than it says."""
    raw = bytearray(write_packet(draw(strategies.packets)))
    for _ in range(draw(st.integers(0, 3))):
        # The front of a packet holds what everything else depends on.
        at = draw(st.integers(0, min(len(raw), 160) - 1) | st.integers(0, len(raw) - 1))
        raw[at] = draw(st.sampled_from([0, 1, 4, 0x10, 0x7F, 0x80, 0xFF]) | strategies.u8)
    cut = draw(st.just(0) | st.integers(-20, 20))
    return bytes(raw[:cut] if cut < 0 else raw + bytes(cut))


@settings(max_examples=600)
@given(raw=damaged())
def test_both_refuse_the_same_damage(raw: bytes) -> None:
    assert accepts_codec(raw) == accepts_decoder(raw)
    description = describe_packet(raw)
    try:
        packet, after = parse_packet(raw, 0, len(raw))
    except ProtocolError as error:
        assert str(description.error) == str(error)
        return
    assert description.error is None
    if after == len(raw):
        check_agreement(raw, packet)
        if isinstance(packet, (OrderAck, FinalAck)):
            parse_user_message(raw, 0, len(raw))


@settings(max_examples=100)
@given(message=strategies.user_messages, soap=strategies.soap_headers, data=st.data())
def test_both_read_soap_and_lists_in_either_order(
    message: UserMessage, soap: SoapHeader, data: st.DataObject
) -> None:
    lists = data.draw(strategies.multi_queue_format_headers)
    message = msgspec.structs.replace(message, soap=soap, multi_queue_format=lists, session=None)
    raw = write_packet(message)
    size = len(write_soap_header(soap)) + len(write_multi_queue_format_header(lists))
    swapped = raw[:-size] + write_multi_queue_format_header(lists) + write_soap_header(soap)
    check_agreement(swapped, parse_packet(swapped, 0, len(swapped))[0])


@settings(max_examples=100)
@given(message=strategies.user_messages, surplus=st.integers(4, 40))
def test_both_read_a_body_with_room_to_grow(message: UserMessage, surplus: int) -> None:
    properties = msgspec.structs.replace(message.properties, allocation_surplus_bytes=surplus)
    message = msgspec.structs.replace(
        message,
        properties=properties,
        debug=None,
        soap=None,
        multi_queue_format=None,
        session=None,
        is_traced=False,
    )
    raw = write_packet(message)
    label = (properties.label or "").encode("utf-16-le", "surrogatepass")
    nul = 0 if properties.label is None else 2
    used = 56 + len(label) + nul + len(properties.extension_data) + len(properties.message_body)
    grown = bytearray(raw[: len(raw) - -used % 4] + bytes(surplus))
    grown += bytes(-len(grown) % 4)
    grown[8:12] = len(grown).to_bytes(4, "little")
    packet, _ = parse_packet(grown, 0, len(grown))
    assert packet == message
    check_agreement(bytes(grown), packet)


@given(raw=st.binary(max_size=200))
def test_noise_is_described_without_an_exception(raw: bytes) -> None:
    assert describe_packet(raw).error is not None or accepts_codec(raw)
    assert describe_ping(raw).error is not None or len(raw) >= 24


def accepts_codec(raw: bytes) -> bool:
    try:
        return parse_packet(raw, 0, len(raw))[1] == len(raw)
    except ProtocolError:
        return False


def accepts_decoder(raw: bytes) -> bool:
    try:
        return "Ping" not in decode(raw)
    except BadBytesError:
        return False
