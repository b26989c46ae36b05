"""Kerberos: what is refused of what the library agreed to, and whose ticket it is.

The exchange itself, with a domain controller, is `make test-domain`; here a stand-in for the
library says what it would.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

from qm.rpc.ndr.streams import BadStub, Reader, Writer
from qm.rpc.pdu.codes import AuthLevel, AuthType
from qm.rpc.security import der
from qm.rpc.security.accounts import Account, Logons
from qm.rpc.security.kerberos import KerberosAcceptor, KerberosClient, KerberosMissing, Keytab
from qm.rpc.security.ntlm import NtlmTarget
from qm.rpc.security.pac import _INFO, _Group, sids_of_logon
from qm.rpc.security.provider import AUTHENTICATED_USERS, NETWORK, Buffers, SecurityRefused
from qm.rpc.security.providers import OfferedProviders
from qm.rpc.security.spnego import OID_KERBEROS, OID_KERBEROS_MS, OID_NTLM, SpnegoAcceptor
from qm.security.access import effective_sids
from qm.security.sid import sid_from_text, sid_text

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


class GssError(Exception):
    """As the library's."""


def signature(message: bytes) -> bytes:
    return b"%028d" % crc32(message)


class Library:
    """Stands for the package gssapi: one leg, after which it says what it is told to say."""

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
            self.complete = True
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
        kinds = SimpleNamespace(header=1, data=2, sign_only=3)
        self.raw = SimpleNamespace(
            IOV=lambda *parts, std_layout: [SimpleNamespace(value=b"") for _ in parts],
            IOVBufferType=kinds,
            wrap_iov_length=self._length,
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

    def _attribute(self, name: str, attribute: bytes) -> Any:
        if not self.info:
            raise GssError("there is none")
        return SimpleNamespace(values=list(self.info), authenticated=self.is_authentic)


class Accounts:
    """Knows service, which is not in the domain, and a disabled account."""

    def find(self, name: str, domain: str) -> Account | None:
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
    reader, read = Reader(LOGON_INFO[16:]), list[Any]()
    assert reader.u32()
    reader.defer(_INFO, read.append)
    reader.flush()
    (info,) = read
    info.resource_domain = sid_from_text("S-1-5-21-7-8-9")
    info.resources, info.resource_count = [_Group(1200, 7), _Group(1201, 7)], 2
    writer = Writer()
    writer.point(_INFO, info)
    writer.flush()
    assert list(map(sid_text, sids_of_logon(LOGON_INFO[:16] + writer.raw))) == [
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


@pytest.mark.spec("RP-OUR-auth-04")
def test_who_calls_is_whom_the_ticket_names(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    one = acceptor()
    assert one.step(b"ticket") == b"answer"
    assert one.is_done
    assert one.identity.name == "alice@QUORATE.TEST"
    assert one.identity.sids == (*sids_of_logon(LOGON_INFO), AUTHENTICATED_USERS, NETWORK)
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


def test_a_forged_ticket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch)
    with pytest.raises(SecurityRefused, match="wrong key"):
        acceptor().step(b"forged")


def test_a_frame_around_the_ticket_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    made = library(monkeypatch)
    one = acceptor()
    one.step(der.write(0x60, der.write(der.OID, OID_KERBEROS), b"\x01\x00ticket"))
    assert made.contexts[0].taken == [b"ticket"]


@pytest.mark.parametrize("oid", [OID_KERBEROS, OID_KERBEROS_MS])
def test_spnego_takes_kerberos_under_both_its_names(
    monkeypatch: pytest.MonkeyPatch, oid: bytes
) -> None:
    library(monkeypatch)
    offered = OfferedProviders(
        lambda: NtlmTarget("QUORATE", "quorate.example"),
        Logons(Accounts(), lambda: 0.0),
        bytes,
        lambda: 0,
        acceptor,
    )
    assert isinstance(offered.begin(AuthType.KERBEROS, AuthLevel.PRIVACY, "::1"), KerberosAcceptor)
    spnego = offered.begin(AuthType.SPNEGO, AuthLevel.PRIVACY, "::1")
    assert isinstance(spnego, SpnegoAcceptor)
    answer = spnego.step(
        der.write(0x60, der.write(der.OID, bytes.fromhex("2b0601050502")), init(oid))
    )
    assert oid in answer
    assert b"answer" in answer
    assert spnego.is_done
    assert spnego.identity.name == "alice@QUORATE.TEST"


def init(oid: bytes) -> bytes:
    mechanisms = der.write(der.SEQUENCE, der.write(der.OID, oid), der.write(der.OID, OID_NTLM))
    token = der.write(0xA2, der.write(der.OCTETS, b"ticket"))
    return der.write(0xA0, der.write(der.SEQUENCE, der.write(0xA0, mechanisms), token))


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
