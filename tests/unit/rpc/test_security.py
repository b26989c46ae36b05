"""NTLM and SPNEGO: tokens, keys and MICs of the texts, and what is refused."""

import hmac
import struct
from collections.abc import Callable
from hashlib import md5
from typing import Any

import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security import der
from qm.rpc.security.accounts import FAILURES_MAX, LOCK_WINDOW_S, Account, Logons
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
    MIC_AT,
    MIC_SIZE_BYTES,
    NtlmFlag,
    negotiate_flags,
    pairs_of_response,
    parse_authenticate,
    parse_challenge,
    write_authenticate,
    write_challenge,
    write_negotiate,
)
from qm.rpc.security.provider import AUTHENTICATED_USERS, Buffers, SecurityRefused
from qm.rpc.security.spnego import OID_NTLM, OID_SPNEGO, SpnegoAcceptor, SpnegoClient
from qm.security.sid import sid_from_text
from tests.unit.rpc.vectors import fields, vector

ALICE = sid_from_text("S-1-5-21-1-2-3-1001")
FILETIME = struct.unpack("<Q", bytes.fromhex("604b9490667cdd01"))[0]
TARGET = NtlmTarget("QUORATE", "quorate.example.test")


class Accounts:
    def __init__(self, *accounts: Account) -> None:
        self.accounts = accounts

    def find(self, name: str, domain: str) -> Account | None:
        for one in self.accounts:
            if one.name.casefold() == name.casefold():
                return one
        return None


class World:
    """Accounts, a clock, and acceptors with a fixed challenge."""

    def __init__(self, *accounts: Account) -> None:
        self.now = 0.0
        default = (Account("alice", nt_hash("S3cret!"), (ALICE,)),)
        self.logons = Logons(Accounts(*(accounts or default)), lambda: self.now)

    def ntlm(
        self, level: AuthLevel = AuthLevel.PRIVACY, target: NtlmTarget = TARGET
    ) -> NtlmAcceptor:
        challenge = bytes.fromhex("0011223344556677")
        return NtlmAcceptor(
            level, "10.0.0.9", target, self.logons, lambda size: challenge, lambda: FILETIME
        )

    def spnego(self) -> SpnegoAcceptor:
        return SpnegoAcceptor({OID_NTLM: self.ntlm})


def counting() -> Callable[[int], bytes]:
    return lambda size: bytes(range(size))


class Taken:
    """A client that offers everything, and takes only `flags` of it in its last message."""

    def __init__(self, client: NtlmClient, flags: int) -> None:
        self._client = client
        self._flags = flags

    def last(self, acceptor: NtlmAcceptor) -> bytes:
        """The AUTHENTICATE_MESSAGE, whose MIC is right."""
        negotiate = self._client.step(b"")
        challenge = acceptor.step(negotiate)
        flags, nonce, info = parse_challenge(challenge)
        changed = write_challenge(flags & self._flags, nonce, "QUORATE", info)
        raw = self._client.step(changed)
        # The MIC is over the challenge that the server has sent; the key is in the message.
        message = parse_authenticate(raw)
        key = response_key(nt_hash("S3cret!"), "alice", "")
        base = session_key(key, message.nt_response[:16])
        mic = mic_of(rc4(base, message.encrypted_key), negotiate, challenge, raw)
        return raw[:MIC_AT] + mic + raw[MIC_AT + MIC_SIZE_BYTES :]


def stream_to_client(exported: bytes) -> tuple[Any, bytes]:
    """The server's RC4 and its signing key [MS-NLMP 3.4.5.2, 3.4.5.3]."""
    text = b"session key to server-to-client %s key magic constant\0"
    sign, seal = (
        md5(exported + text % one, usedforsecurity=False) for one in (b"signing", b"sealing")
    )
    return Cipher(ARC4(seal.digest()), None).encryptor(), sign.digest()


