"""Rules of logging on by NTLM and SPNEGO, each where it could be broken alone."""

import itertools
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence

import pytest

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security import der
from qm.rpc.security.accounts import Account
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmClient, NtlmTarget
from qm.rpc.security.ntlm_keys import (
    SessionKeys,
    mic_of,
    nt_hash,
    proof_of,
    rc4,
    response_key,
    session_key,
)
from qm.rpc.security.ntlm_messages import (
    AvId,
    NtlmFlag,
    negotiate_flags,
    parse_authenticate,
    parse_challenge,
    parse_pairs,
    write_authenticate,
    write_blob,
    write_challenge,
    write_negotiate,
    write_pairs,
)
from qm.rpc.security.provider import SecurityRefused
from qm.rpc.security.spnego import OID_NTLM, OID_SPNEGO, SpnegoAcceptor, SpnegoClient
from tests.unit.rpc.test_security import ALICE, FILETIME, TARGET, World, counting

FLAGS_OF_NEGOTIATE_AT, DOMAIN_AT, WORKSTATION_AT = 12, 16, 24
FLAGS_OF_AUTHENTICATE_AT, MIC_AT = 60, 72
LM_AT, NT_AT, DOMAIN_OF_AT, USER_AT, WORKSTATION_OF_AT, KEY_AT = 12, 20, 28, 36, 44, 52
"""Of an AUTHENTICATE message."""
NO_MIC = NtlmTarget("QUORATE", "quorate.example.test", requires_mic=False)
CHANNEL_BINDINGS = 10
FULL = 0xE2888235
UNKNOWN_OID = bytes.fromhex("2b06010401823702021e")
KERBEROS_OIDS = (
    bytes.fromhex("2a864886f712010202"),
    bytes.fromhex("2a864882f712010202"),
)


def client() -> NtlmClient:
    return NtlmClient("alice", "S3cret!", "", counting())


def forged(
    acceptor: NtlmAcceptor,
    change: Callable[[bytearray], object] = lambda raw: None,
    *,
    user: str = "alice",
    domains: tuple[str, str] = ("", ""),
    pairs: Mapping[int, bytes] | None = None,
    encrypted: bytes = bytes(16),
    flags: int = 0,
    mic: bytes | None = None,
    end: bytes = bytes(4),
) -> bytes:
    """A third message with a right proof and, unless it is given, the right MIC of what it says.

    `domains`: as sent, and as the proof has it. `flags`: more than were offered. `end`: what is
    behind the pairs.
    """
    negotiate = client().step(b"")
    challenge = acceptor.step(negotiate)
    offered, nonce, info = parse_challenge(challenge)
    seen = parse_pairs(info) | {AvId.FLAGS: struct.pack("<I", AvId.MIC_PRESENT)} | dict(pairs or {})
    blob = write_blob(seen[AvId.TIMESTAMP], bytes(8), write_pairs(seen))
    assert blob.endswith(bytes(8)), "the last pair, and four bytes"
    blob = blob[:-4] + end
    key = response_key(nt_hash("S3cret!"), user, domains[1])
    proof = proof_of(key, nonce, blob)
    exported = rc4(session_key(key, proof), encrypted)
    raw = bytearray(write_authenticate(offered | flags, proof + blob, domains[0], user, encrypted))
    change(raw)
    own = mic_of(exported, negotiate, challenge, bytes(raw))
    raw[MIC_AT : MIC_AT + 16] = own if mic is None else mic
    return bytes(raw)


def is_taken(acceptor: NtlmAcceptor, token: bytes) -> bool:
    try:
        acceptor.step(token)
    except SecurityRefused:
        return False
    return acceptor.is_done


@pytest.mark.spec("RP-NLMP-2.2-01")
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 0x103, 0x0300_0000])
def test_the_third_message_is_of_the_third_type(kind: int) -> None:
    acceptor = World().ntlm()
    token = forged(acceptor, lambda raw: struct.pack_into("<I", raw, 8, kind))
    assert is_taken(acceptor, token) is (kind == 3)
    again = World().ntlm()
    assert not is_taken(again, forged(again, lambda raw: raw.__setitem__(7, 1))), "NTLMSSP and NUL"


