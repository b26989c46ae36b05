"""Kerberos: what is refused of what the library agreed to, and whose ticket it is.

The exchange itself, with a domain controller, is `make test-domain`; here a stand-in for the
library says what it would.
"""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.call import request_head
from qm.rpc.pdu.codes import AuthLevel, AuthType, PduFlag, PduType
from qm.rpc.pdu.header import Pdu, Trailer, write_header, write_trailer
from qm.rpc.security import der
from qm.rpc.security.accounts import Account, Logons
from qm.rpc.security.kerberos import KerberosAcceptor, KerberosClient, KerberosMissing, Keytab
from qm.rpc.security.ntlm import NtlmTarget
from qm.rpc.security.pac import sids_of_logon
from qm.rpc.security.provider import Buffers, SecurityRefused
from qm.rpc.security.providers import OfferedProviders
from qm.rpc.security.spnego import OID_KERBEROS, OID_NTLM, SpnegoAcceptor
from qm.security.access import effective_sids
from qm.security.sid import sid_from_text, sid_text
from tests.unit.rpc.dialogue import WHOLE, Client, served

LOGON_INFO = bytes.fromhex(
    ""
    "01100800ccccccccb001000000000000000002000000000000000000ffffffffffffff7fffffffffffffff7f"
    "cac2cf7d817edd01ca8239a84a7fdd01ca422973829fdd010a000a0004000200000000000800020000000000"
    "0c000200000000001000020000000000140002000000000018000200000000004f0400000102000002000000"
    "1c000200200000000000000000000000000000000000000006000800200002000e0010002400020028000200"
    "0000000000000000100000000000000000000000000000000000000000000000000000000000000001000000"
    "2c00020000000000000000000000000005000000000000000500000061006c00690063006500000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000200000001020000070000005104000007000000040000000000000003000000"
    "4400430031000000080000000000000007000000510055004f00520041005400450000000400000001040000"
    "00000005150000006e1e9bcd3ff91b5ad47c16f5010000003000020007000000010000000101000000000012"
    "0100000000000000"
)
"""PAC_LOGON_INFO of alice, made by a domain controller of Samba 4.17."""
DOMAIN = "S-1-5-21-3449495150-1511782719-4111891668"
MUTUAL, CONFIDENTIAL, INTEGRITY, ANONYMOUS, DCE = 2, 16, 32, 64, 4096
ALL = MUTUAL | CONFIDENTIAL | INTEGRITY | DCE
HEADER, DATA, SIGN_ONLY = 1, 2, 3
KERBEROS = int(AuthType.KERBEROS)
KERBEROS_OIDS = (
    bytes.fromhex("2a864886f712010202"),
    bytes.fromhex("2a864882f712010202"),
)
RESOURCE_DOMAIN_AT = 20 + 204
"""Of KERB_VALIDATION_INFO [MS-PAC 2.5], behind the type headers and its own pointer."""


class GssError(Exception):
    """As the library's."""


def signature(message: bytes) -> bytes:
    return b"%028d" % crc32(message)


def sealing(message: bytes) -> bytes:
    return b"%076d" % crc32(message)


def sealed(body: bytes) -> bytes:
    return bytes(one ^ 0x55 for one in body)


class Part:
    """Of a message in parts: what it is for, and its bytes."""

    def __init__(self, given: Any) -> None:
        self.kind, _, self.value = given if isinstance(given, tuple) else (given, False, b"")


