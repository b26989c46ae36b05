"""SPNEGO [MS-SPNG, RFC 4178] as a security provider: it chooses a mechanism, which does the rest.

The client's first mechanism that is served is taken. If that is not its first of all, its token
was for another one: it is asked to begin anew, and a MIC over the list of mechanisms is demanded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from typing_extensions import override

from qm.rpc.pdu.codes import AuthLevel
from qm.rpc.security import der
from qm.rpc.security.ntlm_messages import SIGNATURE
from qm.rpc.security.provider import Buffers, Identity, Mechanism, Provider, SecurityRefused

OID_SPNEGO: Final = bytes.fromhex("2b0601050502")
OID_NTLM: Final = bytes.fromhex("2b06010401823702020a")
OID_KERBEROS: Final = bytes.fromhex("2a864886f712010202")
OID_KERBEROS_MS: Final = bytes.fromhex("2a864882f712010202")
MECHANISMS_MAX: Final = 16
_APPLICATION: Final = 0x60
_INIT, _RESPONSE = 0xA0, 0xA1
_ACCEPT_COMPLETED, _ACCEPT_INCOMPLETE, _REJECT, _REQUEST_MIC = 0, 1, 2, 3


Mechanisms = Mapping[bytes, Callable[[], Mechanism]]
"""By OID: what creates a provider."""


class SpnegoAcceptor(Provider):
    """The server's side of one exchange."""

    def __init__(self, mechanisms: Mechanisms) -> None:
        self._mechanisms = mechanisms
        self._inner: Mechanism | None = None
        self._list = b""
        """The client's list, DER as received: what the MICs are made of."""
        self._needs_mic = False
        self._is_raw = False
        """The client sent NTLM without SPNEGO under this type, as Wine does."""
        self._is_done = False

    @property
    @override
    def is_done(self) -> bool:
        return self._is_done

    @property
    @override
    def identity(self) -> Identity:
        return self._mechanism().identity

    @property
    @override
    def ends_by_auth3(self) -> bool:
        return self._is_raw

    @override
    def step(self, token: bytes) -> bytes:
        if self._is_done:
            raise SecurityRefused("the SPNEGO exchange is over")
        if self._is_raw or (self._inner is None and token.startswith(SIGNATURE)):
            return self._step_raw(token)
        if self._inner is None and not self._list:
            return self._begin(token)
        return self._go_on(token)

    def _step_raw(self, token: bytes) -> bytes:
        self._is_raw = True
        if self._inner is None:
            self._inner = self._mechanisms[OID_NTLM]()
        answer = self._inner.step(token)
        self._is_done = self._inner.is_done
        return answer

    def _begin(self, token: bytes) -> bytes:
        parts = list(der.items(der.read(token, _APPLICATION)))
        if len(parts) != 2 or parts[0][:2] != (der.OID, OID_SPNEGO):
            raise SecurityRefused("a token that is not of SPNEGO")
        fields = _fields(der.read(parts[1][2], _INIT))
        self._list = fields.get(0, b"")
        offered = [
            content for tag, content, _ in der.items(der.read(self._list, der.SEQUENCE))
            if tag == der.OID
        ]  # fmt: skip
        if len(offered) > MECHANISMS_MAX:
            raise SecurityRefused(f"{len(offered)} mechanisms; {MECHANISMS_MAX} are allowed")
        chosen = next((oid for oid in offered if oid in self._mechanisms), None)
        if chosen is None:
            raise SecurityRefused("no mechanism in common")
        self._inner = self._mechanisms[chosen]()
        if chosen != offered[0]:
            self._needs_mic = True
            return _response(_REQUEST_MIC, chosen)
        inner_token = der.read(fields[2], der.OCTETS) if 2 in fields else b""
        answer = self._inner.step(inner_token) if inner_token else b""
        if self._inner.is_done and not self._needs_mic:
            self._is_done = True
            return _response(_ACCEPT_COMPLETED, chosen, answer)
        return _response(_ACCEPT_INCOMPLETE, chosen, answer)

    def _go_on(self, token: bytes) -> bytes:
        inner = self._mechanism()
        fields = _fields(der.read(token, _RESPONSE))
        answer = b""
        if 2 in fields:
            answer = inner.step(der.read(fields[2], der.OCTETS))
        if not inner.is_done:
            return _response(_ACCEPT_INCOMPLETE, None, answer)
        mic = der.read(fields[3], der.OCTETS) if 3 in fields else b""
        ours = self._exchange_mics(inner, mic)
        self._is_done = True
        return _response(_ACCEPT_COMPLETED, None, answer, ours)

    def _exchange_mics(self, inner: Mechanism, mic: bytes) -> bytes:
        """Verify the client's mechListMIC and return ours, if there is one (RP-A8)."""
        if not mic:
            if self._needs_mic or inner.had_mic:
                raise SecurityRefused("the client sent no mechListMIC")
            return b""
        inner.verify_list(self._list, mic)
        ours = inner.sign_list(self._list)
        inner.restart()
        return ours

    def _mechanism(self) -> Mechanism:
        if self._inner is None:
            raise SecurityRefused("no mechanism was chosen")
        return self._inner

    @override
    def signature_size(self, level: AuthLevel) -> int:
        return self._mechanism().signature_size(level)

    @override
    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        return self._mechanism().protect(level, buffers, signs_header=signs_header)

    @override
    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        return self._mechanism().unprotect(level, buffers, token, signs_header=signs_header)


