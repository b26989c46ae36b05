"""Rules of logging on by NTLM and SPNEGO, each where it could be broken alone."""

import secrets
import struct

import pytest

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security import der
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmClient
from qm.rpc.security.ntlm_keys import SessionKeys, mic_of, nt_hash, response_key, session_key
from qm.rpc.security.ntlm_messages import (
    AvId,
    NtlmFlag,
    negotiate_flags,
    parse_authenticate,
    parse_challenge,
    parse_pairs,
    write_challenge,
    write_negotiate,
    write_pairs,
)
from qm.rpc.security.spnego import OID_NTLM, SpnegoAcceptor, SpnegoClient
from tests.unit.rpc.test_security import FILETIME, TARGET, World, counting

FLAGS_OF_NEGOTIATE_AT, DOMAIN_AT, WORKSTATION_AT = 12, 16, 24
FLAGS_OF_AUTHENTICATE_AT, MIC_AT = 60, 72
CHANNEL_BINDINGS = 10
KERBEROS_OIDS = (
    bytes.fromhex("2a864886f712010202"),
    bytes.fromhex("2a864882f712010202"),
)


def client() -> NtlmClient:
    return NtlmClient("alice", "S3cret!", "", counting())


def logged_on(acceptor: NtlmAcceptor, mine: NtlmClient, token: bytes) -> str:
    acceptor.step(mine.step(acceptor.step(token)))
    return acceptor.identity.name


@pytest.mark.spec("RP-NLMP-2.2.1.1-02")
def test_names_of_a_negotiate_are_not_looked_at() -> None:
    plain = client().step(b"")
    flags = negotiate_flags(plain) | 0x1000 | 0x2000  # names are supplied
    names = b"DOMAIN" + b"WORKSTATION"
    for lengths in ((6, 11), (0xFFFF, 0xFFFF)):
        named = bytearray(plain.ljust(40, b"\0"))
        struct.pack_into("<I", named, FLAGS_OF_NEGOTIATE_AT, flags)
        for at, length in zip((DOMAIN_AT, WORKSTATION_AT), lengths, strict=True):
            struct.pack_into("<HHI", named, at, length, length, 40)
        # The MIC is of what was sent: here the client's side says so, too.
        mine = client()
        mine.step(b"")
        mine._negotiate_raw = bytes(named) + names
        assert logged_on(World().ntlm(), mine, bytes(named) + names) == "alice"


@pytest.mark.spec("RP-NLMP-2.2.1.2-02")
def test_every_exchange_has_a_challenge_of_its_own() -> None:
    world = World()
    challenges = set()
    for _ in range(64):
        acceptor = NtlmAcceptor(
            AuthLevel.PRIVACY, "10.0.0.9", TARGET, world.logons, secrets.token_bytes, lambda: 1
        )
        _, challenge, _ = parse_challenge(acceptor.step(client().step(b"")))
        assert len(challenge) == 8
        challenges.add(challenge)
    assert len(challenges) == 64


@pytest.mark.spec("RP-NLMP-2.2.2.5-04")
def test_flags_that_were_not_in_the_challenge_say_nothing() -> None:
    needed = NtlmFlag.UNICODE | NtlmFlag.EXTENDED_SESSIONSECURITY | NtlmFlag.KEY_128 | NtlmFlag.SIGN
    acceptor, mine = World().ntlm(AuthLevel.INTEGRITY), client()
    negotiate = write_negotiate(needed)
    challenge = acceptor.step(negotiate)
    offered, _, _ = parse_challenge(challenge)
    assert not offered & NtlmFlag.KEY_EXCH
    mine.step(b"")
    token = bytearray(mine.step(challenge))
    # Everything but ANONYMOUS, and the key exchange that nobody agreed on among it.
    flags = 0xFFFF_FFFF & ~NtlmFlag.ANONYMOUS
    struct.pack_into("<I", token, FLAGS_OF_AUTHENTICATE_AT, flags)
    token[MIC_AT : MIC_AT + 16] = bytes(16)
    proof = parse_authenticate(bytes(token)).nt_response[:16]
    exported = session_key(response_key(nt_hash("S3cret!"), "alice", ""), proof)
    token[MIC_AT : MIC_AT + 16] = mic_of(exported, negotiate, challenge, bytes(token))
    assert acceptor.step(bytes(token)) == b""
    theirs = SessionKeys(exported, offered, is_server=False)
    assert acceptor.keys is not None
    acceptor.keys.verify(b"message", theirs.sign(b"message"))


