"""Rules of NTLM and SPNEGO, each where it could be broken alone."""

import hmac
import struct
from hashlib import md5

import pytest
from Crypto.Cipher import ARC4, DES

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security.accounts import Account
from qm.rpc.security.ntlm import NtlmAcceptor, NtlmClient
from qm.rpc.security.ntlm_keys import SessionKeys, nt_hash
from qm.rpc.security.ntlm_messages import (
    NtlmFlag,
    negotiate_flags,
    parse_challenge,
    write_authenticate,
    write_negotiate,
)
from qm.rpc.security.provider import AUTHENTICATED_USERS, NETWORK, Buffers, SecurityRefused
from qm.security.access import effective_sids
from qm.security.sid import ANONYMOUS, EVERYONE, sid_from_text
from tests.unit.rpc.test_security import ALICE, FILETIME, TARGET, World, counting, exchange

EXPORTED = bytes(range(16))
SIGN = b"session key to %s signing key magic constant\0"
SEAL = b"session key to %s sealing key magic constant\0"
MESSAGE = b"a message of two blocks, not aligned"
FULL = 0xE2888235
OTHERS = NtlmFlag.REQUEST_TARGET | NtlmFlag.TARGET_SERVER | NtlmFlag.TARGET_INFO | NtlmFlag.VERSION
MANDATORY = NtlmFlag.NTLM | NtlmFlag.ALWAYS_SIGN
"""[MS-NLMP 2.2.2.5]: set in every NEGOTIATE and CHALLENGE."""


@pytest.mark.spec(
    "RP-NLMP-3.4.5.2-01",
    "RP-NLMP-3.4.5.3-01",
    "RP-NLMP-3.4.4.2-01",
    "RP-NLMP-3.4.4.2-02",
    "RP-NLMP-3.4.2-01",
)
@pytest.mark.parametrize(
    ("is_server", "direction"), [(False, b"client-to-server"), (True, b"server-to-client")]
)
@pytest.mark.parametrize(("bits", "size"), [(128, 16), (56, 7), (40, 5)])
@pytest.mark.parametrize("has_exchange", [True, False])
def test_keys_and_checksums_by_negotiated_flags(
    bits: int, size: int, has_exchange: bool, is_server: bool, direction: bytes
) -> None:
    flags = FULL & ~(NtlmFlag.KEY_128 | NtlmFlag.KEY_56 | NtlmFlag.KEY_EXCH)
    flags |= {128: NtlmFlag.KEY_128, 56: NtlmFlag.KEY_56, 40: 0}[bits]
    flags |= NtlmFlag.KEY_EXCH if has_exchange else 0
    keys = SessionKeys(EXPORTED, flags, is_server=is_server)
    sign = md5(EXPORTED + SIGN % direction).digest()
    cipher = ARC4.new(md5(EXPORTED[:size] + SEAL % direction).digest())
    # What comes from the other side has numbers and keys of its own.
    other = SessionKeys(EXPORTED, flags, is_server=not is_server)
    keys.verify(MESSAGE, other.sign(MESSAGE))
    for number in range(3):
        sealed, token = keys.seal(MESSAGE, MESSAGE)
        assert sealed == cipher.encrypt(MESSAGE)
        sequence = struct.pack("<I", number)
        checksum = hmac.digest(sign, sequence + MESSAGE, "md5")[:8]
        if has_exchange:
            checksum = cipher.encrypt(checksum)
        assert token == b"\1\0\0\0" + checksum + sequence


