"""Mutual TLS between nodes: this node's certificate, and those that it trusts.

A node's name is among its certificate's subject alternative names (DNS). Files may be replaced
while the node runs: each handshake uses what is on disk, so a rotation needs no restart. Open
streams keep the certificate with which they began, and end when it is revoked. Revocation is
checked for each call, since gRPC for Python does not support revocation lists.
"""

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from raft.transport.metrics import TransportMetrics

logger = logging.getLogger(__name__)

_KEPT: list[grpc.ServerCredentials] = []
"""One per server, never freed: a connection that arrives while its server is being freed still
asks them for certificates, in a thread of gRPC's, and would crash the process."""

ALPN = "quorate-raft/1"
"""What the two ends of a direct stream speak (`raft.transport.direct`). gRPC speaks h2."""
PEER_ROLE = "quorate:role/node"
"""The URI among the alternative names of a node's certificate. A node has no other role."""
_ROLE_PREFIX = "quorate:role/"
_DNS_PROPERTY = "peer_dns"
_URI_PROPERTY = "peer_uri"
_PEM_PROPERTY = "x509_pem_cert"
REVOKED_LOOK_S = 1.0
"""Time between two checks of the list of revoked certificates."""
PARSED_MAX = 1_024
"""Certificates whose issuer and serial number are cached."""
REVOCATIONS_MAX_BYTES = 16 << 20
"""Size of the file with the lists."""


class TlsError(ValueError):
    """The certificate files cannot be used; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one node."""

    authority: Path
    """The authorities that sign certificates of the cluster's nodes, and of nothing else."""
    certificate: Path
    """This node's certificate, followed by intermediate ones."""
    key: Path
    revoked: Path | None = None
    """Revocation lists (PEM, one CRL per authority); None: nothing is revoked."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What a caller's certificate says about its holder."""

    dns_names: tuple[str, ...]
    roles: tuple[str, ...]
    """URIs of roles."""
    pem: bytes

    @property
    def is_peer(self) -> bool:
        """Whether the holder is a node and nothing else."""
        return self.roles == (PEER_ROLE,)


def read_certificate(der: bytes) -> PeerCertificate:
    """Read a certificate that a TLS handshake has verified. Raises ValueError."""
    certificate = x509.load_der_x509_certificate(der)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName(())
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return PeerCertificate(
        tuple(names.get_values_for_type(x509.DNSName)),
        tuple(uri for uri in uris if uri.startswith(_ROLE_PREFIX)),
        certificate.public_bytes(serialization.Encoding.PEM),
    )


def peer_certificate(properties: Mapping[str, Sequence[bytes]]) -> PeerCertificate:
    """Read gRPC's authentication context. Kinds of alternative names are never mixed: an address or
    a URI that looks like a node's name does not count as one.
    """
    uris = _texts(properties, _URI_PROPERTY)
    return PeerCertificate(
        _texts(properties, _DNS_PROPERTY),
        tuple(uri for uri in uris if uri.startswith(_ROLE_PREFIX)),
        bytes(next(iter(properties.get(_PEM_PROPERTY, ())), b"")),
    )


def _texts(properties: Mapping[str, Sequence[bytes]], name: str) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "replace") for value in properties.get(name, ()))


_Serial = tuple[bytes, int]
"""Issuer and serial number, which identify a certificate."""


@dataclass(frozen=True, slots=True)
class _Material:
    authority: bytes
    certificate: bytes
    key: bytes
    revoked: frozenset[_Serial]
    called: ssl.SSLContext
    """For connections that this node accepts without gRPC."""
    calling: ssl.SSLContext
    """For those that it opens."""


