"""Kerberos [MS-KILE, RFC 4121] as a security provider, by the system's GSS-API library.

Only exchanges in DCE style are taken: three legs, after which both sides have proven that they know
the session key, so that a ticket that somebody recorded opens nothing. Signatures and sealing are
those of AES keys; DES and RC4 are refused.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from qm.rpc.ndr.streams import BadStub
from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security import der
from qm.rpc.security.accounts import AccountSource
from qm.rpc.security.pac import sids_of_logon
from qm.rpc.security.provider import (
    AUTHENTICATED_USERS,
    NETWORK,
    Buffers,
    Identity,
    Mechanism,
    SecurityRefused,
)

_SEAL_OVERHEAD_BYTES: Final = 64
"""Of a sealed token without its checksum: two headers, the confounder, and as much padding."""
_BLOCK_BYTES: Final = 16
"""Of AES: as much padding an implementation may leave out, as impacket does."""
_CHECKSUM_MIN_BYTES, _CHECKSUM_MAX_BYTES = 12, 24
_TOKEN_HEADER_BYTES: Final = 16
_LOGON_INFO: Final = b"urn:mspac:logon-info"
_FRAME: Final = b"\x60"
_FRAMED: Final = der.write(der.OID, bytes.fromhex("2a864886f712010202")) + b"\x01\x00"
"""Kerberos, and the number of an AP-REQ [RFC 4121 4.1]."""


class KerberosMissing(Exception):
    """Kerberos is configured and cannot be had; the text says what to do."""


def _gssapi() -> Any:
    """Return the binding of the GSS-API library. Raises KerberosMissing."""
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:
        raise KerberosMissing(
            "Kerberos needs the package gssapi: pip install 'quorate[kerberos]', with the"
            f" Kerberos libraries of the system ({error})"
        ) from error


class _Context(Mechanism):
    """A security context of the library: its legs, signing and sealing."""

    def __init__(self, level: AuthLevel) -> None:
        self._library = _gssapi()
        self._level = level
        self._context: Any = None
        self._seal_bytes = 0
        """Size of a token beside a sealed body; 0 until the exchange is complete."""

    @property
    @override
    def is_done(self) -> bool:
        return self._seal_bytes > 0

    @property
    @override
    def had_mic(self) -> bool:
        return False

    def _leg(self, token: bytes) -> bytes:
        """Give the library the peer's token; return ours."""
        try:
            answer = bytes(self._context.step(token or None) or b"")
            if self._context.complete:
                self._check()
        except self._library.exceptions.GSSError as error:
            raise SecurityRefused(f"Kerberos: {error}") from error
        return answer

    def _check(self) -> None:
        """Refuse what was agreed if it protects too little."""
        flag, flags = self._library.RequirementFlag, self._context.actual_flags
        wanted = [flag.mutual_authentication, flag.integrity, flag.dce_style]
        if self._level is AuthLevel.PRIVACY:
            wanted.append(flag.confidentiality)
        if not all(flags & one for one in wanted):
            raise SecurityRefused("Kerberos without mutual authentication in DCE style")
        if flags & flag.anonymity:
            raise SecurityRefused("Kerberos: an anonymous ticket names nobody")
        raw = self._library.raw
        parts = raw.IOV(raw.IOVBufferType.header, b"", std_layout=False)
        raw.wrap_iov_length(self._context, parts)
        size = len(parts[0].value)
        checksum = size - _SEAL_OVERHEAD_BYTES
        if not _CHECKSUM_MIN_BYTES <= checksum <= _CHECKSUM_MAX_BYTES:
            raise SecurityRefused("Kerberos with a key that is not of AES")
        self._seal_bytes = size

    # Calls

    @override
    def signature_size(self, level: AuthLevel) -> int:
        if level == AuthLevel.PRIVACY:
            return self._seal_bytes
        return self._seal_bytes - _SEAL_OVERHEAD_BYTES + _TOKEN_HEADER_BYTES

    @override
    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        context, raw = self._complete(), self._library.raw
        try:
            if level != AuthLevel.PRIVACY:
                return buffers.body, bytes(context.get_signature(_signed(buffers, signs_header)))
            parts = self._parts(raw.IOVBufferType.header, buffers, signs_header=signs_header)
            raw.wrap_iov(context, parts, confidential=True)
        except self._library.exceptions.GSSError as error:
            raise SecurityRefused(f"Kerberos: {error}") from error
        return bytes(parts[2].value), bytes(parts[0].value)

    @override
    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        context, library = self._complete(), self._library
        size = self.signature_size(level)
        spare = _BLOCK_BYTES if level == AuthLevel.PRIVACY else 0
        if not size - spare <= len(token) <= size:
            raise SecurityRefused(f"Kerberos: a token of {len(token)} bytes")
        try:
            if level != AuthLevel.PRIVACY:
                context.verify_signature(_signed(buffers, signs_header), token)
                return buffers.body
            raw = library.raw
            header = (raw.IOVBufferType.header, False, token)
            parts = self._parts(header, buffers, signs_header=signs_header)
            found = raw.unwrap_iov(context, parts)
        except library.exceptions.GSSError as error:
            raise SecurityRefused(f"Kerberos: {error}") from error
        if not found.encrypted:
            raise SecurityRefused("Kerberos: a body that is not sealed")
        return bytes(parts[2].value)

    def _parts(self, header: object, buffers: Buffers, *, signs_header: bool) -> Any:
        """Return the parts of a PDU, in the order in which they are signed."""
        raw = self._library.raw
        before, after = (buffers.header, buffers.trailer) if signs_header else (b"", b"")
        sign_only = raw.IOVBufferType.sign_only
        return raw.IOV(
            header,
            (sign_only, False, before),
            (raw.IOVBufferType.data, False, buffers.body),
            (sign_only, False, after),
            std_layout=False,
        )

    def _complete(self) -> Any:
        if not self.is_done:
            raise SecurityRefused("the Kerberos exchange is not complete")
        return self._context

    # SPNEGO

    @override
    def sign_list(self, mechanisms: bytes) -> bytes:
        return bytes(self._complete().get_signature(mechanisms))

    @override
    def verify_list(self, mechanisms: bytes, mic: bytes) -> None:
        try:
            self._complete().verify_signature(mechanisms, mic)
        except self._library.exceptions.GSSError as error:
            raise SecurityRefused(f"Kerberos: mechListMIC: {error}") from error

    @override
    def restart(self) -> None:
        """Keep on: only the streams of RC4 begin anew."""


