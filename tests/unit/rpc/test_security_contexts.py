"""Security contexts of connections: which leg and which signature is answered with what.

The codes are those of Samba's PDU tests, which were verified against Windows.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from qm.rpc.association.calls import IncomingCall
from qm.rpc.association.shared import Share, Shared
from qm.rpc.pdu.call import parse_fault, request_head
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, write_header, write_pdu, write_trailer
from qm.rpc.security import der
from qm.rpc.security.accounts import Account
from qm.rpc.security.ntlm import NtlmClient
from qm.rpc.security.ntlm_keys import nt_hash
from qm.rpc.security.ntlm_messages import parse_challenge
from qm.rpc.security.provider import Buffers, Provider
from qm.rpc.security.providers import OfferedProviders
from qm.rpc.security.spnego import OID_NTLM, SpnegoClient
from qm.security.sid import sid_from_text
from tests.unit.rpc.dialogue import ECHO, LOCKED, WHOLE, Client, served, status_of
from tests.unit.rpc.test_security import FILETIME, TARGET, World, counting

NTLM: Final = int(AuthType.NTLM)
ACCESS_DENIED, SECURITY_PACKAGE, PROTOCOL_ERROR = 5, 0x721, 0x1C01000B
SIDS: Final = (("alice", "S-1-5-21-1-2-3-1001"), ("bob", "S-1-5-21-1-2-3-1002"))


def logon(password: str = "S3cret!", name: str = "alice") -> NtlmClient:
    return NtlmClient(name, password, "", counting())


class Secured(Client):
    """A client that logs on."""

    def __init__(self, accounts: Sequence[Account] = (), **offers: object) -> None:
        logons = World(*accounts).logons
        offered = OfferedProviders(lambda: TARGET, logons, counting(), lambda: FILETIME)
        super().__init__(served(providers=offered, **offers))

    def leg(
        self,
        token: bytes,
        number: int = 1,
        *,
        kind: PduType = PduType.ALTER_CONTEXT,
        level: int = AuthLevel.INTEGRITY,
        auth_type: int = NTLM,
    ) -> Pdu:
        return self.bind(trailer=Trailer(auth_type, level, number, token), kind=kind)

    def last_leg(self, token: bytes, number: int = 1, pad: int = 0) -> list[Pdu]:
        head = write_trailer(NTLM, AuthLevel.INTEGRITY, pad, number)
        length = 16 + 4 + len(head) + len(token)
        header = write_header(PduType.AUTH3, WHOLE, 1, length, len(token))
        return self.send(header + bytes(4) + head + token)

    def logged_on(
        self, number: int = 1, level: int = AuthLevel.INTEGRITY, name: str = "alice"
    ) -> NtlmClient:
        """Log on beside what there is."""
        client = logon(name=name)
        answer = self.leg(client.step(b""), number, level=level)
        assert answer.trailer is not None
        self.leg(client.step(answer.trailer.token), number, level=level)
        return client

    def signed(
        self,
        client: Provider,
        stub: bytes,
        *,
        flags: int,
        named: int = 1,
        level: int = 5,
        auth_type: int = NTLM,
    ) -> list[Pdu]:
        """Send a fragment of call 5, signed by `client`, naming any context."""
        head = request_head(0, 0, len(stub))
        trailer = write_trailer(auth_type, level, 0, named)
        header = write_header(PduType.REQUEST, flags, 5, 24 + len(stub) + 8 + 16, 16)
        buffers = Buffers(header + head, stub, trailer)
        body, token = client.protect(AuthLevel.INTEGRITY, buffers, signs_header=True)
        return self.send(header + head + body + trailer + token)


def bound() -> Secured:
    client = Secured()
    client.bound()
    return client


def test_two_contexts_log_on_one_beside_the_other() -> None:
    client = bound()
    first, second = client.logged_on(1), client.logged_on(2)
    for one, number in ((second, 2), (first, 1)):
        assert client.signed(one, b"abcd", flags=WHOLE, named=number) == []
        call = client.call()
        assert (call.stub, call.identity.name) == (b"abcd", "alice")
        client.respond(call, b"")


@pytest.mark.spec("RP-RPCE-2.2.1.1.8-03")
@pytest.mark.parametrize("least", [AuthLevel.PACKET, AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
def test_a_context_below_the_level_of_an_interface_reaches_no_method(least: AuthLevel) -> None:
    for level in (AuthLevel.CONNECT, AuthLevel.PACKET, AuthLevel.INTEGRITY):
        client = Secured(levels={ECHO.syntax.uuid: least})
        client.bound()
        who = client.logged_on(level=level)
        answers = client.signed(who, b"abcd", flags=WHOLE, level=level)
        if level >= least:
            assert client.call().stub == b"abcd"
        else:
            assert status_of(answers) == ACCESS_DENIED
            assert client.events == []


@pytest.mark.spec("RP-RPCE-2.2.1.1.8-03", "RP-RPCE-3.1.1.5.4-01")
def test_whoever_logs_on_is_protected_even_where_nobody_has_to() -> None:
    uuid, other = ECHO.syntax.uuid, LOCKED.syntax.uuid
    levels = {uuid: AuthLevel.PRIVACY}
    for anonymous in (frozenset({uuid}), frozenset({other}), frozenset[bytes]()):
        client = Secured(levels=levels, anonymous=anonymous)
        client.bound(ECHO)
        if uuid in anonymous:
            assert client.request(2, b"abcd") == []
            call = client.call()
            assert (call.stub, call.identity.is_authenticated) == (b"abcd", False)
            client.respond(call, b"")
        else:
            assert status_of(client.request(2, b"abcd")) == ACCESS_DENIED
            assert client.events == []
        for level in (AuthLevel.CONNECT, AuthLevel.PACKET, AuthLevel.INTEGRITY):
            who = client.logged_on(level, level)
            answers = client.signed(who, b"abcd", flags=WHOLE, named=level, level=level)
            assert status_of(answers) == ACCESS_DENIED, level
            assert client.events == []


@pytest.mark.spec("RP-RPCE-3.3.3.4.3-01", "RP-RPCE-3.3.1.5.4-01")
def test_a_call_is_of_whoever_logged_on_in_its_context() -> None:
    accounts = [Account(name, nt_hash("S3cret!"), (sid_from_text(sid),)) for name, sid in SIDS]
    client = Secured(accounts)
    client.bound()
    who = {number: client.logged_on(number, name=name) for number, (name, _) in enumerate(SIDS, 1)}
    for number in (2, 1, 2, 1):
        assert client.signed(who[number], b"abcd", flags=WHOLE, named=number) == []
        call = client.call()
        name, sid = SIDS[number - 1]
        assert (call.identity.name, call.identity.sids[0]) == (name, sid_from_text(sid))
        client.respond(call, b"")
    client.request(9)
    assert not client.call().identity.is_authenticated


@pytest.mark.spec("RP-RPCE-3.3.3.5.3-01", "RP-RPCE-2.2.1.1.7-02")
@pytest.mark.parametrize("auth_type", [1, 14, 16, 68, 255])
def test_an_unknown_provider_disturbs_no_context(auth_type: int) -> None:
    refused = Secured()
    nak = refused.leg(b"token", kind=PduType.BIND, auth_type=auth_type)
    assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, b"\x08\0")
    assert refused.connection.is_closing
    client = bound()
    who, waiting = client.logged_on(), logon()
    answer = client.leg(waiting.step(b""), 3)
    assert status_of([client.leg(b"token", 2, auth_type=auth_type)]) == ACCESS_DENIED
    assert client.signed(who, b"abcd", flags=WHOLE) == []
    call = client.call()
    assert (call.stub, call.identity.name) == (b"abcd", "alice")
    client.respond(call, b"")
    # Neither one that is not complete.
    assert answer.trailer is not None
    client.leg(waiting.step(answer.trailer.token), 3)
    assert client.signed(waiting, b"efgh", flags=WHOLE, named=3) == []
    assert client.call().stub == b"efgh"


@pytest.mark.spec("RP-RPCE-2.2.1.1.7-02")
@pytest.mark.parametrize("auth_type", [1, 14, 255])
@pytest.mark.parametrize("level", [0, 1, 7, 255])
def test_the_level_of_a_bind_is_judged_before_its_provider(auth_type: int, level: int) -> None:
    """As Windows does by Samba's test_auth_none_none_bind, _0, _7 and _255."""
    client = Secured()
    nak = client.leg(b"token", kind=PduType.BIND, level=level, auth_type=auth_type)
    assert (nak.kind, nak.body[:2]) == (PduType.BIND_NAK, b"\0\0")
    assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-2.2.1.1.8-02")
