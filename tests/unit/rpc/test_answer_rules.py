"""How answers are cut and protected, whatever the size, the level and the security context."""

import struct
from collections.abc import Sequence

import pytest
from typing_extensions import override

from qm.rpc.association.calls import IncomingCall
from qm.rpc.pdu.call import request_head
from qm.rpc.pdu.codes import AuthLevel, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, write_header, write_pdu, write_trailer
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.provider import Buffers, Identity, Provider
from tests.unit.rpc.dialogue import WHOLE, Client, served
from tests.unit.rpc.test_security_contexts import NTLM, Secured

LEVELS = [AuthLevel.PACKET, AuthLevel.INTEGRITY, AuthLevel.PRIVACY]


def asked(client: Secured, who: NtlmClient, level: AuthLevel, number: int) -> None:
    """Make a call under a security context, without parameters."""
    head, trailer = request_head(0, 0, 0), write_trailer(NTLM, level, 0, number)
    header = write_header(PduType.REQUEST, WHOLE, 5, 24 + 8 + 16, 16)
    body, token = who.protect(level, Buffers(header + head, b"", trailer), signs_header=True)
    assert client.send(header + head + body + trailer + token) == []


def plain_stub(who: NtlmClient, level: AuthLevel, pdu: Pdu) -> bytes:
    """The stub of a protected fragment, whose signature holds."""
    assert pdu.trailer is not None
    buffers = Buffers(pdu.header + pdu.body[:8], pdu.body[8:], pdu.trailer.raw)
    body = who.unprotect(level, buffers, pdu.trailer.token, signs_header=True)
    return body[: len(body) - pdu.trailer.pad_length]


@pytest.mark.spec(
    "RP-C706-12.6.4.10-01",
    "RP-C706-12.6.4.10-02",
    "RP-C706-12.6.4.10-03",
    "RP-C706-12.6.4.10-04",
    "RP-RPCE-3.3.1.5.2.2-05",
)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("largest", "room"), [(2048, 2000), (4280, 4224)])
def test_a_protected_answer_is_cut_with_room_for_its_signature(
    level: AuthLevel, largest: int, room: int
) -> None:
    for size in (0, 1, room - 1, room, room + 1, 2 * room, 2 * room + 9):
        client = Secured()
        client.bind(sizes=(largest, largest))
        who = client.logged_on(7, level)
        asked(client, who, level, 7)
        stub = bytes(k % 251 for k in range(size))
        answers = client.respond(client.call(), stub)
        count = max(-(-size // room), 1)
        assert len(answers) == count
        for number, pdu in enumerate(answers):
            wanted = (1 if number == 0 else 0) | (2 if number == count - 1 else 0)
            assert pdu.flags == wanted
            left = size - number * room
            assert struct.unpack_from("<I", pdu.body) == (left,)
            assert plain_stub(who, level, pdu) == stub[number * room : (number + 1) * room]
            assert pdu.trailer is not None
            told = (pdu.trailer.auth_type, pdu.trailer.level, pdu.trailer.context_id)
            assert told == (10, int(level), 7), "as the call"
            whole = 16 + len(pdu.body) + 8 + len(pdu.trailer.token)
            assert struct.unpack_from("<HH", pdu.header, 8) == (whole, 16)
            assert whole <= largest
            if number < count - 1:
                assert pdu.trailer.pad_length == 0
                assert whole > largest - 16, "no more of it has room"


@pytest.mark.spec("RP-C706-12.6.4.10-02", "RP-C706-12.6.4.10-04")
def test_answers_of_two_calls_come_one_behind_the_other() -> None:
    client = Client()
    client.bind(flags=WHOLE | PduFlag.CONC_MPX, sizes=(2048, 2048))
    calls: list[IncomingCall] = []
    for number in (2, 3):
        client.request(number)
        calls.append(client.call())
    for call in reversed(calls):
        client.connection.respond(call, bytes(5000))
    told = [(pdu.call_id, pdu.flags) for pdu in client.answers()]
    assert told == [(3, 1), (3, 0), (3, 2), (2, 1), (2, 0), (2, 2)]
    client.request(4)
    for pdu in client.respond(client.call(), bytes(9000)):
        assert len(pdu.header) + len(pdu.body) <= 2048


class Tokens(Provider):
    """Protects nothing, with tokens as large as those of Kerberos with AES."""

    @property
    @override
    def identity(self) -> Identity:
        return Identity("alice", ())

    @property
    @override
    def is_done(self) -> bool:
        return True

    @override
    def step(self, token: bytes) -> bytes:
        return b"done"

    @override
    def signature_size(self, level: AuthLevel) -> int:
        return 76 if level is AuthLevel.PRIVACY else 28

    @override
    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        return buffers.body, b"\xaa" * self.signature_size(level)

    @override
    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        return buffers.body


class OfferedTokens:
    def begin(self, auth_type: int, level: AuthLevel, address: str) -> Provider | None:
        return Tokens()


@pytest.mark.spec("RP-RPCE-2.2.2.12-01", "RP-C706-12.6.4.10-04")
@pytest.mark.parametrize(
    ("level", "size"), [(AuthLevel.PACKET, 28), (AuthLevel.INTEGRITY, 28), (AuthLevel.PRIVACY, 76)]
)
def test_a_token_is_as_large_as_its_provider_has_it_for_the_level(
    level: AuthLevel, size: int
) -> None:
    client = Client(served(providers=OfferedTokens()))
    client.bind(sizes=(2048, 2048), trailer=Trailer(16, level, 3, b"ticket"))
    trailer = Trailer(16, level, 3, bytes(size))
    client.send(write_pdu(PduType.REQUEST, WHOLE, 2, request_head(0, 0, 0), trailer))
    client.connection.respond(client.call(), bytes(5000))
    raw = client.connection.take_output()
    stub = 0
    while raw:
        length, auth_length = struct.unpack_from("<HH", raw, 8)
        assert length <= 2048
        assert auth_length == size
        head, token = raw[length - size - 8 : length - size], raw[length - size : length]
        assert (head[:2], head[4:]) == (bytes((16, level)), b"\3\0\0\0")
        assert token == b"\xaa" * size
        assert b"\xaa" not in raw[: length - size], "one, at the end"
        stub += length - 24 - head[2] - 8 - size
        raw = raw[length:]
    assert stub == 5000