class SpnegoClient(Provider):
    """A client's side with one mechanism inside: `step(b"")` begins it."""

    def __init__(self, inner: Mechanism, oid: bytes = OID_NTLM) -> None:
        self._inner = inner
        self._list = der.write(der.SEQUENCE, der.write(der.OID, oid))
        self._is_done = False

    @property
    @override
    def is_done(self) -> bool:
        return self._is_done

    @property
    @override
    def identity(self) -> Identity:
        return self._inner.identity

    @override
    def step(self, token: bytes) -> bytes:
        if not token:
            first = self._inner.step(b"")
            init = der.write(
                der.SEQUENCE,
                der.write(0xA0, self._list),
                der.write(0xA2, der.write(der.OCTETS, first)),
            )
            return der.write(_APPLICATION, der.write(der.OID, OID_SPNEGO), der.write(_INIT, init))
        fields = _fields(der.read(token, _RESPONSE))
        inner = self._inner
        if inner.is_done:
            if 3 in fields:
                inner.verify_list(self._list, der.read(fields[3], der.OCTETS))
            inner.restart()
            self._is_done = True
            return b""
        last = inner.step(der.read(fields[2], der.OCTETS) if 2 in fields else b"")
        mic = inner.sign_list(self._list) if inner.is_done else b""
        return _response(None, None, last, mic)

    @override
    def signature_size(self, level: AuthLevel) -> int:
        return self._inner.signature_size(level)

    @override
    def protect(self, level: AuthLevel, buffers: Buffers, *, signs_header: bool) -> Sequence[bytes]:
        return self._inner.protect(level, buffers, signs_header=signs_header)

    @override
    def unprotect(
        self, level: AuthLevel, buffers: Buffers, token: bytes, *, signs_header: bool
    ) -> bytes:
        return self._inner.unprotect(level, buffers, token, signs_header=signs_header)


def _fields(raw: bytes) -> dict[int, bytes]:
    """Return the fields of a token by their number; each holds one value."""
    return {tag & 0x1F: content for tag, content, _ in der.items(der.read(raw, der.SEQUENCE))}


def _response(
    state: int | None, mechanism: bytes | None, token: bytes = b"", mic: bytes = b""
) -> bytes:
    """Return a NegTokenResp."""
    parts = []
    if state is not None:
        parts.append(der.write(0xA0, der.write(der.ENUMERATED, bytes((state,)))))
    if mechanism is not None:
        parts.append(der.write(0xA1, der.write(der.OID, mechanism)))
    if token:
        parts.append(der.write(0xA2, der.write(der.OCTETS, token)))
    if mic:
        parts.append(der.write(0xA3, der.write(der.OCTETS, mic)))
    return der.write(_RESPONSE, der.write(der.SEQUENCE, *parts))