@pytest.mark.spec("RP-NLMP-2.2.2.7-01", "RP-NLMP-3.1.5.1.2-01")
def test_the_answer_to_a_challenge_with_a_time_has_a_mic_and_an_empty_first_response() -> None:
    acceptor, mine = World().ntlm(), client()
    challenge = acceptor.step(mine.step(b""))
    _, _, info = parse_challenge(challenge)
    assert AvId.TIMESTAMP in parse_pairs(info)
    token = mine.step(challenge)
    message = parse_authenticate(token)
    blob = message.nt_response[16:]
    assert blob[:8] == b"\1\1" + bytes(6)
    assert blob[8:16] == parse_pairs(info)[AvId.TIMESTAMP]
    assert blob[16:24] == counting()(8)
    assert blob[24:28] == bytes(4)
    pairs = parse_pairs(blob[28:])
    assert int.from_bytes(pairs[AvId.FLAGS], "little") & AvId.MIC_PRESENT
    assert message.mic == token[MIC_AT : MIC_AT + 16] != bytes(16)
    length, _, at = struct.unpack_from("<HHI", token, 12)
    assert token[at : at + length].strip(b"\0") == b"", "LM response: zeros or nothing"
    assert acceptor.step(token) == b""
    assert acceptor.identity.name == "alice"
    # A first response of 24 zero bytes, or none: both are taken.
    assert length in (0, 24)


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-07", "RP-NLMP-3.2.5.1.2-08")
def test_neither_the_client_s_clock_nor_its_channel_is_judged() -> None:
    for filetime in (0, 1, FILETIME, FILETIME + 10**15, (1 << 63) - 1):
        acceptor = NtlmAcceptor(
            AuthLevel.PRIVACY,
            "10.0.0.9",
            TARGET,
            World().logons,
            counting(),
            lambda: filetime,  # noqa: B023
        )
        mine = client()
        challenge = acceptor.step(mine.step(b""))
        assert acceptor.step(mine.step(challenge)) == b""
        assert acceptor.identity.name == "alice"

    for binding in (bytes(16), b"\xaa" * 16):
        acceptor, mine = World().ntlm(), client()
        flags, challenge, info = parse_challenge(acceptor.step(mine.step(b"")))
        pairs = parse_pairs(info) | {CHANNEL_BINDINGS: binding}
        # What the client answers to has the binding that its own answer repeats.
        seen = write_challenge(flags, challenge, TARGET.computer, write_pairs(pairs))
        acceptor._challenge_raw = seen
        assert acceptor.step(mine.step(seen)) == b""
        assert acceptor.identity.name == "alice"


@pytest.mark.spec("RP-SPNG-3.1.5.2-01", "RP-SPNG-3.1.5.3-01")
def test_a_mechanism_is_repeated_as_it_was_offered_and_flags_are_passed_over() -> None:
    for oid in (*KERBEROS_OIDS, OID_NTLM):
        mechanisms = {one: World().ntlm for one in (*KERBEROS_OIDS, OID_NTLM)}
        mine = SpnegoClient(client(), oid)
        first = mine.step(b"")
        for flags in (None, b"\1\xfe", b"\7\xff"):
            token = first if flags is None else with_flags(first, flags)
            acceptor = SpnegoAcceptor(mechanisms)
            answer = acceptor.step(token)
            assert der.write(der.OID, oid) in answer
            assert not any(
                der.write(der.OID, other) in answer for other in mechanisms if other != oid
            )


def with_flags(token: bytes, flags: bytes) -> bytes:
    """Put reqFlags into a NegTokenInit."""
    application = token[0]
    parts = list(der.items(der.read(token, application)))
    (_, oid, _), (init, inner, _) = parts
    fields = [(tag, content) for tag, content, _ in der.items(der.read(inner, der.SEQUENCE))]
    bits = der.write(0xA1, der.write(0x03, flags))
    written = [der.write(tag, content) for tag, content in fields]
    body = der.write(der.SEQUENCE, written[0], bits, *written[1:])
    return der.write(application, der.write(der.OID, oid), der.write(init, body))