@pytest.mark.spec("RP-NLMP-2.2.2.5-01", "RP-NLMP-2.2.2.5-02")
def test_a_challenge_has_what_was_offered_and_no_lan_manager_key() -> None:
    bits = {"UNICODE": 0, "OEM": 1, "REQUEST_TARGET": 2, "SIGN": 4, "SEAL": 5, "DATAGRAM": 6}
    bits |= {"LM_KEY": 7, "NTLM": 9, "ANONYMOUS": 11, "ALWAYS_SIGN": 15, "TARGET_DOMAIN": 16}
    bits |= {"TARGET_SERVER": 17, "EXTENDED_SESSIONSECURITY": 19, "TARGET_INFO": 23}
    bits |= {"VERSION": 25, "KEY_128": 29, "KEY_EXCH": 30, "KEY_56": 31}
    assert {one.name: int(one) for one in NtlmFlag} == {name: 1 << k for name, k in bits.items()}
    offered = negotiate_flags(NtlmClient("a", "b", "", counting()).step(b""))
    every = 0xFFFF_FFFF & ~NtlmFlag.DATAGRAM
    needed = (
        NtlmFlag.UNICODE
        | NtlmFlag.EXTENDED_SESSIONSECURITY
        | NtlmFlag.KEY_128
        | NtlmFlag.SIGN
        | NtlmFlag.SEAL
    )
    variants = {offered, every, int(needed)}
    variants |= {int(needed) | 1 << bit for bit in range(32)} - {int(needed | NtlmFlag.DATAGRAM)}
    variants |= {every & ~(1 << bit) for bit in range(32) if not needed & 1 << bit}
    for given in variants:
        flags = parse_challenge(World().ntlm().step(write_negotiate(given)))[0]
        assert not flags & ~(given | OTHERS | MANDATORY), hex(given)
        assert not flags & NtlmFlag.LM_KEY, hex(given)


@pytest.mark.spec("RP-NLMP-2.2.2.5-05")
def test_each_level_demands_what_protects_it() -> None:
    full = negotiate_flags(NtlmClient("a", "b", "", counting()).step(b""))
    for level, flag, is_refused in (
        (AuthLevel.INTEGRITY, NtlmFlag.SEAL, False),
        (AuthLevel.PRIVACY, NtlmFlag.SIGN, False),
        (AuthLevel.PRIVACY, NtlmFlag.SEAL, True),
    ):
        acceptor, client = World().ntlm(level), NtlmClient("alice", "S3cret!", "", counting())
        client.step(b"")
        client._negotiate_raw = write_negotiate(full & ~flag)
        last = client.step(acceptor.step(client._negotiate_raw))
        if is_refused:
            with pytest.raises(SecurityRefused):
                acceptor.step(last)
        else:
            acceptor.step(last)
    buffers = Buffers(b"head", b"a call that is not signed", b"trailer.")
    acceptor, client = World().ntlm(AuthLevel.INTEGRITY), NtlmClient("alice", "S3cret!", "", bytes)
    client.step(b"")
    client._negotiate_raw = write_negotiate(full & ~NtlmFlag.SIGN)
    acceptor.step(client.step(acceptor.step(client._negotiate_raw)))
    with pytest.raises(SecurityRefused):
        acceptor.unprotect(AuthLevel.INTEGRITY, buffers, b"\1" + bytes(15), signs_header=True)


@pytest.mark.spec("RP-NLMP-2.2.2.5-05")
@pytest.mark.parametrize("has_agreed", [True, False])
def test_a_signature_that_was_not_agreed_on_is_refused_though_it_is_right(has_agreed: bool) -> None:
    buffers = Buffers(b"head", b"a call that is signed...", b"trailer.")
    flags = negotiate_flags(NtlmClient("a", "b", "", counting()).step(b""))
    acceptor, client = World().ntlm(AuthLevel.INTEGRITY), NtlmClient("alice", "S3cret!", "", bytes)
    client.step(b"")
    client._negotiate_raw = write_negotiate(flags if has_agreed else flags & ~NtlmFlag.SIGN)
    acceptor.step(client.step(acceptor.step(client._negotiate_raw)))
    level = AuthLevel.INTEGRITY
    body, token = client.protect(level, buffers, signs_header=True)
    if has_agreed:
        assert acceptor.unprotect(level, buffers, token, signs_header=True) == body
    else:
        with pytest.raises(SecurityRefused):
            acceptor.unprotect(level, buffers, token, signs_header=True)


def des_key(part: bytes) -> bytes:
    """Seven bytes with their parity bits between them."""
    bits = int.from_bytes(part, "big")
    return bytes((bits >> 49 - 7 * k & 0x7F) << 1 for k in range(8))


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-02")
def test_a_correct_answer_of_version_1_is_refused() -> None:
    hash_ = nt_hash("S3cret!") + bytes(5)
    challenge = bytes.fromhex("0011223344556677")
    # NTLMv1 with extended session security hashes both challenges; without, the server's alone.
    for seed in (challenge, md5(challenge + bytes(8)).digest()[:8]):
        parts = [hash_[k : k + 7] for k in (0, 7, 14)]
        response = b"".join(DES.new(des_key(one), DES.MODE_ECB).encrypt(seed) for one in parts)
        assert len(response) == 24
        acceptor = World().ntlm()
        acceptor.step(NtlmClient("a", "b", "", counting()).step(b""))
        with pytest.raises(SecurityRefused):
            acceptor.step(write_authenticate(0xE28A8235, response, "", "alice", bytes(16)))
        assert not acceptor.is_done