@pytest.mark.spec(
    "RP-NLMP-4.2.4-01",
    "RP-NLMP-3.3.2-01",
    "RP-NLMP-3.3.2-02",
    "RP-NLMP-3.3.2-03",
    "RP-NLMP-2.2.1.3-01",
)
def test_the_example_of_the_text_is_recomputed() -> None:
    wanted = fields("ntlm_v2_authenticate")["fields"]
    message = parse_authenticate(vector("ntlm_v2_authenticate"))
    assert (message.user, message.domain) == ("User", "Domain")
    assert message.flags == 0xE2888235
    raw = vector("ntlm_v2_authenticate")
    for at, text in ((28, "Domain"), (36, "User"), (44, "COMPUTER")):
        length, _, begin = struct.unpack_from("<HHI", raw, at)
        assert raw[begin : begin + length].decode("utf-16-le") == text
    for at in (12, 20, 28, 36, 44, 52):
        outside = bytearray(raw)
        struct.pack_into("<I", outside, at + 4, len(raw))
        if struct.unpack_from("<H", raw, at)[0]:
            with pytest.raises(SecurityRefused):
                parse_authenticate(bytes(outside))
    with_mic = fields("ntlm_mic_authenticate")["fields"]
    assert parse_authenticate(vector("ntlm_mic_authenticate")).mic.hex() == with_mic["MIC"]
    written = write_authenticate(0x01020304, b"nt", "D", "U", bytes(range(16)))
    for at, content in ((12, bytes(24)), (20, b"nt"), (28, b"D\0"), (36, b"U\0"), (44, b"")):
        length, most, begin = struct.unpack_from("<HHI", written, at)
        assert (length, written[begin : begin + length]) == (most, content)
    length, _, begin = struct.unpack_from("<HHI", written, 52)
    assert written[begin : begin + length] == bytes(range(16))
    assert written[60:72] == b"\4\3\2\1" + bytes.fromhex("0a00614a0000000f")
    assert written[72:88] == bytes(16)
    key = response_key(nt_hash("Password"), "User", "Domain")
    assert key.hex() == wanted["NTOWFv2"]
    proof, blob = message.nt_response[:16], message.nt_response[16:]
    assert proof_of(key, bytes.fromhex("0123456789abcdef"), blob) == proof
    base = session_key(key, proof)
    assert base.hex() == wanted["SessionBaseKey"]
    exported = rc4(base, message.encrypted_key)
    assert exported.hex() == wanted["ExportedSessionKey"]
    keys = SessionKeys(exported, message.flags, is_server=False)
    plain = bytes.fromhex(fields("ntlm_v2_wrapex")["fields"]["plaintext"])
    assert b"".join(keys.seal(plain, plain)) == vector("ntlm_v2_wrapex")
    assert parse_challenge(vector("ntlm_v2_challenge"))[1].hex() == "0123456789abcdef"


@pytest.mark.spec("RP-NLMP-3.3.2-01")
def test_a_logon_names_its_user_in_any_case_and_its_domain_in_one() -> None:
    challenge, blob = bytes(range(8)), bytes(28)

    def accepts(user: str, domain: str, key: bytes) -> bool:
        proof = proof_of(key, challenge, blob)
        judged = World().logons.judge(user, domain, "10.0.0.9", challenge, proof, blob)
        assert judged is None or judged[1] == key
        return judged is not None

    hash_ = nt_hash("S3cret!")
    for user in ("alice", "Alice", "ALICE"):
        key = response_key(hash_, "alice", "Work")
        assert key == response_key(hash_, user, "Work")
        assert accepts(user, "Work", key)
        for domain in ("WORK", "work"):
            assert not accepts(user, domain, key)
            assert accepts(user, domain, response_key(hash_, "ALICE", domain))


@pytest.mark.spec(
    "RP-NLMP-3.4.2-01",
    "RP-NLMP-3.4.3-01",
    "RP-NLMP-3.4.4.2-01",
    "RP-NLMP-3.4.4.2-02",
    "RP-NLMP-2.2.2.9.2-01",
)
def test_the_sealed_message_of_the_text_is_recomputed() -> None:
    given = fields("ntlm_v2_wrapex")["fields"]
    exported = bytes.fromhex(given["ExportedSessionKey"])
    plain = bytes.fromhex(given["plaintext"])
    keys = SessionKeys(exported, 0xE2888235, is_server=False)
    sealed, token = keys.seal(plain, plain)
    assert sealed + token == vector("ntlm_v2_wrapex")
    server = SessionKeys(exported, 0xE2888235, is_server=True)
    assert server.unseal(sealed) == plain
    server.verify(plain, token)
    with pytest.raises(SecurityRefused):
        server.verify(plain, token)
    # The number is that of the message, in its last four bytes, and the first four are the version.
    for number in range(1, 4):
        _, token = keys.seal(plain, plain)
        assert len(token) == 16
        assert (token[:4], token[12:]) == (b"\1\0\0\0", struct.pack("<I", number))