@pytest.mark.spec("RP-NLMP-2.2-01")
def test_a_message_out_of_turn_or_of_no_type_is_an_invalid_token() -> None:
    negotiate = client().step(b"")
    challenge = World().ntlm().step(negotiate)
    for whole, own in ((negotiate, 1), (challenge, 2)):
        for kind in (0, 1, 2, 3, 4, 0x101, 0x102, 0x0100_0000 * own):
            mine = client()
            mine.step(b"")
            taker = World().ntlm() if own == 1 else mine
            token = whole[:8] + struct.pack("<I", kind) + whole[12:]
            if kind == own:
                assert taker.step(token).startswith(b"NTLMSSP\0" + struct.pack("<I", own + 1))
            else:
                with pytest.raises(SecurityRefused):
                    taker.step(token)
        for head in (b"NTLMSSP\1", b"NTLMSSQ\0", b"ntlmssp\0", bytes(8)):
            mine = client()
            mine.step(b"")
            taker = World().ntlm() if own == 1 else mine
            with pytest.raises(SecurityRefused):
                taker.step(head + whole[8:])


@pytest.mark.spec("RP-NLMP-2.2-02")
def test_a_client_takes_no_target_info_from_outside_the_challenge() -> None:
    for length, offset in ((4, 0), (4, -3), (0xFFFF, -40), (4, 0x7FFF_0000)):
        mine = client()
        challenge = bytearray(World().ntlm().step(mine.step(b"")))
        struct.pack_into("<HHI", challenge, 40, length, length, len(challenge) + offset)
        with pytest.raises(SecurityRefused, match="outside"):
            mine.step(bytes(challenge))


@pytest.mark.spec("RP-NLMP-2.2-02")
@pytest.mark.parametrize("at", [LM_AT, NT_AT, DOMAIN_OF_AT, USER_AT, WORKSTATION_OF_AT, KEY_AT])
def test_a_field_outside_its_message_makes_it_invalid(at: int) -> None:
    for length, offset in ((2, 0), (2, -1), (0xFFFF, -40), (2, 0x7FFF_0000)):

        def outside(raw: bytearray, length: int = length, offset: int = offset) -> None:
            struct.pack_into("<HHI", raw, at, length, length, len(raw) + offset)

        acceptor = World().ntlm(target=NO_MIC)
        assert not is_taken(acceptor, forged(acceptor, outside, pairs={AvId.FLAGS: bytes(4)}))
    if at in (LM_AT, DOMAIN_OF_AT, WORKSTATION_OF_AT):  # they may be empty, wherever they stand
        acceptor = World().ntlm()
        empty = forged(acceptor, lambda raw: struct.pack_into("<HHI", raw, at, 0, 0, len(raw)))
        assert is_taken(acceptor, empty)


@pytest.mark.spec("RP-NLMP-2.2.1.3-02", "RP-NLMP-3.2.5.1.2-04", "RP-NLMP-3.2.5.1.2-05")
def test_a_mic_is_there_if_the_flags_of_the_response_say_so() -> None:
    for av_flags, mic, is_right in (
        (2, None, True),
        (2, bytes(16), False),
        (2, b"\xee" * 16, False),
        (3, bytes(16), False),
        (0, None, True),
        (0, bytes(16), True),
        (0, b"\xee" * 16, True),
        (1, bytes(16), True),
    ):
        for target in (TARGET, NO_MIC):
            acceptor = World().ntlm(target=target)
            pairs = {AvId.FLAGS: struct.pack("<I", av_flags)}
            is_enough = bool(av_flags & 2) or target is NO_MIC
            found = is_taken(acceptor, forged(acceptor, pairs=pairs, mic=mic))
            assert found is (is_right and is_enough), (av_flags, mic)
            assert acceptor.had_mic is bool(av_flags & 2)


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-03")
def test_nobody_is_authenticated_without_a_name() -> None:
    nobody = World(Account("", nt_hash("S3cret!"), (ALICE,)))
    acceptor = nobody.ntlm()
    assert not is_taken(acceptor, forged(acceptor, user=""))
    for flags, is_right in ((0, True), (int(NtlmFlag.ANONYMOUS), False)):
        acceptor = World().ntlm()
        assert is_taken(acceptor, forged(acceptor, flags=flags)) is is_right


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-06", "RP-NLMP-3.3.2-03")
@pytest.mark.parametrize("size", [0, 1, 8, 15, 16, 17, 32])
def test_a_key_that_is_exchanged_has_sixteen_bytes(size: int) -> None:
    acceptor = World().ntlm()
    assert is_taken(acceptor, forged(acceptor, encrypted=bytes(size))) is (size == 16)


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-09")
def test_a_proof_may_be_of_the_domain_that_is_sent_or_of_none() -> None:
    for sent, proven, is_right in (
        ("", "", True),
        ("CORP", "", True),
        ("CORP", "CORP", True),
        ("QUORATE", "", True),
        ("CORP", "corp", False),
        ("CORP", "QUORATE", False),
        ("", "CORP", False),
    ):
        acceptor = World().ntlm()
        assert is_taken(acceptor, forged(acceptor, domains=(sent, proven))) is is_right