class Library:
    """Stands for the package gssapi: after its legs it says what it is told to say."""

    class Context:
        def __init__(self, library: Library) -> None:
            self._library = library
            self.complete = False
            self.actual_flags = library.flags
            self.initiator_name = library.name
            self.target_name = "HOST/queues.example.com@QUORATE.TEST"
            self.taken: list[bytes] = []

        def step(self, token: bytes | None) -> bytes:
            self.taken.append(token or b"")
            if token == b"forged":
                raise GssError("wrong key")
            self.complete = len(self.taken) >= self._library.legs
            return b"answer"

        def get_signature(self, message: bytes) -> bytes:
            if not message:
                raise GssError("the context has expired")
            return signature(message)

        def verify_signature(self, message: bytes, token: bytes) -> None:
            if token != self.get_signature(message):
                raise GssError("a wrong signature")

    def __init__(self, **said: Any) -> None:
        self.flags = said.get("flags", ALL)
        self.name = said.get("name", "alice@QUORATE.TEST")
        self.info = said.get("info", (LOGON_INFO,))
        self.is_authentic = said.get("is_authentic", True)
        self.seal_bytes = said.get("seal_bytes", 76)
        self.legs = said.get("legs", 1)
        self.contexts: list[Library.Context] = []
        self.exceptions = SimpleNamespace(GSSError=GssError)
        self.RequirementFlag = SimpleNamespace(
            mutual_authentication=MUTUAL,
            integrity=INTEGRITY,
            confidentiality=CONFIDENTIAL,
            anonymity=ANONYMOUS,
            dce_style=DCE,
        )
        self.NameType = SimpleNamespace(hostbased_service=1)
        kinds = SimpleNamespace(header=HEADER, data=DATA, sign_only=SIGN_ONLY)
        self.raw = SimpleNamespace(
            IOV=lambda *parts, std_layout: list(map(Part, parts)),
            IOVBufferType=kinds,
            wrap_iov_length=self._length,
            wrap_iov=self._wrap,
            unwrap_iov=self._unwrap,
            get_name_attribute=self._attribute,
        )

    def Name(self, text: str, kind: int) -> str:
        return text

    def Credentials(self, **given: Any) -> object:
        return object()

    def SecurityContext(self, **given: Any) -> Context:
        self.contexts.append(Library.Context(self))
        return self.contexts[-1]

    def _length(self, context: object, parts: list[Any]) -> None:
        parts[0].value = bytes(self.seal_bytes)

    def _wrap(self, context: object, parts: list[Part], confidential: bool) -> None:
        assert confidential
        parts[0].value = sealing(b"".join(one.value for one in parts[1:]))
        for one in parts[1:]:
            one.value = sealed(one.value) if one.kind == DATA else one.value

    def _unwrap(self, context: object, parts: list[Part]) -> Any:
        for one in parts[1:]:
            one.value = sealed(one.value) if one.kind == DATA else one.value
        if parts[0].value != sealing(b"".join(one.value for one in parts[1:])):
            raise GssError("a wrong signature")
        return SimpleNamespace(encrypted=True)

    def _attribute(self, name: str, attribute: bytes) -> Any:
        if not self.info:
            raise GssError("there is none")
        return SimpleNamespace(values=list(self.info), authenticated=self.is_authentic)


class Accounts:
    """Knows service, which is not in the domain, and a disabled account; both name the realm."""

    def find(self, name: str, domain: str) -> Account | None:
        if domain != "QUORATE.TEST":
            return None
        sids = (sid_from_text("S-1-5-21-1-2-3-4"),)
        return {
            "service": Account("service", bytes(16), sids),
            "gone": Account("gone", bytes(16), sids, is_enabled=False),
        }.get(name)


def library(monkeypatch: pytest.MonkeyPatch, **said: Any) -> Library:
    made = Library(**said)
    real = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name: made if name == "gssapi" else real(name)
    )
    return made


def acceptor(level: AuthLevel = AuthLevel.PRIVACY) -> KerberosAcceptor:
    return KerberosAcceptor(level, object(), Accounts())


