"""Mutual TLS between nodes: who this node is, and which certificates it trusts.

A node's name stands among its certificate's subject alternative names (DNS). Files may be
replaced while the node runs: each handshake uses what is on disk, so a rotation needs no
restart. Streams that are already open keep the certificate they began with.
"""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from raft.transport.metrics import TransportMetrics

logger = logging.getLogger(__name__)

_KEPT: list[grpc.ServerCredentials] = []
"""One per server, for ever: a connection that arrives while its server is being freed still asks
them for certificates, in a thread of gRPC's, and would crash the process."""

SAN_PROPERTY = "x509_subject_alternative_name"


class TlsError(ValueError):
    """The certificate files cannot be used; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one node."""

    authority: Path
    """Certificates that sign the cluster's nodes, and nothing else's."""
    certificate: Path
    """This node's, followed by intermediate ones."""
    key: Path


@dataclass(frozen=True, slots=True)
class _Material:
    authority: bytes
    certificate: bytes
    key: bytes


class TlsIdentity:
    """Credentials from files, read again when they change."""

    def __init__(self, files: TlsFiles, metrics: TransportMetrics) -> None:
        """Read the files. Raises TlsError when they cannot be used."""
        self._files = files
        self._metrics = metrics
        self._lock = threading.Lock()  # gRPC asks from threads of its own
        self._stamp = self._stat()
        self._material = self._read()

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for one new channel."""
        material = self._current()
        return grpc.ssl_channel_credentials(material.authority, material.key, material.certificate)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow the files, handshake by handshake."""
        served = self._current()

        def fetch() -> Any:
            # None: as before. gRPC 1.85 frees what it replaces while another handshake of the
            # same moment may use it, so it must not be given the same again each time.
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

    def _current(self) -> _Material:
        """Return what is on disk if it can be used, else what could be used last.

        Certificate and key are two files: between their replacements they do not fit each
        other. Such a moment is passed over; the next handshake looks again.
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
                logger.warning("certificate files kept as they were: %s", error)
            return self._material

    def _paths(self) -> tuple[Path, Path, Path]:
        return self._files.authority, self._files.certificate, self._files.key

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        try:
            stats = [path.stat() for path in self._paths()]
        except OSError as error:
            raise TlsError(f"{error.filename}: {error.strerror}") from error
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _read(self) -> _Material:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(self._files.authority)
            context.load_cert_chain(self._files.certificate, self._files.key)
            return _Material(*(path.read_bytes() for path in self._paths()))
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(map(str, self._paths()))
            raise TlsError(
                f"no usable authority, certificate and key in {names}: {error}"
            ) from error


def _server_configuration(material: _Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.certificate)], material.authority
    )