def logged_on(acceptor: NtlmAcceptor, mine: NtlmClient, token: bytes) -> str:
    acceptor.step(mine.step(acceptor.step(token)))
    return acceptor.identity.name


@pytest.mark.spec("RP-NLMP-2.2.1.1-01")
@pytest.mark.parametrize("size", [16, 32, 40])
def test_who_begins_with_a_short_negotiate_logs_on(size: int) -> None:
    short = client().step(b"")[:size]
    assert len(short) == size
    mine = client()
    mine.step(b"")
    mine._negotiate_raw = short  # what the MIC is of
    assert logged_on(World().ntlm(), mine, short) == "alice"


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
    # None of its bytes says anything of another one: all 28 pairs of places differ somewhere.
    for one, other in itertools.combinations(range(8), 2):
        assert any(each[one] != each[other] for each in challenges)
    assert all(len({each[place] for each in challenges}) > 16 for place in range(8))


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
    assert blob.endswith(bytes(4) + write_pairs(pairs) + bytes(4))
    for end in (b"", bytes(4)):  # of the blob of another client
        acceptor = World().ntlm()
        assert is_taken(acceptor, forged(acceptor, end=end))


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

    for clock in (0, 1, FILETIME - 10**15, FILETIME + 10**15, (1 << 64) - 1):
        acceptor = World().ntlm()
        pairs = {AvId.TIMESTAMP: struct.pack("<Q", clock)}
        assert is_taken(acceptor, forged(acceptor, pairs=pairs)), "whatever the client's own is"

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


def initial(mechanisms: Sequence[bytes], token: bytes = b"") -> tuple[bytes, bytes]:
    """NegTokenInit, and its list of mechanisms."""
    listed = der.write(der.SEQUENCE, *(der.write(der.OID, one) for one in mechanisms))
    fields = [der.write(0xA0, listed)]
    if token:
        fields.append(der.write(0xA2, der.write(der.OCTETS, token)))
    init = der.write(0xA0, der.write(der.SEQUENCE, *fields))
    return der.write(0x60, der.write(der.OID, OID_SPNEGO), init), listed


def following(token: bytes, mic: bytes = b"") -> bytes:
    """NegTokenResp of a client."""
    fields = [der.write(0xA2, der.write(der.OCTETS, token))]
    if mic:
        fields.append(der.write(0xA3, der.write(der.OCTETS, mic)))
    return der.write(0xA1, der.write(der.SEQUENCE, *fields))


def parts_of(answer: bytes) -> dict[int, bytes]:
    """Fields of a server's NegTokenResp."""
    content = der.read(der.read(answer, 0xA1), der.SEQUENCE)
    return {tag & 0x1F: value for tag, value, _ in der.items(content)}