@pytest.mark.spec(
    "RP-NLMP-3.4.6-01", "RP-NLMP-3.4.5.2-01", "RP-NLMP-3.4.5.3-01", "RP-RPCE-3.3.1.5.2.2-02"
)
def test_the_sealed_request_of_the_guide_is_read() -> None:
    given = fields("pdu_request_sealed")["fields"]
    raw = vector("pdu_request_sealed")
    keys = SessionKeys(bytes.fromhex(given["ExportedSessionKey"]), 0xE2888235, is_server=True)
    plain = keys.unseal(raw[24:-24])
    assert plain.hex() == given["plain_body"]
    keys.verify(raw[:24] + plain + raw[-24:-16], raw[-16:])
    # A provider puts the parts in this order, and takes the body alone for sealed.
    acceptor = World().ntlm()
    acceptor.keys = SessionKeys(
        bytes.fromhex(given["ExportedSessionKey"]), 0xE2888235, is_server=True
    )
    buffers = Buffers(raw[:24], raw[24:-24], raw[-24:-16])
    assert plain == acceptor.unprotect(AuthLevel.PRIVACY, buffers, raw[-16:], signs_header=True)
    client = NtlmClient("a", "b", "", counting())
    client.keys = SessionKeys(
        bytes.fromhex(given["ExportedSessionKey"]), 0xE2888235, is_server=False
    )
    buffers = Buffers(raw[:24], plain, raw[-24:-16])
    sealed, token = client.protect(AuthLevel.PRIVACY, buffers, signs_header=True)
    assert sealed + raw[-24:-16] + token == raw[24:]
    # All three parts whether header signing was negotiated or not, and with signing alone.
    for level in (AuthLevel.INTEGRITY, AuthLevel.PRIVACY):
        for signs_header in (False, True):
            key = bytes.fromhex(given["ExportedSessionKey"])
            client.keys, acceptor.keys, keys = (
                SessionKeys(key, 0xE2888235, is_server=is_server)
                for is_server in (False, True, True)
            )
            body, token = client.protect(level, buffers, signs_header=signs_header)
            assert (body == plain) is (level == AuthLevel.INTEGRITY)
            shown = body if level == AuthLevel.INTEGRITY else keys.unseal(body)
            keys.verify(raw[:24] + shown + raw[-24:-16], token)
            taken = Buffers(raw[:24], body, raw[-24:-16])
            read = acceptor.unprotect(level, taken, token, signs_header=signs_header)
            assert read == plain


@pytest.mark.spec(
    "RP-NLMP-2.2.1.2-01",
    "RP-NLMP-2.2.1.2-03",
    "RP-NLMP-2.2.2.1-01",
    "RP-NLMP-2.2.2.1-02",
    "RP-NLMP-2.2.2.1-03",
)
def test_a_third_partys_exchange_with_mic_and_channel_bindings_is_accepted() -> None:
    given = fields("ntlm_mic_authenticate")["fields"]
    acceptor = World().ntlm()
    challenge = acceptor.step(bytes.fromhex(given["NEGOTIATE_MESSAGE"]))
    assert challenge.hex() == given["CHALLENGE_MESSAGE"]
    # As a client reads it: the pairs end it, behind the target's name.
    _, number, info = parse_challenge(challenge)
    assert number == challenge[24:32]
    assert info == challenge[56 + len("QUORATE".encode("utf-16-le")) :]
    assert acceptor.step(vector("ntlm_mic_authenticate")) == b""
    assert acceptor.is_done
    assert acceptor.identity.name == "alice"
    assert acceptor.identity.sids[:2] == (ALICE, AUTHENTICATED_USERS)
    exported = bytes.fromhex(given["ExportedSessionKey"])
    mic = mic_of(
        exported,
        bytes.fromhex(given["NEGOTIATE_MESSAGE"]),
        challenge,
        vector("ntlm_mic_authenticate"),
    )
    assert mic.hex() == given["MIC"]