def test_level_call_counts_as_packet() -> None:
    client = bound()
    logged_on = client.logged_on(level=AuthLevel.CALL)
    assert client.signed(logged_on, b"abcd", flags=WHOLE, level=AuthLevel.CALL) == []
    call = client.call()
    assert call.security is not None
    # As at level 4: what is answered is signed, and what is not signed is refused.
    (answer,) = client.respond(call, b"abcd")
    assert answer.trailer is not None
    assert (answer.trailer.level, len(answer.trailer.token)) == (AuthLevel.PACKET, 16)
    other = bound()
    other.logged_on(level=AuthLevel.CALL)
    stranger = bound().logged_on(level=AuthLevel.CALL)
    stranger._keys().sign(b"one more than was sent")
    assert status_of(other.signed(stranger, b"abcd", flags=WHOLE, level=AuthLevel.CALL)) == (
        SECURITY_PACKAGE
    )
    assert other.events == []
    low = client.logged_on(2, AuthLevel.CONNECT)
    assert low.is_done
    raw = write_pdu(
        PduType.REQUEST, WHOLE, 6, request_head(0, 0, 0), Trailer(NTLM, 4, 2, bytes(16))
    )
    assert status_of(client.send(raw)) == ACCESS_DENIED  # a level that was not agreed
    assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-2.2.2.11-01", "RP-RPCE-3.3.1.5.2.1-05")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"level": AuthLevel.PRIVACY}, ACCESS_DENIED),
        ({"level": AuthLevel.CONNECT}, ACCESS_DENIED),
        ({"auth_type": AuthType.SPNEGO}, SECURITY_PACKAGE),
        ({"auth_type": 0}, ACCESS_DENIED),
        ({"token": b"no token"}, SECURITY_PACKAGE),
    ],
)
def test_a_leg_that_does_not_fit_ends_the_connection(
    change: dict[str, object], status: int
) -> None:
    client, mine = bound(), logon()
    answer = client.leg(mine.step(b""))
    assert answer.trailer is not None
    values = {"token": mine.step(answer.trailer.token), **change}
    assert status_of([client.leg(**values)]) == status  # type: ignore[arg-type]
    assert client.connection.is_closing


