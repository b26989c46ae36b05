"""Whom a browser's certificate names, and the API as somebody who signed in may call it."""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from cryptography import x509

from qm.api.gate.delegation import Delegation
from qm.api.gate.identity import Principal, Role, Unauthenticated, authenticate
from qm.client.calls import Calls, Stubs, Tls
from qm.console.sign_ins import Person

CALL_MAX_S: Final = 3.0
"""For an answer of the API; then the page says that there is none."""


class Access(msgspec.Struct, frozen=True):
    """How the console reaches its node's API."""

    endpoint: str
    tls: Tls
    delegation: Delegation


class Caller:
    """Calls for one person."""

    def __init__(self, access: Access, who: Principal) -> None:
        self._access = access
        self.who: Final = who
        self._wire: Calls | None = None

    async def call(self, method: Callable[[Stubs], Any], request: Any) -> Any:
        """Make a call. Raises ClientError."""
        if self._wire is None:
            metadata = self._access.delegation.metadata(self.who)
            self._wire = Calls([self._access.endpoint], self._access.tls, metadata=metadata)
        return await self._wire.call(method, request, deadline_s=CALL_MAX_S)

    @property
    def endpoint(self) -> tuple[str, Tls, Sequence[tuple[str, str]]]:
        """Where, with which certificate and for whom a client of this person's calls."""
        return (self._access.endpoint, self._access.tls, self._access.delegation.metadata(self.who))

    async def close(self) -> None:
        """Close the channel."""
        if self._wire is not None:
            await self._wire.close()


def certified(request: web.Request, is_revoked: Callable[[bytes], bool]) -> Person | None:
    """Return whom the certificate names that a browser showed; None without a usable one."""
    transport = request.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    if tls is None:
        return None
    shown = tls.getpeercert()
    if not shown:
        return None
    certificate = ssl.DER_cert_to_PEM_cert(tls.getpeercert(True)).encode()
    try:
        who = authenticate(_properties(shown))
    except Unauthenticated:
        return None
    person = of_certificate(who, certificate, is_revoked)
    # The handshake may be older than the end of the certificate.
    return person if who.role is not Role.NODE and person.holds() else None


def of_certificate(
    who: Principal, certificate: bytes, is_revoked: Callable[[bytes], bool]
) -> Person:
    """Return somebody whom a certificate, as PEM, proves until it ends or is revoked."""
    ends_s = _end_of(certificate)

    def holds() -> bool:
        return time.time() < ends_s and not is_revoked(certificate)

    return Person(who, holds)


def _end_of(certificate: bytes) -> float:
    """Return when a certificate ends, as Unix time; 0 for one that cannot be read."""
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError:
        return 0.0


def _properties(certificate: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """Return a certificate's names as gRPC tells them."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    return {
        "x509_common_name": [text.encode() for kind, text in subject if kind == "commonName"],
        "peer_uri": [
            text.encode() for kind, text in certificate.get("subjectAltName", ()) if kind == "URI"
        ],
    }