@pytest.mark.spec("RP-SPNG-3.1.5.1-03", "RP-SPNG-3.2.5-02")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("has_mic", [True, False])
@pytest.mark.parametrize("sends_list_mic", [True, False])
def test_the_list_of_mechanisms_is_signed_where_it_must_be(
    is_first: bool, has_mic: bool, sends_list_mic: bool
) -> None:
    inner = World().ntlm(target=NO_MIC)
    acceptor, mine = SpnegoAcceptor({OID_NTLM: lambda: inner}), client()
    listed = [OID_NTLM] if is_first else [KERBEROS_OIDS[0], OID_NTLM]
    optimistic = client().step(b"") if is_first else b"for another one"
    token, raw_list = initial(listed, optimistic)
    answer = acceptor.step(token)
    first = parts_of(answer)
    assert first[0] == b"\x0a\1" + (b"\1" if is_first else b"\3")
    assert first[1] == der.write(der.OID, OID_NTLM)
    if is_first:
        mine.step(b"")
    else:
        assert 2 not in first
        first = parts_of(acceptor.step(following(mine.step(b""))))
        assert 1 not in first
    last = mine.step(der.read(first[2], der.OCTETS))
    if not has_mic:
        # Flags of the response that announce no MIC, and a proof of just these.
        again = World().ntlm(target=NO_MIC)
        last = forged(again, pairs={AvId.FLAGS: bytes(4)}, mic=bytes(16))
        proof = parse_authenticate(last).nt_response[:16]
        key = session_key(response_key(nt_hash("S3cret!"), "alice", ""), proof)
        mine.keys = SessionKeys(rc4(key, bytes(16)), FULL, is_server=False)
    assert mine.keys is not None
    own = mine.keys.sign(raw_list) if sends_list_mic else b""
    if not sends_list_mic and (has_mic or not is_first):
        with pytest.raises(SecurityRefused):
            acceptor.step(following(last, own))
        assert not acceptor.is_done
        return
    done = parts_of(acceptor.step(following(last, own)))
    assert (acceptor.is_done, done[0]) == (True, b"\x0a\1\0")
    assert (3 in done) is sends_list_mic
    if sends_list_mic:
        mine.keys.verify(raw_list, der.read(done[3], der.OCTETS))


@pytest.mark.spec("RP-SPNG-3.2.5-01")
def test_the_client_s_order_of_mechanisms_counts() -> None:
    served = {one: World().ntlm for one in (OID_NTLM, *KERBEROS_OIDS)}
    for listed in itertools.permutations((UNKNOWN_OID, OID_NTLM, *KERBEROS_OIDS)):
        acceptor = SpnegoAcceptor(served)
        chosen = next(one for one in listed if one != UNKNOWN_OID)
        first = parts_of(acceptor.step(initial(listed, client().step(b""))[0]))
        assert first[1] == der.write(der.OID, chosen)
        is_first = listed[0] == chosen
        assert first[0] == b"\x0a\1" + (b"\1" if is_first else b"\3")


@pytest.mark.spec("RP-SPNG-3.1.5.1-01")
@pytest.mark.parametrize("length", [b"\x0c", b"\x81\x0c", b"\x82\0\x0c", b"\x83\0\0\x0c"])
@pytest.mark.parametrize("signs_as_received", [True, False])
def test_the_mic_is_of_the_list_as_it_was_received(length: bytes, signs_as_received: bool) -> None:
    """A length may be written in more than one way, though DER allows the shortest alone."""
    shortest = b"\x30\x0c" + der.write(der.OID, OID_NTLM)
    received = b"\x30" + length + der.write(der.OID, OID_NTLM)
    acceptor, mine = World().spnego(), client()
    fields = der.write(0xA0, received), der.write(0xA2, der.write(der.OCTETS, mine.step(b"")))
    init = der.write(0xA0, der.write(der.SEQUENCE, *fields))
    answer = parts_of(acceptor.step(der.write(0x60, der.write(der.OID, OID_SPNEGO), init)))
    last = mine.step(der.read(answer[2], der.OCTETS))
    assert mine.keys is not None
    mic = mine.keys.sign(received if signs_as_received else shortest)
    if received == shortest or signs_as_received:
        done = parts_of(acceptor.step(following(last, mic)))
        mine.keys.verify(received, der.read(done[3], der.OCTETS))
    else:
        with pytest.raises(SecurityRefused):
            acceptor.step(following(last, mic))
    assert acceptor.is_done is (received == shortest or signs_as_received)


@pytest.mark.spec("RP-SPNG-3.1.5.1-02")
def test_a_client_refuses_a_wrong_mic_of_its_server() -> None:
    for at in (None, 4, 15):
        acceptor, mine = World().spnego(), SpnegoClient(client())
        done = acceptor.step(mine.step(acceptor.step(mine.step(b""))))
        mic = der.read(parts_of(done)[3], der.OCTETS)
        if at is None:
            assert mine.step(done) == b""
            assert mine.is_done
            continue
        wrong = mic[:at] + bytes((mic[at] ^ 1,)) + mic[at + 1 :]
        with pytest.raises(SecurityRefused):
            mine.step(done.replace(mic, wrong))
        assert not mine.is_done


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