@pytest.mark.spec(
    "RP-NLMP-3.2.5.1.2-04",
    "RP-NLMP-3.2.5.1.2-05",
    "RP-NLMP-2.2-02",
    "RP-NLMP-2.2.1.3-02",
    "RP-NLMP-3.2.5.1.2-06",
)
def test_no_change_of_a_message_is_accepted() -> None:
    given = fields("ntlm_mic_authenticate")["fields"]
    raw = vector("ntlm_mic_authenticate")
    world = World()
    accepted = []
    for at in range(len(raw)):
        world.now += LOCK_WINDOW_S
        acceptor = world.ntlm()
        acceptor.step(bytes.fromhex(given["NEGOTIATE_MESSAGE"]))
        try:
            acceptor.step(raw[:at] + bytes((raw[at] ^ 0x20,)) + raw[at + 1 :])
        except SecurityRefused:
            continue
        accepted.append(at)
    assert accepted == []
    for cut in range(len(raw)):
        acceptor = world.ntlm()
        acceptor.step(bytes.fromhex(given["NEGOTIATE_MESSAGE"]))
        with pytest.raises(SecurityRefused):
            acceptor.step(raw[:cut])


def exchange(
    world: World, user: str, password: str, *, domain: str = "", level: int = 6
) -> NtlmAcceptor:
    """A whole exchange between our client and our acceptor."""
    acceptor = world.ntlm(AuthLevel(level))
    client = NtlmClient(user, password, domain, counting())
    acceptor.step(client.step(acceptor.step(client.step(b""))))
    return acceptor


@pytest.mark.spec(
    "RP-NLMP-3.2.5.1.2-01", "RP-NLMP-3.2.5.1.2-09", "RP-NLMP-3.2.5.1.2-10", "RP-OUR-auth-04"
)
def test_who_may_log_on() -> None:
    off = Account("bob", nt_hash("pw"), (ALICE,), is_enabled=False)
    on = Account("alice", nt_hash("S3cret!"), (ALICE,))
    world = World(on, off)
    assert exchange(world, "ALICE", "S3cret!").identity.name == "alice"
    assert exchange(world, "alice", "S3cret!", domain="").is_done
    refusals = set()
    for user, password in (("alice", "wrong"), ("bob", "pw"), ("carol", "pw")):
        with pytest.raises(SecurityRefused) as caught:
            exchange(world, user, password)
        refusals.add(str(caught.value).replace(user, "?"))
    assert len(refusals) == 1  # nobody learns which


@pytest.mark.spec("RP-OUR-auth-02")
def test_guessing_is_slowed_down() -> None:
    world = World()
    for _ in range(FAILURES_MAX):
        with pytest.raises(SecurityRefused):
            exchange(world, "alice", "guess")
    with pytest.raises(SecurityRefused):
        exchange(world, "alice", "S3cret!")
    world.now += LOCK_WINDOW_S + 1
    assert exchange(world, "alice", "S3cret!").is_done


@pytest.mark.spec(
    "RP-NLMP-2.2.2.5-01",
    "RP-NLMP-2.2.2.5-02",
    "RP-NLMP-2.2.2.5-03",
    "RP-NLMP-2.2.2.5-05",
    "RP-NLMP-3.2.5.1.1-01",
)
def test_flags_are_offered_and_demanded() -> None:
    full = negotiate_flags(NtlmClient("a", "b", "", counting()).step(b""))
    challenge = parse_challenge(World().ntlm().step(write_negotiate(full)))
    assert not challenge[0] & NtlmFlag.LM_KEY
    assert challenge[0] & full & NtlmFlag.KEY_EXCH
    plain = parse_challenge(World().ntlm().step(write_negotiate(full & ~NtlmFlag.KEY_EXCH)))
    assert not plain[0] & NtlmFlag.KEY_EXCH
    for left_out in ("UNICODE", "EXTENDED_SESSIONSECURITY", "KEY_128"):
        with pytest.raises(SecurityRefused):
            World().ntlm().step(write_negotiate(full & ~NtlmFlag[left_out]))
        # Who offers it and does not take it in the end has not negotiated it either.
        for level in (AuthLevel.INTEGRITY, AuthLevel.PRIVACY):
            for flags, is_accepted in ((full, True), (full & ~NtlmFlag[left_out], False)):
                acceptor, client = (
                    World().ntlm(level),
                    NtlmClient("alice", "S3cret!", "", counting()),
                )
                taken = Taken(client, flags).last(acceptor)
                if is_accepted:
                    acceptor.step(taken)
                    continue
                with pytest.raises(SecurityRefused, match="leaves out"):
                    acceptor.step(taken)
    for level, is_accepted in ((AuthLevel.INTEGRITY, True), (AuthLevel.PRIVACY, False)):
        acceptor, client = World().ntlm(level), NtlmClient("alice", "S3cret!", "", counting())
        client.step(b"")
        client._negotiate_raw = write_negotiate(full & ~NtlmFlag.SEAL)
        last = client.step(acceptor.step(client._negotiate_raw))
        if is_accepted:
            acceptor.step(last)
            continue
        with pytest.raises(SecurityRefused, match="leaves out"):
            acceptor.step(last)
    with pytest.raises(SecurityRefused):
        World().ntlm().step(write_negotiate(full | 0x40))


