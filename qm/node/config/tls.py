"""A node's certificates: for callers of its API, and for the other nodes."""

from pathlib import Path
from typing import Final

from qm.node.config.schema import TlsSection
from raft.transport.metrics import TransportMetrics
from raft.transport.tls import TlsFiles, TlsIdentity


def caller_files(tls: TlsSection) -> TlsFiles:
    """Return the files that the API is served with."""
    return TlsFiles(tls.authority, tls.certificate, tls.key, tls.revoked)


def peer_files(tls: TlsSection) -> TlsFiles:
    """Return the files for connections between nodes."""
    if tls.peer_authority is None or tls.peer_certificate is None or tls.peer_key is None:
        return caller_files(tls)
    return TlsFiles(tls.peer_authority, tls.peer_certificate, tls.peer_key, tls.peer_revoked)


def certificate_files(tls: TlsSection) -> tuple[Path, ...]:
    """Return every certificate file whose end has to be watched."""
    callers, peers = caller_files(tls), peer_files(tls)
    return tuple(
        dict.fromkeys((callers.authority, callers.certificate, peers.authority, peers.certificate))
    )


class Identities:
    """Credentials of one node, read again when their files change."""

    def __init__(self, tls: TlsSection) -> None:
        """Raises TlsError when files cannot be used."""
        self.callers: Final = TlsIdentity(caller_files(tls), TransportMetrics())
        self.peers: Final = TlsIdentity(peer_files(tls), TransportMetrics())