def test_a_wrong_password_and_a_second_logon_end_the_connection() -> None:
    client, mine = bound(), logon("wrong")
    answer = client.leg(mine.step(b""))
    assert answer.trailer is not None
    assert status_of([client.leg(mine.step(answer.trailer.token))]) == SECURITY_PACKAGE
    again = bound()
    again.logged_on()
    assert status_of([again.leg(logon().step(b""))]) == ACCESS_DENIED
    assert (client.connection.is_closing, again.connection.is_closing) == (True, True)


def test_more_contexts_than_the_limit_are_a_protocol_error() -> None:
    client = bound()
    for number in range(64):
        assert client.leg(logon().step(b""), number).kind is PduType.ALTER_CONTEXT_RESPONSE
    assert status_of([client.leg(logon().step(b""), 64)]) == PROTOCOL_ERROR


def test_a_connection_may_log_on_as_often_as_windows_clients_do() -> None:
    """Each logon session of a client's machine needs a context, and none ends while one reads."""
    shared = Shared()
    shared.security_contexts = Share(64, 2_048, 1_000)
    client = Secured(shared=shared)
    client.bound()
    first = client.logged_on(0)
    for number in range(1, 1_000):
        last = client.logged_on(number)
    for mine, number in ((first, 0), (last, 999)):
        assert client.signed(mine, b"abcd", flags=WHOLE, named=number) == []
        client.respond(client.call(), b"")
    other = Secured(shared=shared)
    other.bound()
    for number in range(128):
        other.logged_on(number)
    assert status_of([other.leg(logon().step(b""), 128)]) == PROTOCOL_ERROR
    client.connection.close()
    more = Secured(shared=shared)
    more.bound()
    for number in range(129):
        more.logged_on(number)