def _signed(buffers: Buffers, signs_header: bool) -> bytes:
    if not signs_header:
        return buffers.body
    return buffers.header + buffers.body + buffers.trailer


def _bare(token: bytes) -> bytes:
    """Return a ticket without GSS-API's frame, which the library wants left out in DCE style.

    impacket sends one.
    """
    if not token.startswith(_FRAME):
        return token
    framed = der.read(token, _FRAME[0])
    return framed[len(_FRAMED) :] if framed.startswith(_FRAMED) else token


class KerberosAcceptor(_Context):
    """The server's side of one exchange."""

    def __init__(self, level: AuthLevel, credentials: Any, accounts: AccountSource) -> None:
        """`credentials`: of `Keytab`. `accounts`: of those whose tickets name no SIDs."""
        super().__init__(level)
        self._accounts = accounts
        self._identity: Identity | None = None
        self._context = self._library.SecurityContext(creds=credentials, usage="accept")

    @property
    @override
    def identity(self) -> Identity:
        if self._identity is None:
            raise SecurityRefused("the Kerberos exchange is not complete")
        return self._identity

    @override
    def step(self, token: bytes) -> bytes:
        if self.is_done:
            raise SecurityRefused("the Kerberos exchange is over")
        answer = self._leg(_bare(token))
        if self._context.complete:
            self._identity = self._found()
        return answer

    def _found(self) -> Identity:
        """Return who the ticket is of. Raises SecurityRefused."""
        name = self._context.initiator_name
        text = str(name)
        try:
            info = self._library.raw.get_name_attribute(name, _LOGON_INFO)
        except self._library.exceptions.GSSError:
            return self._by_name(text)
        if not info.authenticated or len(info.values) != 1:
            raise SecurityRefused(f"Kerberos: the groups of {text} are not authentic")
        try:
            sids = sids_of_logon(bytes(info.values[0]))
        except BadStub as error:
            raise SecurityRefused(f"Kerberos: the groups of {text}: {error}") from error
        return Identity(text, (*sids, AUTHENTICATED_USERS, NETWORK))

    def _by_name(self, text: str) -> Identity:
        """Return an account of ours, for a ticket of our own realm's KDC, which knows no SIDs, or
        else somebody of whom nothing but the name is known: another realm may name anybody.
        """
        user, _, realm = text.rpartition("@")
        own = str(self._context.target_name).rpartition("@")[2]
        account = self._accounts.find(user, realm) if realm == own else None
        if account is None:
            return Identity(text, (AUTHENTICATED_USERS,))
        if not account.is_enabled:
            raise SecurityRefused(f"Kerberos: the account of {text} is disabled")
        return Identity(account.name, (*account.sids, AUTHENTICATED_USERS, NETWORK))


class Keytab:
    """The keys by which a node takes tickets; the file may be replaced while it runs."""

    def __init__(self, path: Path, accounts: AccountSource) -> None:
        """Raises KerberosMissing, OSError that names the file."""
        library = _gssapi()
        with path.open("rb"):
            pass
        # Three legs prove the key to us anew each time, so no cache of tickets is needed.
        store = {"keytab": f"FILE:{path}", "rcache": "none:"}
        try:
            self._credentials = library.Credentials(usage="accept", store=store)
        except library.exceptions.GSSError as error:
            raise OSError(f"the keytab {path} cannot be used: {error}") from error
        self._accounts = accounts

    def acceptor(self, level: AuthLevel) -> KerberosAcceptor:
        """Return a provider for a client that begins."""
        return KerberosAcceptor(level, self._credentials, self._accounts)


class KerberosClient(_Context):
    """A client's side of one exchange, with the ticket of who runs it: `step(b"")` begins it."""

    def __init__(self, host: str, level: AuthLevel = AuthLevel.PRIVACY) -> None:
        """`host`: as it stands in the service's name, HOST/host. Raises KerberosMissing."""
        super().__init__(level)
        library = self._library
        flag = library.RequirementFlag
        self._context = library.SecurityContext(
            name=library.Name(f"host@{host}", library.NameType.hostbased_service),
            flags=[
                flag.mutual_authentication,
                flag.integrity,
                flag.confidentiality,
                flag.dce_style,
            ],
            usage="initiate",
        )

    @property
    @override
    def identity(self) -> Identity:
        return Identity(str(self._context.initiator_name), ())

    @override
    def step(self, token: bytes) -> bytes:
        return b"" if self.is_done else self._leg(token)


AcceptorMaker = Callable[[AuthLevel], KerberosAcceptor]
"""Makes a provider for a client that begins."""
