"""The quick check of a packet agrees with the parser, whatever was seen before."""

from __future__ import annotations

from struct import pack_into

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from qm.session.framing import message_run
from qm.wire.errors import ProtocolError
from qm.wire.headers.message_properties import MessagePropertiesHeader
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.headers.transaction_header import TransactionHeader
from qm.wire.headers.user_header import UserHeader
from qm.wire.packets.packet import write_packet
from qm.wire.packets.soundness import SHAPES_MAX, PacketJudge
from qm.wire.packets.user_message import UserMessage, parse_user_message
from qm.wire.structures.identifiers import TxSequenceId
from qm.wire.structures.queue_name import DirectQueueFormatName
from tests.unit.wire import strategies

NEIGHBOUR = write_packet(
    UserMessage(UserHeader(bytes(16), DirectQueueFormatName("OS:h\\q")), MessagePropertiesHeader())
)


def parsed(raw: bytes) -> UserMessage | str:
    """What the parser says of a whole packet."""
    try:
        return parse_user_message(raw, 0, len(raw))[0]
    except ProtocolError as error:
        return str(error)


def names_its_sender(security: SecurityHeader) -> bool:
    """Whether there is nothing to verify and nothing to decrypt."""
    secrets = security.encryption_key, security.signature, security.sender_cert
    return not any(secrets) and not security.is_body_encrypted


def judged(judge: PacketJudge, raw: bytes) -> UserMessage | str | None:
    """What the judge says of it, among neighbours."""
    start = len(NEIGHBOUR)
    try:
        return judge.judge(NEIGHBOUR + raw + NEIGHBOUR, start, start + len(raw))
    except ProtocolError as error:
        return str(error)


def check(judge: PacketJudge, raw: bytes) -> None:
    verdict, expected = judged(judge, raw), parsed(raw)
    if verdict is None:
        assert isinstance(expected, UserMessage), expected
        assert expected.security is None or names_its_sender(expected.security)
    else:
        assert verdict == expected


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A packet, and one with bytes changed that framing lets pass."""
    message = draw(strategies.user_messages.filter(lambda message: message.session is None))
    raw = write_packet(message)
    damaged = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from([2, 3]) | st.integers(16, min(len(raw), 300) - 1))
        damaged[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | strategies.u8)
    if draw(st.booleans()):
        at = draw(st.integers(16, len(raw) - 4))
        number = st.sampled_from([0, 1, 2, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x40_0000])
        pack_into("<I", damaged, at, draw(number))
    return raw, bytes(damaged)


@settings(max_examples=250)
@given(pair=_pairs())
@example(pair=(NEIGHBOUR, NEIGHBOUR[:60] + b"\xff" * 4 + NEIGHBOUR[64:]))
def test_judges_as_the_parser_does(pair: tuple[bytes, bytes]) -> None:
    sound, damaged = pair
    judge = PacketJudge()
    check(judge, damaged)
    check(judge, sound)
    check(judge, sound)
    offsets, kinds = [0], bytearray()
    if message_run(damaged, 0, len(damaged), offsets, kinds) == len(damaged):
        check(judge, damaged)


def test_a_shape_seen_before_is_not_parsed_again() -> None:
    judge = PacketJudge()
    assert isinstance(judged(judge, NEIGHBOUR), UserMessage)
    assert judged(judge, NEIGHBOUR) is None


@settings(max_examples=100)
@given(data=st.data())
def test_what_differs_between_like_packets_may_have_any_value(data: st.DataObject) -> None:
    message = data.draw(strategies.user_messages.filter(lambda message: message.session is None))
    raw = write_packet(message)
    judge = PacketJudge()
    check(judge, raw)
    check(judge, raw)
    like = bytearray(raw)
    at = data.draw(st.sampled_from([1, *range(12, 60)]) | st.integers(64, len(raw) - 1))
    like[at] ^= data.draw(st.integers(1, 255))
    check(judge, bytes(like))
    check(judge, raw)
    check(judge, raw[:-4])


def test_a_label_may_not_reach_into_the_next_packet() -> None:
    judge = PacketJudge()
    judged(judge, NEIGHBOUR)
    at = len(NEIGHBOUR) - 56
    damaged = bytearray(NEIGHBOUR)
    damaged[at + 1] = 4
    check(judge, bytes(damaged))
    try:  # the last packet of its block: there is nothing to reach into
        verdict = judge.judge(bytes(damaged), 0, len(damaged))
    except ProtocolError as error:
        assert "MessagePropertiesHeader" in error.field
    else:
        raise AssertionError(verdict)


SID = bytes.fromhex("010500000000000515000000") + bytes(range(16))
TRANSACTION = TransactionHeader(TxSequenceId(time_stamp=9, ordinal=1), 5, 4)


@pytest.mark.parametrize("transaction", [None, TRANSACTION])
def test_a_sender_named_before_is_not_parsed_again(transaction: TransactionHeader | None) -> None:
    def raw(body: bytes, security: SecurityHeader) -> bytes:
        header = UserHeader(bytes(16), DirectQueueFormatName("OS:h\\q"), is_recoverable=True)
        return write_packet(
            UserMessage(
                header,
                MessagePropertiesHeader(body, "label"),
                transaction,
                security,
                priority=0,
            )
        )

    judge = PacketJudge()
    named = SecurityHeader(sender_id_type=1, security_id=SID)
    assert isinstance(judged(judge, raw(b"first", named)), UserMessage)
    for body in (b"second", b"third", b"longer than those before"):
        assert judged(judge, raw(body, named)) is None
    for other in (
        structs.replace(named, security_id=SID[::-1]),
        structs.replace(named, is_body_encrypted=True, encryption_key=b"key"),
        structs.replace(named, signature=b"signed", sender_cert=b"certificate"),
    ):
        assert isinstance(judged(judge, raw(b"body", other)), UserMessage)
        check(judge, raw(b"body", other))
    sound = raw(b"body", named)
    for at in range(16, len(sound)):
        check(judge, sound[:at] + bytes((sound[at] ^ 0xFF,)) + sound[at + 1 :])
        check(judge, sound)


def test_shapes_are_bounded() -> None:
    judge = PacketJudge()
    for number in range(SHAPES_MAX + 1):
        name = DirectQueueFormatName(f"OS:h\\q{number}")
        judged(
            judge, write_packet(UserMessage(UserHeader(bytes(16), name), MessagePropertiesHeader()))
        )
    first = write_packet(
        UserMessage(
            UserHeader(bytes(16), DirectQueueFormatName("OS:h\\q0")), MessagePropertiesHeader()
        )
    )
    assert isinstance(judged(judge, first), UserMessage)