@pytest.mark.spec("RP-NLMP-3.2.5.1.2-01")
def test_an_unknown_user_costs_what_a_wrong_password_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, work = hmac.digest, 0

    def counted(*given: object) -> bytes:
        nonlocal work
        work += 1
        return digest(*given)  # type: ignore[arg-type]

    off = Account("bob", nt_hash("pw"), (ALICE,), is_enabled=False)
    world = World(Account("alice", nt_hash("S3cret!"), (ALICE,)), off)
    spent = {}
    monkeypatch.setattr(hmac, "digest", counted)
    for user, domain in (("alice", ""), ("bob", ""), ("carol", ""), ("alice", "X"), ("carol", "X")):
        work = 0
        with pytest.raises(SecurityRefused) as refused:
            exchange(world, user, "wrong", domain=domain)
        spent[user, domain] = work, str(refused.value).replace(user, "?")
    assert len(set(spent.values())) == 1, spent
    assert spent["alice", ""][0] > 4, "the client's own, and the server's"


@pytest.mark.spec("RP-NLMP-3.3.2-02")
def test_proofs_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((bytes(one), bytes(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    exchange(World(), "alice", "S3cret!")
    proofs = [pair for pair in compared if len(pair[0]) == 16]
    assert any(one == other for one, other in proofs)
    compared.clear()
    with pytest.raises(SecurityRefused):
        exchange(World(), "alice", "wrong")
    wrong = [one == other for one, other in compared if len(one) == 16]
    assert wrong
    assert not any(wrong)


@pytest.mark.spec("RP-OUR-auth-02")
def test_the_sixth_guess_within_a_minute_is_not_looked_at() -> None:
    world = World(*(Account(name, nt_hash("S3cret!"), (ALICE,)) for name in ("alice", "bob")))

    def is_let_in(user: str, password: str, address: str = "10.0.0.9") -> bool:
        acceptor = NtlmAcceptor(
            AuthLevel.PRIVACY, address, TARGET, world.logons, counting(), lambda: FILETIME
        )
        client = NtlmClient(user, password, "", counting())
        try:
            acceptor.step(client.step(acceptor.step(client.step(b""))))
        except SecurityRefused:
            return False
        return acceptor.is_done

    for guess in range(4):
        assert not is_let_in("alice", f"guess {guess}")
    assert is_let_in("alice", "S3cret!"), "four are forgiven"
    for guess in range(5):
        assert not is_let_in("alice", f"guess {guess}")
    assert not is_let_in("alice", "S3cret!")
    assert not is_let_in("ALICE", "S3cret!")
    assert is_let_in("alice", "S3cret!", "10.0.0.10")
    assert is_let_in("bob", "S3cret!")
    world.now += 59
    assert not is_let_in("alice", "S3cret!")
    world.now += 2
    assert is_let_in("alice", "S3cret!")


@pytest.mark.spec("RP-OUR-auth-04")
def test_who_a_caller_is() -> None:
    group = sid_from_text("S-1-5-32-544")
    identity = exchange(World(), "alice", "S3cret!").identity
    assert identity.sids[:2] == (ALICE, AUTHENTICATED_USERS)
    assert effective_sids(identity.sids) == {ALICE, AUTHENTICATED_USERS, NETWORK, EVERYONE}
    member = World(Account("alice", nt_hash("S3cret!"), (ALICE, group)))
    of_group = exchange(member, "alice", "S3cret!").identity
    assert effective_sids(of_group.sids) == {ALICE, group, AUTHENTICATED_USERS, NETWORK, EVERYONE}
    assert effective_sids(()) == {ANONYMOUS, EVERYONE}
    assert (sid_from_text("S-1-5-11"), sid_from_text("S-1-1-0")) == (AUTHENTICATED_USERS, EVERYONE)
    assert (sid_from_text("S-1-5-7"), sid_from_text("S-1-5-2")) == (ANONYMOUS, NETWORK)
