"""Sealed bodies: what a seal hides, what it binds, and which keys open it."""

import os
from itertools import pairwise

import pytest

from qm.model.values.limits import APPLY_VERSION, VERSION_OF_SEALED_BODIES
from qm.security import body_seals
from qm.security.body_seals import (
    NONCE_BYTES,
    SALT_BYTES,
    SEAL_BYTES,
    BodyOpener,
    BodySealer,
    SealBroken,
    generation_key,
    is_sealed,
)
from qm.wire.headers.security_header import SecurityHeader
from qm.wire.packets.user_message import parse_user_message
from tests.unit.model.world import direct, packet

SEALING_KEY = bytes(range(32))
SECRET = b"nobody but the receiver reads this"


def message(body: bytes = SECRET) -> bytes:
    return packet(1, body=body)


def key_of(generation: int) -> bytes:
    return generation_key(SEALING_KEY, generation)


def sealer(generation: int = 1) -> BodySealer:
    return BodySealer(key_of(generation), generation, os.urandom)


@pytest.mark.parametrize("body", [b"", b"x", SECRET, bytes(4 << 20)[: (4 << 20) - 400]])
def test_a_sealed_packet_opens_to_the_same_bytes(body: bytes) -> None:
    plain = message(body)
    stored = sealer().sealed(plain)
    assert (is_sealed(plain), is_sealed(stored)) == (False, True)
    assert len(stored) == len(plain) + SEAL_BYTES
    assert BodyOpener(key_of).opened(stored) == plain


def test_a_packet_with_a_security_header_opens_to_the_same_bytes() -> None:
    security = SecurityHeader(signature=b"s" * 64, sender_cert=b"c" * 99)
    plain = packet(1, body=SECRET, security=security)
    assert BodyOpener(key_of).opened(sealer().sealed(plain)) == plain


def test_the_body_is_hidden_and_the_headers_stay_readable() -> None:
    plain, stored = message(), sealer().sealed(message())
    assert SECRET in plain
    assert not any(SECRET[k : k + 4] in stored for k in range(len(SECRET) - 3))
    before, end = parse_user_message(plain, 0, len(plain))
    after, sealed_end = parse_user_message(stored, 0, len(stored))
    assert end == sealed_end == len(plain)
    assert after.user_header == before.user_header
    assert after.properties.label == before.properties.label
    assert len(after.properties.message_body) == len(SECRET)


def test_equal_messages_have_nothing_in_common_but_their_headers() -> None:
    one = sealer()
    first, second = one.sealed(message()), one.sealed(message())
    assert first != second
    begin = message().index(SECRET)
    assert first[begin : begin + len(SECRET)] != second[begin : begin + len(SECRET)]


def test_each_altered_byte_is_found() -> None:
    """Of headers, body and seal; altered sizes never raise anything else."""
    stored, opener = sealer().sealed(message()), BodyOpener(key_of)
    for at in range(len(stored)):
        for bit in (0x01, 0x80):
            altered = bytearray(stored)
            altered[at] ^= bit
            with pytest.raises(SealBroken):
                opener.opened(bytes(altered))


@pytest.mark.parametrize("left", [SEAL_BYTES - 1, 1, SEAL_BYTES + 1])
def test_a_seal_of_another_length_is_none(left: int) -> None:
    stored = sealer().sealed(message())
    with pytest.raises(SealBroken):
        BodyOpener(key_of).opened((stored + bytes(8))[: len(message()) + left])


def test_a_body_does_not_open_under_other_headers() -> None:
    stored = sealer().sealed(message())
    other = packet(99, body=SECRET)
    begin = message().index(SECRET)
    moved = other[:begin] + stored[begin:]
    with pytest.raises(SealBroken):
        BodyOpener(key_of).opened(moved)


def test_another_sealing_key_opens_nothing_and_older_generations_open() -> None:
    old, new = sealer(1).sealed(message()), sealer(2).sealed(message())
    opener = BodyOpener(key_of)
    assert opener.opened(old) == opener.opened(new) == message()
    with pytest.raises(SealBroken, match="another sealing key"):
        BodyOpener(lambda number: generation_key(bytes(32), number)).opened(old)
    with pytest.raises(SealBroken):
        BodyOpener(lambda _: key_of(3)).opened(new)


def test_a_salt_is_renewed_before_nonces_may_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_seals, "SEALS_PER_SALT_MAX", 2)
    monkeypatch.setattr(body_seals, "NONCES_DRAWN", 2)
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return len(asked).to_bytes(size, "big")

    one = BodySealer(key_of(1), 1, random)
    stored = [one.sealed(message()) for _ in range(3)]
    assert asked == [SALT_BYTES, 2 * NONCE_BYTES, SALT_BYTES, 2 * NONCE_BYTES]
    assert {BodyOpener(key_of).opened(each) for each in stored} == {message()}


def test_a_reader_remembers_a_bounded_number_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_seals, "OPENERS_MAX", 2)
    asked: list[int] = []

    def counted(generation: int) -> bytes:
        asked.append(generation)
        return key_of(generation)

    opener = BodyOpener(counted)
    stored = [sealer(generation).sealed(message()) for generation in (1, 2, 3)]
    for each in (*stored, stored[2], stored[0]):
        assert opener.opened(each) == message()
    assert asked == [1, 2, 3, 1]


def test_a_run_is_sealed_packet_by_packet() -> None:
    plain = [message(b"a"), message(b"bb" * 40), message(b"")]
    offsets = [0]
    for each in plain:
        offsets.append(offsets[-1] + len(each))
    block, bounds = sealer().sealed_run(b"".join(plain) + b"beyond", offsets)
    assert len(block) == bounds[-1]
    opener = BodyOpener(key_of)
    assert [opener.opened(block[begin:end]) for begin, end in pairwise(bounds)] == plain


def test_packets_of_every_layout_follow_each_other() -> None:
    """What is remembered of one is not taken for another."""
    one, opener = sealer(), BodyOpener(key_of)
    security = SecurityHeader(signature=b"s" * 64)
    plain = [
        packet(1, body=SECRET),
        packet(2, body=SECRET, to="a longer name"),
        packet(3, body=SECRET, sequence=(1, 1, 0)),
        packet(4, body=SECRET, sequence=(1, 2, 1), connector_type=bytes(range(16))),
        packet(5, body=SECRET, security=security),
        packet(6, body=SECRET, sequence=(1, 3, 2), security=security),
        packet(7, body=SECRET, response_queue=direct("answers")),
        packet(8, body=SECRET, properties={"label": "label", "extension_data": b"more"}),
    ]
    for order in (plain, plain[::-1], [each for each in plain for _ in range(2)]):
        stored = [one.sealed(each) for each in order]
        assert [SECRET in each for each in stored] == [False] * len(order)
        assert [opener.opened(each) for each in stored] == order


def test_this_build_knows_sealed_bodies() -> None:
    assert VERSION_OF_SEALED_BODIES <= APPLY_VERSION