class TlsIdentity:
    """Credentials from files, which are read again when they change."""

    def __init__(self, files: TlsFiles, metrics: TransportMetrics) -> None:
        """Read the files. Raises TlsError when they cannot be used."""
        self._files = files
        self._metrics = metrics
        self._lock = threading.Lock()  # gRPC calls from threads of its own
        self._stamp = self._stat()
        self._material = self._read()
        self._looked_at = time.monotonic()
        self._serials: dict[bytes, _Serial] = {}
        self._watched: dict[object, tuple[bytes, Callable[[], object]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for one new channel."""
        material = self._current()
        return grpc.ssl_channel_credentials(material.authority, material.key, material.certificate)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that use the current files for each handshake."""
        served = self._current()

        def fetch() -> Any:
            # None means unchanged. gRPC 1.85 frees credentials that it replaces while a concurrent
            # handshake may still use them, so do not give it the same ones again each time.
            nonlocal served
            current = self._current()
            if current is served:
                return None
            served = current
            return _server_configuration(current)

        credentials = grpc.dynamic_ssl_server_credentials(
            _server_configuration(served), fetch, require_client_authentication=True
        )
        _KEPT.append(credentials)
        return credentials

    def called_context(self) -> ssl.SSLContext:
        """Return the context for a connection without gRPC that this node accepts now."""
        return self._current().called

    def calling_context(self) -> ssl.SSLContext:
        """Return the context for one that it opens now."""
        return self._current().calling

    # Revoked certificates

    def is_revoked(self, pem: bytes) -> bool:
        """Return whether this certificate is revoked by the lists that are on disk now."""
        now = time.monotonic()
        if now - self._looked_at >= REVOKED_LOOK_S:
            self._looked_at = now
            self._current()
        revoked = self._material.revoked
        return bool(revoked) and bool(pem) and self._serial(pem) in revoked

    def _serial(self, pem: bytes) -> _Serial:
        known = self._serials.get(pem)
        if known is None:
            if len(self._serials) >= PARSED_MAX:
                self._serials.clear()
            certificate = x509.load_pem_x509_certificate(pem)
            known = (certificate.issuer.public_bytes(), certificate.serial_number)
            self._serials[pem] = known
        return known

    def watch(self, pem: bytes, end: Callable[[], object]) -> Callable[[], None]:
        """Call `end` once, in this loop, if a certificate in use is revoked. Returns a function
        that stops watching.
        """
        key = object()
        self._watched[key] = pem, end
        if self._timer is None:
            self._look_later()

        def forget() -> None:
            self._watched.pop(key, None)

        return forget

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REVOKED_LOOK_S, self._end_revoked)

    def _end_revoked(self) -> None:
        self._timer = None
        for key, (pem, end) in list(self._watched.items()):
            if self.is_revoked(pem):
                del self._watched[key]
                end()
        if self._watched:
            self._look_later()

    # Files

    def _current(self) -> _Material:
        """Return the files on disk if they are usable, else the last usable ones.

        Certificate and key are two files, which do not match while only one has been replaced. The
        next handshake then tries again.
        """
        with self._lock:
            try:
                stamp = self._stat()
                if stamp != self._stamp:
                    self._material = self._read()
                    self._stamp = stamp
                    self._metrics.certificates_reloaded_total += 1
                    logger.info("certificate files reloaded from %s", self._files.certificate)
            except TlsError as error:
                logger.warning("the previous certificate files stay in use: %s", error)
            return self._material

    def _paths(self) -> tuple[Path, ...]:
        files = self._files
        known = files.authority, files.certificate, files.key
        return known if files.revoked is None else (*known, files.revoked)

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        try:
            stats = [path.stat() for path in self._paths()]
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}") from error
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _read(self) -> _Material:
        try:
            files = self._files
            called = _context(files, ssl.PROTOCOL_TLS_SERVER)
            calling = _context(files, ssl.PROTOCOL_TLS_CLIENT)
            authority = files.authority.read_bytes()
            certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(map(str, self._paths()))
            raise TlsError(
                f"no usable authority, certificate and key in {names}: {error}"
            ) from error
        revoked: frozenset[_Serial] = frozenset()
        if files.revoked is not None:
            revoked = _read_revoked(files.revoked, authority)
        return _Material(authority, certificate, key, revoked, called, calling)


def _context(files: TlsFiles, protocol: int) -> ssl.SSLContext:
    """Return a context for both ends' certificates and the protocol ALPN. Raises OSError."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols([ALPN])
    return context


_CRL_END = b"-----END X509 CRL-----"


def _read_revoked(path: Path, authority: bytes) -> frozenset[_Serial]:
    """Read the lists that authorities of the file signed. Raises TlsError.

    A list is used even after the next one was due: a cluster must not stop because the operator
    issued none.
    """
    try:
        if path.stat().st_size > REVOCATIONS_MAX_BYTES:
            raise TlsError(f"{path} exceeds {REVOCATIONS_MAX_BYTES} bytes: remove expired entries")
        parts = path.read_bytes().split(_CRL_END)[:-1]
        signers = x509.load_pem_x509_certificates(authority)
        revoked: set[_Serial] = set()
        for part in parts:
            found = x509.load_pem_x509_crl(part.strip() + b"\n" + _CRL_END + b"\n")
            if not any(_has_signed(signer, found) for signer in signers):
                # It is another authority's: callers' and peers' listeners may share one file.
                continue
            issuer = found.issuer.public_bytes()
            revoked.update((issuer, each.serial_number) for each in found)
    except (OSError, ValueError) as error:
        if isinstance(error, TlsError):
            raise
        raise TlsError(f"no usable list of revoked certificates in {path}: {error}") from error
    return frozenset(revoked)


def _has_signed(signer: x509.Certificate, found: x509.CertificateRevocationList) -> bool:
    if signer.subject != found.issuer:
        return False
    key = signer.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey):
        return False
    return found.is_signature_valid(key)


def _server_configuration(material: _Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.authority
    )