def test_auth3_that_cannot_be_a_last_leg_is_answered() -> None:
    client, mine = bound(), logon()
    answer = client.leg(mine.step(b""))
    assert answer.trailer is not None
    padded = client.last_leg(mine.step(answer.trailer.token), pad=1)
    assert status_of(padded) == 0x1C00001B
    done = bound()
    done.logged_on()
    assert status_of(done.last_leg(logon().step(b""))) == PROTOCOL_ERROR
    assert (client.connection.is_closing, done.connection.is_closing) == (True, True)


@pytest.mark.spec("RP-RPCE-2.2.2.10-03", "RP-RPCE-2.2.2.10-02")
def test_after_a_failed_auth3_no_request_is_taken() -> None:
    client, mine = bound(), logon("wrong")
    answer = client.leg(mine.step(b""))
    assert answer.trailer is not None
    assert client.last_leg(mine.step(answer.trailer.token)) == []
    assert status_of(client.request(2)) == ACCESS_DENIED  # though it is not protected
    assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-2.2.2.10-02")
@pytest.mark.parametrize(
    ("auth_type", "level", "is_damaged"),
    [(NTLM, 5, True), (NTLM, 6, False), (NTLM, 4, False), (9, 5, False), (16, 5, False)],
)
def test_an_auth3_that_fails_is_not_answered(auth_type: int, level: int, is_damaged: bool) -> None:
    client, mine = bound(), logon()
    answer = client.leg(mine.step(b""))
    assert answer.trailer is not None
    token = b"no token" if is_damaged else mine.step(answer.trailer.token)
    head = write_trailer(auth_type, level, 0, 1)
    header = write_header(PduType.AUTH3, WHOLE, 1, 16 + 4 + 8 + len(token), len(token))
    assert client.send(header + bytes(4) + head + token) == []
    assert not client.connection.is_closing
    assert status_of(client.request(2)) == ACCESS_DENIED


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-07")
def test_a_call_is_verified_by_the_context_of_its_first_fragment() -> None:
    client = bound()
    first, _ = client.logged_on(1), client.logged_on(2)
    assert client.signed(first, b"ab", flags=PduFlag.FIRST) == []
    assert client.signed(first, b"cd", flags=PduFlag.LAST, named=77, level=99) == []
    call = client.call()
    assert isinstance(call, IncomingCall)
    assert call.stub == b"abcd"
    client.respond(call, b"")
    assert client.signed(first, b"ab", flags=PduFlag.FIRST) == []
    (fault,) = client.signed(first, b"cd", flags=PduFlag.FIRST)
    assert parse_fault(fault) == PROTOCOL_ERROR


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-07")
@pytest.mark.parametrize("flags", [PduFlag.FIRST, PduFlag.LAST])
def test_a_fragment_signed_by_another_context_ends_the_connection(flags: int) -> None:
    client = bound()
    first, second = client.logged_on(1), client.logged_on(2)
    assert client.signed(first, b"ab", flags=PduFlag.FIRST) == []
    assert status_of(client.signed(second, b"cd", flags=flags, named=2)) == SECURITY_PACKAGE
    assert client.connection.is_closing


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.2-07", "RP-RPCE-2.2.2.12-01")
def test_a_call_that_is_protected_in_part_ends_the_connection() -> None:
    client = bound()
    first = client.logged_on()
    assert client.signed(first, b"ab", flags=PduFlag.FIRST) == []
    assert status_of(client.request(5, b"cd", flags=PduFlag.LAST)) == PROTOCOL_ERROR


def test_header_signing_may_be_agreed_later() -> None:
    client = bound()
    assert not client.connection.signs_header
    client.bind(ECHO, kind=PduType.ALTER_CONTEXT, flags=WHOLE | PduFlag.SUPPORT_HEADER_SIGN)
    assert client.connection.signs_header


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.1-01")
def test_spnego_cannot_end_by_auth3() -> None:
    client, mine = bound(), SpnegoClient(logon())
    answer = client.leg(mine.step(b""), auth_type=AuthType.SPNEGO)
    assert answer.trailer is not None
    token = mine.step(answer.trailer.token)
    raw = write_pdu(PduType.AUTH3, WHOLE, 1, bytes(4), Trailer(9, 5, 1, token))
    assert client.send(raw) == []
    assert status_of(client.request(2)) == ACCESS_DENIED