@pytest.mark.spec(
    "RP-NLMP-2.2-01", "RP-NLMP-2.2.1.1-01", "RP-NLMP-3.2.5.1.2-02", "RP-NLMP-3.2.5.1.2-03"
)
def test_weak_and_foreign_tokens_are_refused() -> None:
    negotiate = NtlmClient("a", "b", "", counting()).step(b"")
    World().ntlm().step(negotiate[:16])
    World().ntlm().step(negotiate[:32])
    for bad in (b"", b"NTLMSSP\0", negotiate[:15], b"X" * 40, vector("ntlm_v2_authenticate")):
        with pytest.raises(SecurityRefused):
            World().ntlm().step(bad)
    for response, user in ((bytes(24), "alice"), (b"", "alice"), (bytes(64), "")):
        acceptor = World().ntlm()
        acceptor.step(negotiate)
        with pytest.raises(SecurityRefused):
            acceptor.step(write_authenticate(0xE28A8235, response, "", user, bytes(16)))
    with pytest.raises(SecurityRefused):
        pairs_of_response(bytes(24))


def test_a_client_without_mic_is_accepted_only_by_a_switch() -> None:
    given = fields("ntlm_v2_authenticate")
    world = World(Account("User", nt_hash("Password"), (ALICE,)))
    for requires in (True, False):
        target = NtlmTarget("QUORATE", "quorate", requires)
        acceptor = world.ntlm(target=target)
        acceptor.step(NtlmClient("a", "b", "", counting()).step(b""))
        acceptor._challenge = bytes.fromhex(given["fields"]["inputs"]["server_challenge"])
        if requires:
            with pytest.raises(SecurityRefused):
                acceptor.step(vector("ntlm_v2_authenticate"))
        else:
            acceptor.step(vector("ntlm_v2_authenticate"))
            assert acceptor.is_done


@pytest.mark.spec(
    "RP-SPNG-3.1.5.1-01",
    "RP-SPNG-3.1.5.1-03",
    "RP-SPNG-3.2.5-01",
    "RP-SPNG-3.2.5-04",
    "RP-SPNG-3.2.5.1-01",
)
def test_a_third_partys_spnego_exchange_is_accepted() -> None:
    acceptor = World().spnego()
    assert acceptor.step(vector("spnego_1_init")) == vector("spnego_2_challenge")
    assert acceptor.step(vector("spnego_3_authenticate")) == vector("spnego_4_complete")
    assert acceptor.is_done
    sealed = fields("spnego_5_first_sealed")["fields"]
    header = bytes.fromhex(sealed["header_sign_only"])
    buffers = Buffers(
        header,
        bytes.fromhex(sealed["body_sealed"]),
        bytes.fromhex(sealed["sec_trailer_sign_only"]),
    )
    plain = acceptor.unprotect(
        AuthLevel.PRIVACY, buffers, bytes.fromhex(sealed["signature"]), signs_header=True
    )
    assert plain.hex() == sealed["body_plain"]
    # The other direction by itself: the stream from its beginning, and number 1.
    exported = bytes.fromhex(sealed["ExportedSessionKey"])
    cipher, sign_key = stream_to_client(exported)
    answer = Buffers(buffers.header, plain, buffers.trailer)
    body, token = acceptor.protect(AuthLevel.PRIVACY, answer, signs_header=True)
    assert body == cipher.update(plain)
    signed = struct.pack("<I", 1) + buffers.header + plain + buffers.trailer
    checksum = cipher.update(hmac.digest(sign_key, signed, "md5")[:8])
    assert token == struct.pack("<I8sI", 1, checksum, 1)


