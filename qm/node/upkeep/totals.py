"""Counters that Raft keeps as plain integers, copied to the metrics when these are read."""

from typing import Any, Final

from prometheus_client import Counter

from qm.observe.metrics import Metrics
from raft.driver import Driver
from raft.transport.grpc_transport import GrpcTransport

_DROPPED: Final = (
    "malformed",
    "foreign_cluster",
    "forged_sender",
    "stranger",
    "revoked",
    "misdirected",
    "unknown_peer",
    "handshake",
    "connections",
)
_FAILURES: Final = {
    "lost": "streams_lost_total",
    "dial": "dials_failed_total",
    "refused": "refusals_seen_total",
    "dropped": "envelopes_dropped_total",
    "snapshot": "snapshots_failed_total",
}


class ConsensusTotals:
    """Copies the counters of Raft to the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._told: dict[tuple[str, ...], int] = {}

    def refresh(self, driver: Driver[Any]) -> None:
        """Bring all up to date."""
        counter = self._metrics.counter
        self._raise(counter("quorate_raft_syncs_total"), driver.metrics.syncs_total, "syncs")
        entries = driver.metrics.entries_applied_total
        self._raise(counter("quorate_raft_entries_applied_total"), entries, "entries")
        transport = driver.transport
        if not isinstance(transport, GrpcTransport):
            return
        dropped = counter("quorate_raft_dropped_total")
        for reason in _DROPPED:
            total = getattr(transport.metrics, f"{reason}_total")
            self._raise(dropped.labels(reason=reason), total, "dropped", reason)
        traffic = counter("quorate_raft_peer_bytes_total")
        failures = counter("quorate_raft_peer_failures_total")
        for peer, known in transport.metrics.peers.items():
            for direction in ("sent", "received"):
                total = getattr(known, f"bytes_{direction}_total")
                series = traffic.labels(peer=peer, direction=direction)
                self._raise(series, total, "bytes", peer, direction)
            for reason, name in _FAILURES.items():
                series = failures.labels(peer=peer, reason=reason)
                self._raise(series, getattr(known, name), "failures", peer, reason)

    def _raise(self, counter: Counter, total: int, *key: str) -> None:
        counter.inc(total - self._told.get(key, 0))
        self._told[key] = total