@pytest.mark.spec("RP-KILE-3.4.5.3-01")
def test_sids_of_a_ticket_are_the_users_and_its_groups() -> None:
    assert list(map(sid_text, sids_of_logon(LOGON_INFO))) == [
        f"{DOMAIN}-1103",
        f"{DOMAIN}-513",
        f"{DOMAIN}-1105",
        "S-1-18-1",
    ]
    # With groups of the resource's domain, of which that controller sent none.
    info = bytearray(LOGON_INFO[:-4])  # without padding
    assert info[RESOURCE_DOMAIN_AT : RESOURCE_DOMAIN_AT + 12] == bytes(12)
    struct.pack_into("<III", info, RESOURCE_DOMAIN_AT, 0x20040, 2, 0x20044)
    info += struct.pack("<IBB6s4I", 4, 1, 4, b"\0\0\0\0\0\5", 21, 7, 8, 9)
    info += struct.pack("<5I", 2, 1200, 7, 1201, 7)
    assert list(map(sid_text, sids_of_logon(bytes(info)))) == [
        f"{DOMAIN}-1103",
        f"{DOMAIN}-513",
        f"{DOMAIN}-1105",
        "S-1-5-21-7-8-9-1200",
        "S-1-5-21-7-8-9-1201",
        "S-1-18-1",
    ]


def test_a_logon_info_that_was_altered_is_refused_or_read_within_its_bounds() -> None:
    for at in range(len(LOGON_INFO)):
        for value in (0, 0x7F, 0xFF):
            altered = LOGON_INFO[:at] + bytes((value,)) + LOGON_INFO[at + 1 :]
            try:
                assert sids_of_logon(altered)
            except BadStub:
                continue
    for end in range(len(LOGON_INFO) - 8):
        with pytest.raises(BadStub):
            sids_of_logon(LOGON_INFO[:end])