@pytest.mark.spec("RP-SPNG-3.1.5.1-02", "RP-SPNG-3.2.5-05")
def test_a_changed_spnego_token_is_refused() -> None:
    last = vector("spnego_3_authenticate")
    for at in (len(last) - 1, len(last) - 12, 3, 40, 100):
        acceptor = World().spnego()
        acceptor.step(vector("spnego_1_init"))
        with pytest.raises(SecurityRefused):
            acceptor.step(last[:at] + bytes((last[at] ^ 1,)) + last[at + 1 :])
    for bad in (b"", b"\x60\x80\0\0", vector("spnego_1_init") + b"\0", b"\x60\x84\xff\xff\xff\xff"):
        with pytest.raises(SecurityRefused):
            World().spnego().step(bad)
    for cut in range(len(last)):
        acceptor = World().spnego()
        acceptor.step(vector("spnego_1_init"))
        with pytest.raises(SecurityRefused):
            acceptor.step(last[:cut])
    # Within a list, where a value without a length would look like one of none.
    ours = der.write(der.OID, OID_NTLM)
    for inside in (b"", b"\x06\x80", b"\x06\x80\0\0", b"\x06\x02\x2a", b"\x06"):
        offered = der.write(0xA0, der.write(der.SEQUENCE, ours + inside))
        init = der.write(0xA0, der.write(der.SEQUENCE, offered))
        token = der.write(0x60, der.write(der.OID, OID_SPNEGO), init)
        if inside:
            with pytest.raises(SecurityRefused):
                World().spnego().step(token)
        else:
            World().spnego().step(token)
            # Values of other kinds than the text says, in each place.
            for at in (0, token.index(b"\x06"), len(token) - len(ours) - 2, len(token) - len(ours)):
                with pytest.raises(SecurityRefused):
                    World().spnego().step(token[:at] + b"\x31" + token[at + 1 :])


@pytest.mark.spec("RP-SPNG-3.2.5-02", "RP-SPNG-3.2.5-03")
def test_a_windows_client_outside_a_domain_is_asked_for_a_mic() -> None:
    acceptor = World().spnego()
    answer = acceptor.step(vector("spnego_negtokeninit2_example"))
    found = der.read(der.read(answer, 0xA1), der.SEQUENCE)
    assert {tag: content for tag, content, _ in der.items(found)} == {
        0xA0: b"\x0a\x01\x03",
        0xA1: b"\x06" + bytes((len(OID_NTLM),)) + OID_NTLM,
    }
    listed = vector("spnego_negtokeninit2_example")[22:48]
    client = NtlmClient("alice", "S3cret!", "", counting())

    def response(token: bytes, mic: bytes = b"") -> bytes:
        parts = [der.write(0xA2, der.write(der.OCTETS, token))]
        if mic:
            parts.append(der.write(0xA3, der.write(der.OCTETS, mic)))
        return der.write(0xA1, der.write(der.SEQUENCE, *parts))

    challenge = acceptor.step(response(client.step(b"")))
    inner = der.read(der.read(challenge, 0xA1), der.SEQUENCE)
    raw = {tag: content for tag, content, _ in der.items(inner)}[0xA2]
    last = client.step(der.read(raw, der.OCTETS))
    assert client.keys is not None
    acceptor.step(response(last, client.keys.sign(listed)))
    assert acceptor.is_done
    with pytest.raises(SecurityRefused):
        SpnegoAcceptor({}).step(vector("spnego_1_init"))


def test_our_spnego_client_and_acceptor_agree() -> None:
    acceptor = World().spnego()
    client = SpnegoClient(NtlmClient("alice", "S3cret!", "", counting()))
    token = client.step(b"")
    while not client.is_done:
        token = client.step(acceptor.step(token))
    buffers = Buffers(b"head", b"body of a call..", b"trailer.")
    for one, other in ((client, acceptor), (acceptor, client)):
        body, signature = one.protect(AuthLevel.PRIVACY, buffers, signs_header=True)
        sealed = Buffers(buffers.header, body, buffers.trailer)
        assert other.unprotect(AuthLevel.PRIVACY, sealed, signature, signs_header=True) == (
            buffers.body
        )