def test_ntlm_without_spnego_under_its_type_ends_by_auth3() -> None:
    client, mine = bound(), logon()
    answer = client.leg(mine.step(b""), auth_type=AuthType.SPNEGO)
    assert answer.trailer is not None
    token = mine.step(answer.trailer.token)
    raw = write_pdu(PduType.AUTH3, WHOLE, 1, bytes(4), Trailer(9, 5, 1, token))
    assert client.send(raw) == []
    assert client.signed(mine, b"ab", flags=WHOLE, auth_type=AuthType.SPNEGO) == []
    call = client.call()
    assert (call.stub, call.identity.name) == (b"ab", "alice")


def negotiation(answer: Pdu) -> tuple[bytes, bytes]:
    """State and mechanism's token of the NegTokenResp in an answer to a leg."""
    assert answer.trailer is not None
    assert answer.trailer.auth_type == AuthType.SPNEGO
    raw = der.read(der.read(answer.trailer.token, 0xA1), der.SEQUENCE)
    fields = {tag: content for tag, content, _ in der.items(raw)}
    return fields[0xA0], der.read(fields[0xA2], der.OCTETS) if 0xA2 in fields else b""


@pytest.mark.spec("RP-SPNG-3.2.5-04")
def test_ntlm_inside_spnego_takes_a_bind_and_an_alter_context() -> None:
    kind = int(AuthType.SPNEGO)
    client, who = Secured(), SpnegoClient(logon())
    first = client.leg(who.step(b""), kind=PduType.BIND, auth_type=kind)
    state, token = negotiation(first)
    assert (first.kind, state) == (PduType.BIND_ACK, b"\x0a\1\1"), "accept-incomplete"
    assert parse_challenge(token)[1] == counting()(8)
    assert first.trailer is not None
    last = client.leg(who.step(first.trailer.token), auth_type=kind)
    state, token = negotiation(last)
    assert (last.kind, state) == (PduType.ALTER_CONTEXT_RESPONSE, b"\x0a\1\0"), "accept-completed"
    assert token == b""
    assert last.trailer is not None
    who.step(last.trailer.token)
    assert who.is_done
    assert client.signed(who, b"abcd", flags=WHOLE, auth_type=kind) == []
    call = client.call()
    assert (call.stub, call.identity.name) == (b"abcd", "alice")
    # The last leg is not auth3, which has no answer.
    client, who = Secured(), SpnegoClient(logon())
    first = client.leg(who.step(b""), kind=PduType.BIND, auth_type=kind)
    assert first.trailer is not None
    given = Trailer(kind, AuthLevel.INTEGRITY, 1, who.step(first.trailer.token))
    assert client.send(write_pdu(PduType.AUTH3, WHOLE, 2, bytes(4), given)) == []
    denied = client.signed(who, b"abcd", flags=WHOLE, auth_type=kind)
    assert status_of(denied) == ACCESS_DENIED
    assert client.events == []


@pytest.mark.spec("RP-SPNG-3.2.5-03")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_negotiation_that_fails_outside_of_a_bind_is_a_fault(is_first: bool) -> None:
    """The fault that [MS-RPCE] 3.3.1.5.2.1 demands has no room for a token that says `reject`."""
    kind = int(AuthType.SPNEGO)
    client, who = bound(), SpnegoClient(logon("wrong"))
    token = who.step(b"").replace(OID_NTLM, bytes(len(OID_NTLM)) if is_first else OID_NTLM)
    answer = client.leg(token, auth_type=kind)
    if not is_first:
        assert answer.trailer is not None
        answer = client.leg(who.step(answer.trailer.token), auth_type=kind)
    assert (answer.kind, parse_fault(answer), answer.trailer) == (
        PduType.FAULT,
        SECURITY_PACKAGE,
        None,
    )
    assert client.connection.is_closing