@pytest.mark.spec("RP-OUR-auth-04", "RP-KILE-3.4.5.3-01", "RP-RPCE-2.2.2.12-01")
def test_who_calls_is_whom_the_ticket_names(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    one = acceptor()
    assert one.step(b"ticket") == b"answer"
    assert one.is_done
    assert one.identity.name == "alice@QUORATE.TEST"
    assert list(map(sid_text, one.identity.sids)) == [
        *(f"{DOMAIN}-1103", f"{DOMAIN}-513", f"{DOMAIN}-1105", "S-1-18-1"),
        *("S-1-5-11", "S-1-5-2"),
    ]
    texts = {sid_text(each) for each in effective_sids(one.identity.sids)}
    assert {"S-1-5-11", "S-1-5-2", "S-1-1-0"} < texts
    # Of an account of this cluster, too, whose SIDs are not in the ticket.
    library(monkeypatch, info=(), name="service@QUORATE.TEST")
    own = acceptor()
    own.step(b"ticket")
    texts = {sid_text(each) for each in effective_sids(own.identity.sids)}
    assert texts == {"S-1-5-21-1-2-3-4", "S-1-5-11", "S-1-5-2", "S-1-1-0"}
    assert (one.signature_size(AuthLevel.PRIVACY), one.signature_size(AuthLevel.INTEGRITY)) == (
        76,
        28,
    )
    with pytest.raises(SecurityRefused, match="over"):
        one.step(b"ticket")


@pytest.mark.parametrize("missing", [MUTUAL, CONFIDENTIAL, INTEGRITY, DCE])
def test_an_exchange_that_protects_too_little_is_refused(
    monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    library(monkeypatch, flags=ALL & ~missing)
    with pytest.raises(SecurityRefused, match="DCE style"):
        acceptor().step(b"ticket")


@pytest.mark.spec("RP-KILE-3.4.5.6-01", "RP-RPCE-3.3.1.5.2.2-01")
def test_signing_alone_needs_no_sealing(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, flags=ALL & ~CONFIDENTIAL)
    one = acceptor(AuthLevel.INTEGRITY)
    one.step(b"ticket")
    parts = Buffers(b"head", b"body", b"trailer")
    body, token = one.protect(AuthLevel.INTEGRITY, parts, signs_header=True)
    assert (body, token) == (b"body", signature(b"headbodytrailer"))
    assert one.unprotect(AuthLevel.INTEGRITY, parts, token, signs_header=True) == b"body"
    body, bare = one.protect(AuthLevel.INTEGRITY, parts, signs_header=False)
    assert (body, bare) == (b"body", signature(b"body")), "the body alone"
    assert one.unprotect(AuthLevel.INTEGRITY, parts, bare, signs_header=False) == b"body"
    for other, signs_header in ((token, False), (bare, True)):
        with pytest.raises(SecurityRefused, match="signature"):
            one.unprotect(AuthLevel.INTEGRITY, parts, other, signs_header=signs_header)
    with pytest.raises(SecurityRefused, match="29 bytes"):
        one.unprotect(AuthLevel.INTEGRITY, parts, token + b"0", signs_header=True)
    with pytest.raises(SecurityRefused, match="expired"):
        one.protect(AuthLevel.INTEGRITY, Buffers(b"", b"", b""), signs_header=False)


@pytest.mark.spec("RP-KILE-3.4.5.6-01")
def test_so_it_is_within_spnego(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    spnego = offers().begin(AuthType.SPNEGO, AuthLevel.INTEGRITY, "::1")
    assert spnego is not None
    listed = der.write(der.SEQUENCE, der.write(der.OID, OID_KERBEROS))
    fields = (der.write(0xA0, listed), der.write(0xA2, der.write(der.OCTETS, b"ticket")))
    given = der.write(0xA0, der.write(der.SEQUENCE, *fields))
    spnego.step(der.write(0x60, der.write(der.OID, bytes.fromhex("2b0601050502")), given))
    assert spnego.is_done
    parts = Buffers(b"head", b"body", b"trailer")
    for signs_header, signed in ((False, b"body"), (True, b"headbodytrailer")):
        body, token = spnego.protect(AuthLevel.INTEGRITY, parts, signs_header=signs_header)
        assert (body, token) == (b"body", signature(signed))
        found = spnego.unprotect(AuthLevel.INTEGRITY, parts, token, signs_header=signs_header)
        assert found == b"body"


def test_an_anonymous_ticket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, flags=ALL | ANONYMOUS)
    with pytest.raises(SecurityRefused, match="anonymous"):
        acceptor().step(b"ticket")


@pytest.mark.parametrize("said", [{"seal_bytes": 52}, {"seal_bytes": 0}])
def test_keys_that_are_not_of_aes_are_refused(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, int]
) -> None:
    library(monkeypatch, **said)
    one = acceptor()
    with pytest.raises(SecurityRefused, match="AES"):
        one.step(b"ticket")
    assert not one.is_done


@pytest.mark.parametrize(
    "said",
    [
        {"is_authentic": False},
        {"info": (b"\x01\x10\x08\x00",)},
        {"info": (LOGON_INFO, LOGON_INFO)},
        {"info": (), "name": "gone@QUORATE.TEST"},
    ],
)
def test_a_ticket_that_says_nothing_certain_is_refused(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    library(monkeypatch, **said)
    one = acceptor()
    with pytest.raises(SecurityRefused):
        one.step(b"ticket")
    with pytest.raises(SecurityRefused):
        _ = one.identity


@pytest.mark.spec("RP-KILE-3.4.5.3-02")
@pytest.mark.parametrize(
    ("name", "known_as", "sids"),
    [
        ("service@QUORATE.TEST", "service", ("S-1-5-21-1-2-3-4", "S-1-5-11", "S-1-5-2")),
        ("stranger@QUORATE.TEST", "stranger@QUORATE.TEST", ("S-1-5-11",)),
        ("service@OTHER.TEST", "service@OTHER.TEST", ("S-1-5-11",)),
    ],
)
def test_a_ticket_without_sids_is_of_an_account_or_of_somebody(
    monkeypatch: pytest.MonkeyPatch, name: str, known_as: str, sids: tuple[str, ...]
) -> None:
    library(monkeypatch, info=(), name=name)
    one = acceptor()
    one.step(b"ticket")
    assert one.identity.name == known_as
    assert tuple(map(sid_text, one.identity.sids)) == sids
    texts = {sid_text(each) for each in effective_sids(one.identity.sids)}
    assert texts == {*sids, "S-1-1-0"}


def test_a_forged_ticket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    with pytest.raises(SecurityRefused, match="wrong key"):
        acceptor().step(b"forged")


def test_a_frame_around_the_ticket_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(monkeypatch)
    one = acceptor()
    one.step(der.write(0x60, der.write(der.OID, OID_KERBEROS), b"\x01\x00ticket"))
    assert made.contexts[0].taken == [b"ticket"]


@pytest.mark.spec("RP-SPNG-3.1.5.2-01")
@pytest.mark.parametrize("oid", KERBEROS_OIDS)
def test_spnego_takes_kerberos_under_both_its_names(
    monkeypatch: pytest.MonkeyPatch, oid: bytes
) -> None:
    library(monkeypatch)
    offered = offers()
    assert isinstance(offered.begin(AuthType.KERBEROS, AuthLevel.PRIVACY, "::1"), KerberosAcceptor)
    spnego = offered.begin(AuthType.SPNEGO, AuthLevel.PRIVACY, "::1")
    assert isinstance(spnego, SpnegoAcceptor)
    answer = spnego.step(
        der.write(0x60, der.write(der.OID, bytes.fromhex("2b0601050502")), init(oid))
    )
    assert [each for each in KERBEROS_OIDS if each in answer] == [oid], "as it was offered"
    assert b"answer" in answer
    assert spnego.is_done
    assert spnego.identity.name == "alice@QUORATE.TEST"


def init(oid: bytes) -> bytes:
    mechanisms = der.write(der.SEQUENCE, der.write(der.OID, oid), der.write(der.OID, OID_NTLM))
    token = der.write(0xA2, der.write(der.OCTETS, b"ticket"))
    return der.write(0xA0, der.write(der.SEQUENCE, der.write(0xA0, mechanisms), token))


def offers() -> OfferedProviders:
    return OfferedProviders(
        lambda: NtlmTarget("QUORATE", "quorate.example"),
        Logons(Accounts(), lambda: 0.0),
        bytes,
        lambda: 0,
        acceptor,
    )


@pytest.mark.spec("RP-SPNG-3.1.5.1-02")
@pytest.mark.parametrize("is_right", [True, False])
def test_a_list_of_mechanisms_is_signed_by_kerberos_too(
    monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    library(monkeypatch)
    spnego = offers().begin(AuthType.SPNEGO, AuthLevel.PRIVACY, "::1")
    assert spnego is not None
    unknown = bytes.fromhex("2b06010401823702021e")
    listed = der.write(der.SEQUENCE, *(der.write(der.OID, one) for one in (unknown, OID_KERBEROS)))
    given = der.write(0xA0, der.write(der.SEQUENCE, der.write(0xA0, listed)))
    token = der.write(0x60, der.write(der.OID, bytes.fromhex("2b0601050502")), given)
    assert b"\x0a\1\3" in spnego.step(token), "a MIC is asked for"
    mic = signature(listed if is_right else listed + b"\0")
    fields = (
        der.write(0xA2, der.write(der.OCTETS, b"ticket")),
        der.write(0xA3, der.write(der.OCTETS, mic)),
    )
    last = der.write(0xA1, der.write(der.SEQUENCE, *fields))
    if is_right:
        assert signature(listed) in spnego.step(last), "ours, too"
    else:
        with pytest.raises(SecurityRefused, match="mechListMIC"):
            spnego.step(last)
    assert spnego.is_done is is_right


class Caller(Client):
    """A client that logs on by Kerberos."""

    def __init__(self, level: AuthLevel) -> None:
        super().__init__(served(providers=offers()))
        self.level = level

    def leg(self, token: bytes, kind: PduType = PduType.BIND, flags: int = WHOLE) -> Pdu:
        trailer = Trailer(KERBEROS, self.level, 1, token)
        return self.bind(kind=kind, flags=flags, trailer=trailer)

    def signed(self, stub: bytes, *, signs_header: bool) -> list[Pdu]:
        """Make a call; return the answers."""
        head, trailer = request_head(0, 0, len(stub)), write_trailer(KERBEROS, self.level, 0, 1)
        size = 76 if self.level is AuthLevel.PRIVACY else 28
        header = write_header(PduType.REQUEST, WHOLE, 2, 24 + len(stub) + 8 + size, size)
        token = self.token(header + head, stub, trailer, signs_header=signs_header)
        body = sealed(stub) if self.level is AuthLevel.PRIVACY else stub
        return self.send(header + head + body + trailer + token)

    def token(self, head: bytes, body: bytes, trailer: bytes, *, signs_header: bool) -> bytes:
        made = sealing if self.level is AuthLevel.PRIVACY else signature
        return made(head + body + trailer if signs_header else body)


@pytest.mark.spec("RP-KILE-3.4.5.6-01")
@pytest.mark.parametrize("level", [AuthLevel.INTEGRITY, AuthLevel.PRIVACY])
@pytest.mark.parametrize("is_negotiated", [True, False])
def test_what_is_signed_is_what_the_bind_has_agreed_on(
    monkeypatch: pytest.MonkeyPatch, level: AuthLevel, is_negotiated: bool
) -> None:
    library(monkeypatch)
    flags = WHOLE | (PduFlag.SUPPORT_HEADER_SIGN if is_negotiated else 0)
    client = Caller(level)
    assert client.leg(b"ticket", flags=flags).kind is PduType.BIND_ACK
    refused = client.signed(b"asked...", signs_header=not is_negotiated)
    assert [one.kind for one in refused] == [PduType.FAULT]
    assert client.events == []

    client = Caller(level)
    client.leg(b"ticket", flags=flags)
    # Another exchange on the connection, which says nothing of it, changes nothing.
    client.bind(
        kind=PduType.ALTER_CONTEXT, flags=WHOLE, trailer=Trailer(KERBEROS, level, 2, b"ticket")
    )
    assert client.signed(b"asked...", signs_header=is_negotiated) == []
    call = client.call()
    assert call.stub == b"asked..."
    (answer,) = client.respond(call, b"answered")
    assert answer.trailer is not None
    head, body = answer.header + answer.body[:8], answer.body[8:]
    if level is AuthLevel.PRIVACY:
        body = sealed(body)
    assert body[:8] == b"answered"
    wanted = client.token(head, body, answer.trailer.raw, signs_header=is_negotiated)
    assert answer.trailer.token == wanted


@pytest.mark.spec("RP-RPCE-3.3.1.5.2.1-01")
def test_the_legs_of_kerberos_are_those_of_bind_and_alter_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = library(monkeypatch, legs=2)
    client = Caller(AuthLevel.INTEGRITY)
    first = client.leg(b"ticket")
    second = client.leg(b"proof", PduType.ALTER_CONTEXT)
    for answer, kind in ((first, PduType.BIND_ACK), (second, PduType.ALTER_CONTEXT_RESPONSE)):
        assert answer.kind is kind
        assert answer.trailer is not None
        told = answer.trailer
        assert (told.auth_type, told.level, told.context_id) == (16, AuthLevel.INTEGRITY, 1)
        assert told.token == b"answer"
    assert made.contexts[0].taken == [b"ticket", b"proof"]
    assert client.signed(b"asked...", signs_header=False) == []
    assert client.call().identity.name == "alice@QUORATE.TEST"


def test_without_a_keytab_kerberos_is_not_offered() -> None:
    offered = OfferedProviders(
        lambda: NtlmTarget("QUORATE", "quorate.example"),
        Logons(Accounts(), lambda: 0.0),
        bytes,
        lambda: 0,
    )
    assert offered.begin(AuthType.KERBEROS, AuthLevel.PRIVACY, "::1") is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> object:
        raise ImportError(f"no {name}")

    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", absent)
        with pytest.raises(KerberosMissing, match=r"quorate\[kerberos\]"):
            KerberosClient("host")
    library(monkeypatch)
    with pytest.raises(OSError, match=r"quorate\.keytab"):
        Keytab(tmp_path / "quorate.keytab", Accounts())
