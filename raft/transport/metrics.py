"""Counters of the transport and the driver: plain integers that their owner increments.

Exporters (Prometheus, a log line, a test) read the attributes; their names are the metric names
without prefix. Everything is written from one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from raft.types import NodeId


@dataclass(slots=True)
class PeerMetrics:
    """Counters of one node's traffic with one peer."""

    frames_sent_total: int = 0
    frames_received_total: int = 0
    bytes_sent_total: int = 0
    bytes_received_total: int = 0
    envelopes_sent_total: int = 0
    envelopes_received_total: int = 0
    envelopes_dropped_total: int = 0
    """Envelopes that did not fit the send queue or whose stream broke. Raft repeats them."""
    bytes_dropped_total: int = 0
    queued_bytes: int = 0
    streams_opened_total: int = 0
    streams_lost_total: int = 0
    dials_failed_total: int = 0
    refusals_seen_total: int = 0
    """Lost streams after which a new TCP connection was refused (evidence of death)."""
    snapshots_sent_total: int = 0
    snapshots_failed_total: int = 0
    snapshot_bytes_sent_total: int = 0
    snapshot_bytes_received_total: int = 0


@dataclass(slots=True)
class TransportMetrics:
    """Counters of one node's transport, of frames and calls that were dropped as a whole."""

    malformed_total: int = 0
    foreign_cluster_total: int = 0
    forged_sender_total: int = 0
    """The sender of a call or frame is not a node that the certificate names."""
    stranger_total: int = 0
    """Calls of nodes that are not members, as far as this one knows."""
    revoked_total: int = 0
    """Calls and streams with a revoked certificate."""
    misdirected_total: int = 0
    """Calls meant for another node, or another incarnation of this one."""
    unknown_peer_total: int = 0
    """Envelopes for a node that is neither configured nor connected."""
    handshake_total: int = 0
    """Connections without a TLS handshake that shows a certificate which counts here."""
    connections_total: int = 0
    """Connections that a limit on their number closed."""
    certificates_reloaded_total: int = 0
    peers: dict[NodeId, PeerMetrics] = field(default_factory=dict)

    def peer(self, peer: NodeId) -> PeerMetrics:
        """Return the counters of a peer; they outlive its membership."""
        return self.peers.setdefault(peer, PeerMetrics())


@dataclass(slots=True)
class DriverMetrics:
    """Counters of one replica's driver."""

    syncs_total: int = 0
    entries_applied_total: int = 0


class Every:
    """A rate limit for log lines that peers can cause at will."""

    def __init__(self, period_s: float, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._period_s = period_s
        self._clock = clock
        self._due = clock()

    def is_due(self) -> bool:
        """Return whether a line may be written now; if so, none may for a period."""
        now = self._clock()
        if now < self._due:
            return False
        self._due = now + self._period_s
        return True
